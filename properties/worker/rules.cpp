/// The rules of target worker. They hold for any correct copy worker: the rules of
/// contract/worker/worker.h as statements about observations.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

#include "contract/core/lists.h"
#include "contract/worker/worker_target.h"
#include "properties/core/broken_rule.h"
#include "properties/core/divergence.h"
#include "properties/core/invariant_values.h"
#include "properties/targets/rooms.h"

namespace kvfence::worker {
namespace {

/// Every invariant: what the command line and the documentation list.
constexpr Invariant kInvariants[] = {
    {"worker.1", "nothing_races", "accesses to the same bytes, one a write, are ordered"},
    {"worker.2", "nothing_is_misused", "no call is made that the runtime's documentation forbids"},
    {"worker.3", "only_pages_are_written", "bytes outside of pages keep what they held"},
    {"worker.4", "a_page_has_one_writer",
     "a transfer that is taken has a page for each block, writes each once, and touches no GPU "
     "block of a transfer of the other direction"},
    {"worker.5", "each_transfer_is_reported_once",
     "a report names a transfer of that direction which was taken and not reported"},
    {"worker.6", "transfers_add_up",
     "each transfer that was taken is deferred or in flight until it is reported"},
    {"worker.7", "pages_hold_what_was_written",
     "a page holds nothing, or all of one block as one forward wrote it, unless a transfer has "
     "failed in part"},
    {"worker.8", "what_succeeded_arrived",
     "when a transfer is reported as a success, its destinations hold what its sources do, on "
     "every rank"},
    {"worker.9", "failures_are_those_of_faults",
     "while no device is lost, no more transfers fail than have met a fault, and as many once all "
     "are reported"},
    {"worker.10", "no_event_is_lost", "an event is unused, or a transfer in flight has it"},
    {"worker.11", "shutdown_gives_all_back",
     "a worker that is shut down holds no stream, no event and no pinned memory"},
};

constexpr BrokenRuleOf<kInvariants> broken;

using Numbers = std::vector<std::uint32_t>;

bool share(const Numbers& a, const Numbers& b) {
  return std::ranges::any_of(a, [&b](std::uint32_t number) { return contains(b, number); });
}

/// Whether both transfers name the same block.
bool overlap(const Transfer& a, const Transfer& b) {
  return share(a.gpu_blocks, b.gpu_blocks) || share(a.cpu_blocks, b.cpu_blocks);
}

/// The content of a page; generation 0 if there is none.
Page page_at(const std::vector<Page>& pages, std::uint32_t rank, std::uint32_t number) {
  for (const Page& page : pages) {
    if (page.rank == rank && page.number == number) return page;
  }
  return {.number = number, .rank = rank};
}

class Invariants final : public RulesFor<WorkerTarget> {
 public:
  explicit Invariants(const Options& options) : options_(options) {}

  void check_all(const Command& command) override {
    broken.unless_equal("nothing_races", "num_races", 0U, shown().num_races);
    broken.unless_equal("nothing_is_misused", "num_misuses", 0U, shown().num_misuses);
    broken.unless_equal("no_event_is_lost", "num_lost_events", 0U, shown().num_lost_events);
    broken.unless_equal("shutdown_gives_all_back", "num_left_behind", 0U, shown().num_left_behind);
    if (shown().num_stray_bytes.has_value()) {
      broken.unless_equal("only_pages_are_written", "num_stray_bytes", 0U,
                          *shown().num_stray_bytes);
    }
    if (shown().error == ErrorCode::kNone) {
      if (const auto* submitted = std::get_if<TransferAsync>(&command)) check_writes(*submitted);
      take_in(command);
    }
    take_in_fault(shown().next_fault);
    if (shown().gpu_pages.has_value()) {
      check_pages(*shown().gpu_pages, "gpu_pages");
      check_pages(*shown().cpu_pages, "cpu_pages");
    }
    check_pages(shown().seen, "seen");
    if (shown().finished_jobs.has_value()) check_reports();
    const auto num_jobs = static_cast<std::uint32_t>(jobs_.size());
    broken.unless_equal("transfers_add_up", "num_in_flight", num_jobs - shown().num_deferred,
                        shown().num_in_flight);
  }

 private:
  /// Checks a transfer that was taken.
  void check_writes(const Transfer& transfer) const {
    if (!counts_fit(transfer, options_.block_size_factor)) {
      broken("a_page_has_one_writer", "error", ErrorCode::kCountsDiffer, ErrorCode::kNone);
    }
    const bool is_store = transfer.direction == Direction::kStore;
    const Numbers written =
        is_store ? cpu_pages_of(transfer, options_.block_size_factor) : transfer.gpu_blocks;
    if (detail::has_repeats(written)) {
      broken("a_page_has_one_writer", "error", ErrorCode::kListedTwice, ErrorCode::kNone);
    }
    for (const Transfer& job : jobs_) {
      if (job.direction != transfer.direction && share(job.gpu_blocks, transfer.gpu_blocks)) {
        broken("a_page_has_one_writer", "error", ErrorCode::kBlockInFlight, ErrorCode::kNone);
      }
    }
  }

  void take_in(const Command& command) {
    if (const auto* submitted = std::get_if<TransferAsync>(&command)) {
      jobs_.push_back(*submitted);
    } else if (const auto* forward = std::get_if<Forward>(&command)) {
      writes_.push_back(forward->writes);
    } else if (const auto* failing = std::get_if<FailNext>(&command)) {
      next_fault_ = failing->fault;
    }
  }

  /// A fault that is no longer armed has occurred.
  void take_in_fault(Fault next_fault) {
    if (fails(next_fault_) && next_fault == Fault::kNone) {
      ++num_faults_met_;
      may_be_torn_ |= next_fault_ == Fault::kPartial || next_fault_ == Fault::kSticky;
      may_be_lost_ |= next_fault_ == Fault::kSticky;
    }
    next_fault_ = next_fault;
  }

  void check_pages(const std::vector<Page>& pages, std::string_view member) const {
    for (const Page& page : pages) {
      if (page.undefined && member != "seen") continue;
      if (page.torn && may_be_torn_) continue;
      // A block that was read may hold nothing.
      if (page.generation == 0 && !page.torn && member == "seen") continue;
      const bool was_written = page.generation > 0 && page.generation <= writes_.size() &&
                               contains(writes_[page.generation - 1], page.of_block);
      if (page.torn || !was_written)
        broken("pages_hold_what_was_written", member, std::vector<Page>{}, {page});
    }
  }

  void check_reports() {
    const std::vector<Ended>& finished = *shown().finished_jobs;
    std::vector<Transfer> reported;
    for (const Ended& report : finished) {
      const auto job = std::ranges::find_if(jobs_, [&](const Transfer& taken) {
        return taken.job_id == report.job_id && taken.direction == report.direction;
      });
      if (job == jobs_.end()) {
        broken("each_transfer_is_reported_once", "finished_jobs", std::vector<Ended>{}, {report});
      }
      reported.push_back(*job);
      jobs_.erase(job);
      num_failed_ += !report.succeeded;
    }
    const bool is_wrong =
        num_failed_ > num_faults_met_ || (jobs_.empty() && num_failed_ < num_faults_met_);
    if (is_wrong && !may_be_lost_)
      broken("failures_are_those_of_faults", "finished_jobs", {}, finished);
    if (!shown().gpu_pages.has_value()) return;
    for (std::size_t index = 0; index < reported.size(); ++index) {
      const Transfer& transfer = reported[index];
      const auto is_over_it = [&](const Transfer& other) { return overlap(other, transfer); };
      // A failed transfer may have copied something, too.
      const auto later = reported.begin() + static_cast<std::ptrdiff_t>(index) + 1;
      if (!finished[index].succeeded || std::any_of(later, reported.end(), is_over_it) ||
          std::ranges::any_of(jobs_, is_over_it)) {
        continue;
      }
      check_arrival(transfer);
    }
  }

  void check_arrival(const Transfer& transfer) const {
    const Numbers pages = cpu_pages_of(transfer, options_.block_size_factor);
    for (std::uint32_t rank = 0; rank < options_.num_ranks; ++rank) {
      for (std::size_t index = 0; index < pages.size(); ++index) {
        Page on_gpu = page_at(*shown().gpu_pages, rank, transfer.gpu_blocks[index]);
        const Page on_cpu = page_at(*shown().cpu_pages, rank, pages[index]);
        on_gpu.number = on_cpu.number;
        if (on_gpu == on_cpu) continue;
        broken("what_succeeded_arrived", "cpu_pages", std::vector<Page>{on_gpu}, {on_cpu});
      }
    }
  }

  Options options_;
  std::vector<Transfer> jobs_;                      ///< taken, not reported, in order
  std::vector<std::vector<std::uint32_t>> writes_;  ///< of each forward
  Fault next_fault_ = Fault::kNone;
  bool may_be_torn_ = false;
  bool may_be_lost_ = false;
  std::uint32_t num_faults_met_ = 0;
  std::uint32_t num_failed_ = 0;
};

}  // namespace

RuleSuite<WorkerTarget> rules() { return rule_suite<Invariants>(kInvariants); }

}  // namespace kvfence::worker
