// The table of what is left out.
// Method: verify each row: the rule passes over something in the row's scenario, the generator
// leaves something out in campaigns, the contract refuses the row's lines. Pairs:
// factor_survey_test.cpp.

#include "properties/targets/left_out.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "contract/core/scenario.h"
#include "contract/engine/engine_target.h"
#include "properties/core/campaign.h"
#include "properties/core/cases_test_support.h"
#include "properties/core/left_out.h"
#include "properties/core/lockstep.h"
#include "properties/core/prop_test_support.h"

namespace kvfence {
namespace {

std::string file_of(std::string_view scenario) {
  return KVFENCE_CASES_DIR "/" + std::string(scenario);
}

TEST(LeftOut, TheDocumentHasEveryRow) {
  const char* const write = std::getenv("KVFENCE_WRITE_GOLDEN");
  if (write != nullptr) std::ofstream(KVFENCE_LEFT_OUT_DOCUMENT) << left_out_document();
  std::stringstream text;
  text << std::ifstream(KVFENCE_LEFT_OUT_DOCUMENT).rdbuf();
  EXPECT_EQ(text.str(), left_out_document()) << "KVFENCE_WRITE_GOLDEN=1 writes it";
}

TEST(LeftOut, EachFaultHasItsScenario) {
  for (const LeftOutRow& row : left_out()) {
    EXPECT_FALSE(row.why.empty()) << row.name;
    const bool is_fault = row.kind != "same" && row.kind != "missing";
    EXPECT_EQ(is_fault, !row.scenario.empty()) << row.name;
    if (is_fault) {
      EXPECT_TRUE(std::filesystem::exists(file_of(row.scenario))) << row.scenario;
    }
  }
}

/// Whether the contract accepts these lines.
bool is_taken(std::string_view lines) {
  const Parsed<Document> document = parse_document("target engine\n" + std::string(lines));
  if (!document) return false;
  const Target& target = EngineTarget::description();
  const Parsed<Scenario> scenario = scenario_from_document(target, *document);
  if (!scenario) return false;
  const Setup setup = prepared(target, scenario->config);
  const auto reference = engine_sides().make_reference();
  const auto world = target.make_world(setup);
  EXPECT_FALSE(reference->reset(setup));
  Observation shown;
  for (const Step& step : scenario->steps) {
    world->apply(step.command);
    EXPECT_FALSE(reference->apply(step.command, *world, Observe::kState, shown));
  }
  return shown_error(shown) == ErrorCode::kNone;
}

TEST(LeftOut, RefusedRowsAreRefused) {
  for (const LeftOutRow& row : left_out()) {
    const bool is_of_contract = row.kind == "refused" || row.kind == "missing";
    EXPECT_EQ(is_of_contract, !row.refused.empty()) << row.name;
    if (!is_of_contract) continue;
    EXPECT_FALSE(is_taken(row.refused)) << row.name;
  }
  EXPECT_TRUE(is_taken("config assembly=scheduler\nadd_request id=A tokens=[1]\n"));
}

TEST(LeftOut, RulesPassOverInTheirScenarios) {
  for (const LeftOut* row : LeftOut::all()) {
    if (row->by() != LeftOut::By::kRule) continue;
    const std::string file = file_of(row->scenario());
    const Parsed<Document> document = read_document(file);
    ASSERT_TRUE(document) << document.error().to_text();
    for (const TargetSides* sides : all_targets()) {
      const Parsed<Scenario> scenario = scenario_from_document(sides->target(), *document, file);
      if (!scenario) continue;
      const auto expected = sides->make_reference();
      const auto actual = sides->make_reference();
      Lockstep lockstep(*sides->checks, *expected, *actual);
      const std::uint64_t before = row->count();
      EXPECT_FALSE(run_scenario(lockstep, *scenario)) << row->scenario();
      EXPECT_GT(row->count(), before) << row->name() << " passes nothing over in " << file;
    }
  }
}

TEST(LeftOut, GeneratorsLeaveOutInCampaigns) {
  for (const CheckedPart* part : every_part()) {
    const auto expected = part->sides->make_reference();
    const auto actual = part->sides->make_reference();
    CampaignOptions options;
    options.commands_max = 20'000;
    options.lockstep.oracles = {.lockstep = false, .rules = false};
    run_campaign(*part->checks, *expected, *actual, options,
                 [](const CampaignProgress&) { return true; });
  }
  for (const LeftOut* row : LeftOut::all()) {
    if (row->by() == LeftOut::By::kRule) continue;
    EXPECT_GT(row->count(), 0U) << row->name();
  }
}

}  // namespace
}  // namespace kvfence
