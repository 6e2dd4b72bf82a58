/// Goal: each race of cases/engine/*on_device/races*/ ends with a token that differs from a run
/// without a cache, and a copy that reads another request's block is reported as a race first.
/// Method: the files, with and without their planted bugs, judged by the token oracle alone and by
/// the rules.

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "contract/core/scenario.h"
#include "contract/engine/engine_setup.h"
#include "contract/engine/engine_target.h"
#include "properties/core/lockstep.h"
#include "properties/engine/checks.h"
#include "properties/engine/on_device/token_oracle.h"
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
                      KVFENCE_ENGINE_CASES_DIR "/on_device/races",
                      KVFENCE_ENGINE_CASES_DIR "/on_device/races_of_pairs"});
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

/// Whether an implementation outputs a wrong token; nothing else is checked.
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
    if (oracle.check(step.command.as<engine::Command>(), now.as<engine::Observation>())) {
      return true;
    }
  }
  return false;
}

/// The finding of the rules alone on a planted bug.
std::string oracle_of(const RaceFile& file) {
  const auto expected = engine_sides().make_reference();
  const auto actual = engine_sides().make_planted(file.planted_bug);
  Lockstep lockstep(engine_checks(), *expected, *actual,
                    {.oracles = {.lockstep = false, .expectation = false, .leaks = false}});
  const std::optional<Divergence> found = run_scenario(lockstep, file.scenario);
  return found ? std::string(found->oracle) : "none";
}

TEST(EngineRaces, EachEndsWithAWrongToken) {
  const std::vector<RaceFile> files = race_files();
  EXPECT_GE(files.size(), 12U);
  for (const RaceFile& file : files) {
    const auto planted = engine_sides().make_planted(file.planted_bug);
    ASSERT_TRUE(planted) << file.name << ": " << file.planted_bug;
    EXPECT_TRUE(says_a_wrong_token(*planted, file.scenario)) << file.name;
    const auto right = engine_sides().make_optimized();
    EXPECT_FALSE(says_a_wrong_token(*right, file.scenario)) << file.name;
  }
}

TEST(EngineRaces, OfBlocksWithANewOwnerAreReportedAsRacesFirst) {
  std::size_t num_seen = 0;
  for (const RaceFile& file : race_files()) {
    if (file.scenario.config.as<engine::Config>().tokens_only) continue;
    EXPECT_EQ(oracle_of(file), "nothing_races") << file.name;
    ++num_seen;
  }
  EXPECT_GE(num_seen, 6U);
}

// Source: vLLM v0.23.0 multi_connector.py update_state_after_alloc; mended by vllm#46865.
TEST(EngineRaces, OfAnotherChildsLoadIsUpstreamsWithoutTheLaterRule) {
  std::size_t num_seen = 0;
  for (RaceFile& file : race_files()) {
    if (file.planted_bug != "shared_blocks_not_fenced") continue;
    auto& config = file.scenario.config.as<engine::Config>();
    config.edit_connector<engine::MultiRecord>().multi_connector_shares_blocks.reset();
    file.planted_bug.clear();
    EXPECT_EQ(oracle_of(file), "nothing_races");
    const auto right = engine_sides().make_optimized();
    EXPECT_TRUE(says_a_wrong_token(*right, file.scenario)) << file.name;
    ++num_seen;
  }
  EXPECT_EQ(num_seen, 2U);
}

// B is aborted in a step that is under way, and gives its blocks back. NIXL reads into them for C
// without waiting: the step's forward writes after the read.
// Source: vLLM v0.23.0 nixl/worker.py start_load_kv; the OffloadingConnector's workers order loads
// after the compute stream, NIXL's do not.
TEST(EngineRaces, OfAReadWithAStepUnderWayIsUpstreams) {
  constexpr std::string_view kText = R"(target engine
config connectors=[(nixl)] engines=2 device=virtual num_gpu_blocks=6 consumer_num_gpu_blocks=3 profile=v0.23 hash_block_size=2 groups=[(full block_size=2)] max_model_len=5 max_num_batched_tokens=8 max_num_seqs=2 max_concurrent_batches=2
add_request id=A tokens=[1 2 3] do_remote_decode=true max_tokens=1
add_request id=D tokens=[4 5 6] do_remote_decode=true max_tokens=1
schedule
execute
poll
update
hand_over request=A id=B max_tokens=1
schedule engine=consumer
execute engine=consumer
advance_read read=0
poll engine=consumer
update engine=consumer
schedule engine=consumer
execute engine=consumer
hand_over request=D id=C max_tokens=1
finish_requests requests=[B] engine=consumer
poll engine=consumer
schedule engine=consumer
execute engine=consumer
advance_read read=1
update engine=consumer
poll engine=consumer
update engine=consumer
schedule engine=consumer
execute engine=consumer
poll engine=consumer
update engine=consumer
)";
  RaceFile file;
  const Parsed<Document> document = parse_document(std::string(kText), "race");
  ASSERT_TRUE(document) << document.error().to_text();
  Parsed<Scenario> scenario =
      scenario_from_document(EngineTarget::description(), *document, "race");
  ASSERT_TRUE(scenario) << scenario.error().to_text();
  file.scenario = std::move(*scenario);
  EXPECT_EQ(oracle_of(file), "nothing_races");
  const auto right = engine_sides().make_optimized();
  EXPECT_TRUE(says_a_wrong_token(*right, file.scenario));
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
