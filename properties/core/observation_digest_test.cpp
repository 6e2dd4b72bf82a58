// Goal: only the recorded observations meet a recording of digests, also after members are added,
// and a report says where it is not met and what to do. Method: a few commands of the pool, with
// digests that were computed outside of this program; then each way to miss them.

#include "properties/core/observation_digest.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>

#include "contract/pool/block_pool_target.h"
#include "properties/core/lockstep.h"
#include "properties/targets/checks.h"
#include "scenarios/targets/targets.h"

namespace kvfence {
namespace {

// printf '\0\0\0\0\0\0\0\0error=none num_free_blocks=1 ' | xxh128sum has the first 16 digits of
// the first one, and so on.
constexpr const char* kRecording = R"(target block_pool
config num_gpu_blocks=4 profile=v0.19
digests members=[error num_free_blocks] recorder="--sut './mine'"
get_new_blocks num_blocks=2
free_blocks blocks=[1] -> digest=0x159b4d5f50ba767a
touch blocks=[1]
get_new_blocks num_blocks=9 -> digest=0xe0252a4a0e635c0e
)";

std::optional<Divergence> found_in(const std::string& text, const char* planted = nullptr) {
  const TargetSides& sides = block_pool_sides();
  const Parsed<Document> document = parse_document(text);
  EXPECT_TRUE(document);
  Parsed<std::vector<Scenario>> all =
      scenarios_from_document(sides.target(), *document, "recorded.kvs.gz");
  EXPECT_TRUE(all) << all.error().to_text();
  Scenario& last = all->back();
  const auto reference = planted ? sides.make_planted(planted) : sides.make_reference();
  const auto same = planted ? sides.make_planted(planted) : sides.make_optimized();
  Lockstep lockstep(
      *sides.checks, *reference, *same,
      {.oracles = {.rules = false}, .state_every = last.has_sparse_state() ? UINT32_MAX : 1});
  return run_scenario(lockstep, last);
}

std::string with(std::string text, const std::string& old, const std::string& now) {
  const std::size_t at = text.find(old);
  EXPECT_NE(at, std::string::npos) << old;
  return text.replace(at, old.size(), now);
}

TEST(ObservationDigest, IsMetByTheRecordedObservations) { EXPECT_FALSE(found_in(kRecording)); }

TEST(ObservationDigest, CoversEveryObservationSinceTheOneBefore) {
  // One command less before each digest, or one with another answer.
  const auto first = found_in(with(kRecording, "num_blocks=2", "num_blocks=1"));
  ASSERT_TRUE(first);
  EXPECT_EQ(first->step, 1u);
  const auto second = found_in(with(kRecording, "touch blocks=[1]", "touch blocks=[2]"));
  ASSERT_TRUE(second);
  EXPECT_EQ(second->step, 3u);
  EXPECT_TRUE(found_in(with(kRecording, "touch blocks=[1]\n", "")));
}

TEST(ObservationDigest, ReportsTheObservationsAndHowToGetTheTexts) {
  const auto found =
      found_in("target block_pool\n" + with(kRecording, "touch blocks=[1]", "touch blocks=[2]"));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->oracle, "expectation");
  EXPECT_EQ(found->field, "digest");
  EXPECT_EQ(found->expected, "0xe0252a4a0e635c0e");
  EXPECT_NE(found->actual.find(", of\n    command 3: -> error=none num_free_blocks=2\n"
                               "    command 4: -> error=no_free_blocks num_free_blocks=2"),
            std::string::npos)
      << found->actual;
  EXPECT_NE(found->message.find("kvfence record recorded.kvs.gz --episode 1 --out full.kvs "
                                "--sut './mine'"),
            std::string::npos)
      << found->message;
}

TEST(ObservationDigest, IgnoresMembersThatItDoesNotName) {
  EXPECT_FALSE(found_in(kRecording, "free_reverses_list"));
  const char* const shrunk_queue = "hash_kept_on_reuse";
  EXPECT_FALSE(found_in(kRecording, shrunk_queue));
}

TEST(ObservationDigest, HasASparseStateOnlyAtDigests) {
  const std::string all = with(kRecording, "[error num_free_blocks]", "[error free_queue]");
  const std::string sparse =
      with(all, "[error free_queue]", "[error free_queue] sparse_state=true");
  const auto digest = [](const std::string& text) { return found_in(text)->actual; };
  EXPECT_EQ(digest(all).find("command 1: -> error=none free_queue="),
            digest(all).find("command 1"));
  EXPECT_NE(digest(sparse).find("command 1: -> error=none\n"), std::string::npos) << digest(sparse);
  EXPECT_NE(digest(sparse).find("command 2: -> error=none free_queue=[3 1]"), std::string::npos)
      << digest(sparse);
}

}  // namespace
}  // namespace kvfence
