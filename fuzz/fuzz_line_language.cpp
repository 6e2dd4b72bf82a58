/// Any text -> document -> scenario and back: no input crashes the reader, and the printed text of
/// what was read reads as the same.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/check.h"
#include "contract/core/line.h"
#include "contract/core/scenario.h"
#include "fuzz/corpus_goals.h"
#include "scenarios/targets/targets.h"

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

/// The texts of one target: commands, observations, scenarios.
class TargetLanguage {
 public:
  explicit TargetLanguage(const Target& target) : target_(target) {
    for (std::string_view goal : {"command_read", "command_refused", "observation_read",
                                  "scenario_read", "scenario_refused"}) {
      names_.push_back(std::string(target.name) + "_" + std::string(goal));
    }
  }

  /// Checks the way to text and back, line by line and as a whole.
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

  /// Checks the way to text and back for a line's command and for its observation.
  void check_line(const Line& line) {
    const Parsed<Command> command = command_from_line(target_, line);
    ++counts_[command ? kCommandRead : kCommandRefused];
    if (command) {
      const Parsed<Line> printed = parse_line(print(to_line(*command)));
      KVFENCE_CHECK(printed, "a printed command reads");
      const Parsed<Command> again = command_from_line(target_, *printed);
      KVFENCE_CHECK(again && *again == *command, "a printed command reads as itself");
    } else {
      check_error(command.error());
    }
    if (!line.expectation || !command) return;
    const std::optional<Observation> observation = read_observation(*line.expectation);
    if (!observation) return;
    ++counts_[kObservationRead];
    const std::optional<Observation> again = read_observation(fields_of(observation->declared()));
    KVFENCE_CHECK(again == observation, "an observation's fields read as itself");
  }

  /// Nothing if a key is unknown or a value of the wrong kind.
  std::optional<Observation> read_observation(const std::vector<Field>& fields) const {
    Observation observation = default_observation(target_);
    for (const Field& field : fields) {
      const auto member = find_member(observation.declared(), field.key);
      std::string expected;
      if (!member || !member->assign(field.value, expected)) return std::nullopt;
    }
    return observation;
  }

  void check_scenario(const Document& document) {
    const auto scenario = scenario_from_document(target_, document, "input.kvs");
    ++counts_[scenario ? kScenarioRead : kScenarioRefused];
    if (!scenario) return check_error(scenario.error());
    const Parsed<Document> printed = parse_document(print(to_document(*scenario)));
    KVFENCE_CHECK(printed, "a printed scenario reads");
    const auto again = scenario_from_document(target_, *printed);
    KVFENCE_CHECK(again && *again == *scenario, "a printed scenario reads as itself");
    KVFENCE_CHECK(again->comments == scenario->comments, "a scenario keeps its comments");
  }

  const Target& target_;
  std::vector<std::string> names_;
  std::array<std::uint64_t, kNumGoals> counts_{};
};

std::vector<TargetLanguage>& languages() {
  static std::vector<TargetLanguage> all = [] {
    std::vector<TargetLanguage> made;
    for (const TargetSides* sides : all_targets()) made.emplace_back(sides->target());
    return made;
  }();
  return all;
}

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
  // Every target reads what it can, whatever target the text names.
  for (TargetLanguage& language : languages()) language.check(*document);
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
  for (const TargetLanguage& language : languages()) language.add_goals(all);
  return all;
}
CorpusGoal corpus_size() { return num_lines; }

}  // namespace kvfence::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(data, data + size);
  kvfence::fuzz::check_document(text);
  kvfence::fuzz::check_value(text);
  return 0;
}
