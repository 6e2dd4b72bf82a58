#include "scenarios/audit/publisher.h"

#ifdef KVFENCE_HAS_ZMQ

#include <algorithm>
#include <array>
#include <climits>
#include <concepts>
#include <deque>
#include <string_view>
#include <utility>
#include <vector>
#include <zmq.hpp>
#include <zmq_addon.hpp>

#include "scenarios/audit/big_endian.h"
#include "scenarios/audit/frames.h"

namespace kvfence::audit {
namespace {

using Frames = std::vector<zmq::const_buffer>;

/// Messages that wait for a slow subscriber: few, so that the last ones go out within the patience.
constexpr int kHighWaterMark = 1000;

/// Until a slow subscriber is tried again, unless a replay request comes first.
constexpr std::chrono::milliseconds kRetry{1};

/// Options of sockets are ints.
int capped(std::integral auto value) {
  return static_cast<int>(std::min<std::uint64_t>(static_cast<std::uint64_t>(value), INT_MAX));
}

class ZmqPublisher final : public Publisher {
  using milliseconds = std::chrono::milliseconds;
  using seconds = std::chrono::seconds;

 public:
  explicit ZmqPublisher(const PublisherOptions& options) : options_(options) {
    // Reports every subscription and its end, and makes a slow subscriber block the publisher.
    pub_.set(zmq::sockopt::xpub_verboser, 1);
    pub_.set(zmq::sockopt::xpub_nodrop, 1);
    pub_.set(zmq::sockopt::sndhwm, kHighWaterMark);
    pub_.set(zmq::sockopt::linger, capped(milliseconds(patience()).count()));
    // Twice a whole replay fits, since reads are noticed late.
    replay_.set(zmq::sockopt::sndhwm, capped(2 * (options.buffer_steps + 1)));
    replay_.set(zmq::sockopt::linger, 0);
  }

  std::optional<InputError> bind() {
    if (auto error = bind(pub_, "--publish", options_.endpoint)) return error;
    if (options_.replay_endpoint.empty()) return std::nullopt;
    return bind(replay_, "--replay-endpoint", options_.replay_endpoint);
  }

  std::string endpoint() const override { return pub_.get(zmq::sockopt::last_endpoint); }
  std::string replay_endpoint() const override { return replay_.get(zmq::sockopt::last_endpoint); }

  std::optional<InputError> wait_for_subscribers() override {
    const Clock::time_point end = Clock::now() + patience();
    while (num_subscribers_ < options_.subscribers) {
      if (Clock::now() >= end) {
        return InputError{
            "--publish",
            {},
            std::to_string(num_subscribers_) + " subscribers after " + patience_text(),
            std::to_string(options_.subscribers)};
      }
      serve(remaining(end));
    }
    return std::nullopt;
  }

  std::optional<InputError> send(const Message& message, bool is_kept) override {
    const std::string sequence = to_big_endian(message.sequence);
    const Frames frames = {zmq::buffer(message.topic), zmq::buffer(sequence),
                           zmq::buffer(message.payload)};
    std::optional<Clock::time_point> end;
    serve(milliseconds(0));
    while (!zmq::send_multipart(pub_, frames, zmq::send_flags::dontwait)) {
      if (!end) end = Clock::now() + patience();
      if (Clock::now() >= *end) {
        return InputError{"--publish",
                          {},
                          "a subscriber that took no message for " + patience_text(),
                          "one that receives"};
      }
      serve(kRetry);
    }
    if (is_kept) keep(message);
    return std::nullopt;
  }

  void keep(const Message& message) override {
    if (options_.replay_endpoint.empty()) return;
    kept_.push_back(message);
    if (kept_.size() > options_.buffer_steps) kept_.pop_front();
  }
  void forget() override { kept_.clear(); }

  void serve_until(Clock::time_point time) override {
    do serve(remaining(time));
    while (Clock::now() < time);
  }

  void finish() override {
    const Clock::time_point end = Clock::now() + patience();
    while (num_subscribers_ > 0 && Clock::now() < end) serve(remaining(end));
  }

 private:
  seconds patience() const { return seconds(options_.patience_seconds); }
  std::string patience_text() const { return std::to_string(options_.patience_seconds) + " s"; }

  /// Rounded up, so that no caller polls in a loop for the last microseconds.
  static milliseconds remaining(Clock::time_point end) {
    return std::max(std::chrono::ceil<milliseconds>(end - Clock::now()), milliseconds(0));
  }

  static std::optional<InputError> bind(zmq::socket_t& socket, const char* option,
                                        const std::string& endpoint) {
    return try_open(option, endpoint, "an endpoint that can be bound, such as tcp://127.0.0.1:5557",
                    [&] { socket.bind(endpoint); });
  }

  /// Handles subscriptions and answers replay requests; waits up to that long for the first one.
  void serve(milliseconds timeout) {
    std::array<zmq::pollitem_t, 2> items = {
        {{pub_.handle(), 0, ZMQ_POLLIN, 0}, {replay_.handle(), 0, ZMQ_POLLIN, 0}}};
    wait(items, timeout);
    zmq::message_t frame;
    while (receive_frame(pub_, frame)) count_subscription(frame.to_string_view());
    while (receive_frames(replay_, request_)) answer(request_);
  }

  void count_subscription(std::string_view frame) {
    if (frame.empty()) return;
    if (frame.front() == '\x01') ++num_subscribers_;
    if (frame.front() == '\x00' && num_subscribers_ > 0) --num_subscribers_;
  }

  /// identity / empty / first sequence. Anything else is ignored.
  void answer(const std::vector<zmq::message_t>& request) {
    if (request.size() != 3 || request[2].size() != kSequenceBytes) return;
    const std::uint64_t first = from_big_endian(request[2].to_string_view());
    for (const Message& message : kept_) {
      if (message.sequence >= first) {
        reply(request[0], message.topic, to_big_endian(message.sequence), message.payload);
      }
    }
    reply(request[0], "", to_big_endian(UINT64_MAX), "");
  }

  void reply(const zmq::message_t& identity, const std::string& topic, const std::string& sequence,
             const std::string& payload) {
    Frames frames = {zmq::buffer(identity.data(), identity.size()), zmq::const_buffer()};
    if (options_.replay_has_topic) frames.push_back(zmq::buffer(topic));
    frames.push_back(zmq::buffer(sequence));
    frames.push_back(zmq::buffer(payload));
    zmq::send_multipart(replay_, frames, zmq::send_flags::dontwait);
  }

  PublisherOptions options_;
  zmq::context_t context_;
  zmq::socket_t pub_{context_, zmq::socket_type::xpub};
  zmq::socket_t replay_{context_, zmq::socket_type::router};
  std::uint32_t num_subscribers_ = 0;
  std::deque<Message> kept_;
  std::vector<zmq::message_t> request_;
};

}  // namespace

bool Publisher::is_available() { return true; }

Parsed<std::unique_ptr<Publisher>> Publisher::open(const PublisherOptions& options) {
  auto publisher = std::make_unique<ZmqPublisher>(options);
  if (auto error = publisher->bind()) return *error;
  return std::unique_ptr<Publisher>(std::move(publisher));
}

}  // namespace kvfence::audit

#else

#include "contract/core/check.h"

namespace kvfence::audit {

bool Publisher::is_available() { return false; }

Parsed<std::unique_ptr<Publisher>> Publisher::open(const PublisherOptions&) {
  check_failed(__FILE__, __LINE__, "is_available()", "a publisher without ZeroMQ");
}

}  // namespace kvfence::audit

#endif
