#include "contract/connectors/simple/simple_offload_target.h"

#include <utility>

#include "contract/core/check.h"

namespace kvfence {
namespace simple_offload {

void World::apply(const Command& command) {
  const auto* added = std::get_if<AddRequest>(&command);
  if (!added) return pass();
  add(added->id, {added->tokens, std::nullopt, added->cache_salt, {}});
}

}  // namespace simple_offload

Parsed<SimpleOffloadSetup> make_simple_offload_setup(const simple_offload::Config& config,
                                                     std::string_view file, Position position) {
  const auto error = [&](std::string found, std::string expected) {
    return InputError{std::string(file), position, std::move(found), std::move(expected)};
  };
  scheduler::Config scheduler_config = config;
  scheduler_config.connector = true;
  Parsed<SchedulerConfig> scheduler = make_scheduler_config(scheduler_config, file, position);
  if (!scheduler) return scheduler.error();

  SimpleOffloadSetup setup;
  setup.scheduler = std::move(*scheduler);
  Rules& rules = setup.scheduler.kv_cache.pool.rules;
  const auto take = [](const std::optional<bool>& given, bool& rule) {
    rule = given.value_or(rule);
  };
  take(config.simple_offload_pins_hits, rules.simple_offload_pins_hits);
  take(config.simple_offload_skips_stores_under_way, rules.simple_offload_skips_stores_under_way);
  take(config.simple_offload_skips_unhashed_blocks, rules.simple_offload_skips_unhashed_blocks);
  take(config.simple_offload_aligns_stores, rules.simple_offload_aligns_stores);
  setup.spec.kv_cache = setup.scheduler.kv_cache;
  setup.spec.num_cpu_blocks = config.num_cpu_blocks;
  setup.spec.lazy_offload = config.lazy_offload;
  setup.spec.num_workers = config.world_size;
  if (auto expected = check_spec(setup.spec)) {
    return error("this configuration", std::move(*expected));
  }
  return setup;
}

Parsed<SimpleOffloadTarget::Setup> SimpleOffloadTarget::prepare(const Config& config,
                                                                std::string_view file,
                                                                Position position) {
  return make_simple_offload_setup(config, file, position);
}

SimpleOffloadTarget::World SimpleOffloadTarget::make_world(const Config&, const Setup& setup) {
  return World(setup.scheduler.kv_cache.pool.hash);
}

const Target& SimpleOffloadTarget::description() {
  static const Target kDescription = describe<SimpleOffloadTarget>();
  return kDescription;
}

}  // namespace kvfence
