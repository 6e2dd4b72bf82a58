#include "properties/engine/offloading/copies.h"

#include <utility>

#include "properties/core/invariant_values.h"

namespace kvfence::engine::offloading {
namespace {

using detail::contains;

std::string on_rank(std::size_t rank, const std::string& what, std::uint64_t number) {
  return what + " " + std::to_string(number) + " on rank " + std::to_string(rank);
}

std::string name_of(const Copy& copy) {
  return std::string(copy.is_store ? "store " : "load ") + std::to_string(copy.job) + " of " +
         copy.request;
}

}  // namespace

Copies::Copies(const ConnectorSetup& setup)
    : setup_(setup), fences_(setup.spec.manager.rules.offload_fences_reuse) {
  ranks_.resize(setup.spec.num_workers);
  for (Rank& rank : ranks_) {
    rank.blocks.resize(setup.scheduler.kv_cache.pool.num_gpu_blocks);
    rank.slots.resize(std::size_t{setup.spec.manager.cache.capacity} *
                      setup.spec.block_size_factor);
  }
}

// ---- A step on all ranks ----

std::optional<Broken> Copies::run(const PlannedStep& step, const Sequences& sequences,
                                  Report& report) {
  for (std::size_t index = 0; index < ranks_.size(); ++index) {
    Rank& rank = ranks_[index];
    for (const Copy& copy : std::exchange(rank.queued, {})) {
      if (auto broken = submit(index, copy)) return broken;
    }
    for (Copy& copy : rank.copies) {
      const bool is_flushed = fences_
                                  ? contains(step.jobs_to_flush, copy.job)
                                  : copy.is_store && contains(step.requests_to_flush, copy.request);
      if (is_flushed && copy.is_under_way()) end(rank, copy, true);
    }
    for (BlockId block : step.zeroed) {
      if (contains(step.lost, block)) continue;
      if (auto broken = overwrite(index, block, "zeroed for somebody else", {})) return broken;
    }
    forgive_victims(step.victims, step.lost, setup_.scheduler.kv_cache.groups, rank.blocks);
    for (Copy copy : step.loads) {
      if (!fences_) copy.job = rank.next_job++;
      if (auto broken = submit(index, copy)) return broken;
    }
    if (auto broken = compute(index, step, sequences)) return broken;
    for (Copy copy : step.stores) {
      if (!fences_) copy.job = rank.next_job++;
      rank.queued.push_back(std::move(copy));
    }
    report_ended(rank, report);
  }
  return std::nullopt;
}

std::optional<Broken> Copies::submit(std::size_t rank_index, const Copy& copy) {
  Rank& rank = ranks_[rank_index];
  const std::uint32_t factor = setup_.spec.block_size_factor;
  for (const CopyPart& part : copy.parts) {
    for (std::size_t each = 0; each < ranks_.size(); ++each) {
      for (const Copy& other : ranks_[each].copies) {
        if (!other.is_under_way() || (!copy.is_store && !other.is_store)) continue;
        // A rank that is behind still has its own older copies; another rank's bytes are its own.
        const bool is_elsewhere = each != rank_index;
        if (is_elsewhere && (copy.is_store || other.serial == copy.serial)) continue;
        for (const CopyPart& its : other.parts) {
          if (its.slot != part.slot) continue;
          return Broken{copy.is_store ? kSlotHasOneWriter : kLoadReadsWhatIsComplete,
                        on_rank(each, "slot", part.slot), "no other copy under way",
                        name_of(other) + ", under " + name_of(copy)};
        }
      }
    }
    const Content& source =
        copy.is_store ? rank.blocks[part.block] : slot(rank_index, part.slot, part.sub_block);
    if (!passes_for(source, part.content)) {
      return Broken{kCopiesAreTheRequestsOwn,
                    copy.is_store ? on_rank(rank_index, "block", part.block)
                                  : on_rank(rank_index, "slot", part.slot),
                    to_text(part.content), to_text(source) + ", under " + name_of(copy)};
    }
  }
  for (const CopyPart& part : copy.parts) {
    if (copy.is_store) {
      for (std::uint32_t sub = 0; sub < factor; ++sub) rank.slots[part.slot * factor + sub] = {};
    } else if (auto broken = overwrite(rank_index, part.block, name_of(copy), {})) {
      return broken;
    }
  }
  rank.copies.push_back(copy);
  return std::nullopt;
}

void Copies::end(Rank& rank, Copy& copy, bool success) {
  const std::uint32_t factor = setup_.spec.block_size_factor;
  copy.progress = success ? TransferProgress::kFinished : TransferProgress::kFailed;
  for (const CopyPart& part : copy.parts) {
    Content& slot = rank.slots[part.slot * factor + part.sub_block];
    Content& block = rank.blocks[part.block];
    (copy.is_store ? slot : block) = !success ? Content{} : copy.is_store ? block : slot;
  }
}

std::optional<Broken> Copies::overwrite(std::size_t rank, BlockId block, const std::string& who,
                                        const Content& content) {
  for (const Copy& copy : ranks_[rank].copies) {
    if (!copy.is_under_way()) continue;
    for (const CopyPart& part : copy.parts) {
      if (part.block != block) continue;
      return Broken{kNoReuseUnderACopy, on_rank(rank, "block", block),
                    "left alone by all but " + name_of(copy), "written by " + who};
    }
  }
  ranks_[rank].blocks[block] = content;
  return std::nullopt;
}

/// All write their tokens, then all read what they attend to.
std::optional<Broken> Copies::compute(std::size_t rank, const PlannedStep& step,
                                      const Sequences& sequences) {
  const std::vector<KVCacheSpec>& groups = setup_.scheduler.kv_cache.groups;
  const std::vector<Content>& blocks = ranks_[rank].blocks;
  for (const Run& run : step.runs) {
    for (const Filled& filled : filled_by(run, sequences.at(run.request), groups, blocks)) {
      if (auto broken = overwrite(rank, filled.block, run.request, filled.content)) return broken;
    }
  }
  for (const Run& run : step.runs) {
    const Prefixes& prefixes = sequences.at(run.request);
    if (run.end > prefixes.num_tokens()) continue;
    if (const auto wrong = wrong_read(run, prefixes, groups, blocks)) {
      return Broken{kStepReadsItsOwn, on_rank(rank, "block", wrong->block),
                    to_text(wrong->expected) + ", for " + run.request, to_text(wrong->actual)};
    }
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
    Completed& completed = report.jobs[copy.job];
    completed.job = copy.job;
    ++completed.num_workers;
    completed.num_failed += has_failed;
  }
  std::erase_if(rank.copies, [](const Copy& copy) { return !copy.is_under_way(); });
}

void Copies::fill_slot(SlotId slot, const std::vector<Content>& parts) {
  const std::uint32_t factor = setup_.spec.block_size_factor;
  for (Rank& rank : ranks_) {
    for (std::uint32_t sub = 0; sub < factor; ++sub) {
      rank.slots[slot * factor + sub] = sub < parts.size() ? parts[sub] : Content{};
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
