/// Goal: the ledger lets through what a scheduler that believes in completions does, and names each
/// block that is read before it is ready, or taken from somebody who still uses it.

#include "cuda/virtual/ledger.h"

#include <gtest/gtest.h>

#include <array>

namespace kvfence::virtual_device {
namespace {

using Kind = LedgerViolation::Kind;
using Blocks = std::vector<std::size_t>;

// Blocks 0 to 3 are the device's, 4 to 7 the host's.
struct LedgerTest : ::testing::Test {
  void compute(std::uint64_t job, const Blocks& blocks) {
    ledger.submit(job, JobKind::kCompute, {}, blocks);
  }
  void store(std::uint64_t job, const Blocks& from, const Blocks& to) {
    ledger.submit(job, JobKind::kStore, from, to);
  }
  void load(std::uint64_t job, const Blocks& from, const Blocks& to) {
    ledger.submit(job, JobKind::kLoad, from, to);
  }
  Kind only_violation() const {
    EXPECT_EQ(ledger.violations().size(), 1U);
    return ledger.violations().at(0).kind;
  }
  Ledger ledger{8};
};

TEST_F(LedgerTest, ABlockGoesThroughItsStates) {
  compute(1, {0, 1});
  EXPECT_EQ(ledger.state(0), BlockState::kComputing);
  ledger.complete(1);
  EXPECT_EQ(ledger.state(0), BlockState::kReady);
  store(2, {0, 1}, {4, 5});
  EXPECT_EQ(ledger.num_readers(0), 1U);
  EXPECT_EQ(ledger.state(4), BlockState::kStoring);
  ledger.complete(2);
  ledger.release(0);
  EXPECT_EQ(ledger.state(0), BlockState::kFree);
  load(3, {4}, {2});
  load(4, {4}, {3});
  EXPECT_EQ(ledger.num_readers(4), 2U);
  EXPECT_EQ(ledger.state(2), BlockState::kLoading);
  ledger.complete(4);
  ledger.complete(3);
  EXPECT_EQ(ledger.num_jobs(), 0U);
  EXPECT_TRUE(ledger.violations().empty());
}

TEST_F(LedgerTest, ABlockIsNotReadBeforeItIsReady) {  // M11
  compute(1, {0});
  ledger.complete(1);
  store(2, {0}, {4});
  load(3, {4}, {1});
  EXPECT_EQ(only_violation(), Kind::kReadsUnready);
  EXPECT_EQ(ledger.violations()[0].state, BlockState::kStoring);
  EXPECT_EQ(to_text(ledger.violations()[0]),
            "ledger: job 3 reads block 4, which is storing with 0 readers");
}

TEST_F(LedgerTest, AFreeBlockIsNotRead) {
  store(1, {0}, {4});
  EXPECT_EQ(only_violation(), Kind::kReadsUnready);
}

TEST_F(LedgerTest, ABlockThatIsReadIsNotWritten) {
  compute(1, {0});
  ledger.complete(1);
  store(2, {0}, {4});
  compute(3, {0});
  EXPECT_EQ(only_violation(), Kind::kWritesInUse);
  EXPECT_EQ(ledger.violations()[0].num_readers, 1U);
  ledger.complete(2);
  ledger.complete(3);
  EXPECT_EQ(ledger.state(0), BlockState::kReady);
}

TEST_F(LedgerTest, ABlockThatIsWrittenIsNotWritten) {
  compute(1, {0});
  compute(2, {0});
  EXPECT_EQ(only_violation(), Kind::kWritesInUse);
  ledger.complete(1);  // no longer its block
  EXPECT_EQ(ledger.state(0), BlockState::kComputing);
  ledger.complete(2);
  EXPECT_EQ(ledger.state(0), BlockState::kReady);
}

TEST_F(LedgerTest, ABlockInUseIsNotReleased) {
  compute(1, {0, 1});
  ledger.release(0);
  EXPECT_EQ(only_violation(), Kind::kReleasesInUse);
  EXPECT_EQ(to_text(ledger.violations()[0]),
            "ledger: block 0 is released, which is computing with 0 readers");
  ledger.complete(1);
  EXPECT_EQ(ledger.state(0), BlockState::kFree);
  EXPECT_EQ(ledger.state(1), BlockState::kReady);
  store(2, {1}, {4});
  ledger.release(1);
  EXPECT_EQ(ledger.violations().size(), 2U);
}

TEST_F(LedgerTest, WhatAFailedJobWroteIsNotReady) {
  compute(1, {0});
  ledger.complete(1);
  store(2, {0}, {4});
  ledger.complete(2, false);
  EXPECT_EQ(ledger.state(0), BlockState::kReady);
  EXPECT_EQ(ledger.state(4), BlockState::kFree);
  load(3, {4}, {1});
  EXPECT_EQ(only_violation(), Kind::kReadsUnready);
}

TEST_F(LedgerTest, AJobIsSubmittedAndCompletesOnce) {
  compute(1, {0});
  compute(1, {1});
  EXPECT_EQ(only_violation(), Kind::kJobSubmittedTwice);
  EXPECT_EQ(ledger.state(1), BlockState::kFree);
  ledger.complete(1);
  ledger.complete(1);
  EXPECT_EQ(ledger.violations().size(), 2U);
  EXPECT_EQ(to_text(ledger.violations()[1]), "ledger: job 1 completes and is not in flight");
}

}  // namespace
}  // namespace kvfence::virtual_device
