#include "contract/connector_target.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "contract/check.h"

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

}  // namespace

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
  const Rules& rules = setup.scheduler.kv_cache.pool.rules;
  OffloadingSpec& spec = setup.spec;
  spec.kv_cache = setup.scheduler.kv_cache;
  spec.manager.cache.policy = *policy;
  spec.manager.cache.capacity = config.num_cpu_blocks;
  spec.manager.cache.arc_refuses_with_idle_t1 =
      config.arc_refuses_with_idle_t1.value_or(rules.arc_refuses_with_idle_t1);
  spec.manager.enable_events = config.enable_kv_cache_events;
  spec.manager.store_threshold = config.store_threshold;
  spec.manager.max_tracker_size = config.max_tracker_size;
  spec.manager.rules = rules;
  spec.block_size_factor = config.block_size_factor;
  spec.num_workers = config.world_size;
  spec.offload_prompt_only = config.offload_prompt_only;
  spec.request_level_policy = config.request_level_policy;
  if (config.num_cpu_blocks == 0) return error("num_cpu_blocks=0", "at least one slot");
  if (auto expected = check_spec(spec)) return error("this configuration", std::move(*expected));
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
