#pragma once

/// The rules of an audit, which no correct engine breaks, and their findings.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/core/lists.h"

namespace kvfence::audit {

enum class Rule : std::uint8_t {
  kMalformed,
  kTokenCounts,
  kUnknownParent,
  kRemovedNeverStored,
  kRemovedTooOften,
  kRemovedAfterClear,
  kWrongHash,
  kTwoContents,
  kTooManyBlocks,
  kLost,
  kRepeated,
  kReordered,
  kRestarted,
  kWrongRank,
};

struct RuleText {
  std::string_view id;
  std::string_view name;
  std::string_view doc;
};

inline constexpr std::array<RuleText, 14> kRules = {{
    {"audit.1", "malformed", "a payload or an event that is not what an engine sends"},
    {"audit.2", "token_counts", "tokens, hashes and extra keys of an event fit its block size"},
    {"audit.3", "unknown_parent", "a block is stored under a parent that is held"},
    {"audit.4", "removed_never_stored", "what is removed was stored"},
    {"audit.5", "removed_too_often", "a hash is removed no more often than it was stored"},
    {"audit.6", "removed_after_clear", "nothing is removed, or stored under, after its clear"},
    {"audit.7", "wrong_hash", "a hash is that of its parent, tokens and extra keys"},
    {"audit.8", "two_contents", "a hash has one parent, one list of tokens and extra keys"},
    {"audit.9", "too_many_blocks", "no more blocks are held than the engine has"},
    {"audit.10", "lost", "no message of a sequence is missing"},
    {"audit.11", "repeated", "no message comes twice"},
    {"audit.12", "reordered", "messages come in the order of their sequence"},
    {"audit.13", "restarted", "a sequence that starts over begins with a clear"},
    {"audit.14", "wrong_rank", "a publisher names one data-parallel rank"},
}};

inline const RuleText& text_of(Rule rule) { return kRules[static_cast<std::size_t>(rule)]; }

/// An event, or with kNoEvent a message, of a stream.
struct EventRef {
  static constexpr std::uint32_t kNoEvent = 0xFFFF'FFFF;

  std::uint64_t sequence = 0;
  std::uint32_t event = kNoEvent;  ///< its place in the message

  friend bool operator==(const EventRef&, const EventRef&) = default;
  friend auto operator<=>(const EventRef&, const EventRef&) = default;
};

struct Finding {
  Rule rule = Rule::kMalformed;
  std::string engine = {};
  std::string topic = {};
  std::optional<std::uint32_t> rank = {};
  EventRef at = {};
  std::string event = {};  ///< in words; empty for a message
  std::string found = {};
  std::string expected = {};
  std::vector<EventRef> led_there = {};  ///< of the same stream; kept, from the oldest, each once
  /// Numbers of messages that the auditor had received: before the engine started, and at the
  /// finding. Between them, sequence numbers belong to one run of the engine.
  std::uint64_t since = 0;
  std::uint64_t until = 0;

  /// "audit.4 removed_never_stored: tcp://a:1 rank 0, message 7, event 0: found ..., expected ...".
  /// One line, whatever the publisher sent.
  std::string to_text() const;
};

/// All findings: each is counted, the first ones are kept.
class Findings {
 public:
  static constexpr std::size_t kKeptMax = 1000;

  void add(Finding finding) {
    ++counts_[static_cast<std::size_t>(finding.rule)];
    ++size_;
    if (kept_.size() == kKeptMax) return;
    keep_each_once(finding.led_there);
    kept_.push_back(std::move(finding));
  }

  const std::vector<Finding>& kept() const { return kept_; }
  std::uint64_t size() const { return size_; }
  std::uint64_t count(Rule rule) const { return counts_[static_cast<std::size_t>(rule)]; }

 private:
  std::vector<Finding> kept_;
  std::array<std::uint64_t, kRules.size()> counts_{};
  std::uint64_t size_ = 0;
};

}  // namespace kvfence::audit
