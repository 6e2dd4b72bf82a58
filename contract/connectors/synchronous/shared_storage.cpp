#include "contract/connectors/synchronous/shared_storage.h"

namespace kvfence {

std::string layer_file_name(std::uint32_t layer) {
  return "model.layers." + std::to_string(layer) + ".self_attn.attn.safetensors";
}

}  // namespace kvfence
