#pragma once

/// The content of blocks as symbols: which tokens of which sequence a block has the KV of, and how
/// a step on a rank changes it. Shared by the targets that copy blocks.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "contract/core/types.h"
#include "contract/kv_cache/kv_cache_manager.h"
#include "contract/pool/request.h"

namespace kvfence {

/// KV of the tokens [begin, end) of a sequence, in one group. `id` stands for all tokens before
/// `end` and their salt; 0: no usable content.
struct Content {
  std::uint64_t id = 0;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  GroupId group = 0;
  friend bool operator==(const Content&, const Content&) = default;
};

/// Equal to any wanted content: for content that cannot be known and is nobody's fault.
inline constexpr Content kAnything{~std::uint64_t{0}, 0, 0, 0};

/// Whether the content can stand in for the wanted one.
inline bool passes_for(const Content& content, const Content& wanted) {
  return content == kAnything || content == wanted;
}

/// "tokens 4 to 8 in group 0, of sequence 3f", "nothing".
std::string to_text(const Content& content);

/// Names the leading tokens of sequences: equal for equal tokens, LoRA adapter and salt.
class Prefixes {
 public:
  Prefixes() : Prefixes(RequestSpec()) {}
  /// Without tokens.
  explicit Prefixes(const RequestSpec& spec);
  void append(TokenId token);
  std::uint32_t num_tokens() const { return static_cast<std::uint32_t>(ids_.size()) - 1; }
  /// Requires: num_tokens <= num_tokens().
  std::uint64_t id(std::uint32_t num_tokens) const { return ids_[num_tokens]; }

 private:
  std::vector<std::uint64_t> ids_;
};

/// The tokens of present and past requests, by name.
using Sequences = std::map<std::string, Prefixes>;

/// A request in a step: tokens [begin, end) of it are computed.
struct Run {
  std::string request;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  BlocksByGroup table;
  bool has_drafts = false;        ///< a state may be in any of its blocks
  bool has_drafts_ahead = false;  ///< it may be planned with drafts that are rejected
};

/// A block that a run fills, and its new content.
struct Filled {
  BlockId block = 0;
  GroupId group = 0;
  Content content;
};

/// What the run writes into a rank's GPU blocks, given what they hold. The tokens of a request that
/// has ended meanwhile are unknown: its blocks get no usable content. Of Mamba in align mode the
/// state after the last token, if that before the first is where it should be; with drafts any
/// block.
std::vector<Filled> filled_by(const Run& run, const Prefixes& prefixes,
                              const std::vector<KVCacheSpec>& groups,
                              const std::vector<Content>& blocks);

/// A block whose content is not what a run reads there.
struct WrongRead {
  BlockId block = 0;
  Content expected;
  Content actual;
};

/// The first block whose content is not what the run attends to; nothing if all are right.
/// Requires: run.end <= prefixes.num_tokens(); the run's own tokens are written.
std::optional<WrongRead> wrong_read(const Run& run, const Prefixes& prefixes,
                                    const std::vector<KVCacheSpec>& groups,
                                    const std::vector<Content>& blocks);

/// A request that a step preempts, with its table before that step.
struct PreemptedTable {
  std::string request;
  BlocksByGroup table;
};

/// Under the priority policy a victim may already have been served in the same step. Upstream's
/// scheduler then leaves blocks in the GPU's cache that nobody computes, and zeroes blocks that no
/// request has: neither is a connector's fault. So a rank's lost blocks, and those blocks of
/// victims that hold none of their own tokens yet, become kAnything.
/// lost: new blocks that no request has.
void forgive_victims(const std::vector<PreemptedTable>& victims, const std::vector<BlockId>& lost,
                     const Sequences& sequences, const std::vector<KVCacheSpec>& groups,
                     std::vector<Content>& blocks);

}  // namespace kvfence
