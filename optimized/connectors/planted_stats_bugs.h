#pragma once

/// The deliberate mistakes that statistics and metrics of transfers can make, one at a time. What
/// planted_bugs.h says of them holds here.

#include <array>
#include <cstdint>
#include <string_view>

namespace kvfence::optimized {

enum class PlantedStatsBug : std::uint8_t {
  kNone,
  kAggregateReplaces,
  kTotalsNotAggregated,
  kResetKeepsOperations,
  kResetKeepsTotals,
  kBoundIsOutside,
  kBucketsNotCumulative,
  kLargestNotCounted,
  kFirstEngineForAll,
  kSeriesOfEachEngine,
  kSeriesNeedsOperations,
};

struct PlantedStatsBugInfo {
  PlantedStatsBug bug;
  std::string_view name;  ///< snake_case, says what it breaks
  std::string_view doc;   ///< one sentence
};

inline constexpr std::array<PlantedStatsBugInfo, 10> kPlantedStatsBugs = {{
    {PlantedStatsBug::kAggregateReplaces, "aggregate_replaces",
     "Operations of a type that both sides have replace those that were there."},
    {PlantedStatsBug::kTotalsNotAggregated, "totals_not_aggregated",
     "Aggregating adds the operations and leaves the totals as they were."},
    {PlantedStatsBug::kResetKeepsOperations, "reset_keeps_operations",
     "What was recorded before a reset comes back with the next operation."},
    {PlantedStatsBug::kResetKeepsTotals, "reset_keeps_totals",
     "The totals go on from where they were before a reset."},
    {PlantedStatsBug::kBoundIsOutside, "bound_is_outside",
     "A size that equals a bucket's bound falls into the next bucket."},
    {PlantedStatsBug::kBucketsNotCumulative, "buckets_not_cumulative",
     "A bucket does not count what smaller ones hold."},
    {PlantedStatsBug::kLargestNotCounted, "largest_not_counted",
     "A size beyond the last bound is in no bucket."},
    {PlantedStatsBug::kFirstEngineForAll, "first_engine_for_all",
     "Every engine's transfers are counted under the first one's labels."},
    {PlantedStatsBug::kSeriesOfEachEngine, "series_of_each_engine",
     "Engines with equal label values have a series each."},
    {PlantedStatsBug::kSeriesNeedsOperations, "series_needs_operations",
     "A type without operations gets no series."},
}};

/// As NoInstrumentation: production code asks for nothing.
struct NoStatsInstrumentation {
  constexpr bool planted(PlantedStatsBug) const { return false; }
};

/// Switches one planted bug on; kNone behaves like production.
class PlantedStatsInstrumentation {
 public:
  PlantedStatsInstrumentation() = default;
  // Implicit, so that statistics are built from (PlantedStatsBug), metrics from (config,
  // PlantedStatsBug).
  PlantedStatsInstrumentation(PlantedStatsBug bug) : bug_(bug) {}

  bool planted(PlantedStatsBug bug) const { return bug == bug_; }

 private:
  PlantedStatsBug bug_ = PlantedStatsBug::kNone;
};

}  // namespace kvfence::optimized
