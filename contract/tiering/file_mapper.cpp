#include "contract/tiering/file_mapper.h"

#include <algorithm>
#include <cstddef>

#include <nlohmann/json.hpp>

#include "contract/core/check.h"
#include "contract/core/digest.h"
#include "contract/core/hex.h"
#include "contract/pool/block_hash.h"

namespace kvfence {
namespace {

constexpr std::size_t kDigestDigits = 12;

/// Upstream hashes what Python's json.dumps writes: keys sorted, all but ASCII escaped. The library
/// writes the same for an object, whose keys it sorts, with its option to keep to ASCII.
nlohmann::json fields_of(const FileMapperConfig& config) {
  const bool agnostic = config.parallel_agnostic;
  nlohmann::json groups = nlohmann::json::array();
  for (const FileMapperGroup& group : config.kv_cache_groups) {
    groups.push_back({{"block_size", group.block_size}, {"layer_names", group.layer_names}});
  }
  return {{"model_name", config.model_name},
          {"hash_block_size", config.hash_block_size},
          {"gpu_blocks_per_file", config.gpu_blocks_per_file},
          {"tp_size", agnostic ? 1 : config.tp_size},
          {"pp_size", agnostic ? 1 : config.pp_size},
          {"pcp_size", agnostic ? 1 : config.pcp_size},
          {"dcp_size", agnostic ? 1 : config.dcp_size},
          {"dtype", config.dtype},
          {"kv_cache_groups", groups},
          {"inference_engine", config.inference_engine}};
}

}  // namespace

std::optional<std::string> check_config(const FileMapperConfig& config) {
  if (config.root_dir.empty()) return "root_dir is empty, expected a folder";
  if (config.model_name.empty()) return "model_name is empty, expected the name of a model";
  for (const std::string* text : {&config.root_dir, &config.model_name}) {
    if (text->find('\0') != std::string::npos) return "found a null byte in a path, expected none";
  }
  try {
    fields_of(config).dump();
  } catch (const nlohmann::json::exception&) {
    return "found bytes that are not UTF-8 in model_name, dtype, inference_engine or layer_names";
  }
  return std::nullopt;
}

FileMapper::FileMapper(const FileMapperConfig& config) {
  KVFENCE_CHECK(!check_config(config), "not a configuration of a file mapper");
  const nlohmann::json fields = fields_of(config);
  std::string model = config.model_name;
  for (char& c : model) {
    if (c == '/') c = '_';
  }
  const std::string digest = sha256_hex(fields.dump(-1, ' ', true));
  base_path_ = config.root_dir + "/" + model + "_" + digest.substr(0, kDigestDigits);
  rank_path_ = base_path_ + "_r" + std::to_string(config.parallel_agnostic ? 0 : config.rank);
  run_config_ = fields.dump(2, ' ', true);
}

std::string FileMapper::get_file_name(OffloadKeyView key) const {
  const std::string hash = to_hex(get_block_hash(key));
  const std::size_t split = std::min<std::size_t>(hash.size(), 3);
  return rank_path_ + "/" + hash.substr(0, split) + "/" + hash.substr(split, 2) + "_g" +
         std::to_string(get_group_id(key)) + "/" + hash + ".bin";
}

}  // namespace kvfence
