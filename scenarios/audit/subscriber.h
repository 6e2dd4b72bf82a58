#pragma once

/// Subscribes to the messages of engines, and asks for missing ones: the SUB and DEALER ends of
/// vLLM's ZmqEventPublisher.
/// Source: vLLM v0.19.0 and v0.33.0 distributed/kv_events.py.

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "contract/core/line.h"
#include "scenarios/audit/recording.h"

namespace kvfence::audit {

struct Endpoint {
  std::string address;         ///< to connect to; with a * as its host, to bind
  std::string replay_address;  ///< empty: none
};

struct SubscriberOptions {
  std::vector<Endpoint> endpoints;
  std::string topic;               ///< the prefix of those to subscribe to
  int high_water_mark = 100'000;   ///< messages that wait here, per endpoint
  int replay_milliseconds = 3000;  ///< how long the next message of a replay may take
};

class Subscriber {
 public:
  /// Whether this build has ZeroMQ.
  static bool is_available();

  /// Connects; the publishers may come later, go and return. Errors: an invalid address.
  /// Requires: is_available().
  static Parsed<std::unique_ptr<Subscriber>> open(const SubscriberOptions& options);

  virtual ~Subscriber() = default;

  /// Waits up to that long for messages, and appends the available ones, some thousands at most.
  /// rejected: errors of multiparts that are not messages, with their engines.
  virtual void receive(int patience_ms, std::vector<Arrival>& out,
                       std::vector<std::pair<std::string, std::string>>& rejected) = 0;

  /// Asks the engine of this arrival for the messages from `first` up to the one before it. Returns
  /// those that it still has, in order.
  virtual std::vector<Arrival> replay(std::uint64_t first, const Arrival& until) = 0;

  /// The replay addresses that sent no answer to a request.
  virtual const std::set<std::string>& silent() const = 0;
};

}  // namespace kvfence::audit
