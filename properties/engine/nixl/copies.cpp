#include "properties/engine/nixl/copies.h"

#include <algorithm>

#include "contract/core/check.h"

namespace kvfence::engine::nixl {
namespace {

/// Passes for whatever is looked for (PlannedStep::victims).
constexpr Content kAnything = ~Content{0};

std::size_t index_of(EngineRole role) { return static_cast<std::size_t>(role); }

bool is_under_way(const ScriptedTransport::Read& read) {
  return read.progress == TransferProgress::kSubmitted || read.progress == TransferProgress::kPart;
}

std::string name_of(const ScriptedTransport::Read& read) {
  return "read " + std::to_string(read.read) + " for " + read.spec.request;
}

std::string block_name(EngineRole role, std::size_t part, BlockId block) {
  return std::string(to_text(role)) + "'s block " + std::to_string(block) + ", part " +
         std::to_string(part);
}

std::string token_name(std::uint32_t token, const std::string& request) {
  return "token " + std::to_string(token) + " of " + request;
}

/// The place in a prompt of the first block of a read: it ends with the prompt.
std::uint32_t first_place(std::uint32_t num_prompt_tokens, std::uint32_t block_size,
                          std::size_t num_blocks) {
  const std::uint32_t num_places = (num_prompt_tokens + block_size - 1) / block_size;
  return num_places - static_cast<std::uint32_t>(num_blocks);
}

template <class T>
bool contains(const std::vector<T>& list, const T& element) {
  return std::find(list.begin(), list.end(), element) != list.end();
}

void count(std::map<std::string, std::uint32_t>& counts, const std::string& name,
           std::uint32_t num_ranks, std::vector<std::string>& complete) {
  if (++counts[name] < num_ranks) return;
  counts.erase(name);
  complete.push_back(name);
}

}  // namespace

Copies::Copies(const EngineSetup& setup) : spec_(*setup.nixl) {
  for (const EngineRole role : kEngineRoles) {
    const KVCacheManagerConfig& kv_cache = setup.schedulers[index_of(role)].kv_cache;
    const bool consumes = role == EngineRole::kConsumer;
    memories_.emplace_back(kv_cache.pool.num_gpu_blocks, kv_cache.groups.front().block_size,
                           consumes ? spec_.consumer_world_size * num_shares() : 1);
  }
  expected_.resize(spec_.producer_world_size);
  reading_.resize(spec_.consumer_world_size);
}

std::size_t Copies::num_shares() const {
  return std::max(1U, spec_.producer_world_size / spec_.consumer_world_size);
}

std::vector<std::uint32_t> Copies::remote_ranks(std::uint32_t rank) const {
  const std::uint32_t producers = spec_.producer_world_size;
  const std::uint32_t consumers = spec_.consumer_world_size;
  if (consumers >= producers) return {rank / (consumers / producers)};
  std::vector<std::uint32_t> ranks;
  for (std::uint32_t share = 0; share < num_shares(); ++share) {
    ranks.push_back(rank * static_cast<std::uint32_t>(num_shares()) + share);
  }
  return ranks;
}

std::size_t Copies::part_of(const ReadSpec& spec) const {
  const std::size_t share = num_shares() == 1 ? 0 : spec.remote_rank % num_shares();
  return spec.rank * num_shares() + share;
}

bool Copies::is_reading(const std::string& request) const {
  return std::any_of(reading_.begin(), reading_.end(), [&](const auto& reads) {
    return std::any_of(reads.begin(), reads.end(),
                       [&](const auto& read) { return read.second.request == request; });
  });
}

// ---- Steps ----

std::optional<BrokenCopyRule> Copies::run(EngineRole role, const PlannedStep& step,
                                          const Sequences& sequences, OwedReport& owed) {
  Memory& memory = memories_[index_of(role)];
  for (const BlockId block : step.zeroed) {
    if (contains(step.lost, block)) continue;
    for (std::size_t part = 0; part < memory.num_parts(); ++part) {
      for (std::uint32_t offset = 0; offset < memory.block_size(); ++offset) {
        if (auto broken =
                write(role, part, block, offset, 0, "zeroed for somebody else", sequences)) {
          return broken;
        }
      }
    }
  }
  forgive(role, step, sequences);
  if (role == EngineRole::kProducer) {
    if (auto broken = compute(role, step, sequences)) return broken;
    for (std::uint32_t rank = 0; rank < expected_.size(); ++rank) serve(rank, step, owed);
    return std::nullopt;
  }
  // No read ends meanwhile, so that ranks may go through the step side by side.
  for (std::uint32_t rank = 0; rank < reading_.size(); ++rank) {
    if (auto broken = start_reads(rank, step)) return broken;
  }
  if (auto broken = compute(role, step, sequences)) return broken;
  for (std::uint32_t rank = 0; rank < reading_.size(); ++rank) {
    if (auto broken = take_ended_reads(rank, sequences, owed)) return broken;
  }
  std::sort(owed.invalid_blocks.begin(), owed.invalid_blocks.end());
  owed.invalid_blocks.erase(std::unique(owed.invalid_blocks.begin(), owed.invalid_blocks.end()),
                            owed.invalid_blocks.end());
  return std::nullopt;
}

/// What a victim of the same step did not compute passes for computed.
void Copies::forgive(EngineRole role, const PlannedStep& step, const Sequences& sequences) {
  Memory& memory = memories_[index_of(role)];
  for (std::size_t part = 0; part < memory.num_parts(); ++part) {
    for (std::uint32_t offset = 0; offset < memory.block_size(); ++offset) {
      for (const BlockId block : step.lost) memory.at(part, block, offset) = kAnything;
    }
    for (const Victim& victim : step.victims) {
      const Prefixes& prefixes = sequences.at(victim.request).prefixes;
      for (std::uint32_t place = 0; place < victim.table.size(); ++place) {
        for (std::uint32_t offset = 0; offset < memory.block_size(); ++offset) {
          const std::uint32_t end = place * memory.block_size() + offset + 1;
          Content& content = memory.at(part, victim.table[place], offset);
          const bool is_own = end <= prefixes.num_tokens() && content == prefixes.id(end);
          if (!is_own) content = kAnything;
        }
      }
    }
  }
}

/// All write their tokens, then all read what they attend to.
std::optional<BrokenCopyRule> Copies::compute(EngineRole role, const PlannedStep& step,
                                              const Sequences& sequences) {
  const Memory& memory = memories_[index_of(role)];
  for (const Run& run : step.runs) {
    const Prefixes& prefixes = sequences.at(run.request).prefixes;
    for (std::uint32_t token = run.begin; token < run.end; ++token) {
      const std::uint32_t place = token / memory.block_size();
      if (place >= run.table.size()) break;
      // Tokens of a request that ended meanwhile are not known any more.
      const Content content = token < prefixes.num_tokens() ? prefixes.id(token + 1) : 0;
      for (std::size_t part = 0; part < memory.num_parts(); ++part) {
        if (auto broken = write(role, part, run.table[place], token % memory.block_size(), content,
                                run.request, sequences)) {
          return broken;
        }
      }
    }
  }
  for (const Run& run : step.runs) {
    if (run.end > sequences.at(run.request).prefixes.num_tokens()) continue;
    if (auto broken = check_reads(role, run, sequences)) return broken;
  }
  return std::nullopt;
}

/// One token's place. What a read reads may be computed once more, but not become another's.
std::optional<BrokenCopyRule> Copies::write(EngineRole role, std::size_t part, BlockId block,
                                            std::uint32_t offset, Content content,
                                            const std::string& who, const Sequences& sequences) {
  const bool consumes = role == EngineRole::kConsumer;
  Memory& memory = memories_[index_of(role)];
  Content& there = memory.at(part, block, offset);
  for (const ScriptedTransport::Read& read : transport_.reads()) {
    if (!is_under_way(read) || (consumes && part_of(read.spec) != part)) continue;
    const std::vector<BlockId>& blocks =
        consumes ? read.spec.local_blocks : read.spec.remote_blocks;
    const auto at = std::find(blocks.begin(), blocks.end(), block);
    if (at == blocks.end() || (!consumes && there == content)) continue;
    const std::uint32_t num_prompt = sequences.at(read.spec.request).num_prompt_tokens;
    const std::uint32_t place = first_place(num_prompt, memory.block_size(), blocks.size()) +
                                static_cast<std::uint32_t>(at - blocks.begin());
    if (place * memory.block_size() + offset >= num_prompt) continue;
    return BrokenCopyRule{consumes ? CopyRule::kWrittenBlockStays : CopyRule::kReadBlockStays,
                          block_name(role, part, block), "left alone under " + name_of(read),
                          "written by " + who};
  }
  there = content;
  return std::nullopt;
}

std::optional<BrokenCopyRule> Copies::check_reads(EngineRole role, const Run& run,
                                                  const Sequences& sequences) const {
  const Memory& memory = memories_[index_of(role)];
  const Prefixes& prefixes = sequences.at(run.request).prefixes;
  for (std::size_t part = 0; part < memory.num_parts(); ++part) {
    for (std::uint32_t token = 0; token < run.end; ++token) {
      const std::uint32_t place = token / memory.block_size();
      const BlockId block = place < run.table.size() ? run.table[place] : kNullBlockId;
      const Content content = memory.at(part, block, token % memory.block_size());
      const bool is_own = content == prefixes.id(token + 1) || content == kAnything;
      if (is_own && block != kNullBlockId) continue;
      return BrokenCopyRule{CopyRule::kStepReadsItsOwn, block_name(role, part, block),
                            token_name(token, run.request),
                            content == 0 ? "nothing" : "something else"};
    }
  }
  return std::nullopt;
}

// ---- The consumer's ranks ----

std::optional<BrokenCopyRule> Copies::start_reads(std::uint32_t rank, const PlannedStep& step) {
  Memory& memory = memories_[index_of(EngineRole::kConsumer)];
  for (const Receive& receive : step.reqs_to_recv) {
    for (const std::uint32_t remote_rank : remote_ranks(rank)) {
      if (receive.local_blocks.empty()) {
        transport_.send_notice(
            {rank, remote_rank, /*is_heartbeat=*/false, {receive.remote_request}});
        continue;
      }
      const ReadSpec spec{rank,
                          remote_rank,
                          receive.request,
                          receive.remote_request,
                          receive.local_blocks,
                          receive.remote_blocks};
      const std::size_t part = part_of(spec);
      for (const BlockId block : spec.local_blocks) {
        for (const ScriptedTransport::Read& other : transport_.reads()) {
          if (!is_under_way(other) || part_of(other.spec) != part) continue;
          if (!contains(other.spec.local_blocks, block)) continue;
          return BrokenCopyRule{
              CopyRule::kWrittenBlockStays, block_name(EngineRole::kConsumer, part, block),
              "left alone under " + name_of(other), "written by a read for " + receive.request};
        }
        for (std::uint32_t offset = 0; offset < memory.block_size(); ++offset) {
          memory.at(part, block, offset) = 0;
        }
      }
      reading_[rank][transport_.read(spec)] = spec;
    }
  }
  if (step.heartbeats.empty()) return std::nullopt;
  for (const std::uint32_t remote_rank : remote_ranks(rank)) {
    transport_.send_notice({rank, remote_rank, /*is_heartbeat=*/true, step.heartbeats});
  }
  return std::nullopt;
}

std::optional<BrokenCopyRule> Copies::take_ended_reads(std::uint32_t rank,
                                                       const Sequences& sequences,
                                                       OwedReport& owed) {
  const Memory& memory = memories_[index_of(EngineRole::kConsumer)];
  std::vector<ReadResult> results;
  transport_.get_finished_reads(rank, results);
  for (const ReadResult& result : results) {
    const ReadSpec spec = reading_[rank].at(result.read);
    reading_[rank].erase(result.read);
    const std::vector<BlockId>& blocks = spec.local_blocks;
    if (!result.success) {
      owed.invalid_blocks.insert(owed.invalid_blocks.end(), blocks.begin(), blocks.end());
    } else {
      const Sequence& sequence = sequences.at(spec.request);
      const std::uint32_t size = memory.block_size();
      const std::uint32_t num_prompt = sequence.num_prompt_tokens;
      const std::uint32_t first = first_place(num_prompt, size, blocks.size()) * size;
      for (std::uint32_t token = first; token < num_prompt; ++token) {
        const BlockId block = blocks[(token - first) / size];
        const Content content = memory.at(part_of(spec), block, token % size);
        if (content == sequence.prefixes.id(token + 1) || content == kAnything) continue;
        return BrokenCopyRule{
            CopyRule::kLoadBringsItsOwn, block_name(EngineRole::kConsumer, part_of(spec), block),
            token_name(token, spec.request), content == 0 ? "nothing" : "something else"};
      }
    }
    const bool is_last =
        std::none_of(reading_[rank].begin(), reading_[rank].end(),
                     [&](const auto& other) { return other.second.request == spec.request; });
    if (is_last) {
      count(num_recving_, spec.request, spec_.consumer_world_size, owed.finished_recving);
    }
  }
  return std::nullopt;
}

// ---- The producer's ranks ----

void Copies::serve(std::uint32_t rank, const PlannedStep& step, OwedReport& owed) {
  std::map<std::string, Expected>& expected = expected_[rank];
  for (const std::string& request : step.reqs_in_batch) expected.try_emplace(request);
  for (const std::string& request : step.reqs_not_processed) expected.erase(request);
  for (const Send& send : step.reqs_to_send) {
    const auto at = expected.find(send.request);
    if (at != expected.end()) at->second.expires = send.expires;
  }
  const std::uint32_t producers = spec_.producer_world_size;
  const std::uint32_t consumers = spec_.consumer_world_size;
  const std::uint32_t num_readers = consumers > producers ? consumers / producers : 1;
  std::vector<Notice> notices;
  transport_.get_new_notices(rank, notices);
  for (const Notice& notice : notices) {
    for (const std::string& request : notice.requests) {
      const auto at = expected.find(request);
      if (at == expected.end()) continue;
      if (notice.is_heartbeat) {
        if (!at->second.expires) continue;
        const Seconds renewed = transport_.now() + *spec_.deadline * 2 / 3;
        at->second.expires = std::max(*at->second.expires, renewed);
        continue;
      }
      at->second.done_ranks.insert(notice.rank);
      if (at->second.done_ranks.size() == num_readers) give_back(rank, request, owed);
    }
  }
  std::vector<std::string> over;
  for (const auto& [request, each] : expected) {
    if (each.expires && *each.expires <= transport_.now()) over.push_back(request);
  }
  for (const std::string& request : over) {
    owed.expired.insert(request);
    give_back(rank, request, owed);
  }
}

void Copies::give_back(std::uint32_t rank, const std::string& request, OwedReport& owed) {
  transport_.close(rank, request);
  expected_[rank].erase(request);
  count(num_sending_, request, spec_.producer_world_size, owed.finished_sending);
}

// ---- The transport ----

ErrorCode Copies::advance(ReadId number, TransferProgress progress, bool may_fail) {
  if (progress == TransferProgress::kSubmitted) return ErrorCode::kBadRange;
  if (progress == TransferProgress::kFailed && !may_fail) return ErrorCode::kNotInConfig;
  const auto at = std::find_if(transport_.reads().begin(), transport_.reads().end(),
                               [&](const ScriptedTransport::Read& read) {
                                 return read.read == number && is_under_way(read);
                               });
  if (at == transport_.reads().end()) return ErrorCode::kUnknownJob;
  if (progress == TransferProgress::kFinished) {
    const Memory& remote = memories_[index_of(EngineRole::kProducer)];
    Memory& local = memories_[index_of(EngineRole::kConsumer)];
    for (std::size_t index = 0; index < at->spec.local_blocks.size(); ++index) {
      for (std::uint32_t offset = 0; offset < local.block_size(); ++offset) {
        local.at(part_of(at->spec), at->spec.local_blocks[index], offset) =
            remote.at(0, at->spec.remote_blocks[index], offset);
      }
    }
  }
  KVFENCE_CHECK(transport_.advance(number, progress), "it was under way");
  return ErrorCode::kNone;
}

ErrorCode Copies::deliver(NoticeId notice) {
  return transport_.deliver(notice) ? ErrorCode::kNone : ErrorCode::kUnknownJob;
}

ErrorCode Copies::lose(NoticeId notice, bool may_fail) {
  if (!may_fail) return ErrorCode::kNotInConfig;
  return transport_.lose(notice) ? ErrorCode::kNone : ErrorCode::kUnknownJob;
}

ErrorCode Copies::repeat(NoticeId notice, bool may_fail) {
  if (!may_fail) return ErrorCode::kNotInConfig;
  return transport_.repeat(notice) ? ErrorCode::kNone : ErrorCode::kUnknownJob;
}

ErrorCode Copies::advance_clock(Seconds seconds) {
  return transport_.advance_clock(seconds) ? ErrorCode::kNone : ErrorCode::kBadRange;
}

}  // namespace kvfence::engine::nixl
