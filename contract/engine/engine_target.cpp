#include "contract/engine/engine_target.h"

#include <algorithm>
#include <utility>

#include "contract/core/check.h"

namespace kvfence {

namespace engine {

void World::apply(const Command& command) {
  const auto* added = std::get_if<AddRequest>(&command);
  if (!added) return pass();
  add(added->id, {added->tokens, std::nullopt, added->cache_salt, {}});
}

}  // namespace engine

Parsed<EngineSetup> make_engine_setup(const engine::Config& config, std::string_view file,
                                      Position position) {
  const auto error = [&](std::string found, std::string expected) {
    return InputError{std::string(file), position, std::move(found), std::move(expected)};
  };
  connector::Config connector;
  static_cast<scheduler::Config&>(connector) = config;
  connector.world_size = config.world_size;
  connector.num_cpu_blocks = config.num_cpu_blocks;
  connector.block_size_factor = config.block_size_factor;
  connector.eviction_policy = config.eviction_policy;
  connector.offload_prompt_only = config.offload_prompt_only;
  connector.request_level_policy = config.request_level_policy;
  Parsed<ConnectorSetup> parsed = make_connector_setup(connector, file, position);
  if (!parsed) return parsed.error();
  std::uint32_t block_size = 0;
  std::vector<std::uint32_t> windows;
  for (const KVCacheSpec& group : parsed->scheduler.kv_cache.groups) {
    const bool has_window = group.kind == KVCacheSpecKind::kSlidingWindow;
    if (!has_window && group.kind != KVCacheSpecKind::kFullAttention) {
      return error("a group of another kind", "full attention or a sliding window");
    }
    block_size = std::max(block_size, group.block_size);
    windows.push_back(has_window ? group.sliding_window : 0);
  }
  const auto check = [&](std::string name, std::uint32_t number, std::uint32_t max) {
    return number <= max
               ? std::optional<InputError>()
               : error(name + "=" + std::to_string(number), "at most " + std::to_string(max));
  };
  if (auto bad = check("world_size", config.world_size, 4)) return std::move(*bad);
  if (auto bad = check("num_gpu_blocks", config.num_gpu_blocks, 4096)) return std::move(*bad);
  if (auto bad = check("num_cpu_blocks", config.num_cpu_blocks, 4096)) return std::move(*bad);
  if (auto bad = check("block_size_factor", config.block_size_factor, 8)) return std::move(*bad);
  if (auto bad = check("block_size", block_size, 32)) return std::move(*bad);
  return EngineSetup{.connector = std::move(*parsed),
                     .device = {.num_gpu_blocks = config.num_gpu_blocks,
                                .num_cpu_blocks = config.num_cpu_blocks,
                                .block_size = block_size,
                                .block_size_factor = config.block_size_factor,
                                .num_groups = static_cast<std::uint32_t>(windows.size()),
                                .looks_for_races = !config.tokens_only},
                     .windows = windows,
                     .tokens_only = config.tokens_only};
}

Parsed<EngineTarget::Setup> EngineTarget::prepare(const Config& config, std::string_view file,
                                                  Position position) {
  return make_engine_setup(config, file, position);
}

EngineTarget::World EngineTarget::make_world(const Config&, const Setup& setup) {
  return World(setup.connector.scheduler.kv_cache.pool.hash);
}

const Target& EngineTarget::description() {
  static const Target kDescription = describe<EngineTarget>();
  return kDescription;
}

}  // namespace kvfence
