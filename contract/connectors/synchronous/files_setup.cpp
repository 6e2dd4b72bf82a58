#include "contract/connectors/synchronous/files_setup.h"

#include <utility>

namespace kvfence {

namespace {

Parsed<SynchronousConnectorSpec> make_spec(SynchronousConnectorKind kind, std::uint32_t num_layers,
                                           const SchedulerConfig& scheduler,
                                           std::uint32_t num_ranks, std::string_view file,
                                           Position position) {
  SynchronousConnectorSpec spec;
  spec.kv_cache = scheduler.kv_cache;
  spec.kind = kind;
  spec.num_workers = num_ranks;
  spec.num_layers = num_layers;
  if (auto expected = check_spec(spec)) {
    return InputError{std::string(file), position, "this configuration", std::move(*expected)};
  }
  return spec;
}

}  // namespace

void override_rules(const engine::files::DecodeBenchRecord& record, Rules& rules) {
  rules.decode_bench_hma = record.decode_bench_hma.value_or(rules.decode_bench_hma);
}

Parsed<SynchronousConnectorSpec> make_files_spec(const engine::files::ExampleRecord& record,
                                                 const SchedulerConfig& scheduler,
                                                 std::uint32_t num_ranks, std::string_view file,
                                                 Position position) {
  return make_spec(SynchronousConnectorKind::kExample, record.num_layers, scheduler, num_ranks,
                   file, position);
}

Parsed<SynchronousConnectorSpec> make_files_spec(const engine::files::DecodeBenchRecord& record,
                                                 const SchedulerConfig& scheduler,
                                                 std::uint32_t num_ranks, std::string_view file,
                                                 Position position) {
  return make_spec(SynchronousConnectorKind::kDecodeBench, record.num_layers, scheduler, num_ranks,
                   file, position);
}

}  // namespace kvfence
