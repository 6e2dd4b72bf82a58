#include "properties/engine/offloading/copies.h"

#include <algorithm>

#include "contract/core/check.h"
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

std::optional<BrokenCopyRule> Copies::run(PlannedStep step, const Sequences& sequences,
                                          OwedReport& owed) {
  for (std::size_t index = 0; index < ranks_.size(); ++index) {
    Rank& rank = ranks_[index];
    std::vector<Copy> queued;
    std::swap(queued, rank.queued);
    for (const Copy& copy : queued) {
      if (auto broken = submit(index, copy)) return broken;
    }
    for (Copy& copy : rank.copies) {
      const bool is_flushed = fences_
                                  ? contains(step.jobs_to_flush, copy.job)
                                  : copy.is_store && contains(step.requests_to_flush, copy.request);
      if (is_flushed && is_under_way(copy)) end(index, copy, true);
    }
    for (BlockId block : step.zeroed) {
      if (contains(step.lost, block)) continue;
      if (auto broken = overwrite(index, block, "zeroed for somebody else", {})) return broken;
    }
    forgive_victims(step.victims, step.lost, setup_.scheduler.kv_cache.groups, rank.blocks);
    for (Copy copy : step.loads) {
      if (!fences_) copy.job = rank.next_job++;
      if (auto broken = submit(index, copy)) return broken;
      rank.stores_ended.erase(copy.request);
    }
    if (auto broken = compute(index, step, sequences)) return broken;
    queue_stores(rank, step);
    take_ended(rank, step, owed);
  }
  std::sort(owed.invalid_blocks.begin(), owed.invalid_blocks.end());
  owed.invalid_blocks.erase(std::unique(owed.invalid_blocks.begin(), owed.invalid_blocks.end()),
                            owed.invalid_blocks.end());
  if (!owed.stats.empty()) {
    const std::string first = owed.stats.front().type;
    std::stable_partition(owed.stats.begin(), owed.stats.end(),
                          [&](const Operation& each) { return each.type == first; });
  }
  return std::nullopt;
}

std::optional<BrokenCopyRule> Copies::submit(std::size_t rank_index, const Copy& copy) {
  Rank& rank = ranks_[rank_index];
  const std::uint32_t factor = setup_.spec.block_size_factor;
  for (const CopyPart& part : copy.parts) {
    for (std::size_t each = 0; each < ranks_.size(); ++each) {
      for (const Copy& other : ranks_[each].copies) {
        if (!is_under_way(other) || (!copy.is_store && !other.is_store)) continue;
        // A rank that is behind still has its own older copies; another rank's bytes are its own.
        const bool is_elsewhere = each != rank_index;
        if (is_elsewhere && (copy.is_store || other.serial == copy.serial)) continue;
        for (const CopyPart& its : other.parts) {
          if (its.slot != part.slot) continue;
          return BrokenCopyRule{
              copy.is_store ? CopyRule::kSlotHasOneWriter : CopyRule::kLoadReadsWhatIsComplete,
              on_rank(each, "slot", part.slot), "no other copy under way",
              name_of(other) + ", under " + name_of(copy)};
        }
      }
    }
    const Content& source =
        copy.is_store ? rank.blocks[part.block] : slot(rank_index, part.slot, part.sub_block);
    if (!passes_for(source, part.content)) {
      return BrokenCopyRule{CopyRule::kCopiesAreTheRequestsOwn,
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

void Copies::end(std::size_t rank_index, Copy& copy, bool success, std::uint32_t microseconds) {
  Rank& rank = ranks_[rank_index];
  const std::uint32_t factor = setup_.spec.block_size_factor;
  copy.progress = success ? TransferProgress::kFinished : TransferProgress::kFailed;
  for (const CopyPart& part : copy.parts) {
    Content& slot = rank.slots[part.slot * factor + part.sub_block];
    Content& block = rank.blocks[part.block];
    (copy.is_store ? slot : block) = !success ? Content{} : copy.is_store ? block : slot;
  }
  rank.ended.push_back({copy.serial, success, microseconds});
}

std::optional<BrokenCopyRule> Copies::overwrite(std::size_t rank, BlockId block,
                                                const std::string& who, const Content& content) {
  for (const Copy& copy : ranks_[rank].copies) {
    if (!is_under_way(copy)) continue;
    for (const CopyPart& part : copy.parts) {
      if (part.block != block) continue;
      return BrokenCopyRule{CopyRule::kReuseUnderACopy, on_rank(rank, "block", block),
                            "left alone by all but " + name_of(copy), "written by " + who};
    }
  }
  ranks_[rank].blocks[block] = content;
  return std::nullopt;
}

/// All write their tokens, then all read what they attend to.
std::optional<BrokenCopyRule> Copies::compute(std::size_t rank, const PlannedStep& step,
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
      return BrokenCopyRule{CopyRule::kStepReadsItsOwn, on_rank(rank, "block", wrong->block),
                            to_text(wrong->expected) + ", for " + run.request,
                            to_text(wrong->actual)};
    }
  }
  return std::nullopt;
}

void Copies::queue_stores(Rank& rank, const PlannedStep& step) {
  for (Copy copy : step.stores) {
    if (!fences_) copy.job = rank.next_job++;
    ++rank.num_stores[copy.request];
    rank.queued.push_back(std::move(copy));
  }
}

/// get_finished of one rank, and its part of the report.
void Copies::take_ended(Rank& rank, const PlannedStep& step, OwedReport& owed) {
  std::vector<std::string> sent;
  for (const Ended& ended : rank.ended) {
    const auto at = std::find_if(rank.copies.begin(), rank.copies.end(),
                                 [&](const Copy& copy) { return copy.serial == ended.serial; });
    KVFENCE_CHECK(at != rank.copies.end(), "a copy that ended was there");
    if (ended.success && ended.microseconds > 0) {
      owed.stats.push_back({at->is_store ? "GPU_to_CPU" : "CPU_to_GPU",
                            static_cast<std::uint32_t>(kScriptedBlockBytes * at->parts.size()),
                            ended.microseconds});
    }
    if (!at->is_store) {
      count(num_recving_, at->request, owed.finished_recving);
      if (!ended.success) {
        for (const CopyPart& part : at->parts) owed.invalid_blocks.push_back(part.block);
      }
    } else if (--rank.num_stores[at->request] == 0) {
      rank.num_stores.erase(at->request);
      if (rank.awaits_stores.erase(at->request) > 0) {
        sent.push_back(at->request);
      } else {
        rank.stores_ended[at->request] = true;
      }
    }
    if (fences_) {
      Completed& completed = owed.completed_jobs[at->job];
      completed.job = at->job;
      ++completed.num_workers;
      completed.num_failed += !ended.success;
    }
    rank.reported.push_back(at->job);
    rank.copies.erase(at);
  }
  rank.ended.clear();
  if (fences_) return;
  for (const std::string& name : step.finished) {
    if (rank.num_stores.count(name) > 0) {
      rank.awaits_stores[name] = true;
    } else if (rank.stores_ended.erase(name) > 0) {
      sent.push_back(name);
    }
  }
  for (const std::string& name : sent) count(num_sending_, name, owed.finished_sending);
}

void Copies::count(std::map<std::string, std::uint32_t>& counts, const std::string& name,
                   std::vector<std::string>& complete) {
  if (++counts[name] < ranks_.size()) return;
  counts.erase(name);
  complete.push_back(name);
}

void Copies::fill_slot(SlotId slot, const std::vector<Content>& parts) {
  const std::uint32_t factor = setup_.spec.block_size_factor;
  for (Rank& rank : ranks_) {
    for (std::uint32_t sub = 0; sub < factor; ++sub) {
      rank.slots[slot * factor + sub] = sub < parts.size() ? parts[sub] : Content{};
    }
  }
}

// ---- The copy engines ----

ErrorCode Copies::advance(const AdvanceTransfer& command, bool may_fail) {
  const bool fails = command.progress == TransferProgress::kFailed;
  if (command.progress == TransferProgress::kSubmitted) return ErrorCode::kBadRange;
  if (command.rank >= ranks_.size() || (fails && !may_fail)) return ErrorCode::kNotInConfig;
  std::vector<Copy>& copies = ranks_[command.rank].copies;
  const auto at = std::find_if(copies.begin(), copies.end(), [&](const Copy& copy) {
    return copy.job == command.job && is_under_way(copy);
  });
  if (at == copies.end()) return ErrorCode::kUnknownJob;
  if (fails && at->is_store && !fences_) return ErrorCode::kNotInProfile;
  if (command.progress == TransferProgress::kPart) {
    at->progress = command.progress;
  } else {
    end(command.rank, *at, !fails, command.microseconds);
  }
  return ErrorCode::kNone;
}

ErrorCode Copies::report_again(std::uint32_t rank, JobId job) const {
  if (rank >= ranks_.size()) return ErrorCode::kNotInConfig;
  return contains(ranks_[rank].reported, job) ? ErrorCode::kNone : ErrorCode::kUnknownJob;
}

std::vector<EngineTransfer> Copies::transfers() const {
  std::vector<EngineTransfer> transfers;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    for (const Copy& copy : ranks_[rank].copies) {
      EngineTransfer& transfer = transfers.emplace_back();
      transfer.rank = static_cast<std::uint32_t>(rank);
      transfer.job = copy.job;
      transfer.request = copy.request;
      transfer.store = copy.is_store;
      transfer.progress = copy.progress;
    }
  }
  return transfers;
}

bool Copies::is_idle() const {
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [](const Rank& rank) { return rank.queued.empty() && rank.copies.empty(); });
}

}  // namespace kvfence::engine::offloading
