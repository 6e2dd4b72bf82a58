#include "properties/engine/simple/copies.h"

#include <algorithm>

namespace kvfence::engine::simple {
namespace {

std::string on_rank(std::size_t rank, const std::string& what, BlockId block) {
  return what + " block " + std::to_string(block) + " on rank " + std::to_string(rank);
}

std::string name_of(const Event& event) {
  return std::string(event.is_store ? "store " : "load ") + std::to_string(event.event);
}

bool is_same(const Event& left, const Event& right) {
  return left.event == right.event && left.is_store == right.is_store;
}

}  // namespace

Copies::Copies(const SimpleCPUOffloadSpec& spec) : spec_(spec) {
  ranks_.resize(spec.num_workers);
  for (Rank& rank : ranks_) {
    rank.gpu_blocks.resize(spec.kv_cache.pool.num_gpu_blocks);
    rank.cpu_blocks.resize(spec.num_cpu_blocks);
  }
}

// ---- A step on all ranks ----

std::optional<BrokenCopyRule> Copies::run(const PlannedStep& step, const Sequences& sequences,
                                          OwedReport& owed) {
  for (std::size_t index = 0; index < ranks_.size(); ++index) {
    Rank& rank = ranks_[index];
    for (Submitted& copy : rank.copies) {
      if (step.need_flush && copy.is_under_way()) end(rank, copy);
    }
    for (BlockId block : step.zeroed) {
      if (std::find(step.lost.begin(), step.lost.end(), block) != step.lost.end()) continue;
      if (auto broken = overwrite(index, block, "zeroed for somebody else", {})) return broken;
    }
    forgive_victims(step.victims, step.lost, spec_.kv_cache.groups, rank.gpu_blocks);
    if (auto broken = compute(index, step, sequences)) return broken;
    for (const std::optional<Event>* event : {&step.load, &step.store}) {
      if (!*event) continue;
      if (auto broken = submit(index, **event)) return broken;
    }
    take_ended(rank, owed);
  }
  return std::nullopt;
}

std::optional<BrokenCopyRule> Copies::submit(std::size_t rank_index, const Event& event) {
  Rank& rank = ranks_[rank_index];
  for (const CopyPart& part : event.parts) {
    // A block changes hands when all ranks are done with it.
    for (std::size_t each = 0; each < ranks_.size(); ++each) {
      for (const Submitted& other : ranks_[each].copies) {
        if (!other.is_under_way() || is_same(other.event, event)) continue;
        if (!event.is_store && !other.event.is_store) continue;
        for (const CopyPart& its : other.event.parts) {
          if (its.cpu_block != part.cpu_block) continue;
          return BrokenCopyRule{CopyRule::kNoReuseUnderACopy, on_rank(each, "CPU", part.cpu_block),
                                "no other copy under way",
                                name_of(other.event) + ", under " + name_of(event)};
        }
      }
    }
    const Content& source =
        event.is_store ? rank.gpu_blocks[part.gpu_block] : rank.cpu_blocks[part.cpu_block];
    if (part.content && !passes_for(source, *part.content)) {
      return BrokenCopyRule{CopyRule::kCopiesCarryWhatTheyName,
                            event.is_store ? on_rank(rank_index, "GPU", part.gpu_block)
                                           : on_rank(rank_index, "CPU", part.cpu_block),
                            to_text(*part.content), to_text(source) + ", under " + name_of(event)};
    }
  }
  for (const CopyPart& part : event.parts) {
    if (event.is_store) {
      rank.cpu_blocks[part.cpu_block] = {};
    } else if (auto broken = overwrite(rank_index, part.gpu_block, name_of(event), {})) {
      return broken;
    }
  }
  rank.copies.push_back({event, TransferProgress::kSubmitted});
  return std::nullopt;
}

void Copies::end(Rank& rank, Submitted& copy) {
  copy.progress = TransferProgress::kFinished;
  for (const CopyPart& part : copy.event.parts) {
    Content& cpu = rank.cpu_blocks[part.cpu_block];
    Content& gpu = rank.gpu_blocks[part.gpu_block];
    (copy.event.is_store ? cpu : gpu) = copy.event.is_store ? gpu : cpu;
  }
}

std::optional<BrokenCopyRule> Copies::overwrite(std::size_t rank, BlockId block,
                                                const std::string& who, const Content& content) {
  for (const Submitted& copy : ranks_[rank].copies) {
    if (!copy.is_under_way()) continue;
    for (const CopyPart& part : copy.event.parts) {
      if (part.gpu_block != block) continue;
      return BrokenCopyRule{CopyRule::kNoReuseUnderACopy, on_rank(rank, "GPU", block),
                            "left alone by all but " + name_of(copy.event), "written by " + who};
    }
  }
  ranks_[rank].gpu_blocks[block] = content;
  return std::nullopt;
}

/// All write their tokens, then all read what they attend to.
std::optional<BrokenCopyRule> Copies::compute(std::size_t rank, const PlannedStep& step,
                                              const Sequences& sequences) {
  const std::vector<KVCacheSpec>& groups = spec_.kv_cache.groups;
  const std::vector<Content>& blocks = ranks_[rank].gpu_blocks;
  for (const Run& run : step.runs) {
    for (const Filled& filled : filled_by(run, sequences.at(run.request), groups, blocks)) {
      if (auto broken = overwrite(rank, filled.block, run.request, filled.content)) return broken;
    }
  }
  for (const Run& run : step.runs) {
    const Prefixes& prefixes = sequences.at(run.request);
    if (run.end > prefixes.num_tokens()) continue;
    if (const auto wrong = wrong_read(run, prefixes, groups, blocks)) {
      return BrokenCopyRule{CopyRule::kAStepReadsItsOwn, on_rank(rank, "GPU", wrong->block),
                            to_text(wrong->expected) + ", for " + run.request,
                            to_text(wrong->actual)};
    }
  }
  return std::nullopt;
}

/// get_finished of one rank, and its part of the report.
void Copies::take_ended(Rank& rank, OwedReport& owed) {
  for (const Submitted& copy : rank.copies) {
    if (copy.is_under_way()) continue;
    if (copy.event.is_store) ++owed.completed_stores[copy.event.event];
    for (const std::string& name : copy.event.requests) {
      if (++num_recving_[name] < ranks_.size()) continue;
      num_recving_.erase(name);
      owed.finished_recving.push_back(name);
    }
  }
  std::erase_if(rank.copies, [](const Submitted& copy) { return !copy.is_under_way(); });
}

// ---- The copy engines ----

ErrorCode Copies::advance(const AdvanceCopy& command) {
  if (command.progress != TransferProgress::kPart &&
      command.progress != TransferProgress::kFinished) {
    return ErrorCode::kBadRange;
  }
  if (command.rank >= ranks_.size()) return ErrorCode::kNotInConfig;
  Rank& rank = ranks_[command.rank];
  const auto oldest =
      std::find_if(rank.copies.begin(), rank.copies.end(), [&](const Submitted& copy) {
        return copy.event.is_store == command.store && copy.is_under_way();
      });
  if (oldest == rank.copies.end()) return ErrorCode::kUnknownJob;
  oldest->progress = command.progress;
  if (command.progress == TransferProgress::kFinished) end(rank, *oldest);
  return ErrorCode::kNone;
}

std::vector<Copy> Copies::copies() const {
  std::vector<Copy> copies;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    for (const Submitted& submitted : ranks_[rank].copies) {
      Copy& copy = copies.emplace_back();
      copy.rank = static_cast<std::uint32_t>(rank);
      copy.store = submitted.event.is_store;
      copy.event = submitted.event.event;
      copy.progress = submitted.progress;
    }
  }
  return copies;
}

bool Copies::is_idle() const {
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [](const Rank& rank) { return rank.copies.empty(); });
}

}  // namespace kvfence::engine::simple
