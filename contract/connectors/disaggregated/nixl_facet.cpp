#include "contract/connectors/disaggregated/nixl_facet.h"

#include <algorithm>
#include <string>

#include "contract/core/lists.h"
#include "contract/scheduler/scheduler.h"

namespace kvfence {

bool reports_failed_reads(std::span<const KVCacheSpec> groups) {
  return groups.size() == 1 && groups.front().is_full_attention();
}

bool has_window(std::span<const KVCacheSpec> groups) {
  return contains(groups, KVCacheSpecKind::kSlidingWindow, &KVCacheSpec::kind);
}

Parsed<DisaggregatedSpec> make_nixl_spec(const engine::nixl::Record& record,
                                         const SchedulerConfig& scheduler,
                                         std::uint32_t num_producer_ranks,
                                         std::uint32_t num_consumer_ranks) {
  const auto error = errors_at({}, {});
  const KVCacheManagerConfig& kv_cache = scheduler.kv_cache;
  const auto is_taken = [&](const KVCacheSpec& group) {
    const bool is_of_kind =
        group.kind == KVCacheSpecKind::kFullAttention ||
        (group.kind == KVCacheSpecKind::kSlidingWindow && group.sliding_window >= 2);
    return is_of_kind && group.block_size == kv_cache.groups.front().block_size;
  };
  if (!std::ranges::all_of(kv_cache.groups, is_taken)) {
    return error("these groups",
                 "groups of one block size, of full attention or with a sliding window of at least "
                 "2 tokens");
  }
  if (has_window(kv_cache.groups) && !kv_cache.pool.rules.finish_drops_by_computed_tokens) {
    return error("a window",
                 "rule finish_drops_by_computed_tokens: before, the producer gives back what is to "
                 "be read");
  }
  if (!reports_failed_reads(kv_cache.groups) &&
      (record.deadline > 0 || record.transport_may_fail)) {
    return error("deadline=" + std::to_string(record.deadline) +
                     (record.transport_may_fail ? " transport_may_fail=true" : ""),
                 "deadline=0 alone with a window or several groups: a failed read is not "
                 "reported");
  }
  DisaggregatedSpec spec;
  spec.rules = kv_cache.pool.rules;
  spec.producer_world_size = num_producer_ranks;
  spec.consumer_world_size = num_consumer_ranks;
  if (record.deadline > 0) spec.deadline = record.deadline;
  if (const auto expected = check_spec(spec)) return error("this configuration", *expected);
  return spec;
}

}  // namespace kvfence
