#include "scenarios/audit/subscriber.h"

#ifdef KVFENCE_HAS_ZMQ

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <string>
#include <thread>
#include <vector>
#include <zmq.hpp>
#include <zmq_addon.hpp>

#include "scenarios/audit/audit_test_rig.h"
#include "scenarios/audit/auditor.h"
#include "scenarios/audit/big_endian.h"
#include "scenarios/audit/publisher.h"

namespace kvfence::audit {
namespace {

constexpr std::uint64_t kMessages = 3000;

/// A distinct block, large enough that sockets cannot buffer all of them.
std::string payload_of(std::uint64_t sequence) {
  StoredText text;
  text.hashes = {std::to_string(sequence)};
  text.tokens.assign(2000, static_cast<TokenId>(sequence) + 1'000'000);
  text.block_size = 2000;
  return batch_of({stored(text)});
}

/// Publishes as vLLM does: drops what a slow subscriber does not receive.
class DroppingPublisher {
 public:
  DroppingPublisher() {
    socket_.set(zmq::sockopt::sndhwm, 10);
    socket_.set(zmq::sockopt::linger, 0);
    socket_.bind("tcp://127.0.0.1:*");
  }
  std::string endpoint() const { return socket_.get(zmq::sockopt::last_endpoint); }
  void wait_for_subscriber() {
    zmq::message_t subscription;
    EXPECT_TRUE(socket_.recv(subscription));
  }
  void send(std::uint64_t sequence) { send(sequence, payload_of(sequence)); }
  void send(std::uint64_t sequence, const std::string& payload) {
    const std::string number = to_big_endian(sequence);
    zmq::send_multipart(socket_,
                        std::vector<zmq::const_buffer>{zmq::str_buffer("kv"), zmq::buffer(number),
                                                       zmq::buffer(payload)});
  }

 private:
  zmq::context_t context_;
  zmq::socket_t socket_{context_, zmq::socket_type::xpub};
};

/// The audit of a subscriber that reads only after all is sent, and then until one more message
/// arrives, which is sent repeatedly. With the numbers that arrived.
std::vector<std::uint64_t> audit_late(const std::string& replay_endpoint, Auditor& auditor) {
  DroppingPublisher publisher;
  SubscriberOptions options;
  options.endpoints = {{publisher.endpoint(), replay_endpoint}};
  options.high_water_mark = 10;
  const auto subscriber = Subscriber::open(options);
  EXPECT_TRUE(subscriber);
  publisher.wait_for_subscriber();
  for (std::uint64_t sequence = 0; sequence < kMessages; ++sequence) publisher.send(sequence);
  std::vector<std::uint64_t> numbers = {0};
  for (std::uint64_t next = kMessages; numbers.back() < kMessages; ++next) {
    publisher.send(next);
    std::vector<Arrival> arrivals;
    std::vector<std::pair<std::string, std::string>> rejected;
    (*subscriber)->receive(/*patience_ms=*/100, arrivals, rejected);
    for (const Arrival& arrival : arrivals) {
      if (const auto first = auditor.missing_before(arrival)) {
        for (const Arrival& replayed : (*subscriber)->replay(*first, arrival)) {
          auditor.take(replayed);
        }
      }
      auditor.take(arrival);
      numbers.push_back(arrival.message.sequence);
    }
  }
  auditor.finish();
  return numbers;
}

TEST(Subscriber, ReportsWhatItWasTooSlowForAsLost) {
  Auditor auditor({});
  const std::vector<std::uint64_t> numbers = audit_late("", auditor);
  std::size_t num_gaps = 0;
  for (std::size_t at = 1; at < numbers.size(); ++at) num_gaps += numbers[at] > numbers[at - 1] + 1;
  EXPECT_GT(num_gaps, 0U);
  EXPECT_EQ(auditor.findings().size(), num_gaps);
  EXPECT_EQ(auditor.findings().count(Rule::kLost), num_gaps);
  EXPECT_FALSE(auditor.views()[0].is_certain);
}

TEST(Subscriber, GoesOnAfterALongMessageAndNamesAReplayThatIsNotAnswered) {
  DroppingPublisher publisher;
  zmq::context_t context;
  zmq::socket_t mute(context, zmq::socket_type::router);
  mute.bind("tcp://127.0.0.1:*");
  const std::string mute_address = mute.get(zmq::sockopt::last_endpoint);
  SubscriberOptions options;
  options.endpoints = {{publisher.endpoint(), mute_address}};
  options.replay_milliseconds = 10;
  const auto subscriber = Subscriber::open(options);
  ASSERT_TRUE(subscriber);
  publisher.wait_for_subscriber();
  publisher.send(0, std::string(std::size_t{65} << 20, 'x'));
  publisher.send(1);
  std::vector<Arrival> arrivals;
  std::vector<std::pair<std::string, std::string>> rejected;
  for (int attempt = 0; attempt < 300 && arrivals.size() < 2; ++attempt) {
    (*subscriber)->receive(/*patience_ms=*/100, arrivals, rejected);
  }
  ASSERT_EQ(arrivals.size(), 2U);
  EXPECT_TRUE((*subscriber)->silent().empty());
  EXPECT_TRUE((*subscriber)->replay(0, arrivals.back()).empty());
  EXPECT_EQ((*subscriber)->silent(), std::set<std::string>{mute_address});
}

TEST(Subscriber, AReplayHealsWhatItWasTooSlowFor) {
  PublisherOptions options;
  options.endpoint = options.replay_endpoint = "tcp://127.0.0.1:*";
  const auto keeper = Publisher::open(options);
  ASSERT_TRUE(keeper);
  // Some messages sent while it reads are dropped as well.
  for (std::uint64_t sequence = 0; sequence < 2 * kMessages; ++sequence) {
    (*keeper)->keep({"kv", sequence, payload_of(sequence)});
  }
  std::atomic<bool> is_done = false;
  std::thread replays([&] {
    while (!is_done) {
      (*keeper)->serve_until(Publisher::Clock::now() + std::chrono::milliseconds(10));
    }
  });
  Auditor auditor({});
  const std::vector<std::uint64_t> numbers = audit_late((*keeper)->replay_endpoint(), auditor);
  is_done = true;
  replays.join();
  EXPECT_EQ(auditor.findings().size(), 0U);
  EXPECT_GT(auditor.counts().replayed, 0U);
  EXPECT_EQ(auditor.holdings().gpu_blocks, numbers.back() + 1);
}

}  // namespace
}  // namespace kvfence::audit

#endif
