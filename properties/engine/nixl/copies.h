#pragma once

/// What the memory of both engines of a pair holds, and what their workers owe, by commands and
/// plans alone. Content is a symbol a token: which sequence it is the last token of. So a block
/// that was used again under a read, a read of the wrong block, and a failed one that was decoded
/// from all show as content that is not the request's own.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "contract/engine/engine_target.h"
#include "properties/kv_cache/kv_content.h"

namespace kvfence::engine::nixl {

/// Of one token: Prefixes::id of the tokens up to it. 0: nothing that anyone could use.
using Content = std::uint64_t;

/// A request's tokens, as far as they are known.
struct Sequence {
  Prefixes prefixes;
  std::uint32_t num_prompt_tokens = 0;
};

/// A request in a step: tokens [begin, end) of it are computed.
struct Run {
  std::string request;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  std::vector<BlockId> table;
};

/// Who was preempted by a step, and what it had.
struct Victim {
  std::string request;
  std::vector<BlockId> table;
};

/// A planned step as the workers get it.
struct PlannedStep {
  std::vector<ScheduledRequest> scheduled;
  std::vector<Run> runs;
  std::vector<BlockId> zeroed;
  std::vector<Victim> victims;  ///< as in offloading::PlannedStep, and `lost` too
  std::vector<BlockId> lost;

  std::vector<std::string> reqs_in_batch;
  std::vector<std::string> reqs_not_processed;
  std::vector<Send> reqs_to_send;

  std::vector<Receive> reqs_to_recv;
  std::vector<std::string> heartbeats;
};

/// What is wrong with a read or a step.
enum class CopyRule : std::uint8_t {
  kReadBlockStays,
  kWrittenBlockStays,
  kLoadBringsItsOwn,
  kStepReadsItsOwn,
};

struct BrokenCopyRule {
  CopyRule rule = CopyRule::kReadBlockStays;
  std::string where;
  std::string expected;
  std::string actual;
};

/// The report that all ranks of an engine owe behind a step.
struct OwedReport {
  std::vector<std::string> finished_sending;
  std::set<std::string> expired;  ///< those of them whose time was over
  std::vector<std::string> finished_recving;
  std::vector<BlockId> invalid_blocks;
};

/// Memory of the ranks of one engine. A rank that reads from several has a part from each.
class Memory {
 public:
  Memory(std::uint32_t num_blocks, std::uint32_t block_size, std::size_t num_parts)
      : block_size_(block_size),
        parts_(num_parts, std::vector<Content>(std::size_t{num_blocks} * block_size)) {}

  std::uint32_t block_size() const { return block_size_; }
  std::size_t num_parts() const { return parts_.size(); }
  Content& at(std::size_t part, BlockId block, std::uint32_t offset) {
    return parts_[part][std::size_t{block} * block_size_ + offset];
  }
  Content at(std::size_t part, BlockId block, std::uint32_t offset) const {
    return parts_[part][std::size_t{block} * block_size_ + offset];
  }

 private:
  std::uint32_t block_size_;
  std::vector<std::vector<Content>> parts_;
};

/// Both engines' workers and the transport, as the contract says that they work. A value: copyable.
class Copies {
 public:
  explicit Copies(const EngineSetup& setup);

  /// The tokens of a request that is there or was.
  using Sequences = std::map<std::string, Sequence>;

  /// The oldest step of an engine on all of its ranks. Nothing, or the first rule that it breaks.
  /// Requires: all names are known, and a read has no more blocks than its request's prompt.
  std::optional<BrokenCopyRule> run(EngineRole role, const PlannedStep& step,
                                    const Sequences& sequences, OwedReport& owed);

  /// The refusal of the transport, or none.
  ErrorCode advance(ReadId read, TransferProgress progress, bool may_fail);
  ErrorCode deliver(NoticeId notice);
  ErrorCode lose(NoticeId notice, bool may_fail);
  ErrorCode repeat(NoticeId notice, bool may_fail);
  ErrorCode advance_clock(Seconds seconds);

  const ScriptedTransport& transport() const { return transport_; }

  /// Whether some rank still has to tell the end of a read for that request.
  bool is_reading(const std::string& request) const;

 private:
  /// Of a request on one rank of the producer.
  struct Expected {
    std::optional<Seconds> expires;
    std::set<std::uint32_t> done_ranks;
  };

  std::size_t num_shares() const;
  std::vector<std::uint32_t> remote_ranks(std::uint32_t rank) const;
  std::size_t part_of(const ReadSpec& spec) const;

  std::optional<BrokenCopyRule> compute(EngineRole role, const PlannedStep& step,
                                        const Sequences& sequences);
  std::optional<BrokenCopyRule> write(EngineRole role, std::size_t part, BlockId block,
                                      std::uint32_t offset, Content content, const std::string& who,
                                      const Sequences& sequences);
  std::optional<BrokenCopyRule> check_reads(EngineRole role, const Run& run,
                                            const Sequences& sequences) const;
  void forgive(EngineRole role, const PlannedStep& step, const Sequences& sequences);
  std::optional<BrokenCopyRule> start_reads(std::uint32_t rank, const PlannedStep& step);
  std::optional<BrokenCopyRule> take_ended_reads(std::uint32_t rank, const Sequences& sequences,
                                                 OwedReport& owed);
  void serve(std::uint32_t rank, const PlannedStep& step, OwedReport& owed);
  void give_back(std::uint32_t rank, const std::string& request, OwedReport& owed);

  DisaggregatedSpec spec_;
  std::vector<Memory> memories_;  ///< by EngineRole
  ScriptedTransport transport_;
  std::vector<std::map<std::string, Expected>> expected_;  ///< by producer's rank
  std::vector<std::map<ReadId, ReadSpec>> reading_;        ///< by consumer's rank
  std::map<std::string, std::uint32_t> num_sending_;       ///< ranks that reported it
  std::map<std::string, std::uint32_t> num_recving_;
};

}  // namespace kvfence::engine::nixl
