#pragma once

/// Auditor: messages of many engines in, findings out. It orders each engine's messages by their
/// sequence numbers, reports gaps, and gives the events to the checker of their rank.

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "scenarios/audit/checks.h"
#include "scenarios/audit/decode.h"
#include "scenarios/audit/recording.h"
#include "scenarios/audit/rules.h"

namespace kvfence::audit {

struct AuditRules {
  CheckRules checks;
  /// Bytes of messages that are kept for evidence_of(); 0: none.
  std::size_t kept_bytes_max = 0;
};

struct AuditCounts {
  std::uint64_t messages = 0;
  std::uint64_t replayed = 0;  ///< of them, asked for again
  std::uint64_t events = 0;
  std::uint64_t unknown_fields = 0;
  double lag_seconds = 0;  ///< of the last message: arrival less its own time
};

/// The state of one stream, for display.
struct StreamView {
  std::string engine;
  std::string topic;
  std::optional<std::uint32_t> rank;
  std::uint64_t next = 0;  ///< sequence number
  bool is_certain = false;
  CheckCounts counts;
  Holdings holdings;
  std::string hashes;
  std::vector<HashId> held;  ///< of views(true)
};

class Auditor {
 public:
  explicit Auditor(AuditRules rules) : rules_(rules) {}
  Auditor(const Auditor&) = delete;
  Auditor& operator=(const Auditor&) = delete;

  void take(const Arrival& arrival);

  /// The engine sent something that is not a message; reported once.
  void reject(const std::string& engine, const std::string& found);

  /// Nothing came for a while: decides which of the messages that others wait for are lost.
  void settle();
  /// Nothing more will come.
  void finish();

  /// The first sequence number that is missing before this message, where it can be asked for: in
  /// a gap, once, and from 0 on where an engine is met under way.
  std::optional<std::uint64_t> missing_before(const Arrival& arrival) const;

  const Findings& findings() const { return findings_; }
  const AuditCounts& counts() const { return counts_; }
  std::vector<StreamView> views(bool with_held = false) const;
  CheckCounts check_counts() const;
  Holdings holdings() const;

  /// The few events that show the finding, as far as they are kept; audited again, they give it.
  std::vector<Arrival> evidence_of(const Finding& finding) const;

 private:
  struct Received {
    Arrival arrival;
    DecodedBatch decoded;
    std::uint64_t number = 0;  ///< messages before it
    bool is_batch = false;
    HashId digest = 0;
  };

  struct Seen {
    std::uint64_t sequence = UINT64_MAX;
    HashId digest = 0;
    bool was_published = false;  ///< it came by subscription
  };

  struct Channel;

  struct Stream {
    static constexpr std::size_t kSeenKept = 1024;

    Stream(Auditor& auditor, const Channel& of, std::optional<std::uint32_t> named);

    /// Whether a number before `next` is from an engine that restarted.
    bool is_of_another(std::uint64_t sequence, HashId digest) const;

    const Channel& channel;
    std::optional<std::uint32_t> rank;
    EventChecker checker;
    bool has_begun = false;
    std::uint64_t since = 0;  ///< as Finding::since
    std::uint64_t next = 0;
    std::uint32_t num_restarts = 0;          ///< without a clear
    std::vector<Seen> seen;                  ///< [sequence modulo its size]
    std::map<std::uint64_t, Received> held;  ///< until what is missing before them comes
  };

  /// The messages of one publisher, or of several on one endpoint.
  struct Channel {
    std::string engine;
    std::string topic;
    std::deque<Stream> streams;  ///< one per rank; references hold
    std::optional<Received> doubtful;
    Stream* doubtful_of = nullptr;
  };

  Channel& channel_of(const Arrival& arrival);
  Stream& add_stream(Channel& channel, std::optional<std::uint32_t> rank);
  void route(Channel& channel, Received& received);
  void resolve(Channel& channel, const Received* next);
  void order(Stream& stream, Received& received);
  void take_earlier(Stream& stream, Received& received);
  void release(Stream& stream, std::size_t held_max);
  void apply(Stream& stream, const Received& received);
  void add(const Stream& stream, Finding finding);
  void report(const Stream& stream, Rule rule, std::uint64_t sequence, std::string found,
              std::string expected, std::vector<EventRef> led_there = {});
  /// Whether this was not reported before, and there is room to.
  bool is_first_of(std::string what);
  void report_problems(const Stream& stream, const Received& received);
  void keep(const Arrival& arrival);
  /// The kept messages of the finding's run of the engine.
  std::vector<const Arrival*> kept_for(const Finding& finding) const;
  std::vector<EventRef> what_fills(const Finding& finding) const;

  AuditRules rules_;
  Findings findings_;
  AuditCounts counts_;
  std::deque<Channel> channels_;  ///< references hold
  Received received_;             ///< its storage is used again
  std::deque<Arrival> kept_;
  std::size_t kept_bytes_ = 0;
  std::set<std::string> malformed_;  ///< what was reported as wrong
};

}  // namespace kvfence::audit
