#include "properties/engine/simple/copies.h"

#include <algorithm>

#include "properties/engine/simple/rules.h"

namespace kvfence::engine::simple {
namespace {

std::string on_rank(std::size_t rank, const std::string& what, BlockId block) {
  return what + " block " + std::to_string(block) + " on rank " + std::to_string(rank);
}

std::string name_of(const Event& event) {
  return std::string(event.is_store ? "store " : "load ") + std::to_string(event.number);
}

}  // namespace

Copies::Copies(const SimpleCPUOffloadSpec& spec) : spec_(spec) {
  ranks_.resize(spec.num_workers);
  for (Rank& rank : ranks_) {
    rank.gpu_blocks.resize(spec.kv_cache.pool.num_gpu_blocks);
    rank.cpu_blocks.resize(spec.num_cpu_blocks);
  }
}

std::optional<Divergence> Copies::run(const PlannedStep& step, const Sequences& sequences) {
  for (std::size_t index = 0; index < ranks_.size(); ++index) {
    Rank& rank = ranks_[index];
    while (step.need_flush && !rank.under_way.empty()) end(rank, 0);
    for (BlockId block : step.zeroed) {
      if (std::find(step.lost.begin(), step.lost.end(), block) != step.lost.end()) continue;
      if (auto found = overwrite(index, block, "zeroed for somebody else", {})) return found;
    }
    forgive_victims(step.victims, step.lost, spec_.kv_cache.groups, rank.gpu_blocks);
    if (auto found = compute(index, step, sequences)) return found;
    for (const Event& event : step.events) {
      if (auto found = submit(index, event)) return found;
    }
  }
  return std::nullopt;
}

std::optional<Divergence> Copies::submit(std::size_t rank_index, const Event& event) {
  Rank& rank = ranks_[rank_index];
  for (const CopyPart& part : event.parts) {
    // A block changes hands when all ranks are done with it.
    for (std::size_t each = 0; each < ranks_.size(); ++each) {
      for (const Event& other : ranks_[each].under_way) {
        if (other.id() == event.id() || (!event.is_store && !other.is_store)) continue;
        for (const CopyPart& its : other.parts) {
          if (its.cpu_block != part.cpu_block) continue;
          return broken_phrase(kNoReuseUnderACopy, on_rank(each, "CPU", part.cpu_block),
                               "no other copy under way",
                               name_of(other) + ", under " + name_of(event));
        }
      }
    }
    const Content& source =
        event.is_store ? rank.gpu_blocks[part.gpu_block] : rank.cpu_blocks[part.cpu_block];
    if (part.content && !passes_for(source, *part.content)) {
      return broken_phrase(kCopiesCarryWhatTheyName,
                           event.is_store ? on_rank(rank_index, "GPU", part.gpu_block)
                                          : on_rank(rank_index, "CPU", part.cpu_block),
                           to_text(*part.content), to_text(source) + ", under " + name_of(event));
    }
  }
  for (const CopyPart& part : event.parts) {
    if (event.is_store) {
      rank.cpu_blocks[part.cpu_block] = {};
    } else if (auto found = overwrite(rank_index, part.gpu_block, name_of(event), {})) {
      return found;
    }
  }
  rank.under_way.push_back(event);
  return std::nullopt;
}

std::optional<Divergence> Copies::overwrite(std::size_t rank, BlockId block, const std::string& who,
                                            const Content& content) {
  for (const Event& event : ranks_[rank].under_way) {
    for (const CopyPart& part : event.parts) {
      if (part.gpu_block != block) continue;
      return broken_phrase(kNoReuseUnderACopy, on_rank(rank, "GPU", block),
                           "left alone by all but " + name_of(event), "written by " + who);
    }
  }
  ranks_[rank].gpu_blocks[block] = content;
  return std::nullopt;
}

/// All write their tokens, then all read what they attend to.
std::optional<Divergence> Copies::compute(std::size_t rank, const PlannedStep& step,
                                          const Sequences& sequences) {
  const std::vector<KVCacheSpec>& groups = spec_.kv_cache.groups;
  const std::vector<Content>& blocks = ranks_[rank].gpu_blocks;
  for (const Run& run : step.runs) {
    for (const Filled& filled : filled_by(run, sequences.at(run.request), groups, blocks)) {
      if (auto found = overwrite(rank, filled.block, run.request, filled.content)) return found;
    }
  }
  for (const Run& run : step.runs) {
    const Prefixes& prefixes = sequences.at(run.request);
    if (run.end > prefixes.num_tokens()) continue;
    if (const auto wrong = wrong_read(run, prefixes, groups, blocks)) {
      return broken_phrase(kAStepReadsItsOwn, on_rank(rank, "GPU", wrong->block),
                           to_text(wrong->expected) + ", for " + run.request,
                           to_text(wrong->actual));
    }
  }
  return std::nullopt;
}

void Copies::end(Rank& rank, std::size_t index) {
  const Event& event = rank.under_way[index];
  for (const CopyPart& part : event.parts) {
    Content& cpu = rank.cpu_blocks[part.cpu_block];
    Content& gpu = rank.gpu_blocks[part.gpu_block];
    (event.is_store ? cpu : gpu) = event.is_store ? gpu : cpu;
  }
  ++num_ranks_ended_[event.id()];
  rank.under_way.erase(rank.under_way.begin() + static_cast<std::ptrdiff_t>(index));
}

bool Copies::end_oldest(std::uint32_t rank, bool is_store) {
  if (rank >= ranks_.size()) return false;
  const std::vector<Event>& under_way = ranks_[rank].under_way;
  const auto oldest = std::find_if(under_way.begin(), under_way.end(),
                                   [&](const Event& event) { return event.is_store == is_store; });
  if (oldest == under_way.end()) return false;
  end(ranks_[rank], static_cast<std::size_t>(oldest - under_way.begin()));
  return true;
}

std::uint32_t Copies::num_ranks_ended(const Event& event) const {
  const auto found = num_ranks_ended_.find(event.id());
  return found == num_ranks_ended_.end() ? 0 : found->second;
}

bool Copies::is_idle() const {
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [](const Rank& rank) { return rank.under_way.empty(); });
}

}  // namespace kvfence::engine::simple
