#include "scenarios/audit/faults.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "contract/pool/request.h"

namespace kvfence::audit {
namespace {

constexpr auto kAlgorithm = HashAlgorithm::kXxhashCbor;

std::vector<TokenId> tokens_of(std::uint32_t number) { return {number, number + 1}; }

std::string child_of(const std::string& parent, std::uint32_t number) {
  return hash_block_tokens(kAlgorithm, parent, tokens_of(number), {});
}

EventHash hash(std::string bytes) { return {std::move(bytes), false}; }

/// Four messages: the chain a, b is stored; c under b; then c and b go; then b and c come back.
class Stream {
 public:
  Stream() {
    batches_ = {{stored({a_, b_}, none_, 0)},
                {stored({c_}, b_, 20)},
                {removed(c_), removed(b_)},
                {stored({b_, c_}, a_, 10)}};
  }

  std::vector<Outgoing> with(std::string_view fault) {
    FaultInjector injector({*parse_fault(fault)}, kAlgorithm);
    std::vector<Outgoing> out;
    for (std::size_t number = 0; number < batches_.size(); ++number) {
      Outgoing message;
      message.sequence = number;
      message.batch = {static_cast<double>(number), batches_[number], 0};
      message.truth = "truth" + std::to_string(number);
      injector.take(std::move(message), out);
    }
    injector.finish(out);
    injections_ = injector.injections();
    return out;
  }

  static Event stored(std::vector<std::string> hashes, const std::string& parent,
                      std::uint32_t first) {
    StoredEvent event;
    for (const std::string& bytes : hashes) {
      event.block_hashes.push_back(hash(bytes));
      const auto tokens = tokens_of(first);
      event.token_ids.insert(event.token_ids.end(), tokens.begin(), tokens.end());
      first += 10;
    }
    if (!parent.empty()) event.parent_block_hash = hash(parent);
    event.block_size = 2;
    event.medium = "GPU";
    return event;
  }
  static RemovedEvent removed(const std::string& bytes) {
    RemovedEvent event;
    event.block_hashes = {hash(bytes)};
    event.medium = "GPU";
    return event;
  }

  const std::string none_;
  const std::string a_ = child_of(none_hash(kAlgorithm, "0"), 0);
  const std::string b_ = child_of(a_, 10);
  const std::string c_ = child_of(b_, 20);
  std::vector<std::vector<Event>> batches_;
  std::vector<Injection> injections_;
};

std::vector<std::uint64_t> sequences_of(const std::vector<Outgoing>& messages) {
  std::vector<std::uint64_t> sequences;
  for (const Outgoing& message : messages) sequences.push_back(message.sequence);
  return sequences;
}

using Sequences = std::vector<std::uint64_t>;

TEST(Faults, AreParsed) {
  EXPECT_EQ(*parse_fault("lost@7"), (Fault{FaultKind::kLost, 7, 0}));
  EXPECT_EQ(*parse_fault("wrong_hash@0/3"), (Fault{FaultKind::kWrongHash, 0, 3}));
  for (const char* text : {"", "lost", "lost@", "lost@x", "lost@1/", "lost@-1", "@1", "lose@1"}) {
    EXPECT_FALSE(parse_fault(text)) << text;
  }
}

TEST(Faults, OfWholeMessages) {
  Stream stream;
  auto out = stream.with("lost@1");
  EXPECT_EQ(sequences_of(out), (Sequences{0, 1, 2, 3}));
  EXPECT_FALSE(out[1].is_sent);
  EXPECT_TRUE(out[1].is_kept && out[2].is_sent);
  ASSERT_EQ(stream.injections_.size(), 1U);
  EXPECT_EQ(stream.injections_[0].sequence, 1U);

  out = stream.with("lost@1/2");
  EXPECT_FALSE(out[1].is_sent || out[3].is_sent);
  EXPECT_TRUE(out[2].is_sent);

  out = stream.with("repeated@1");
  EXPECT_EQ(sequences_of(out), (Sequences{0, 1, 1, 2, 3}));
  EXPECT_EQ(out[1].batch, out[2].batch);
  EXPECT_FALSE(out[2].is_kept);
  EXPECT_EQ(out[2].truth, "");

  EXPECT_EQ(sequences_of(stream.with("reordered@1")), (Sequences{0, 2, 1, 3}));
  EXPECT_EQ(sequences_of(stream.with("reordered@3")), (Sequences{0, 1, 2, 3}));
  EXPECT_TRUE(stream.injections_.empty());

  EXPECT_TRUE(stream.with("malformed@2")[2].is_cut);
  EXPECT_EQ(stream.with("wrong_rank@2")[2].batch.data_parallel_rank, 1U);
  EXPECT_EQ(stream.with("wrong_rank@2")[3].batch.data_parallel_rank, 0U);
}

TEST(Faults, ASilentRestartIsAFreshEngineWithTheSameTraffic) {
  Stream stream;
  const auto out = stream.with("silent_restart@2");
  EXPECT_EQ(sequences_of(out), (Sequences{0, 1, 0, 1, 2, 3}));
  for (std::size_t at = 0; at < out.size(); ++at) {
    EXPECT_EQ(out[at].restarts, at == 2) << at;
    EXPECT_EQ(out[at].batch.events, stream.batches_[out[at].sequence]) << at;
    if (at > 0) {
      EXPECT_GT(out[at].batch.time, out[at - 1].batch.time) << at;
    }
  }
  // Nothing could start over.
  EXPECT_EQ(sequences_of(stream.with("silent_restart@0")), (Sequences{0, 0, 1, 2, 3}));
}

TEST(Faults, OfAnEvent) {
  Stream stream;
  const auto events_with = [&](std::string_view fault, std::size_t message) {
    auto out = stream.with(fault);
    EXPECT_EQ(stream.injections_.size(), 1U) << fault;
    EXPECT_EQ(stream.injections_.at(0).sequence, message) << fault;
    return out.at(message).batch.events;
  };
  // The first stored event has no parent that could be wrong.
  EXPECT_EQ(events_with("wrong_parent@0", 1),
            (std::vector<Event>{Stream::stored({stream.c_}, stream.a_, 20)}));
  auto unknown = std::get<StoredEvent>(events_with("unknown_parent@0", 1).at(0));
  EXPECT_NE(unknown.parent_block_hash, hash(stream.b_));
  EXPECT_NE(unknown.parent_block_hash, hash(stream.a_));
  EXPECT_EQ(std::get<StoredEvent>(events_with("cut_tokens@1", 1).at(0)).token_ids.size(), 1U);
  EXPECT_EQ(events_with("removed_held@1", 1),
            (std::vector<Event>{stream.batches_[1][0], Stream::removed(stream.c_)}));
  EXPECT_EQ(events_with("removed_unknown@1", 1).size(), 2U);
  EXPECT_EQ(events_with("removed_twice@0", 2),
            (std::vector<Event>{Stream::removed(stream.c_), Stream::removed(stream.c_),
                                Stream::removed(stream.b_)}));
  EXPECT_EQ(events_with("removal_left_out@0", 2), (std::vector<Event>{Stream::removed(stream.b_)}));
  EXPECT_EQ(events_with("cleared_held@1", 1),
            (std::vector<Event>{stream.batches_[1][0], ClearedEvent{}}));
}

TEST(Faults, AWrongHashIsTheSameWhereverItIsNamed) {
  Stream stream;
  const auto out = stream.with("wrong_hash@0");
  const auto& first = std::get<StoredEvent>(out[0].batch.events[0]);
  const std::string wrong = first.block_hashes[0].bytes;
  EXPECT_NE(wrong, stream.a_);
  const std::string b = child_of(wrong, 10);
  const std::string c = child_of(b, 20);
  EXPECT_EQ(first.block_hashes[1], hash(b));
  EXPECT_EQ(out[1].batch.events, (std::vector<Event>{Stream::stored({c}, b, 20)}));
  EXPECT_EQ(out[2].batch.events, (std::vector<Event>{Stream::removed(c), Stream::removed(b)}));
  EXPECT_EQ(out[3].batch.events, (std::vector<Event>{Stream::stored({b, c}, wrong, 10)}));
  // Blocks stored before keep their hashes.
  const auto later = stream.with("wrong_hash@2");
  EXPECT_TRUE(stream.injections_.empty());
  EXPECT_EQ(later[3].batch.events, stream.batches_[3]);
}

}  // namespace
}  // namespace kvfence::audit
