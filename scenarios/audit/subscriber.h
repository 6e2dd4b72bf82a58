#pragma once

/// Subscribes to what engines publish, and asks for what is missing: the SUB and DEALER ends of
/// vLLM's ZmqEventPublisher.
/// Source: vLLM v0.19.0 and v0.33.0 distributed/kv_events.py.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "contract/core/line.h"
#include "scenarios/audit/recording.h"

namespace kvfence::audit {

struct Endpoint {
  std::string address;         ///< is connected to; with a * as its host, bound
  std::string replay_address;  ///< empty: none
};

struct SubscriberOptions {
  std::vector<Endpoint> endpoints;
  std::string topic;               ///< the beginning of those that are subscribed to
  int high_water_mark = 100'000;   ///< messages that wait here, per endpoint
  int replay_milliseconds = 3000;  ///< how long the next message of a replay may take
};

class Subscriber {
 public:
  /// Whether this build has ZeroMQ.
  static bool is_available();

  /// Connects; the publishers may come later, go and return. Errors: an address that is none.
  /// Requires: is_available().
  static Parsed<std::unique_ptr<Subscriber>> open(const SubscriberOptions& options);

  virtual ~Subscriber() = default;

  /// Waits that long for messages, and appends those that are there, some thousands at most.
  /// rejected: what is wrong with a multipart that is no message, with its engine.
  virtual void receive(int patience_ms, std::vector<Arrival>& out,
                       std::vector<std::pair<std::string, std::string>>& rejected) = 0;

  /// Asks the engine of this arrival for messages from `first` until before it; those that it still
  /// has, in order.
  virtual std::vector<Arrival> replay(std::uint64_t first, const Arrival& until) = 0;
};

}  // namespace kvfence::audit
