/// Goal: any 16 bytes of a block say whose they are; each kind of wrong content differs
/// from the others and names its owner; what was never written is never taken for written.

#include "contract/worker/content_pattern.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "contract/worker/content_report.h"

namespace kvfence::content {
namespace {

constexpr std::uint64_t kSeed = 0x5EED;
constexpr Universe kUniverse{kSeed, 4096, 1000, 256};
constexpr Tag kExpected{7, 20};

using Bytes = std::vector<std::byte>;

Bytes block_of(Tag tag, std::size_t num_granules = 8) {
  Bytes bytes(num_granules * kGranuleBytes);
  fill(bytes, tag, kSeed);
  return bytes;
}

/// The first `num_bytes` of `head`, then `tail`.
Bytes joined(const Bytes& head, const Bytes& tail, std::size_t num_bytes) {
  Bytes bytes = tail;
  std::memcpy(bytes.data(), head.data(), num_bytes);
  return bytes;
}

BlockReport check(const Bytes& bytes) { return check_block(bytes, kExpected, kUniverse); }

std::uint64_t count(const BlockReport& report, Verdict verdict) {
  return report.num_by_verdict[static_cast<std::size_t>(verdict)];
}

TEST(ContentPattern, EveryOwnerComesBack) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 2'000'000; ++round) {
    const Owner owner{{random() >> (64 - kBlockIdBits),
                       static_cast<std::uint32_t>(random() >> (64 - kGenerationBits))},
                      random() >> (round % 64)};
    const std::uint64_t run_seed = random();
    const Owner found = decode(run_seed, encode(run_seed, owner));
    ASSERT_EQ(found.tag.block_id, owner.tag.block_id);
    ASSERT_EQ(found.tag.generation, owner.tag.generation);
    ASSERT_EQ(found.granule_index, owner.granule_index);
  }
}

TEST(ContentPattern, RandomBytesAreNeverInRange) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 2'000'000; ++round) {
    ASSERT_FALSE(is_in_range(kUniverse, decode(kSeed, {random(), random()})));
  }
}

TEST(ContentPattern, BytesOfAnotherRunAreForeign) {
  Bytes bytes(64);
  fill(bytes, kExpected, kSeed + 1);
  EXPECT_EQ(check(bytes).verdict, Verdict::kForeign);
}

TEST(ContentPattern, HalfOfTheBitsAreSet) {
  std::uint64_t num_set = 0;
  for (std::uint64_t index = 0; index < 10'000; ++index) {
    const Granule granule = encode(0, {{index % 10, 0}, index});
    num_set += static_cast<std::uint64_t>(__builtin_popcountll(granule.first) +
                                          __builtin_popcountll(granule.second));
  }
  EXPECT_NEAR(static_cast<double>(num_set) / (10'000.0 * 128.0), 0.5, 0.005);
}

TEST(ContentPattern, ThreadsOfAKernelWriteAndCheckWhatTheHostDoes) {
  constexpr std::uint64_t kThreads = 5;
  std::vector<Granule> block(33);
  for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
    fill_granules(block.data(), block.size(), kExpected, kSeed, thread, kThreads);
  }
  EXPECT_EQ(std::memcmp(block.data(), block_of(kExpected, 33).data(), 33 * kGranuleBytes), 0);

  block[30].first ^= 1;
  block[11].second ^= 1;
  Mismatch found;
  for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
    const Mismatch own =
        check_granules(block.data(), block.size(), kExpected, kSeed, thread, kThreads);
    const std::uint64_t num_wrong = found.num_wrong + own.num_wrong;
    if (own.first_wrong_index < found.first_wrong_index) found = own;
    found.num_wrong = num_wrong;
  }
  EXPECT_EQ(found.num_wrong, 2U);
  EXPECT_EQ(found.first_wrong_index, 11U);
  EXPECT_TRUE(found.first_wrong == block[11]);
}

TEST(BlockReport, RightIsRight) {
  EXPECT_EQ(to_text(check(block_of(kExpected))), "expected block 7 generation 20: right");
}

TEST(BlockReport, StaleNamesTheGeneration) {
  const BlockReport report = check(block_of({7, 19}));
  EXPECT_EQ(report.verdict, Verdict::kStale);
  EXPECT_EQ(to_text(report),
            "expected block 7 generation 20: stale, 8 of 8 granules wrong (8 stale); "
            "first at byte 0: stale, block 7 generation 19 granule 0");
}

TEST(BlockReport, OtherBlockNamesTheBlock) {
  const BlockReport report = check(block_of({8, 3}));
  EXPECT_EQ(report.verdict, Verdict::kOtherBlock);
  EXPECT_EQ(report.first_wrong_owner.tag.block_id, 8U);
  EXPECT_EQ(report.first_wrong_owner.tag.generation, 3U);
}

TEST(BlockReport, ShiftedNamesThePlace) {
  const Bytes longer = block_of(kExpected, 9);
  const Bytes bytes(longer.begin() + kGranuleBytes, longer.end());
  const BlockReport report = check(bytes);
  EXPECT_EQ(report.verdict, Verdict::kShifted);
  EXPECT_EQ(report.first_wrong_index, 0U);
  EXPECT_EQ(report.first_wrong_owner.granule_index, 1U);
}

TEST(BlockReport, HalfOldHalfNewIsTorn) {
  const BlockReport report = check(joined(block_of(kExpected), block_of({7, 19}), 80));
  EXPECT_EQ(report.verdict, Verdict::kTorn);
  EXPECT_EQ(count(report, Verdict::kRight), 5U);
  EXPECT_EQ(count(report, Verdict::kStale), 3U);
  EXPECT_EQ(to_text(report),
            "expected block 7 generation 20: torn, 3 of 8 granules wrong (3 stale); "
            "first at byte 80: stale, block 7 generation 19 granule 5");
}

TEST(BlockReport, AGranuleThatIsTornIsForeign) {
  for (std::size_t at = 1; at < kGranuleBytes; ++at) {
    SCOPED_TRACE(at);
    const std::size_t num_bytes = 3 * kGranuleBytes + at;
    const BlockReport report = check(joined(block_of(kExpected), block_of({7, 19}), num_bytes));
    EXPECT_EQ(report.verdict, Verdict::kForeign);
    EXPECT_EQ(report.first_wrong_index, 3U);
    EXPECT_EQ(count(report, Verdict::kRight), 3U);
    EXPECT_EQ(count(report, Verdict::kStale), 4U);
  }
}

TEST(BlockReport, PoisonAndCanaryAreTold) {
  Bytes bytes = block_of(kExpected);
  fill_poison(bytes, kSeed, 3);
  EXPECT_EQ(check(bytes).verdict, Verdict::kPoison);
  fill_canary(bytes, kSeed);
  EXPECT_EQ(check(bytes).verdict, Verdict::kCanary);
  EXPECT_NE(to_text(check(bytes)).find("canary generation 0 granule 0"), std::string::npos);
}

TEST(BlockReport, AFlippedBitIsForeign) {
  for (std::size_t bit = 0; bit < 8 * kGranuleBytes; ++bit) {
    Bytes bytes = block_of(kExpected);
    bytes[32 + bit / 8] ^= std::byte{1} << (bit % 8);
    const BlockReport report = check(bytes);
    EXPECT_EQ(report.verdict, Verdict::kForeign) << bit;
    EXPECT_EQ(report.first_wrong_index, 2U);
    EXPECT_EQ(count(report, Verdict::kRight), 7U);
  }
}

TEST(BlockReport, OutOfTheUniverseIsForeign) {
  EXPECT_EQ(check(block_of({kUniverse.num_blocks, 0})).verdict, Verdict::kForeign);
  EXPECT_EQ(check(block_of({7, kUniverse.generation_max + 1})).verdict, Verdict::kForeign);
}

TEST(BlockReport, NeedsNoAlignment) {
  Bytes bytes(8 * kGranuleBytes + 1);
  const std::span<std::byte> odd = std::span(bytes).subspan(1);
  fill(odd, kExpected, kSeed);
  EXPECT_TRUE(check_block(odd, kExpected, kUniverse).is_right());
}

}  // namespace
}  // namespace kvfence::content
