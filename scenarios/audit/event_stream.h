#pragma once

/// The KV events of a replay on their way out: batches with a time and a sequence number, faults on
/// purpose, and then a socket or a recording; beside it the truth.
///
/// The truth is what the pool holds, read off its blocks and not off its events. It is a file of
/// JSON lines, each of which applies after the message of that number, in the order of sending:
///
///   {"sequence":7,"group":0,"medium":"GPU","added":["<hash in hexadecimal>",...],"removed":[...]}
///
/// A hash stands there once per block that came to carry it or ceased to. A message that changes
/// nothing has no line. {"restart":true} is an engine that starts anew, with nothing held, and the
/// last line is {"end":N} with the number that a next message would have. Lines are there before
/// their message is sent.

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

/// Added and removed hashes from one look at a pool's blocks to the next.
class TruthDiff {
 public:
  /// keys: packed keys by block id, empty for none. The lines of the truth after that message.
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

  /// What is bound; null for a recording.
  const Publisher* publisher() const { return publisher_.get(); }
  /// Waits for the subscribers. Errors: too few of them.
  std::optional<InputError> start();

  /// Publishes the events as one message; no events, no message, as upstream.
  /// time_us: of the trace. keys: of the pool's blocks right now; read where a truth is written.
  /// False: it is over, error() says why.
  bool take(std::uint64_t time_us, const std::vector<KVCacheEvent>& events,
            const std::vector<BlockHash>& keys);
  /// Sends what is held back; subscribers get the time to leave. False as take().
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
