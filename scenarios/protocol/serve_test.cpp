#include "scenarios/protocol/serve.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "optimized/pool/block_pool.h"
#include "properties/core/campaign.h"
#include "properties/pool/driver.h"
#include "properties/targets/checks.h"
#include "scenarios/protocol/outside_implementation.h"
#include "scenarios/targets/targets.h"

namespace kvfence {
namespace {

constexpr std::uint64_t kCampaignCommands = 5'000;
const std::string kServe = std::string("'") + KVFENCE_SERVE_TEST_CHILD + "' ";

OutsideOptions patient() {
  OutsideOptions options;
  options.answer_timeout = options.start_timeout = std::chrono::milliseconds(60'000);
  return options;
}

CampaignResult campaign(Implementation& actual, std::uint32_t state_every) {
  const auto reference = block_pool_sides().make_reference();
  CampaignOptions options;
  options.commands_max = kCampaignCommands;
  options.lockstep.state_every = state_every;
  return run_campaign(block_pool_checks(), *reference, actual, options,
                      [](const CampaignProgress&) { return true; });
}

// The answers of a server without a pipe in between, joined.
std::string answers(const std::vector<std::string>& lines) {
  const auto implementation = block_pool_sides().make_reference();
  Server server(block_pool_sides().target(), *implementation);
  std::string out;
  for (const std::string& line : lines) EXPECT_TRUE(server.answer(line, out));
  return out;
}

TEST(Serve, AnswersEveryLine) {
  EXPECT_EQ(
      answers({"target block_pool", "config num_gpu_blocks=4", "", "get_new_blocks num_blocks=1",
               "observe state=false", "# a comment", "get_new_blocks num_blocks=7 -> error=none"}),
      "-> implementation=reference\n"
      "->\n"
      "-> error=none blocks=[1] num_free_blocks=2 num_empty=2 num_cached=0 num_referenced=2 "
      "num_cached_keys=0 usage=0.33333333333333337 free_queue=[2 3] ref_cnts=[0 1 0 0] "
      "keys=[none none none none]\n"
      "->\n"
      "-> error=no_free_blocks num_free_blocks=2 num_empty=2 num_cached=0 num_referenced=2 "
      "num_cached_keys=0 usage=0.33333333333333337\n");
}

/// A pool that is made for v0.19 alone, and throws in touch.
class PartialPool : public optimized::BlockPool {
 public:
  explicit PartialPool(const BlockPoolConfig& config) : BlockPool(config) {
    if (config.profile != Profile::kV019) throw UnsupportedConfig("v0.19 alone");
  }
  ErrorCode touch(std::span<const BlockId>) { throw std::runtime_error("no touch"); }
};

TEST(Serve, PassesOnWhatAComponentRefusesAndWhyItFails) {
  const auto partial = make_driver<BlockPoolDriver>(
      "partial", [](const BlockPoolConfig& config) { return PartialPool(config); });
  Server server(block_pool_sides().target(), *partial);
  std::string out;
  ASSERT_TRUE(server.answer("config profile=v0.23", out));
  EXPECT_EQ(out, "-> unsupported=\"v0.19 alone\"\n");
  out.clear();
  ASSERT_TRUE(server.answer("take_events", out));
  EXPECT_EQ(out, "-> malformed=\"a command before config\"\n");
  ASSERT_TRUE(server.answer("config profile=v0.19", out));
  EXPECT_FALSE(server.answer("touch blocks=[1]", out));
  EXPECT_EQ(server.failure(), "threw an exception: no touch");
}

TEST(Serve, RefusesWhatItDoesNotSupportOrUnderstand) {
  EXPECT_EQ(answers({"target offload"}), "-> unsupported=\"only target block_pool\"\n");
  EXPECT_EQ(answers({"take_events"}), "-> malformed=\"a command before config\"\n");
  EXPECT_EQ(answers({"config num_gpu_blocks=0"}).substr(0, 16), "-> unsupported=\"");
  EXPECT_EQ(answers({"config colour=red"}).substr(0, 14), "-> malformed=\"");
  EXPECT_EQ(answers({"config", "take_event"}).substr(0, 17), "->\n-> malformed=\"");
  EXPECT_EQ(answers({"config", "take_events ("}).substr(0, 17), "->\n-> malformed=\"");
  EXPECT_EQ(answers({"observe state=7"}),
            "-> malformed=\"expected observe state=true or state=false\"\n");
}

TEST(Serve, BothPoolsAgreeWithTheReferenceOverTheWire) {
  for (const char* name : {"reference", "optimized"}) {
    for (const std::uint32_t state_every : {1U, 7U}) {
      OutsideImplementation outside(block_pool_sides().target(), kServe + name, patient());
      const CampaignResult result = campaign(outside, state_every);
      EXPECT_FALSE(result.failure.has_value()) << result.failure->divergence.message;
      EXPECT_EQ(result.progress.commands, kCampaignCommands);
      EXPECT_EQ(outside.name(), name);
    }
  }
}

// The same divergence at the same command as without a pipe: late answers belong to their commands.
TEST(Serve, APlantedBugIsFoundAtTheSameCommand) {
  std::size_t num_found = 0;
  for (const PlantedBugInfo& bug : block_pool_sides().planted_bugs) {
    OutsideImplementation outside(block_pool_sides().target(), kServe + std::string(bug.name),
                                  patient());
    const auto inside = block_pool_sides().make_planted(bug.name);
    const auto reference = block_pool_sides().make_reference();
    const auto run = [&reference](Implementation& actual) {
      CampaignOptions options;
      options.commands_max = 1'000;
      options.lockstep.oracles.rules = false;  // they see the one side at once, the other late
      return run_campaign(block_pool_checks(), *reference, actual, options,
                          [](const CampaignProgress&) { return true; });
    };
    const CampaignResult expected = run(*inside);
    const CampaignResult actual = run(outside);
    ASSERT_EQ(actual.failure.has_value(), expected.failure.has_value()) << bug.name;
    if (!expected.failure) continue;
    ++num_found;
    EXPECT_EQ(actual.failure->episode, expected.failure->episode) << bug.name;
    EXPECT_EQ(actual.failure->divergence.step, expected.failure->divergence.step) << bug.name;
    EXPECT_EQ(actual.failure->divergence.field, expected.failure->divergence.field) << bug.name;
    EXPECT_EQ(actual.failure->scenario, expected.failure->scenario) << bug.name;
  }
  EXPECT_GT(num_found, 0U);
}

TEST(Serve, ExitsAtTheEndOfItsInput) {
  ChildProcess child(kServe + "optimized </dev/null; echo $?");
  EXPECT_EQ(child.read_line(std::chrono::seconds(60)), "0");
}

}  // namespace
}  // namespace kvfence
