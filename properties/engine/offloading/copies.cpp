#include "properties/engine/offloading/copies.h"

#include <utility>

#include "properties/core/invariant_values.h"

namespace kvfence::engine::offloading {
namespace {

using detail::contains;

constexpr RankMemory::Words kWords = {.block = "block",
                                      .place = "slot",
                                      .no_reuse_under_a_copy = kNoReuseUnderACopy,
                                      .a_place_has_one_writer = kSlotHasOneWriter,
                                      .a_load_reads_what_is_complete = kLoadReadsWhatIsComplete,
                                      .copies_are_as_planned = kCopiesAreTheRequestsOwn,
                                      .a_step_reads_its_own = kStepReadsItsOwn};

}  // namespace

Copies::Copies(const ConnectorSetup& setup)
    : RankMemory(kWords, setup.scheduler.kv_cache, setup.spec.num_workers,
                 setup.spec.manager.cache.capacity, setup.spec.block_size_factor),
      fences_(setup.spec.manager.rules.offload_fences_reuse),
      queued_(ranks_.size()),
      next_jobs_(ranks_.size()) {}

// ---- A step on all ranks ----

std::optional<Broken> Copies::run(const PlannedStep& step, const Sequences& sequences,
                                  Report& report) {
  for (std::size_t index = 0; index < ranks_.size(); ++index) {
    Rank& rank = ranks_[index];
    for (const Copy& copy : std::exchange(queued_[index], {})) {
      if (auto broken = submit(index, copy)) return broken;
    }
    for (Copy& copy : rank.copies) {
      const bool is_flushed = fences_
                                  ? contains(step.jobs_to_flush, copy.job)
                                  : copy.is_store && contains(step.requests_to_flush, copy.request);
      if (is_flushed && copy.is_under_way()) end(rank, copy, true);
    }
    if (auto broken = zero(index, step)) return broken;
    for (Copy copy : step.loads) {
      if (!fences_) copy.job = next_jobs_[index]++;
      if (auto broken = submit(index, copy)) return broken;
    }
    if (auto broken = compute(index, step, sequences)) return broken;
    for (Copy copy : step.stores) {
      if (!fences_) copy.job = next_jobs_[index]++;
      queued_[index].push_back(std::move(copy));
    }
    report_ended(rank, report);
  }
  return std::nullopt;
}

/// get_finished of one rank, and its part of the report.
void Copies::report_ended(Rank& rank, Report& report) {
  for (const Copy& copy : rank.copies) {
    if (copy.is_under_way()) continue;
    const bool has_failed = copy.progress == TransferProgress::kFailed;
    if (!copy.is_store && ++num_received_[copy.request] == ranks_.size()) {
      num_received_.erase(copy.request);
      report.received.push_back(copy.request);
    }
    for (const CopyPart& part : copy.parts) {
      if (has_failed && !copy.is_store) report.invalid_blocks.insert(part.block);
    }
    if (!fences_) continue;
    CompletedJob& completed = report.jobs[copy.job];
    completed.job = copy.job;
    ++completed.num_workers;
    completed.num_failed += has_failed;
  }
  std::erase_if(rank.copies, [](const Copy& copy) { return !copy.is_under_way(); });
}

void Copies::fill_slot(SlotId slot, const std::vector<Content>& parts) {
  for (Rank& rank : ranks_) {
    for (std::uint32_t sub = 0; sub < num_sub_blocks_; ++sub) {
      rank.places[slot * num_sub_blocks_ + sub] = sub < parts.size() ? parts[sub] : Content{};
    }
  }
}

void Copies::advance(const AdvanceTransfer& command) {
  Rank& rank = ranks_[command.rank];
  for (Copy& copy : rank.copies) {
    if (copy.job != command.job || !copy.is_under_way()) continue;
    if (command.progress == TransferProgress::kPart) {
      copy.progress = command.progress;
    } else {
      end(rank, copy, command.progress == TransferProgress::kFinished);
    }
    return;
  }
}

}  // namespace kvfence::engine::offloading
