// Goal: each goal of each target is counted when its situation occurs, and not before. Method: run
// scenarios on the reference. A line `# reaches NAME...` follows each command that reaches goals
// for the first time in its file, and names them; no others are reached in the file. Every goal is
// in some file. A goal that the configuration alone reaches follows it, and is in no other files.

#include "properties/core/goals.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "contract/core/line.h"
#include "contract/core/scenario.h"
#include "contract/pool/block_pool_target.h"
#include "properties/core/cases_test_support.h"
#include "properties/core/prop_test_support.h"
#include "properties/engine/checks.h"

namespace kvfence {
namespace {

/// Goals by the line of the command that reached them.
using Reached = std::map<std::size_t, std::set<std::string, std::less<>>>;

/// Runs a scenario alone on the reference.
Reached reached_in(const CheckedPart& part, const Scenario& scenario) {
  const kvfence::Setup setup = prepared(*scenario.target, scenario.config);
  const std::unique_ptr<Implementation> reference = part.sides->make_reference();
  const std::unique_ptr<World> world = scenario.target->make_world(setup);
  const std::unique_ptr<GoalCounts> counts = part.checks->make_goal_counts();
  EXPECT_FALSE(reference->reset(setup));
  Reached reached;
  std::set<std::size_t> known;
  const auto take_new = [&](std::size_t line) {
    for (std::size_t goal = 0; goal < part.checks->goals.size(); ++goal) {
      if (counts->count_of(goal) > 0 && known.insert(goal).second) {
        reached[line].emplace(part.checks->goals[goal].name);
      }
    }
  };
  counts->start(setup);
  take_new(scenario.config_position.line);
  Observation before;
  Observation after;
  before.emplace(*scenario.target->observation);
  for (const Step& step : scenario.steps) {
    world->apply(step.command);
    EXPECT_FALSE(reference->apply(step.command, *world, Observe::kState, after));
    counts->count(step.command, before, after, *world);
    take_new(step.position.line);
    std::swap(before, after);
  }
  return reached;
}

/// The goals that the lines of the document name.
Reached declared_in(const Document& document) {
  constexpr std::string_view kReaches = " reaches ";
  Reached declared;
  std::size_t command = 0;
  for (std::size_t index = 0; index < document.size(); ++index) {
    const Line& line = document[index];
    if (!line.verb.empty()) command = index + 1;
    if (!line.comment.starts_with(kReaches)) continue;
    std::istringstream names(line.comment.substr(kReaches.size()));
    for (std::string name; names >> name;) declared[command].insert(name);
  }
  return declared;
}

std::vector<std::string> files_of(const CheckedPart& part) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(cases_folder(part.name))) {
    if (entry.path().extension() == ".kvs") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

class Goals : public ::testing::TestWithParam<const CheckedPart*> {};
INSTANTIATE_TEST_SUITE_P(Every, Goals, ::testing::ValuesIn(every_part()), name_of_part);

TEST_P(Goals, AreReachedWhereScenariosSay) {
  const CheckedPart& part = *GetParam();
  std::set<std::string, std::less<>> shown;
  for (const std::string& file : files_of(part)) {
    const Parsed<Document> document = read_document(file);
    ASSERT_TRUE(document) << document.error().to_text();
    const Reached declared = declared_in(*document);
    if (declared.empty()) continue;
    const Parsed<Scenario> scenario = scenario_from_document(*part.checks->target, *document, file);
    ASSERT_TRUE(scenario) << scenario.error().to_text();
    EXPECT_EQ(reached_in(part, *scenario), declared) << file;
    for (const auto& [line, names] : declared) shown.insert(names.begin(), names.end());
  }
  for (const Goal& goal : part.checks->goals) {
    EXPECT_TRUE(shown.contains(goal.name)) << "no scenario shows " << goal.name;
  }
}

TEST_P(Goals, HaveNamesOfTheirOwn) {
  std::set<std::string_view> names;
  for (const Goal& goal : GetParam()->checks->goals) {
    EXPECT_TRUE(names.insert(goal.name).second) << goal.name;
    EXPECT_FALSE(goal.doc.empty()) << goal.name;
  }
}

TEST(GoalCountsDeath, ACodeThatACommandDoesNotDeclareIsAnErrorOfTheHarness) {
  const Checks& checks = *block_pool_sides().checks;
  const kvfence::Setup setup = prepared(*checks.target, default_config(*checks.target));
  const std::unique_ptr<World> world = checks.target->make_world(setup);
  const std::unique_ptr<GoalCounts> counts = checks.make_goal_counts();
  counts->start(setup);
  const Observation before = default_observation(*checks.target);
  Observation refused = before;
  ErrorCode& error = refused.as<block_pool::Observation>().error;
  error = ErrorCode::kUnknownBlock;
  counts->count(Command(block_pool::Command(block_pool::Touch{{99}})), before, refused, *world);
  error = ErrorCode::kDoubleFree;
  EXPECT_DEATH(
      counts->count(Command(block_pool::Command(block_pool::Touch{{99}})), before, refused, *world),
      "a code that the command does not declare");
}

}  // namespace
}  // namespace kvfence
