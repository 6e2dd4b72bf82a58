#include "properties/engine/simple/copies.h"

#include <algorithm>

namespace kvfence::engine::simple {
namespace {

constexpr RankMemory::Words kWords = {.block = "GPU block",
                                      .place = "CPU block",
                                      .no_reuse_under_a_copy = kNoReuseUnderACopy,
                                      .a_place_has_one_writer = kNoReuseUnderACopy,
                                      .a_load_reads_what_is_complete = kNoReuseUnderACopy,
                                      .copies_are_as_planned = kCopiesCarryWhatTheyName,
                                      .a_step_reads_its_own = kAStepReadsItsOwn,
                                      .shares_places = true};

}  // namespace

Copies::Copies(const SimpleCPUOffloadSpec& spec)
    : RankMemory(kWords, spec.kv_cache, spec.num_workers, spec.num_cpu_blocks, 1) {}

std::optional<Broken> Copies::run(const PlannedStep& step, const Sequences& sequences) {
  for (std::size_t index = 0; index < ranks_.size(); ++index) {
    Rank& rank = ranks_[index];
    while (step.need_flush && !rank.copies.empty()) end_copy(rank, rank.copies.begin());
    if (auto broken = zero(index, step)) return broken;
    if (auto broken = compute(index, step, sequences)) return broken;
    for (const Event& event : step.events) {
      if (auto broken = submit(index, event)) return broken;
    }
  }
  return std::nullopt;
}

void Copies::end_copy(Rank& rank, std::vector<PlannedCopy>::iterator copy) {
  end(rank, *copy, /*success=*/true);
  ++num_ranks_ended_[copy->serial];
  rank.copies.erase(copy);
}

bool Copies::end_oldest(std::uint32_t rank, bool is_store) {
  if (rank >= ranks_.size()) return false;
  std::vector<PlannedCopy>& copies = ranks_[rank].copies;
  const auto oldest = std::ranges::find(copies, is_store, &PlannedCopy::is_store);
  if (oldest == copies.end()) return false;
  end_copy(ranks_[rank], oldest);
  return true;
}

std::uint32_t Copies::num_ranks_ended(const Event& event) const {
  const auto found = num_ranks_ended_.find(event.serial);
  return found == num_ranks_ended_.end() ? 0 : found->second;
}

bool Copies::is_idle() const {
  return std::ranges::all_of(ranks_, [](const Rank& rank) { return rank.copies.empty(); });
}

}  // namespace kvfence::engine::simple
