#include "contract/connector_target.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "contract/block_hash.h"
#include "contract/check.h"
#include "contract/offloading_spec_factory.h"
#include "contract/scripted_tier.h"

namespace kvfence {

Value to_value(const KeyBytes& member) { return Value::Variant(Bytes{member.bytes}); }

Value to_value(TransferProgress member) { return Value::Variant(std::string(to_text(member))); }

bool from_value(const Value& value, KeyBytes& member, std::string& expected) {
  expected = "a key";
  KeyList keys;
  if (!from_value(Value(Value::Variant(Value::List{value})), keys, expected)) return false;
  member.bytes = keys.front();
  return true;
}

bool from_value(const Value& value, TransferProgress& member, std::string& expected) {
  expected = "part, finished or failed";
  const auto* text = value.get_if<std::string>();
  const auto parsed = text ? transfer_progress_from_text(*text) : std::nullopt;
  if (parsed) member = *parsed;
  return parsed.has_value();
}

namespace connector {

void World::apply(const Command& command) {
  const auto* added = std::get_if<AddRequest>(&command);
  if (!added) return pass();
  add(added->id, {added->tokens, std::nullopt, added->cache_salt, {}});
}

}  // namespace connector

namespace {

/// The greatest number there is without such a group.
std::uint32_t smallest_full_attention_block(const std::vector<KVCacheSpec>& groups) {
  std::uint32_t smallest = std::numeric_limits<std::uint32_t>::max();
  for (const KVCacheSpec& group : groups) {
    if (group.is_full_attention()) smallest = std::min(smallest, group.block_size);
  }
  return smallest;
}

Field field(const char* key, Value::Variant value) { return {key, Value(std::move(value)), {}}; }

/// The settings of a model with one byte a block, so that the slots are those of the configuration.
Parsed<OffloadingSpec> create_spec(const connector::Config& config,
                                   const KVCacheManagerConfig& kv_cache) {
  OffloadingSpecContext context;
  context.kv_cache = kv_cache;
  context.world_size = config.world_size;
  context.page_size_bytes.assign(kv_cache.groups.size(), 1);
  context.kv_cache_tensors = {kv_cache.pool.num_gpu_blocks};
  const std::uint64_t bytes =
      std::uint64_t{config.world_size} * config.block_size_factor * config.num_cpu_blocks;
  std::vector<Field> settings = {field("spec_name", config.spec_name),
                                 field("cpu_bytes_to_use", static_cast<std::int64_t>(bytes)),
                                 field("block_size_factor", std::int64_t{config.block_size_factor}),
                                 field("eviction_policy", config.eviction_policy),
                                 field("store_threshold", std::int64_t{config.store_threshold}),
                                 field("offload_prompt_only", config.offload_prompt_only)};
  // Without a filter any size will do.
  if (config.store_threshold >= 2) {
    settings.push_back(field("max_tracker_size", std::int64_t{config.max_tracker_size}));
  }
  return built_in_offloading_specs().create_spec(settings, context);
}

/// What is wrong with the settings of tiers: what was found, and what is expected.
std::optional<std::pair<std::string, std::string>> wrong_with_tiers(
    const connector::Config& config) {
  const bool has_tiers = config.spec_name == kTieringOffloadingSpec;
  if (config.num_tiers > (has_tiers ? tiering::kNumTiersMax : 0)) {
    return std::pair(
        "num_tiers=" + std::to_string(config.num_tiers) + " with spec_name=" + config.spec_name,
        has_tiers ? "at most " + std::to_string(tiering::kNumTiersMax) : "TieringOffloadingSpec");
  }
  const std::vector<std::uint32_t>& places = config.request_level_tiers;
  for (std::size_t index = 0; index < places.size(); ++index) {
    if (places[index] < config.num_tiers && (index == 0 || places[index - 1] < places[index])) {
      continue;
    }
    return std::pair(
        "request_level_tiers with " + std::to_string(places[index]),
        "places below num_tiers=" + std::to_string(config.num_tiers) + ", ascending, each once");
  }
  return std::nullopt;
}

std::vector<SecondaryTierHandle> make_tiers(const connector::Config& config) {
  std::vector<SecondaryTierHandle> tiers;
  const auto calls = std::make_shared<TierCalls>();
  for (std::uint32_t place = 0; place < config.num_tiers; ++place) {
    ScriptedTier tier(place, calls);
    const std::vector<std::uint32_t>& wanting = config.request_level_tiers;
    if (std::binary_search(wanting.begin(), wanting.end(), place)) {
      tier.want(OffloadPolicy::kRequestLevel);
    }
    tiers.emplace_back(std::move(tier));
  }
  return tiers;
}

}  // namespace

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

Parsed<ConnectorSetup> make_connector_setup(const connector::Config& config, std::string_view file,
                                            Position position) {
  const auto error = [&](std::string found, std::string expected) {
    return InputError{std::string(file), position, std::move(found), std::move(expected)};
  };
  scheduler::Config scheduler_config = config;
  scheduler_config.connector = true;
  Parsed<SchedulerConfig> scheduler = make_scheduler_config(scheduler_config, file, position);
  if (!scheduler) return scheduler.error();
  if (config.kv_connector != "offloading") {
    return error("kv_connector=" + config.kv_connector, "offloading");
  }
  const auto policy = eviction_policy_from_text(config.eviction_policy);
  if (!policy) return error("eviction_policy=" + config.eviction_policy, "lru or arc");

  ConnectorSetup setup;
  setup.kv_connector = config.kv_connector;
  setup.scheduler = std::move(*scheduler);
  if (config.num_cpu_blocks == 0) return error("num_cpu_blocks=0", "at least one slot");
  if (config.block_size_factor == 0) return error("block_size_factor=0", "a positive number");
  if (config.world_size == 0) return error("world_size=0", "at least one rank");
  const std::uint64_t slot_bytes = std::uint64_t{config.world_size} * config.block_size_factor;
  if (slot_bytes > std::numeric_limits<std::uint32_t>::max() / 2) {
    return error("world_size=" + std::to_string(config.world_size) +
                     " with block_size_factor=" + std::to_string(config.block_size_factor),
                 "fewer parts of a slot on all ranks");
  }
  if (config.spec_name != kDefaultOffloadingSpec && config.spec_name != kTieringOffloadingSpec) {
    return error("spec_name=" + config.spec_name, "CPUOffloadingSpec or TieringOffloadingSpec");
  }
  if (auto wrong = wrong_with_tiers(config)) {
    return error(std::move(wrong->first), std::move(wrong->second));
  }
  Parsed<OffloadingSpec> created = create_spec(config, setup.scheduler.kv_cache);
  if (!created) return error("this configuration", created.error().expected);
  OffloadingSpec& spec = setup.spec;
  spec = std::move(*created);
  spec.manager.cache.arc_refuses_with_idle_t1 =
      config.arc_refuses_with_idle_t1.value_or(spec.manager.cache.arc_refuses_with_idle_t1);
  spec.manager.max_tracker_size = config.max_tracker_size;
  spec.request_level_policy = config.request_level_policy;
  if (auto expected = check_spec(spec)) return error("this configuration", std::move(*expected));
  setup.tiers = make_tiers(config);
  const std::vector<KVCacheSpec>& groups = spec.kv_cache.groups;
  if (config.transfers_may_fail && groups.size() > 1) {
    return error("transfers_may_fail=true with " + std::to_string(groups.size()) + " groups",
                 "one group");
  }
  const std::uint32_t smallest_full = smallest_full_attention_block(groups);
  for (const KVCacheSpec& group : groups) {
    if (group.is_full_attention() || group.block_size <= smallest_full) continue;
    return error("a windowed group with block_size=" + std::to_string(group.block_size),
                 "at most " + std::to_string(smallest_full) + ", as in a full-attention group");
  }
  return setup;
}

std::optional<InputError> ConnectorTarget::validate(const Config& config, std::string_view file,
                                                    Position position) {
  const Parsed<ConnectorSetup> parsed = make_connector_setup(config, file, position);
  if (parsed) return std::nullopt;
  return parsed.error();
}

ConnectorTarget::World ConnectorTarget::make_world(const Config& config) {
  const Parsed<ConnectorSetup> parsed = make_connector_setup(config);
  KVFENCE_CHECK(parsed, "a world for a configuration that was not validated");
  return World(parsed->scheduler.kv_cache.pool.hash);
}

}  // namespace kvfence
