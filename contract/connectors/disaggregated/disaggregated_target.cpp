#include "contract/connectors/disaggregated/disaggregated_target.h"

#include <utility>

#include "contract/core/check.h"

namespace kvfence {

std::string_view to_text(EngineRole role) {
  return role == EngineRole::kProducer ? "producer" : "consumer";
}

Value to_value(EngineRole member) { return Value::Variant(std::string(to_text(member))); }

bool from_value(const Value& value, EngineRole& member, std::string& expected) {
  expected = "producer or consumer";
  const auto* text = value.get_if<std::string>();
  for (const EngineRole role : kEngineRoles) {
    if (!text || *text != to_text(role)) continue;
    member = role;
    return true;
  }
  return false;
}

namespace disaggregated {

void World::apply(const Command& command) {
  if (const auto* added = std::get_if<AddRequest>(&command)) {
    return add(added->id, {added->tokens, std::nullopt, added->cache_salt, {}});
  }
  const auto* handed_over = std::get_if<HandOver>(&command);
  const Request* const prompt = handed_over ? requests().find(handed_over->request) : nullptr;
  if (!prompt) return pass();
  const RequestSpec spec = prompt->spec();
  add(handed_over->id, spec);
}

}  // namespace disaggregated

Parsed<DisaggregatedSetup> make_disaggregated_setup(const disaggregated::Config& config,
                                                    std::string_view file, Position position) {
  const auto error = [&](std::string found, std::string expected) {
    return InputError{std::string(file), position, std::move(found), std::move(expected)};
  };
  DisaggregatedSetup setup;
  for (const EngineRole role : kEngineRoles) {
    scheduler::Config own = config;
    own.connector = true;
    if (role == EngineRole::kConsumer && config.consumer_num_gpu_blocks > 0) {
      own.num_gpu_blocks = config.consumer_num_gpu_blocks;
    }
    Parsed<SchedulerConfig> parsed = make_scheduler_config(own, file, position);
    if (!parsed) return parsed.error();
    setup.schedulers[static_cast<std::size_t>(role)] = std::move(*parsed);
  }
  const KVCacheManagerConfig& kv_cache = setup.schedulers.front().kv_cache;
  if (kv_cache.groups.size() != 1 ||
      kv_cache.groups.front().kind != KVCacheSpecKind::kFullAttention) {
    return error("these groups", "one group of full attention");
  }
  setup.spec.rules = kv_cache.pool.rules;
  setup.spec.producer_world_size = config.producer_world_size;
  setup.spec.consumer_world_size = config.consumer_world_size;
  if (config.deadline > 0) setup.spec.deadline = config.deadline;
  if (auto expected = check_spec(setup.spec)) {
    return error("this configuration", std::move(*expected));
  }
  return setup;
}

Parsed<DisaggregatedTarget::Setup> DisaggregatedTarget::prepare(const Config& config,
                                                                std::string_view file,
                                                                Position position) {
  return make_disaggregated_setup(config, file, position);
}

DisaggregatedTarget::World DisaggregatedTarget::make_world(const Config&, const Setup& setup) {
  return World(setup.schedulers.front().kv_cache.pool.hash);
}

const Target& DisaggregatedTarget::description() {
  static const Target kDescription = describe<DisaggregatedTarget>();
  return kDescription;
}

}  // namespace kvfence
