#include "contract/connectors/synchronous/files_facet.h"

#include <algorithm>

#include "contract/scheduler/scheduler.h"

namespace kvfence {

namespace engine::files {

Value to_value(const StorageOperation& member) {
  return Value::Variant(std::string(to_text(member.operation)));
}

bool from_value(const Value& value, StorageOperation& member, std::string& expected) {
  expected = "make_folder, create, write, open or read";
  const auto* text = value.get_if<std::string>();
  if (!text) return false;
  const auto* const found = std::ranges::find_if(
      kStorageOperations, [&](FileOperation operation) { return to_text(operation) == *text; });
  if (found == kStorageOperations.end()) return false;
  member = *found;
  return true;
}

}  // namespace engine::files

namespace {

Parsed<SynchronousConnectorSpec> make_spec(SynchronousConnectorKind kind, std::uint32_t num_layers,
                                           const SchedulerConfig& scheduler,
                                           std::uint32_t num_ranks) {
  SynchronousConnectorSpec spec;
  spec.kv_cache = scheduler.kv_cache;
  spec.kind = kind;
  spec.num_workers = num_ranks;
  spec.num_layers = num_layers;
  if (const auto expected = check_spec(spec)) {
    return errors_at({}, {})("this configuration", *expected);
  }
  return spec;
}

}  // namespace

Parsed<SynchronousConnectorSpec> make_files_spec(const engine::files::ExampleRecord& record,
                                                 const SchedulerConfig& scheduler,
                                                 std::uint32_t num_ranks) {
  return make_spec(SynchronousConnectorKind::kExample, record.num_layers, scheduler, num_ranks);
}

Parsed<SynchronousConnectorSpec> make_files_spec(const engine::files::DecodeBenchRecord& record,
                                                 const SchedulerConfig& scheduler,
                                                 std::uint32_t num_ranks) {
  return make_spec(SynchronousConnectorKind::kDecodeBench, record.num_layers, scheduler, num_ranks);
}

}  // namespace kvfence
