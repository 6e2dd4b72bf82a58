#include "contract/pool/block_pool_target.h"

#include "contract/core/describe.h"
#include "contract/core/limits.h"

namespace kvfence {
void block_pool::World::apply(const Command& command) {
  if (const auto* declared = std::get_if<DeclareRequest>(&command)) {
    requests_.declare(declared->id, declared->spec());
  } else if (const auto* appended = std::get_if<AppendTokens>(&command)) {
    Request* request = requests_.find(appended->request);
    if (request) request->append_output_token_ids(appended->tokens);
  }
}

Parsed<BlockPoolConfig> make_block_pool_config(const block_pool::Config& config,
                                               std::string_view file, Position position) {
  const auto error = errors_at(file, position);
  const auto number = [](std::string_view name, std::uint32_t value) {
    return std::string(name) + "=" + std::to_string(value);
  };
  if (config.num_gpu_blocks == 0 || config.num_gpu_blocks > limits::kBlocksMax) {
    return error(number("num_gpu_blocks", config.num_gpu_blocks),
                 "from 1 to " + std::to_string(limits::kBlocksMax));
  }
  if (config.hash_block_size == 0) {
    return error(number("hash_block_size", 0), "at least one token a block");
  }
  const std::uint32_t max_block_size =
      config.max_block_size == 0 ? config.hash_block_size : config.max_block_size;
  if (max_block_size % config.hash_block_size != 0) {
    return error(number("max_block_size", config.max_block_size),
                 "a multiple of hash_block_size=" + std::to_string(config.hash_block_size));
  }
  if (max_block_size / config.hash_block_size > limits::kHashesPerKeyMax) {
    return error(number("max_block_size", config.max_block_size),
                 "at most " + std::to_string(limits::kHashesPerKeyMax) + " times hash_block_size");
  }

  BlockPoolConfig result;
  result.num_gpu_blocks = config.num_gpu_blocks;
  result.enable_caching = config.enable_caching;
  result.enable_kv_cache_events = config.enable_kv_cache_events;
  result.hash = {config.hash_algorithm, config.hash_seed, config.hash_block_size};
  result.max_block_size = max_block_size;
  result.profile = config.profile;
  result.rules = rules_of(config.profile);
  override_rules(object_of(config), result.rules);
  return result;
}

const Target& BlockPoolTarget::description() { return described<BlockPoolTarget>(); }

}  // namespace kvfence
