#pragma once

/// Publishes the KV events of a replay: batches with a time and a sequence number, injected faults,
/// to a socket or a recording; and writes the truth beside it.
///
/// The truth is what the pool holds, read from its blocks and not from its events. It is a file of
/// JSON lines, in the order of sending; each applies after the message of that number:
///
///   {"sequence":7,"group":0,"medium":"GPU","added":["<hash in hexadecimal>",...],"removed":[...]}
///
/// A hash is listed once per block that began or ceased to carry it. A message that changes nothing
/// has no line. {"restart":true} is a restart of the engine, with nothing held, and the last line
/// is {"end":N} with the number that a next message would have. Lines are written before their
/// message is sent.

#include <cstdint>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "contract/core/line.h"
#include "contract/pool/kv_events.h"
#include "scenarios/audit/encode.h"
#include "scenarios/audit/faults.h"
#include "scenarios/audit/publisher.h"
#include "scenarios/audit/recording.h"

namespace kvfence::audit {

struct EventStreamOptions {
  PublisherOptions publisher;  ///< where its endpoint is no URL, it is the file of a recording
  WireRelease release = WireRelease::kV023;
  bool low64 = false;  ///< hashes are their low 64 bits, as integers
  double speed = 0;    ///< seconds of the trace in one second; 0: as fast as it goes
  std::vector<Fault> faults;
  std::string truth_file;  ///< empty: none

  bool is_recorded() const;
};

/// Hashes added and removed since the last look at a pool's blocks.
class TruthDiff {
 public:
  /// Returns the lines of the truth after that message. keys: packed keys by block id, empty for
  /// none.
  std::string take(std::uint64_t sequence, const std::vector<BlockHash>& keys, bool low64);

 private:
  std::vector<BlockHash> before_;
};

class EventStream {
 public:
  /// Opens files or binds sockets. Errors: what cannot be opened or bound.
  /// algorithm: of the block hashes.
  static Parsed<std::unique_ptr<EventStream>> open(const EventStreamOptions& options,
                                                   HashAlgorithm algorithm);

  /// The bound publisher; null for a recording.
  const Publisher* publisher() const { return publisher_.get(); }
  /// Waits for the subscribers. Errors: too few of them.
  std::optional<InputError> start();

  /// Publishes the events as one message; no events, no message, as upstream.
  /// time_us: of the trace. keys: of the pool's blocks right now; read if a truth is written.
  /// False: it is over, error() says why.
  bool take(std::uint64_t time_us, const std::vector<KVCacheEvent>& events,
            const std::vector<BlockHash>& keys);
  /// Sends what is held back, and waits for subscribers to leave. False as take().
  bool finish();

  const std::optional<InputError>& error() const { return error_; }
  std::uint64_t num_messages() const { return num_messages_; }  ///< sent or written
  std::uint64_t num_events() const { return num_events_; }      ///< in them
  const std::vector<Injection>& injections() const { return faults_.injections(); }

 private:
  EventStream(const EventStreamOptions& options, HashAlgorithm algorithm)
      : options_(options), faults_(options.faults, algorithm) {}

  bool send_all();
  bool send(Outgoing& outgoing);
  bool write_truth(const std::string& lines);
  bool fail(const char* option, std::string found);

  EventStreamOptions options_;
  FaultInjector faults_;
  TruthDiff truth_;
  std::unique_ptr<Publisher> publisher_;
  std::unique_ptr<RecordingWriter> recording_;
  std::ofstream truth_file_;
  Publisher::Clock::time_point start_;
  std::uint64_t next_sequence_ = 0;
  std::vector<Outgoing> out_;
  std::uint64_t num_messages_ = 0;
  std::uint64_t num_events_ = 0;
  std::optional<InputError> error_;
};

}  // namespace kvfence::audit
