/// Coverage goals of target worker: a green suite in which no store waited for a forward has shown
/// nothing about order.

#include <algorithm>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "contract/core/lists.h"
#include "contract/worker/worker_target.h"
#include "properties/core/goals.h"
#include "properties/core/invariant_values.h"
#include "properties/targets/rooms.h"

namespace kvfence::worker {
namespace {

constexpr Goal kGoals[] = {
    {"store_reported", "a store was reported as a success"},
    {"load_reported", "a load was reported as a success"},
    {"failure_reported", "a transfer was reported as a failure"},
    {"both_directions_in_flight", "an answer reports stores and loads"},
    {"first_block_skipped", "a transfer began in the middle of a CPU block"},
    {"transfer_of_nothing", "a transfer without blocks was taken"},
    {"transfer_blocked", "a transfer ran that could not run before a forward had"},
    {"report_held_back", "nothing was reported although transfers are in flight"},
    {"flushed_by_wait", "a wait enqueued deferred stores"},
    {"forwards_run_by_wait", "a wait made forwards run"},
    {"loaded_block_seen", "a forward read a block that holds what another was written with"},
    {"shut_down_in_flight", "a shutdown ended transfers"},
    {"copy_failed", "a transfer could not be copied"},
    {"wait_failed", "a transfer could not be made to wait"},
    {"record_failed", "the end of a transfer could not be recorded"},
    {"end_denied", "the end of a transfer was denied for a while"},
    {"part_ran", "a part of a transfer ran"},
    {"page_undefined",
     "the content of a page was undefined because a write may have been under way"},
    {"copy_failed_in_part", "a transfer failed after a part of it"},
    {"device_lost", "a transfer ran into an error that ends all work"},
    {"failed_by_the_loss", "a device is lost, and more transfers failed than have met a fault"},
    {"free_device_reported", "transfers were reported that no command ran"},
    {"ranks_reported", "several ranks reported a transfer"},
    {"failed_on_a_rank", "a transfer failed on one of several ranks"},
};

class Counter : public GoalCounter<WorkerTarget, kGoals> {
 public:
  using GoalCounter::GoalCounter;

  void count_accepted(const Command& command) {
    const bool is_met = before().next_fault != Fault::kNone && after().next_fault == Fault::kNone &&
                        !std::holds_alternative<FailNext>(command);
    add("copy_failed", is_met && before().next_fault == Fault::kCopy);
    add("wait_failed", is_met && before().next_fault == Fault::kWait);
    add("record_failed", is_met && before().next_fault == Fault::kRecord);
    add("end_denied", is_met && before().next_fault == Fault::kLate);
    add("copy_failed_in_part", is_met && before().next_fault == Fault::kPartial);
    add("device_lost", is_met && before().next_fault == Fault::kSticky);
    num_faults_ += is_met;
    is_lost_ |= is_met && before().next_fault == Fault::kSticky;
    const bool runs_nothing = std::holds_alternative<Advance>(command) ||
                              std::holds_alternative<GetFinished>(command) ||
                              std::holds_alternative<FailNext>(command);
    if (!runs_nothing || !is_commanded_) idle_streams_.clear();
    if (const auto* submitted = std::get_if<TransferAsync>(&command)) {
      add("transfer_of_nothing", submitted->gpu_blocks.empty());
      add("first_block_skipped",
          !submitted->gpu_blocks.empty() && submitted->block_index % block_size_factor_ != 0);
    } else if (const auto* advance = std::get_if<Advance>(&command)) {
      const std::pair stream(advance->stream, advance->rank);
      const bool was_idle = contains(idle_streams_, stream);
      add("transfer_blocked", advance->stream != Stream::kCompute && *after().advanced && was_idle);
      add("part_ran", advance->steps > 0 && *after().advanced);
      if (!*after().advanced) idle_streams_.push_back(stream);
    } else if (std::holds_alternative<Wait>(command)) {
      add("flushed_by_wait", after().num_deferred < before().num_deferred);
      add("forwards_run_by_wait", !after().seen.empty());
    } else if (std::holds_alternative<Shutdown>(command)) {
      add("shut_down_in_flight", !after().finished_jobs->empty());
    } else if (std::holds_alternative<GetFinished>(command)) {
      add("report_held_back", after().finished_jobs->empty() && after().num_in_flight > 0);
    }
    if (after().finished_jobs.has_value()) count_reports();
    if (after().gpu_pages.has_value()) {
      const auto is_undefined = [](const Page& page) { return page.undefined; };
      add("page_undefined", std::ranges::any_of(*after().gpu_pages, is_undefined) ||
                                std::ranges::any_of(*after().cpu_pages, is_undefined));
    }
    add("loaded_block_seen", std::ranges::any_of(after().seen, [](auto& page) {
          return page.generation > 0 && page.of_block != page.number;
        }));
  }

 private:
  void count_reports() {
    bool has_store = false;
    bool has_load = false;
    for (const Ended& job : *after().finished_jobs) {
      const bool is_load = job.direction == Direction::kLoad;
      has_load |= is_load;
      has_store |= !is_load;
      add("store_reported", !is_load && job.succeeded);
      add("load_reported", is_load && job.succeeded);
      add("failure_reported", !job.succeeded);
      add("free_device_reported", !is_commanded_ && job.succeeded);
      add("ranks_reported", num_ranks_ > 1 && job.succeeded);
      add("failed_on_a_rank", num_ranks_ > 1 && !job.succeeded);
      num_failed_ += !job.succeeded;
    }
    add("failed_by_the_loss", is_lost_ && num_failed_ > num_faults_);
    add("both_directions_in_flight", has_store && has_load);
  }

  const std::uint32_t block_size_factor_ = config().block_size_factor;
  const std::uint32_t num_ranks_ = config().num_ranks;
  const bool is_commanded_ = config().is_commanded();
  std::uint32_t num_faults_ = 0;  ///< met
  std::uint32_t num_failed_ = 0;
  bool is_lost_ = false;  ///< a transfer has met the error that ends a device
  /// The streams whose transfers could not run in the last attempt; only the device has done
  /// anything since.
  std::vector<std::pair<Stream, std::uint32_t>> idle_streams_;
};

}  // namespace

GoalSuite goals() { return goal_suite<WorkerTarget, kGoals, Counter>(); }

}  // namespace kvfence::worker
