#pragma once

/// Injected faults in a stream of KV events: what `kvfence replay --publish --inject` publishes
/// instead of the truth, to see whether an indexer or an auditor notices.
///
/// A fault changes one message, and everything else remains what a sound engine publishes: a block
/// with a wrong hash has the same wrong hash wherever it is named, and its children's hashes follow
/// from it.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "contract/core/line.h"
#include "contract/core/words.h"
#include "contract/pool/block_hash.h"
#include "scenarios/audit/event_batch.h"

namespace kvfence::audit {

enum class FaultKind : std::uint8_t {
  kLost,            ///< the message is not sent; the replay endpoint has it
  kRepeated,        ///< it is sent twice
  kReordered,       ///< it is sent after the next one
  kSilentRestart,   ///< before it, a new engine starts over: sequence 0, nothing held, no clear
  kMalformed,       ///< half of its payload is missing
  kWrongRank,       ///< it names the next data-parallel rank
  kWrongParent,     ///< a stored event names another held block as its parent
  kUnknownParent,   ///< and one that was never stored
  kWrongHash,       ///< a block that was never stored before has another hash, here and later on
  kCutTokens,       ///< a stored event lacks its last token
  kRemovedUnknown,  ///< a removed event of a hash that was never stored
  kRemovedTwice,    ///< the removal of a last copy is published twice
  kRemovedHeld,     ///< a removed event of the block that was stored last, which stays held
  kRemovalLeftOut,  ///< a removed event is missing
  kClearedHeld,     ///< a clear is published, and everything stays held
};

constexpr auto words_of(FaultKind) {
  return words({"lost", "repeated", "reordered", "silent_restart", "malformed", "wrong_rank",
                "wrong_parent", "unknown_parent", "wrong_hash", "cut_tokens", "removed_unknown",
                "removed_twice", "removed_held", "removal_left_out", "cleared_held"});
}

/// A fault in the first possible message from that one on.
struct Fault {
  FaultKind kind = FaultKind::kLost;
  std::uint64_t message = 0;  ///< the sequence number without faults
  std::uint64_t every = 0;    ///< and again so many messages later, and so on; 0: once

  friend bool operator==(const Fault&, const Fault&) = default;
};

/// KIND@N, or KIND@N/EVERY. Errors: an unknown kind, no number.
Parsed<Fault> parse_fault(std::string_view text);

/// A message, and what is done with it.
struct Outgoing {
  std::uint64_t sequence = 0;
  EventBatch batch;
  std::string truth;      ///< what is held after it, as lines of the truth
  bool is_sent = true;    ///< to subscribers
  bool is_kept = true;    ///< for replay
  bool restarts = false;  ///< is the first one of a restarted engine
  bool is_cut = false;    ///< half of the payload is sent
};

/// Where a fault is: the sequence number of the message.
struct Injection {
  FaultKind kind = FaultKind::kLost;
  std::uint64_t sequence = 0;
};

/// Plants faults in a stream of sound messages.
/// Cost: with a silent restart ahead, every message so far is kept; with any fault, a mirror.
class FaultInjector {
 public:
  /// algorithm: of the hashes, all of them in full.
  FaultInjector(std::vector<Fault> faults, HashAlgorithm algorithm);

  /// Appends what is published instead of the next message.
  void take(Outgoing message, std::vector<Outgoing>& out);
  /// Appends what was held back for a message that did not come; it is no fault then.
  void finish(std::vector<Outgoing>& out);

  const std::vector<Injection>& injections() const { return injections_; }

 private:
  using Key = std::tuple<std::string, std::uint32_t, std::string>;  ///< medium, group, hash
  struct Held {
    std::uint32_t copies = 0;
    std::uint64_t since = 0;
  };

  void take_event(const Event& event, std::uint64_t sequence, std::vector<Event>& out);
  void note(const Event& event);
  bool inject(FaultKind kind, std::vector<Event>& out);
  bool inject_stored(FaultKind kind, StoredEvent& event, std::vector<Event>& out);
  bool remove_newest(std::vector<Event>& out) const;
  void rename(std::vector<Event>& events);
  void rename(StoredEvent& event);
  /// Puts the published hash in the place of the sound one. False: they are the same.
  bool rename(EventHash& hash) const;
  void publish(Outgoing message, std::vector<Outgoing>& out);
  void restart(std::vector<Outgoing>& out);
  void record(Fault& fault, std::uint64_t sequence);

  std::vector<Fault> faults_;
  HashAlgorithm algorithm_;
  std::vector<Injection> injections_;
  std::map<Key, Held> held_;
  std::set<std::string> ever_stored_;
  std::uint64_t num_stored_ = 0;
  bool carries_group_ = false;  ///< the event at hand
  bool is_first_new_ = false;   ///< the first hash of the event at hand was never stored before
  std::map<std::string, std::string> renamed_;  ///< sound hash to the one that is published
  std::vector<Outgoing> history_;               ///< where a restart is ahead
  double shift_ = 0;                            ///< seconds that restarts took
  std::optional<Outgoing> held_back_;
};

}  // namespace kvfence::audit
