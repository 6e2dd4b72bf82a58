#include "contract/connectors/synchronous/synchronous_connector_target.h"

#include <algorithm>
#include <utility>

#include "contract/core/check.h"

namespace kvfence {

namespace synchronous_connector {

Value to_value(const StorageOperation& member) {
  return Value::Variant(std::string(to_text(member.operation)));
}

bool from_value(const Value& value, StorageOperation& member, std::string& expected) {
  expected = "make_folder, create, write, open or read";
  const auto* text = value.get_if<std::string>();
  if (!text) return false;
  const auto* const found =
      std::find_if(kStorageOperations.begin(), kStorageOperations.end(),
                   [&](FileOperation operation) { return to_text(operation) == *text; });
  if (found == kStorageOperations.end()) return false;
  member = *found;
  return true;
}

void World::apply(const Command& command) {
  const auto* added = std::get_if<AddRequest>(&command);
  if (!added) return pass();
  add(added->id, {added->tokens, std::nullopt, std::nullopt, {}});
}

}  // namespace synchronous_connector

Parsed<SynchronousConnectorSetup> make_synchronous_connector_setup(
    const synchronous_connector::Config& config, std::string_view file, Position position) {
  const auto error = [&](std::string found, std::string expected) {
    return InputError{std::string(file), position, std::move(found), std::move(expected)};
  };
  scheduler::Config scheduler_config = config;
  scheduler_config.connector = true;
  Parsed<SchedulerConfig> scheduler = make_scheduler_config(scheduler_config, file, position);
  if (!scheduler) return scheduler.error();
  const auto kind = synchronous_connector_kind_from_text(config.kv_connector);
  if (!kind) return error("kv_connector=" + config.kv_connector, "example or decode_bench");

  SynchronousConnectorSetup setup;
  setup.scheduler = std::move(*scheduler);
  Rules& rules = setup.scheduler.kv_cache.pool.rules;
  rules.decode_bench_hma = config.decode_bench_hma.value_or(rules.decode_bench_hma);
  setup.spec.kv_cache = setup.scheduler.kv_cache;
  setup.spec.kind = *kind;
  setup.spec.num_workers = config.world_size;
  setup.spec.num_layers = config.num_layers;
  if (auto expected = check_spec(setup.spec)) {
    return error("this configuration", std::move(*expected));
  }
  return setup;
}

Parsed<SynchronousConnectorTarget::Setup> SynchronousConnectorTarget::prepare(const Config& config,
                                                                              std::string_view file,
                                                                              Position position) {
  return make_synchronous_connector_setup(config, file, position);
}

SynchronousConnectorTarget::World SynchronousConnectorTarget::make_world(const Config&,
                                                                         const Setup& setup) {
  return World(setup.scheduler.kv_cache.pool.hash);
}

const Target& SynchronousConnectorTarget::description() {
  static const Target kDescription = describe<SynchronousConnectorTarget>();
  return kDescription;
}

}  // namespace kvfence
