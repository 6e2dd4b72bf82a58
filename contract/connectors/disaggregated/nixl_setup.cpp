#include "contract/connectors/disaggregated/nixl_setup.h"

#include <utility>

namespace kvfence {

Parsed<DisaggregatedSpec> make_nixl_spec(const engine::nixl::Record& record,
                                         const SchedulerConfig& scheduler,
                                         std::uint32_t num_producer_ranks,
                                         std::uint32_t num_consumer_ranks, std::string_view file,
                                         Position position) {
  const auto error = [&](std::string found, std::string expected) {
    return InputError{std::string(file), position, std::move(found), std::move(expected)};
  };
  const KVCacheManagerConfig& kv_cache = scheduler.kv_cache;
  if (kv_cache.groups.size() != 1 ||
      kv_cache.groups.front().kind != KVCacheSpecKind::kFullAttention) {
    return error("these groups", "one group of full attention");
  }
  DisaggregatedSpec spec;
  spec.rules = kv_cache.pool.rules;
  spec.producer_world_size = num_producer_ranks;
  spec.consumer_world_size = num_consumer_ranks;
  if (record.deadline > 0) spec.deadline = record.deadline;
  if (auto expected = check_spec(spec)) return error("this configuration", std::move(*expected));
  return spec;
}

}  // namespace kvfence
