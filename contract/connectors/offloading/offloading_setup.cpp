#include "contract/connectors/offloading/offloading_setup.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>

#include "contract/connectors/offloading/offloading_spec_factory.h"
#include "contract/core/check.h"
#include "contract/pool/block_hash.h"
#include "contract/scripted/scripted_tier.h"
#include "contract/tiering/tiering_target.h"

namespace kvfence {
namespace {

/// A hit that ends within a block of a window, where another group's block ends, may need a block
/// more than the window holds: what was found, and what is expected.
std::optional<std::pair<std::string, std::string>> wrong_with_windows(
    const std::vector<KVCacheSpec>& groups, std::uint32_t factor) {
  for (const KVCacheSpec& group : groups) {
    if (group.is_full_attention()) continue;
    const std::int64_t size = group.block_size;
    for (const KVCacheSpec& other : groups) {
      if (other.is_full_attention() && other.block_size < size) {
        return std::pair(
            "a windowed group with block_size=" + std::to_string(size),
            "at most " + std::to_string(other.block_size) + ", as in a full-attention group");
      }
      if (group.kind != KVCacheSpecKind::kSlidingWindow) continue;
      const std::int64_t window = group.sliding_window;
      const std::int64_t offloaded = size * factor;
      const std::int64_t most = (window + offloaded - 1) / offloaded * factor;
      const std::int64_t step = std::gcd(std::int64_t{other.block_size} * factor, size);
      for (std::int64_t rest = step; rest < size; rest += step) {
        const std::int64_t earlier = window - 1 - rest;  // tokens needed of earlier blocks
        const std::int64_t needed = 1 + (earlier > 0 ? (earlier + size - 1) / size : 0);
        if (needed <= most) continue;
        return std::pair("a window of " + std::to_string(window) +
                             " tokens with block_size=" + std::to_string(size) +
                             " beside block_size=" + std::to_string(other.block_size),
                         "blocks that end where the other ones do");
      }
    }
  }
  return std::nullopt;
}

Field field(const char* key, Value::Variant value) { return {key, Value(std::move(value)), {}}; }

bool has_place(const std::vector<std::uint32_t>& places, std::uint32_t place) {
  return std::binary_search(places.begin(), places.end(), place);
}

std::vector<SecondaryTierConfig> tier_configs(const engine::offloading::Record& config) {
  std::vector<SecondaryTierConfig> tiers;
  for (std::uint32_t place = 0; place < config.num_tiers; ++place) {
    tiers.push_back({has_place(config.file_tiers, place) ? kScriptedFilesTier : kScriptedTier,
                     {field("place", std::int64_t{place}),
                      field("request_level", has_place(config.request_level_tiers, place))}});
  }
  return tiers;
}

/// The settings of a model with one byte per block, or with a page where slots are pages: then the
/// slots are the configuration's.
Parsed<OffloadingSpec> create_spec(const engine::offloading::Record& config,
                                   const KVCacheManagerConfig& kv_cache, std::uint32_t num_ranks) {
  OffloadingSpecContext context;
  context.kv_cache = kv_cache;
  context.world_size = num_ranks;
  context.page_size_bytes.assign(kv_cache.groups.size(), 1);
  const bool has_tiers = config.spec_name == kTieringOffloadingSpec;
  const std::uint64_t block_bytes = has_tiers ? kTieringSlotAlignment : 1;
  context.kv_cache_tensors = {kv_cache.pool.num_gpu_blocks * block_bytes};
  const std::uint64_t bytes =
      block_bytes * num_ranks * config.block_size_factor * config.num_cpu_blocks;
  std::vector<Field> settings = {field("spec_name", config.spec_name),
                                 field("cpu_bytes_to_use", static_cast<std::int64_t>(bytes)),
                                 field("block_size_factor", std::int64_t{config.block_size_factor}),
                                 {"eviction_policy", to_value(config.eviction_policy), {}},
                                 field("store_threshold", std::int64_t{config.store_threshold}),
                                 field("offload_prompt_only", config.offload_prompt_only)};
  if (has_tiers) {
    settings.push_back({"secondary_tiers", to_value(tier_configs(config)), {}});
  }
  // Without a filter any size will do.
  if (config.store_threshold >= 2) {
    settings.push_back(field("max_tracker_size", std::int64_t{config.max_tracker_size}));
  }
  return built_in_offloading_specs().create_spec(settings, context);
}

/// What is wrong with the settings of tiers: what was found, and what is expected.
std::optional<std::pair<std::string, std::string>> wrong_with_tiers(
    const engine::offloading::Record& config) {
  const bool has_tiers = config.spec_name == kTieringOffloadingSpec;
  if (config.num_tiers > (has_tiers ? tiering::kNumTiersMax : 0)) {
    return std::pair(
        "num_tiers=" + std::to_string(config.num_tiers) + " with spec_name=" + config.spec_name,
        has_tiers ? "at most " + std::to_string(tiering::kNumTiersMax) : "TieringOffloadingSpec");
  }
  if (auto wrong =
          wrong_with_places("request_level_tiers", config.request_level_tiers, config.num_tiers)) {
    return wrong;
  }
  return wrong_with_places("file_tiers", config.file_tiers, config.num_tiers);
}

/// Labels as vLLM has them.
OffloadPromMetricsConfig metrics_config(const std::vector<std::uint32_t>& engine_labels) {
  OffloadPromMetricsConfig config;
  config.labelnames = {"model_name", "engine"};
  for (std::uint32_t engine_idx = 0; engine_idx < engine_labels.size(); ++engine_idx) {
    config.per_engine_labelvalues[engine_idx] = {"toy", std::to_string(engine_labels[engine_idx])};
  }
  return config;
}

}  // namespace

SecondaryTierFactory scripted_tier_types(std::shared_ptr<TierCalls> calls,
                                         MakeTierFiles make_files) {
  SecondaryTierFactory factory;
  const auto add = [&](const char* type, MakeTierFiles files_of) {
    const auto error = factory.register_tier(
        type, [calls, files_of](const SecondaryTierConfig& config, const PrimaryKvView& primary,
                                const OffloadingSpec&, const std::string&) {
          const Field* const place = find_field(config.settings, "place");
          const Field* const level = find_field(config.settings, "request_level");
          auto tier = std::make_unique<ScriptedTier>(
              static_cast<std::uint32_t>(place ? *place->value.get_if<std::int64_t>() : 0), calls,
              primary, files_of ? files_of(primary) : nullptr);
          if (level && *level->value.get_if<bool>()) tier->want(OffloadPolicy::kRequestLevel);
          return Parsed<SecondaryTierHandle>(SecondaryTierHandle(std::move(tier)));
        });
    KVFENCE_CHECK(!error, "the types differ");
  };
  add(kScriptedTier, {});
  add(kScriptedFilesTier, std::move(make_files));
  return factory;
}

std::vector<SecondaryTierHandle> make_secondary_tiers(const ConnectorSetup& setup) {
  auto tiers = setup.tier_types.create_secondary_tiers(setup.primary, setup.spec);
  KVFENCE_CHECK(tiers, "tiers of types that are not registered");
  return std::move(*tiers);
}

std::size_t slot_bytes_of(const OffloadingSpec& spec) {
  return std::size_t{tiering::kBlockBytes} * spec.num_workers;
}

std::optional<OffloadKey> key_of_prompt_block(const OffloadingSpec& spec, const Request& prompt,
                                              GroupId group, std::uint32_t block) {
  const std::uint32_t hash_block_size = spec.kv_cache.pool.hash.hash_block_size;
  const std::size_t factor = std::size_t{spec.kv_cache.groups[group].block_size} *
                             spec.block_size_factor / hash_block_size;
  const BlockHashListView hashes = prompt.block_hashes(hash_block_size);
  const std::size_t end = (std::size_t{block} + 1) * factor;
  if (end > hashes.size()) return std::nullopt;
  return make_block_hash_with_group_id(hashes[end - 1], group);
}

Parsed<ConnectorSetup> make_connector_setup(const engine::offloading::Record& record,
                                            const SchedulerConfig& scheduler,
                                            std::uint32_t num_ranks) {
  const auto error = errors_at({}, {});
  ConnectorSetup setup;
  setup.scheduler = scheduler;
  if (record.num_cpu_blocks == 0) return error("num_cpu_blocks=0", "at least one slot");
  if (record.block_size_factor == 0) return error("block_size_factor=0", "a positive number");
  const std::uint64_t slot_bytes = std::uint64_t{num_ranks} * record.block_size_factor;
  if (slot_bytes > std::numeric_limits<std::uint32_t>::max() / 2) {
    return error("ranks=" + std::to_string(num_ranks) +
                     " with block_size_factor=" + std::to_string(record.block_size_factor),
                 "fewer parts of a slot on all ranks");
  }
  if (record.spec_name != kDefaultOffloadingSpec && record.spec_name != kTieringOffloadingSpec) {
    return error("spec_name=" + record.spec_name, "CPUOffloadingSpec or TieringOffloadingSpec");
  }
  if (auto wrong = wrong_with_tiers(record)) {
    return error(std::move(wrong->first), std::move(wrong->second));
  }
  if (record.engine_labels.empty()) return error("engine_labels=[]", "at least one engine index");
  setup.block_bytes = record.block_bytes;
  setup.metrics = metrics_config(record.engine_labels);
  Parsed<OffloadingSpec> created = create_spec(record, setup.scheduler.kv_cache, num_ranks);
  if (!created) return error("this configuration", created.error().expected);
  OffloadingSpec& spec = setup.spec;
  spec = std::move(*created);
  spec.manager.max_tracker_size = record.max_tracker_size;
  spec.request_level_policy = record.request_level_policy;
  if (auto expected = check_spec(spec)) return error("this configuration", std::move(*expected));
  const std::vector<KVCacheSpec>& groups = spec.kv_cache.groups;
  if (auto wrong = wrong_with_windows(groups, record.block_size_factor)) {
    return error(std::move(wrong->first), std::move(wrong->second));
  }
  return setup;
}

}  // namespace kvfence
