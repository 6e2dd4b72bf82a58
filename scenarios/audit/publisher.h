#pragma once

/// Publishes messages as vLLM's ZmqEventPublisher does: topic / sequence / payload, and a replay
/// endpoint that sends the latest ones again. The difference is intended: it waits for subscribers
/// and never loses a message to a slow one.
/// Source: vLLM v0.19.0 and v0.33.0 distributed/kv_events.py.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "contract/core/line.h"
#include "scenarios/audit/event_batch.h"

namespace kvfence::audit {

struct PublisherOptions {
  std::string endpoint;         ///< is bound; port * or 0: a free one
  std::string replay_endpoint;  ///< the same; empty: none
  std::string topic;
  bool replay_has_topic = false;      ///< in front of each replayed message: since 0.33
  std::size_t buffer_steps = 10'000;  ///< messages that are kept for replay
  std::uint32_t subscribers = 1;      ///< to wait for before the first message
  /// How long the publisher waits, at most: for the subscribers, for a slow one to take a message,
  /// and at the end for all to leave.
  std::uint32_t patience_seconds = 30;
};

class Publisher {
 public:
  using Clock = std::chrono::steady_clock;

  /// Whether this build has ZeroMQ.
  static bool is_available();

  /// Binds the sockets. Errors: an endpoint that cannot be bound.
  /// Requires: is_available().
  static Parsed<std::unique_ptr<Publisher>> open(const PublisherOptions& options);

  virtual ~Publisher() = default;

  /// The bound endpoint, with its port.
  virtual std::string endpoint() const = 0;
  virtual std::string replay_endpoint() const = 0;

  /// Errors: too few within the patience.
  virtual std::optional<InputError> wait_for_subscribers() = 0;

  /// Answers replay requests, sends a message and, unless it is a repetition, keeps it for replay.
  /// Errors: a subscriber that receives nothing for longer than the patience.
  virtual std::optional<InputError> send(const Message& message, bool is_kept = true) = 0;
  /// Keeps a message for replay without sending it, as if it were lost.
  virtual void keep(const Message& message) = 0;
  /// Forgets the kept messages: the engine restarted.
  virtual void forget() = 0;

  /// Answers replay requests until then.
  virtual void serve_until(Clock::time_point time) = 0;
  /// Answers them until every subscriber has left or the patience is over.
  virtual void finish() = 0;
};

}  // namespace kvfence::audit
