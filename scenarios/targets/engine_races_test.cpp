/// Goal: each race of cases/engine/*on_device/races/ ends with a token that no run without a cache
/// says, and those of copies that read a block of somebody else are seen as races
/// first.
/// Method: the files, with their planted bugs and without, before the token oracle alone and before
/// the invariants.

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "contract/core/scenario.h"
#include "contract/engine/engine_target.h"
#include "properties/core/lockstep.h"
#include "properties/engine/checks.h"
#include "properties/engine/on_device/rules.h"
#include "scenarios/command/files.h"
#include "scenarios/targets/targets.h"

namespace kvfence {
namespace {

/// A scenario of those and the bug that it names.
struct RaceFile {
  std::string name;
  Scenario scenario;
  std::string planted_bug;
};

std::vector<RaceFile> race_files() {
  std::vector<RaceFile> files;
  const Parsed<std::vector<std::string>> paths =
      scenario_files({KVFENCE_ENGINE_CASES_DIR "/offloading_on_device/races",
                      KVFENCE_ENGINE_CASES_DIR "/on_device/races"});
  EXPECT_TRUE(paths) << KVFENCE_ENGINE_CASES_DIR;
  for (const std::string& path : *paths) {
    const Parsed<Document> document = parse_document(*read_file(path), path);
    EXPECT_TRUE(document) << document.error().to_text();
    Parsed<Scenario> scenario =
        scenario_from_document(EngineTarget::description(), *document, path);
    EXPECT_TRUE(scenario) << scenario.error().to_text();
    RaceFile& file = files.emplace_back();
    file.name = std::filesystem::path(path).stem().string();
    file.scenario = std::move(*scenario);
    for (const std::string& comment : file.scenario.comments) {
      constexpr std::string_view kMark = "Planted bug: ";
      const std::size_t at = comment.find(kMark);
      if (at != comment.npos) file.planted_bug = comment.substr(at + kMark.size());
    }
  }
  return files;
}

/// Whether an implementation says a wrong token; nobody looks at anything else.
bool says_a_wrong_token(Implementation& implementation, const Scenario& scenario) {
  Config config = scenario.config;
  config.as<engine::Config>().tokens_only = true;
  const Setup setup = prepared(EngineTarget::description(), std::move(config));
  EXPECT_FALSE(implementation.reset(setup));
  const auto world = setup.target().make_world(setup);
  engine::on_device::TokenOracle oracle(setup.as<EngineSetup>().windows);
  Observation now;
  for (const Step& step : scenario.steps) {
    world->apply(step.command);
    EXPECT_FALSE(implementation.apply(step.command, *world, Observe::kNumbers, now));
    if (oracle.check(step.command.as<engine::Command>(), now.numbers.as<engine::Observation>())) {
      return true;
    }
  }
  return false;
}

/// What the invariants alone say of a planted bug.
std::string oracle_of(const RaceFile& file) {
  const auto expected = engine_sides().make_reference();
  const auto actual = engine_sides().make_planted(file.planted_bug);
  Lockstep lockstep(engine_checks(), *expected, *actual, {.compare = false});
  const std::optional<Divergence> found = run_scenario(lockstep, file.scenario);
  return found ? std::string(found->oracle) : "none";
}

TEST(EngineRaces, EachEndsWithAWrongToken) {
  const std::vector<RaceFile> files = race_files();
  EXPECT_GE(files.size(), 11U);
  for (const RaceFile& file : files) {
    const auto planted = engine_sides().make_planted(file.planted_bug);
    ASSERT_TRUE(planted) << file.name << ": " << file.planted_bug;
    EXPECT_TRUE(says_a_wrong_token(*planted, file.scenario)) << file.name;
    const auto right = engine_sides().make_optimized();
    EXPECT_FALSE(says_a_wrong_token(*right, file.scenario)) << file.name;
  }
}

TEST(EngineRaces, OfBlocksWithANewOwnerAreSeenAsRacesFirst) {
  std::size_t num_seen = 0;
  for (const RaceFile& file : race_files()) {
    if (file.scenario.config.as<engine::Config>().tokens_only) continue;
    EXPECT_EQ(oracle_of(file), "nothing_races") << file.name;
    ++num_seen;
  }
  EXPECT_GE(num_seen, 5U);
}

// Source: vLLM v0.23.0 multi_connector.py update_state_after_alloc; mended by vllm#46865.
TEST(EngineRaces, OfAnotherChildsLoadIsUpstreamsWithoutTheLaterRule) {
  for (RaceFile& file : race_files()) {
    if (file.planted_bug != "shared_blocks_not_fenced") continue;
    auto& config = file.scenario.config.as<engine::Config>();
    config.edit_connector<engine::MultiRecord>().multi_connector_shares_blocks.reset();
    file.planted_bug.clear();
    EXPECT_EQ(oracle_of(file), "nothing_races");
    const auto right = engine_sides().make_optimized();
    EXPECT_TRUE(says_a_wrong_token(*right, file.scenario));
    return;
  }
  FAIL() << "no such file";
}

TEST(EngineRaces, AnotherUsersOutputIsGarbage) {
  for (const RaceFile& file : race_files()) {
    if (file.name != "another_users_output") continue;
    EXPECT_EQ(oracle_of(file), "tokens_as_without_cache");
    return;
  }
  FAIL() << "no such file";
}

}  // namespace
}  // namespace kvfence
