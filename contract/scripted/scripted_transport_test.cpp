#include "contract/scripted/scripted_transport.h"

#include <vector>

#include <gtest/gtest.h>

namespace kvfence {
namespace {

ReadSpec read_of(std::uint32_t rank, std::uint32_t remote_rank = 0) {
  return {rank, remote_rank, "B", "A", {1, 2}, {3, 4}};
}

/// All ranks of the producer can be read from.
ScriptedTransport listening() {
  ScriptedTransport transport;
  for (std::uint32_t rank = 0; rank < 4; ++rank) transport.listen(rank);
  return transport;
}

std::vector<ReadResult> finished_reads(ScriptedTransport& transport, std::uint32_t rank) {
  std::vector<ReadResult> results;
  transport.get_finished_reads(rank, results);
  return results;
}

std::vector<Notice> new_notices(ScriptedTransport& transport, std::uint32_t remote_rank) {
  std::vector<Notice> notices;
  transport.get_new_notices(remote_rank, notices);
  return notices;
}

TEST(ScriptedTransport, ReadsEndInTheOrderOfTheirEndsAndRankByRank) {
  ScriptedTransport transport = listening();
  for (std::uint32_t read = 0; read < 3; ++read) EXPECT_EQ(transport.read(read_of(read % 2)), read);
  EXPECT_TRUE(transport.advance(1, TransferProgress::kPart));
  EXPECT_TRUE(finished_reads(transport, 1).empty());
  for (const ReadId read : {2u, 1u})
    EXPECT_TRUE(transport.advance(read, TransferProgress::kFinished));
  EXPECT_TRUE(transport.advance(0, TransferProgress::kFailed));
  EXPECT_FALSE(transport.advance(0, TransferProgress::kFinished));
  EXPECT_EQ(finished_reads(transport, 0), (std::vector<ReadResult>{{2, true}, {0, false}}));
  EXPECT_EQ(finished_reads(transport, 1), (std::vector<ReadResult>{{1, true}}));
  EXPECT_TRUE(transport.reads().empty());
}

TEST(ScriptedTransport, OnlyASuccessfulReadSendsANotice) {
  ScriptedTransport transport = listening();
  transport.read(read_of(1, 2));
  transport.read(read_of(1, 2));
  transport.advance(0, TransferProgress::kFailed);
  EXPECT_TRUE(transport.notices().empty());
  transport.advance(1, TransferProgress::kFinished);
  ASSERT_EQ(transport.notices().size(), 1u);
  EXPECT_TRUE(new_notices(transport, 2).empty());
  EXPECT_TRUE(transport.deliver(0));
  EXPECT_FALSE(transport.deliver(0));
  EXPECT_FALSE(transport.lose(0));
  EXPECT_TRUE(new_notices(transport, 1).empty());
  EXPECT_EQ(new_notices(transport, 2), (std::vector<Notice>{{1, 2, false, {"A"}}}));
  EXPECT_TRUE(new_notices(transport, 2).empty());
}

TEST(ScriptedTransport, NoticesCanBeLostAndComeTwice) {
  ScriptedTransport transport = listening();
  const Notice notice{0, 0, /*is_heartbeat=*/true, {"A", "C"}};
  transport.send_notice(notice);
  transport.send_notice(notice);
  EXPECT_TRUE(transport.lose(0));
  EXPECT_FALSE(transport.repeat(0));
  EXPECT_FALSE(transport.repeat(1));
  EXPECT_TRUE(transport.deliver(1));
  EXPECT_TRUE(transport.repeat(1));
  EXPECT_EQ(new_notices(transport, 0), (std::vector<Notice>{notice}));
  EXPECT_TRUE(transport.repeat(1));
  EXPECT_TRUE(transport.deliver(3));
  EXPECT_TRUE(transport.deliver(2));
  EXPECT_EQ(new_notices(transport, 0), (std::vector<Notice>{notice, notice}));
}

TEST(ScriptedTransport, ARankThatDoesNotListenIsNotRead) {
  ScriptedTransport transport;
  transport.listen(1);
  EXPECT_EQ(transport.read({0, 0, "B", "A", {1}, {2}}), 0U);
  EXPECT_EQ(transport.read({0, 1, "B", "A", {1}, {2}}), 1U);
  EXPECT_EQ(finished_reads(transport, 0), (std::vector<ReadResult>{{0, false}}));
}

TEST(ScriptedTransport, WhatIsClosedIsNotRead) {
  ScriptedTransport transport = listening();
  transport.read(read_of(0, 0));
  transport.read(read_of(0, 1));
  transport.advance(1, TransferProgress::kPart);
  transport.close(0, "A");
  EXPECT_EQ(finished_reads(transport, 0), (std::vector<ReadResult>{{0, false}}));
  transport.read(read_of(0, 0));
  EXPECT_EQ(finished_reads(transport, 0), (std::vector<ReadResult>{{2, false}}));
  EXPECT_TRUE(transport.notices().empty());
  EXPECT_TRUE(transport.advance(1, TransferProgress::kFinished));
}

TEST(ScriptedTransport, AReadThatEndedBeforeTheCloseSucceeded) {
  ScriptedTransport transport = listening();
  transport.read(read_of(0));
  transport.advance(0, TransferProgress::kFinished);
  transport.close(0, "A");
  EXPECT_EQ(finished_reads(transport, 0), (std::vector<ReadResult>{{0, true}}));
  EXPECT_EQ(transport.notices().size(), 1u);
}

TEST(ScriptedTransport, TheClockStopsAtItsEnd) {
  ScriptedTransport transport = listening();
  EXPECT_TRUE(transport.advance_clock(kSecondsMax - 1));
  EXPECT_FALSE(transport.advance_clock(2));
  EXPECT_EQ(transport.now(), kSecondsMax - 1);
  EXPECT_TRUE(transport.advance_clock(1));
}

}  // namespace
}  // namespace kvfence
