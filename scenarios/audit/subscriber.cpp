#include "scenarios/audit/subscriber.h"

#include <utility>

#ifdef KVFENCE_HAS_ZMQ
#include <algorithm>
#include <chrono>
#include <zmq.hpp>

#include "scenarios/audit/big_endian.h"
#include "scenarios/audit/frames.h"
#endif

namespace kvfence::audit {

#ifdef KVFENCE_HAS_ZMQ

namespace {

using Clock = std::chrono::steady_clock;

/// A longer message ends the connection for good; a record in a recording has less than 4 GiB.
constexpr std::int64_t kMessageBytesMax = std::int64_t{2} << 30;
constexpr std::size_t kMessagesAtOnce = 4096;
/// Of one replay: more than publishers keep.
constexpr std::size_t kReplayedMax = 1'000'000;
constexpr std::size_t kNameBytesMax = 1024;

std::optional<std::uint64_t> sequence_of(const zmq::message_t& frame) {
  if (frame.size() != kSequenceBytes) return std::nullopt;
  return from_big_endian(frame.to_string_view());
}

class ZmqSubscriber final : public Subscriber {
 public:
  explicit ZmqSubscriber(const SubscriberOptions& options) : options_(options) {
    for (std::size_t index = 0; index < options.endpoints.size(); ++index) {
      zmq::socket_t& socket = sockets_.emplace_back(context_, zmq::socket_type::sub);
      socket.set(zmq::sockopt::rcvhwm, options.high_water_mark);
      socket.set(zmq::sockopt::maxmsgsize, kMessageBytesMax);
      socket.set(zmq::sockopt::linger, 0);
      socket.set(zmq::sockopt::subscribe, options.topic);
    }
  }

  std::optional<InputError> connect() {
    constexpr const char* kExpected = "an address such as tcp://host:5557";
    for (std::size_t index = 0; index < sockets_.size(); ++index) {
      const Endpoint& endpoint = options_.endpoints[index];
      auto error = try_open("--endpoint", endpoint.address, kExpected, [&] {
        // Publishers without a * in their address connect, and expect a bound one here.
        const bool is_bound = endpoint.address.find('*') != std::string::npos;
        is_bound ? sockets_[index].bind(endpoint.address)
                 : sockets_[index].connect(endpoint.address);
      });
      if (!error && !endpoint.replay_address.empty()) {
        // It is connected only when something is missing, but an invalid address is reported now.
        error = try_open("--replay-endpoint", endpoint.replay_address, kExpected, [&] {
          zmq::socket_t(context_, zmq::socket_type::dealer).connect(endpoint.replay_address);
        });
      }
      if (error) return error;
    }
    return std::nullopt;
  }

  void receive(int patience_ms, std::vector<Arrival>& out,
               std::vector<std::pair<std::string, std::string>>& rejected) override {
    std::vector<zmq::pollitem_t> items;
    for (zmq::socket_t& socket : sockets_) items.push_back({socket.handle(), 0, ZMQ_POLLIN, 0});
    if (!wait(items, std::chrono::milliseconds(patience_ms))) return;
    for (std::size_t index = 0; index < sockets_.size(); ++index) {
      if ((items[index].revents & ZMQ_POLLIN) == 0) continue;
      const std::string& engine = options_.endpoints[index].address;
      for (std::size_t num = 0; num < kMessagesAtOnce; ++num) {
        if (!receive_frames(sockets_[index], frames_)) break;
        if (std::optional<Arrival> arrival = arrival_of(engine)) {
          out.push_back(std::move(*arrival));
        } else {
          rejected.emplace_back(engine, std::to_string(frames_.size()) + " frames");
        }
      }
    }
  }

  std::vector<Arrival> replay(std::uint64_t first, const Arrival& until) override {
    std::vector<Arrival> found;
    const auto endpoint =
        std::find_if(options_.endpoints.begin(), options_.endpoints.end(),
                     [&](const Endpoint& other) { return other.address == until.engine; });
    if (endpoint == options_.endpoints.end() || endpoint->replay_address.empty()) return found;
    zmq::socket_t socket(context_, zmq::socket_type::dealer);
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::maxmsgsize, kMessageBytesMax);
    socket.set(zmq::sockopt::rcvhwm, 0);
    socket.connect(endpoint->replay_address);
    const std::string request = to_big_endian(first);
    socket.send(zmq::message_t(), zmq::send_flags::sndmore);
    socket.send(zmq::buffer(request), zmq::send_flags::none);
    const std::chrono::milliseconds patience(options_.replay_milliseconds);
    Clock::time_point end = Clock::now() + patience;
    bool has_answered = false;
    while (found.size() < kReplayedMax) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
      std::vector<zmq::pollitem_t> items = {{socket.handle(), 0, ZMQ_POLLIN, 0}};
      if (left.count() <= 0) {
        if (!has_answered) silent_.insert(endpoint->replay_address);
        return found;
      }
      // A signal that ends the audit does not end a replay, since its rest would count as lost.
      if (!wait(items, left) || !receive_frames(socket, frames_)) continue;
      has_answered = true;
      // After the delimiter: to 0.23 the number and the payload, since 0.33 the topic before them.
      if (frames_.size() != 3) frames_.erase(frames_.begin());
      std::optional<Arrival> arrival = arrival_of(until.engine);
      if (!arrival) continue;
      // Later ones come by subscription; the end of a replay has the largest number.
      if (arrival->message.sequence >= until.message.sequence) return found;
      arrival->message.topic = until.message.topic;
      arrival->is_replayed = true;
      if (arrival->message.sequence < (found.empty() ? first : found.back().message.sequence + 1)) {
        continue;
      }
      found.push_back(std::move(*arrival));
      end = Clock::now() + patience;
    }
    return found;
  }

  const std::set<std::string>& silent() const override { return silent_; }

 private:
  /// From topic, number, payload; nothing if the frames are different.
  std::optional<Arrival> arrival_of(const std::string& engine) {
    if (frames_.size() != 3 || frames_[0].size() > kNameBytesMax) return std::nullopt;
    const std::optional<std::uint64_t> sequence = sequence_of(frames_[1]);
    if (!sequence) return std::nullopt;
    return Arrival{
        engine, {frames_[0].to_string(), *sequence, frames_[2].to_string()}, seconds_since_epoch()};
  }

  SubscriberOptions options_;
  zmq::context_t context_;
  std::vector<zmq::socket_t> sockets_;
  std::vector<zmq::message_t> frames_;
  std::set<std::string> silent_;
};

}  // namespace

bool Subscriber::is_available() { return true; }

Parsed<std::unique_ptr<Subscriber>> Subscriber::open(const SubscriberOptions& options) {
  auto subscriber = std::make_unique<ZmqSubscriber>(options);
  if (auto error = subscriber->connect()) return *error;
  return std::unique_ptr<Subscriber>(std::move(subscriber));
}

#else

bool Subscriber::is_available() { return false; }

Parsed<std::unique_ptr<Subscriber>> Subscriber::open(const SubscriberOptions&) {
  return InputError{"--endpoint", {}, "a build without ZeroMQ", "libzmq and cppzmq"};
}

#endif

}  // namespace kvfence::audit
