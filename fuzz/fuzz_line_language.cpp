/// Any text -> document -> scenario and back: no input crashes the reader, and what was read prints
/// to text that reads as the same.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "contract/core/all_targets.h"
#include "contract/core/check.h"
#include "contract/core/line.h"
#include "contract/core/scenario.h"
#include "fuzz/corpus_goals.h"
#include "properties/core/all_checks.h"

namespace kvfence::fuzz {
namespace {

enum TextGoal : std::size_t { kDocumentRead, kDocumentRefused, kValueRead, kNumTextGoals };

std::array<CorpusGoal, kNumTextGoals> goals = {
    {{"document_read"}, {"document_refused"}, {"value_read"}}};
CorpusGoal num_lines = {"lines"};

void check_error(const InputError& error) {
  KVFENCE_CHECK(!error.expected.empty(), "an error says what was expected");
  KVFENCE_CHECK(error.to_text().find('\n') == std::string::npos, "an error is one line");
}

/// What is a target's to read: commands, observations, scenarios.
template <class Target>
class TargetLanguage {
 public:
  /// Survives the way to text and back, line by line and as a whole.
  void check(const Document& document) {
    for (const Line& line : document) check_line(line);
    check_scenario(document);
  }

  void add_goals(std::vector<CorpusGoal>& all) const {
    for (std::size_t goal = 0; goal < kNumGoals; ++goal) {
      all.push_back({names_[goal], counts_[goal]});
    }
  }

 private:
  enum Goal : std::size_t {
    kCommandRead,
    kCommandRefused,
    kObservationRead,
    kScenarioRead,
    kScenarioRefused,
    kNumGoals
  };

  /// A line's command and observation, on their own, survive the way to text and back.
  void check_line(const Line& line) {
    using Command = typename Target::Command;
    using Observation = typename Target::Observation;
    const Parsed<Command> command = command_from_line<Command>(line);
    ++counts_[command ? kCommandRead : kCommandRefused];
    if (command) {
      const Parsed<Line> printed = parse_line(print(to_line(*command)));
      KVFENCE_CHECK(printed, "a printed command reads");
      const Parsed<Command> again = command_from_line<Command>(*printed);
      KVFENCE_CHECK(again && *again == *command, "a printed command reads as itself");
    } else {
      check_error(command.error());
    }
    if (!line.expectation) return;
    const Parsed<Observation> observation = from_fields<Observation>(
        *line.expectation, "observation", {}, line.position, /*require_all=*/false);
    if (!observation) return check_error(observation.error());
    ++counts_[kObservationRead];
    const Parsed<Observation> again = from_fields<Observation>(
        to_fields(*observation), "observation", {}, line.position, /*require_all=*/false);
    KVFENCE_CHECK(again && *again == *observation, "an observation's fields read as itself");
  }

  void check_scenario(const Document& document) {
    const auto scenario = scenario_from_document<Target>(document, "input.kvs");
    ++counts_[scenario ? kScenarioRead : kScenarioRefused];
    if (!scenario) return check_error(scenario.error());
    const Parsed<Document> printed = parse_document(print(to_document(*scenario)));
    KVFENCE_CHECK(printed, "a printed scenario reads");
    const auto again = scenario_from_document<Target>(*printed);
    KVFENCE_CHECK(again && *again == *scenario, "a printed scenario reads as itself");
    KVFENCE_CHECK(again->comments == scenario->comments, "a scenario keeps its comments");
  }

  static std::string name_of(std::string_view goal) {
    return std::string(Target::kName) + "_" + std::string(goal);
  }

  std::array<std::string, kNumGoals> names_ = {
      name_of("command_read"), name_of("command_refused"), name_of("observation_read"),
      name_of("scenario_read"), name_of("scenario_refused")};
  std::array<std::uint64_t, kNumGoals> counts_{};
};

template <class... Targets>
using TargetLanguages = std::tuple<TargetLanguage<Targets>...>;
AllTargets::Apply<TargetLanguages> languages;

void check_document(std::string_view text) {
  const Parsed<Document> document = parse_document(text, "input.kvs");
  ++goals[document ? kDocumentRead : kDocumentRefused].count;
  if (!document) {
    KVFENCE_CHECK(document.error().position.line > 0, "an error names its line");
    return check_error(document.error());
  }
  const std::string printed = print(*document);
  const Parsed<Document> again = parse_document(printed);
  KVFENCE_CHECK(again && *again == *document, "a printed document reads as itself");
  KVFENCE_CHECK(print(*again) == printed, "canonical text prints as itself");
  num_lines.count += document->size();
  // Whatever target the text names, each reads all it can.
  std::apply([&](auto&... language) { (language.check(*document), ...); }, languages);
}

void check_value(std::string_view text) {
  const Parsed<Value> value = parse_value(text);
  if (!value) return check_error(value.error());
  ++goals[kValueRead].count;
  const Parsed<Value> again = parse_value(print(*value));
  KVFENCE_CHECK(again && *again == *value, "a printed value reads as itself");
}

}  // namespace

std::vector<CorpusGoal> corpus_goals() {
  std::vector<CorpusGoal> all(goals.begin(), goals.end());
  std::apply([&](const auto&... language) { (language.add_goals(all), ...); }, languages);
  return all;
}
CorpusGoal corpus_size() { return num_lines; }

}  // namespace kvfence::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string text(size, '\0');
  for (std::size_t index = 0; index < size; ++index) text[index] = static_cast<char>(data[index]);
  kvfence::fuzz::check_document(text);
  kvfence::fuzz::check_value(text);
  return 0;
}
