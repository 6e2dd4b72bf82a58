#include "scenarios/audit/publisher.h"

#ifdef KVFENCE_HAS_ZMQ

#include <gtest/gtest.h>
#include <sys/time.h>

#include <csignal>
#include <iterator>
#include <string>
#include <thread>
#include <vector>
#include <zmq.hpp>
#include <zmq_addon.hpp>

namespace kvfence::audit {
namespace {

PublisherOptions options_with(std::size_t buffer_steps, bool replay_has_topic) {
  PublisherOptions options;
  options.endpoint = "tcp://127.0.0.1:*";
  options.replay_endpoint = "tcp://127.0.0.1:*";
  options.topic = "kv";
  options.buffer_steps = buffer_steps;
  options.replay_has_topic = replay_has_topic;
  options.subscribers = 0;
  return options;
}

std::unique_ptr<Publisher> open(const PublisherOptions& options) {
  auto publisher = Publisher::open(options);
  EXPECT_TRUE(publisher);
  return std::move(*publisher);
}

std::string number(std::uint64_t value) {
  std::string bytes(7, '\0');
  return bytes + static_cast<char>(value);
}

/// The frames of one message, one after the other, each after its length.
std::string receive(zmq::socket_t& socket) {
  std::vector<zmq::message_t> frames;
  EXPECT_TRUE(zmq::recv_multipart(socket, std::back_inserter(frames)));
  std::string text;
  for (const zmq::message_t& frame : frames) {
    text += std::to_string(frame.size()) + ":" + frame.to_string();
  }
  return text;
}

/// What a subscriber gets that asks for all from number 1 on.
std::vector<std::string> replay_of(Publisher& publisher) {
  zmq::context_t context;
  zmq::socket_t socket(context, zmq::socket_type::dealer);
  socket.connect(publisher.replay_endpoint());
  const std::string first = number(1);
  zmq::send_multipart(socket,
                      std::vector<zmq::const_buffer>{zmq::const_buffer(), zmq::buffer(first)});
  std::vector<std::string> messages;
  socket.set(zmq::sockopt::rcvtimeo, 0);
  std::vector<zmq::message_t> frames;
  while (frames.empty() || frames.back().size() > 0) {
    publisher.serve_until(Publisher::Clock::now() + std::chrono::milliseconds(1));
    frames.clear();
    while (zmq::recv_multipart(socket, std::back_inserter(frames))) {
      std::string text;
      for (const zmq::message_t& frame : frames) text += frame.to_string() + "|";
      messages.push_back(text);
      if (frames.back().size() == 0) break;
      frames.clear();
    }
  }
  return messages;
}

/// Sends a signal each millisecond during its lifetime.
class EverInterrupted {
 public:
  EverInterrupted() : before_(std::signal(SIGALRM, [](int) {})) { set_timer(1000); }
  ~EverInterrupted() {
    set_timer(0);
    std::signal(SIGALRM, before_);
  }

 private:
  static void set_timer(suseconds_t period) {
    const itimerval timer = {{0, period}, {0, period}};
    setitimer(ITIMER_REAL, &timer, nullptr);
  }

  void (*before_)(int);
};

TEST(Publisher, ReplaysTheLatestMessages) {
  for (const bool has_topic : {false, true}) {
    const auto publisher = open(options_with(/*buffer_steps=*/2, has_topic));
    for (std::uint64_t sequence = 0; sequence < 3; ++sequence) {
      publisher->send({"kv", sequence, "payload" + std::to_string(sequence)});
    }
    publisher->send({"kv", 9, "a repetition"}, /*is_kept=*/false);
    const std::string topic = has_topic ? "kv|" : "";
    const std::string end = std::string(has_topic ? "|" : "") + std::string(8, '\xff') + "||";
    EXPECT_EQ(replay_of(*publisher),
              (std::vector<std::string>{"|" + topic + number(1) + "|payload1|",
                                        "|" + topic + number(2) + "|payload2|", "|" + end}));
    publisher->keep({"kv", 3, "lost on its way"});
    EXPECT_EQ(replay_of(*publisher).at(1), "|" + topic + number(3) + "|lost on its way|");
    publisher->forget();
    EXPECT_EQ(replay_of(*publisher), std::vector<std::string>{"|" + end});
  }
}

TEST(Publisher, NamesAnEndpointThatCannotBeBound) {
  PublisherOptions options = options_with(1, false);
  options.endpoint = "tcp://nowhere";
  const auto publisher = Publisher::open(options);
  ASSERT_FALSE(publisher);
  EXPECT_EQ(publisher.error().file, "--publish");
  EXPECT_NE(publisher.error().found.find("'tcp://nowhere'"), std::string::npos);
}

TEST(Publisher, TakesMoreThanASocketCounts) {
  EXPECT_TRUE(Publisher::open({.endpoint = "tcp://127.0.0.1:*",
                               .replay_endpoint = {},
                               .topic = {},
                               .buffer_steps = SIZE_MAX / 4,
                               .patience_seconds = UINT32_MAX}));
}

TEST(Publisher, WaitsForSubscribersAndNotForever) {
  PublisherOptions options = options_with(1, false);
  options.subscribers = 2;
  options.patience_seconds = 1;
  const auto publisher = open(options);
  zmq::context_t context;
  std::vector<zmq::socket_t> subscribers;
  const auto subscribe = [&] {
    subscribers.emplace_back(context, zmq::socket_type::sub);
    subscribers.back().connect(publisher->endpoint());
    subscribers.back().set(zmq::sockopt::subscribe, "");
  };
  subscribe();
  const auto error = [&] {
    const EverInterrupted ever_interrupted;
    return publisher->wait_for_subscribers();
  }();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->to_text(), "--publish: found 1 subscribers after 1 s, expected 2");
  subscribe();
  EXPECT_FALSE(publisher->wait_for_subscribers());
  publisher->send({"kv", 7, "payload"});
  for (zmq::socket_t& subscriber : subscribers) {
    EXPECT_EQ(receive(subscriber), "2:kv8:" + number(7) + "7:payload");
  }
  // Both leave, and so does the publisher, within its patience.
  subscribers.clear();
  publisher->finish();
}

TEST(Publisher, LosesNothingToASlowSubscriber) {
  constexpr std::uint64_t kMessages = 4000;
  PublisherOptions options = options_with(1, false);
  options.subscribers = 1;
  const auto publisher = open(options);
  std::uint64_t num_received = 0;
  std::thread slow([&, endpoint = publisher->endpoint()] {
    zmq::context_t context;
    zmq::socket_t socket(context, zmq::socket_type::sub);
    socket.set(zmq::sockopt::rcvhwm, 1);
    socket.connect(endpoint);
    socket.set(zmq::sockopt::subscribe, "");
    while (num_received < kMessages) {
      std::vector<zmq::message_t> frames;
      ASSERT_TRUE(zmq::recv_multipart(socket, std::back_inserter(frames)));
      ASSERT_EQ(frames.at(2).to_string_view().substr(0, 8),
                std::to_string(10'000'000 + num_received));
      ++num_received;
    }
  });
  EXPECT_FALSE(publisher->wait_for_subscribers());
  for (std::uint64_t sequence = 0; sequence < kMessages; ++sequence) {
    EXPECT_FALSE(publisher->send(
        {"kv", sequence, std::to_string(10'000'000 + sequence) + std::string(10'000, '.')}));
  }
  publisher->finish();
  slow.join();
  EXPECT_EQ(num_received, kMessages);
}

}  // namespace
}  // namespace kvfence::audit

#endif
