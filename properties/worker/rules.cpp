#include "properties/worker/rules.h"

#include <algorithm>
#include <set>
#include <variant>

#include "properties/core/broken_rule.h"

namespace kvfence::worker {
namespace {

// The places of kInvariants, so that code names a rule by its id.
enum Rule : std::size_t { kW1, kW2, kW3, kW4, kW5, kW6, kW7, kW8, kW9, kW10, kW11 };

static_assert(kInvariants.size() == kW11 + 1);

using Numbers = std::vector<std::uint32_t>;

template <class T>
Divergence broken(Rule rule, std::string_view member, const T& expected, const T& actual) {
  return broken_rule(kInvariants[rule], member, expected, actual);
}

bool contains(const Numbers& numbers, std::uint32_t number) {
  return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
}

bool share(const Numbers& a, const Numbers& b) {
  return std::any_of(a.begin(), a.end(),
                     [&b](std::uint32_t number) { return contains(b, number); });
}

/// What a page holds, with nothing as generation 0.
Page page_at(const std::vector<Page>& pages, std::uint32_t rank, std::uint32_t number) {
  for (const Page& page : pages) {
    if (page.rank == rank && page.number == number) return page;
  }
  return {.number = number, .rank = rank};
}

std::optional<Transfer> transfer_of(const TransferAsync& command) {
  const auto direction = direction_from_text(command.direction);
  if (!direction) return std::nullopt;
  return Transfer{.job_id = command.job,
                  .direction = *direction,
                  .gpu_blocks = command.gpu_blocks,
                  .cpu_blocks = command.cpu_blocks,
                  .block_index = command.block_index,
                  .has_event = command.has_event};
}

}  // namespace

void Invariants::reset() { *this = Invariants(options_); }

std::optional<Divergence> Invariants::check(const Command& command, const Observation& observation,
                                            const World&, std::size_t step) {
  std::optional<Divergence> found = check_all(command, observation);
  if (found) found->step = step;
  return found;
}

std::optional<Divergence> Invariants::check_all(const Command& command,
                                                const Observation& observation) {
  if (observation.num_races != 0) return broken(kW1, "num_races", 0U, observation.num_races);
  if (observation.num_misuses != 0) return broken(kW2, "num_misuses", 0U, observation.num_misuses);
  if (auto found = check_presence(command, observation)) return found;
  if (auto found = check_refusal(command, observation)) return found;
  const std::vector<Job> before = jobs_;
  if (observation.error == ErrorCode::kNone) take_in(command);
  if (next_fault_ != "none" && observation.next_fault == "none") take_in_fault(before);
  next_fault_ = observation.next_fault;
  if (observation.num_stray_bytes.has_value() && *observation.num_stray_bytes != 0) {
    return broken(kW3, "num_stray_bytes", 0U, *observation.num_stray_bytes);
  }
  if (observation.gpu_pages.has_value()) {
    if (auto found = check_pages(*observation.gpu_pages, "gpu_pages")) return found;
    if (auto found = check_pages(*observation.cpu_pages, "cpu_pages")) return found;
  }
  if (auto found = check_pages(observation.seen, "seen")) return found;
  if (auto found = check_reports(observation)) return found;
  const auto num_deferred = static_cast<std::uint32_t>(
      std::count_if(jobs_.begin(), jobs_.end(), [](const Job& job) { return job.is_deferred; }));
  if (observation.num_deferred != num_deferred) {
    return broken(kW6, "num_deferred", num_deferred, observation.num_deferred);
  }
  const auto num_in_flight = static_cast<std::uint32_t>(jobs_.size()) - num_deferred;
  if (observation.num_in_flight != num_in_flight) {
    return broken(kW6, "num_in_flight", num_in_flight, observation.num_in_flight);
  }
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_presence(const Command& command,
                                                     const Observation& observation) const {
  const bool finished =
      std::holds_alternative<GetFinished>(command) || std::holds_alternative<Shutdown>(command);
  const bool advanced =
      std::holds_alternative<Advance>(command) && observation.error == ErrorCode::kNone;
  if (observation.finished_jobs.has_value() != finished) {
    return broken_presence(kInvariants[kW4], "finished_jobs", finished);
  }
  if (observation.advanced.has_value() != advanced) {
    return broken_presence(kInvariants[kW4], "advanced", advanced);
  }
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_refusal(const Command& command,
                                                    const Observation& observation) const {
  const auto* submitted = std::get_if<TransferAsync>(&command);
  if (!submitted || observation.error != ErrorCode::kNone) return std::nullopt;
  const auto transfer = transfer_of(*submitted);
  if (!transfer || !counts_fit(*transfer, options_.block_size_factor)) {
    return broken(kW10, "error", ErrorCode::kCountsDiffer, observation.error);
  }
  const Numbers pages = cpu_pages_of(*transfer, options_.block_size_factor);
  const Numbers& written = transfer->direction == Direction::kStore ? pages : transfer->gpu_blocks;
  if (std::set<std::uint32_t>(written.begin(), written.end()).size() < written.size()) {
    return broken(kW10, "error", ErrorCode::kListedTwice, observation.error);
  }
  for (const Job& job : jobs_) {
    if (job.transfer.direction != transfer->direction &&
        share(job.transfer.gpu_blocks, transfer->gpu_blocks)) {
      return broken(kW10, "error", ErrorCode::kBlockInFlight, observation.error);
    }
  }
  return std::nullopt;
}

void Invariants::take_in_fault(const std::vector<Job>& before) {
  if (next_fault_ == "late") return;
  ++num_faults_met_;
  const bool is_of_copies =
      next_fault_ == "copy" || next_fault_ == "partial" || next_fault_ == "sticky";
  may_be_torn_ |= next_fault_ == "partial" || next_fault_ == "sticky";
  may_be_lost_ |= next_fault_ == "sticky";
  // The first that this command has enqueued.
  for (std::size_t index = 0; index < jobs_.size(); ++index) {
    Job& job = jobs_[index];
    const bool was_enqueued = index < before.size() && !before[index].is_deferred;
    if (job.is_deferred || was_enqueued) continue;
    if (is_of_copies && job.transfer.gpu_blocks.empty()) continue;
    job.has_to_fail = true;
    job.loses_device = next_fault_ == "sticky";
    return;
  }
}

void Invariants::start_stores() {
  for (Job& job : jobs_) job.is_deferred = false;
}

void Invariants::take_in(const Command& command) {
  if (const auto* submitted = std::get_if<TransferAsync>(&command)) {
    const auto transfer = transfer_of(*submitted);
    jobs_.push_back({.transfer = *transfer,
                     .is_deferred = transfer->direction == Direction::kStore,
                     .has_to_fail = is_lost_});
  } else if (const auto* forward = std::get_if<Forward>(&command)) {
    writes_.push_back(forward->writes);
  } else if (const auto* failing = std::get_if<FailNext>(&command)) {
    next_fault_ = failing->fault;
  } else if (const auto* waited = std::get_if<Wait>(&command)) {
    const bool is_deferred = std::any_of(jobs_.begin(), jobs_.end(), [&](const Job& job) {
      return job.is_deferred && contains(waited->jobs, job.transfer.job_id);
    });
    if (is_deferred) start_stores();
  } else if (std::holds_alternative<StartKVTransfers>(command) ||
             std::holds_alternative<Shutdown>(command)) {
    start_stores();
  }
}

std::optional<Divergence> Invariants::check_pages(const std::vector<Page>& pages,
                                                  std::string_view member) const {
  for (const Page& page : pages) {
    if (page.undefined && member != "seen") continue;
    if (page.torn && may_be_torn_) continue;
    // A block that was read may hold nothing.
    if (page.generation == 0 && !page.torn && member == "seen") continue;
    const bool was_written = page.generation > 0 && page.generation <= writes_.size() &&
                             contains(writes_[page.generation - 1], page.of_block);
    if (page.torn || !was_written) return broken(kW7, member, std::vector<Page>{}, {page});
  }
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_reports(const Observation& observation) {
  if (!observation.finished_jobs.has_value()) return std::nullopt;
  const std::vector<FinishedJob>& finished = *observation.finished_jobs;
  std::vector<Job> reported;
  bool has_load = false;
  for (const FinishedJob& report : finished) {
    // The oldest of its direction: each is in order.
    const auto next = std::find_if(jobs_.begin(), jobs_.end(), [&](const Job& job) {
      return to_text(job.transfer.direction) == report.direction;
    });
    const bool is_load = report.direction == to_text(Direction::kLoad);
    const bool is_right = next != jobs_.end() && !next->is_deferred &&
                          next->transfer.job_id == report.job && (is_load || !has_load);
    if (!is_right) return broken(kW5, "finished_jobs", std::vector<FinishedJob>{}, {report});
    has_load |= is_load;
    num_failed_ += !report.succeeded;
    if (next->has_to_fail && report.succeeded) {
      FinishedJob failed = report;
      failed.succeeded = false;
      return broken(kW11, "finished_jobs", std::vector<FinishedJob>{failed}, {report});
    }
    is_lost_ |= next->loses_device;
    reported.push_back(*next);
    jobs_.erase(next);
  }
  if (num_failed_ > num_faults_met_ && !may_be_lost_)
    return broken(kW9, "finished_jobs", {}, finished);
  if (!observation.gpu_pages.has_value()) return std::nullopt;
  for (std::size_t index = 0; index < reported.size(); ++index) {
    const Transfer& transfer = reported[index].transfer;
    // A failure, too, may have copied something.
    const bool is_followed =
        std::any_of(reported.begin() + static_cast<std::ptrdiff_t>(index) + 1, reported.end(),
                    [&](const Job& later) {
                      return share(later.transfer.gpu_blocks, transfer.gpu_blocks) ||
                             share(later.transfer.cpu_blocks, transfer.cpu_blocks);
                    });
    if (!finished[index].succeeded || is_followed || is_overwritten(transfer)) continue;
    if (auto found = check_arrival(reported[index], observation)) return found;
  }
  return std::nullopt;
}

bool Invariants::is_overwritten(const Transfer& transfer) const {
  return std::any_of(jobs_.begin(), jobs_.end(), [&](const Job& job) {
    return share(job.transfer.gpu_blocks, transfer.gpu_blocks) ||
           share(job.transfer.cpu_blocks, transfer.cpu_blocks);
  });
}

std::optional<Divergence> Invariants::check_arrival(const Job& job,
                                                    const Observation& observation) const {
  const Transfer& transfer = job.transfer;
  const Numbers pages = cpu_pages_of(transfer, options_.block_size_factor);
  for (std::uint32_t rank = 0; rank < options_.num_ranks; ++rank) {
    for (std::size_t index = 0; index < pages.size(); ++index) {
      Page on_gpu = page_at(*observation.gpu_pages, rank, transfer.gpu_blocks[index]);
      const Page on_cpu = page_at(*observation.cpu_pages, rank, pages[index]);
      on_gpu.number = on_cpu.number;
      if (on_gpu == on_cpu) continue;
      return broken(kW8, "cpu_pages", std::vector<Page>{on_gpu}, {on_cpu});
    }
  }
  return std::nullopt;
}

}  // namespace kvfence::worker
