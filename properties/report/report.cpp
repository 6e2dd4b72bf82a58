#include "properties/report/report.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "contract/core/joined.h"
#include "contract/core/scenario.h"
#include "properties/report/number_text.h"
#include "properties/report/xml_text.h"

namespace kvfence {
namespace {

// A scenario of up to this many commands is shown whole, of a longer one only the commands that
// lead to the divergence.
constexpr std::size_t kWholeCommandsMax = 24;
constexpr std::size_t kCommandsBefore = 8;
// A longer list is cut around the place where the two sides differ.
constexpr std::size_t kSideCharactersMax = 72;
constexpr std::size_t kElementsAround = 3;

/// For machines: no thousands separators.
std::string plain_number(double number) {
  std::string text = number_text(number);
  std::erase(text, ',');
  return text;
}

std::string count_text(std::uint64_t count, std::string_view noun) {
  return with_thousands(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

std::size_t num_unmet(const Report& report) {
  return static_cast<std::size_t>(std::ranges::count(report.reach, false, &ReachCount::is_met));
}

bool is_command(const Line& line) {
  return !line.verb.empty() && line.verb != "target" && line.verb != "config" &&
         line.verb != Digests::kLine;
}

std::size_t num_commands(const Document& scenario) {
  return static_cast<std::size_t>(std::ranges::count_if(scenario, is_command));
}

/// The verdict in one line.
std::string headline(const Report& report) {
  const std::string head = std::string(report.passed() ? "agree " : "FAIL ") + report.target + ": ";
  const std::string& actual =
      report.actual_name.empty() ? report.expected_name : report.actual_name;
  if (report.divergence) {
    const std::string& oracle = report.divergence->oracle;
    if (oracle == "lockstep") return head + actual + " differs from " + report.expected_name;
    if (oracle == "expectation") return head + "an expectation is not met";
    if (oracle == "implementation") return head + "an implementation failed";
    if (oracle == "crash") return head + report.divergence->message;
    return head + actual + " breaks " + oracle;
  }
  if (report.disagreements > 0) return head + count_text(report.disagreements, "disagreement");
  if (const std::size_t unmet = num_unmet(report))
    return head + count_text(unmet, "goal") + " not reached";
  const bool is_compared = !report.actual_name.empty() && report.oracles.lockstep;
  return head + actual + (is_compared ? " equals " + report.expected_name : " holds");
}

/// One side of a divergence, to be printed above or below the other.
struct Side {
  std::string text;
  std::size_t mark = std::string::npos;  ///< column of the first element that differs
};

/// Writes a list so that element `first_different` is visible, and says where it begins.
Side list_side(const Value::List& list, std::size_t first_different, bool is_cut) {
  const std::size_t begin =
      is_cut && first_different > kElementsAround ? first_different - kElementsAround : 0;
  const std::size_t end =
      is_cut ? std::min(list.size(), first_different + kElementsAround + 1) : list.size();
  Side side;
  side.text = begin > 0 ? "[... " : "[";
  for (std::size_t index = begin; index < end; ++index) {
    if (index > begin) side.text += ' ';
    if (index == first_different) side.mark = side.text.size();
    print_to(side.text, list[index]);
  }
  // This side lacks the element: its place is the end.
  if (side.mark == std::string::npos) side.mark = side.text.size();
  side.text += end < list.size() ? " ...]" : "]";
  return side;
}

std::size_t first_different_index(const Value::List& a, const Value::List& b) {
  const auto parted = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<std::size_t>(parted.first - a.begin());
}

/// Both sides as text; lists have a mark where they differ.
std::pair<Side, Side> sides(const Divergence& divergence) {
  const Parsed<Value> expected = parse_value(divergence.expected);
  const Parsed<Value> actual = parse_value(divergence.actual);
  const auto* a = expected ? expected->get_if<Value::List>() : nullptr;
  const auto* b = actual ? actual->get_if<Value::List>() : nullptr;
  if (!a || !b || *a == *b) return {{divergence.expected}, {divergence.actual}};
  const std::size_t index = first_different_index(*a, *b);
  const bool is_cut =
      std::max(divergence.expected.size(), divergence.actual.size()) > kSideCharactersMax;
  return {list_side(*a, index, is_cut), list_side(*b, index, is_cut)};
}

/// `label` in a column, then the text.
void add_row(std::string& out, std::string_view label, std::string_view text) {
  constexpr std::size_t kLabelWidth = 11;
  out += "  ";
  out += label;
  out.append(kLabelWidth - std::min(kLabelWidth - 1, label.size()), ' ');
  out += text;
  out += '\n';
}

void add_sides(std::string& out, const Report& report) {
  const auto [expected, actual] = sides(*report.divergence);
  const std::size_t width = std::max(expected.text.size(), actual.text.size());
  // What a rule demands comes from no implementation.
  const bool by_two = report.divergence->oracle == "lockstep";
  const auto row = [&](std::string_view label, const Side& side, const std::string& name) {
    std::string text = side.text;
    if (by_two) text += std::string(width - text.size() + 2, ' ') + name;
    add_row(out, label, text);
  };
  row("expected", expected, report.expected_name);
  row("actual", actual, report.actual_name);
  if (expected.mark != std::string::npos) {
    add_row(out, "", std::string(expected.mark, ' ') + "^");
  }
}

/// The scenario, whole or only what leads to the step, with the step marked.
void add_scenario(std::string& out, const Report& report) {
  const std::size_t step = report.divergence->step;
  const std::size_t total = num_commands(report.scenario);
  const bool is_whole = total <= kWholeCommandsMax;
  out += "scenario, " + count_text(total, "command");
  if (report.commands_before_shrinking > 0) {
    out += ", shrunk from " + std::to_string(report.commands_before_shrinking);
  }
  if (!is_whole) out += "; the last before the divergence";
  out += ":\n";
  std::size_t index = 0;
  for (const Line& line : report.scenario) {
    bool is_shown = true;
    bool is_step = false;
    if (is_command(line)) {
      is_step = index == step;
      is_shown = is_whole || (index <= step && index + kCommandsBefore >= step);
      ++index;
    } else if (line.verb.empty()) {
      is_shown = is_whole;
    }
    if (is_shown) out += (is_step ? "> " : "  ") + print(line) + "\n";
  }
}

void add_divergence(std::string& out, const Report& report) {
  const Divergence& divergence = *report.divergence;
  add_row(out, "rule", divergence.message);
  add_row(out, "seen by", divergence.oracle);
  std::size_t index = 0;
  for (const Line& line : report.scenario) {
    if (!is_command(line) || index++ != divergence.step) continue;
    add_row(out, "step",
            std::to_string(divergence.step) + " (command " + std::to_string(divergence.step + 1) +
                " of " + std::to_string(num_commands(report.scenario)) + "): " + print(line));
  }
  if (!divergence.field.empty()) add_row(out, "field", divergence.field);
  add_sides(out, report);
}

nlohmann::ordered_json divergence_json(const Divergence& divergence) {
  return {{"step", divergence.step},     {"oracle", divergence.oracle},
          {"field", divergence.field},   {"expected", divergence.expected},
          {"actual", divergence.actual}, {"message", divergence.message}};
}

/// How many coverage goals were reached and how rare the rarest was; then the names of those that
/// had to be reached and were not.
void add_goals(std::string& out, const Report& report) {
  if (report.reach.empty()) return;
  const ReachCount* rarest = nullptr;
  std::size_t num_reached = 0;
  for (const ReachCount& reach : report.reach) {
    if (reach.count == 0) continue;
    ++num_reached;
    if (!rarest || reach.count < rarest->count) rarest = &reach;
  }
  std::string text =
      with_thousands(num_reached) + " of " + count_text(report.reach.size(), "situation");
  if (rarest) text += ", the rarest " + rarest->name + ", " + count_text(rarest->count, "time");
  add_row(out, "reached", text);
  for (const ReachCount& reach : report.reach) {
    if (reach.is_met()) continue;
    add_row(out, "MISSED",
            reach.name + ", " + count_text(reach.count, "time") + ", at least " +
                with_thousands(reach.goal) + " wanted");
  }
}

/// In lines of a readable length; nothing if there are none.
void add_names(std::string& out, std::string_view label, const std::vector<std::string>& names) {
  constexpr std::size_t kLineMax = 96;
  std::string line;
  for (const std::string& name : names) {
    if (!line.empty() && line.size() + 1 + name.size() > kLineMax) {
      add_row(out, std::exchange(label, ""), std::exchange(line, ""));
    }
    line += (line.empty() ? "" : " ") + name;
  }
  if (!line.empty()) add_row(out, label, line);
}

/// What a verdict covers and what it does not.
void add_scope(std::string& out, const Report& report) {
  const std::string_view what = report.oracles.lockstep ? "compared" : "reported";
  if (report.unreported.empty() && !report.compared.empty()) {
    add_row(out, what, "all " + count_text(report.compared.size(), "member"));
  } else {
    add_names(out, what, report.compared);
    add_names(out, "unreported", report.unreported);
    add_names(out, "not judged", report.unjudged);
  }
  if (report.corrections > 0) {
    add_row(out, "corrected", count_text(report.corrections, "fault") + " of what it drives");
  }
  if (report.refusals.count() == 0) return;
  add_row(out, "refused",
          count_text(report.refusals.count(), "configuration") + ", others drawn instead:");
  for (const Refusal& each : report.refusals.reasons()) {
    add_row(out, "", with_thousands(each.count) + "  " + each.why);
  }
}

}  // namespace

bool Report::passed() const { return !divergence && disagreements == 0 && num_unmet(*this) == 0; }

double Report::commands_per_second() const {
  return seconds > 0 ? static_cast<double>(commands) / seconds : 0;
}

std::string to_text(const Report& report) {
  std::string out = headline(report) + "\n";
  if (report.divergence) add_divergence(out, report);
  add_row(out, "source", report.source);
  add_row(out, "ran",
          count_text(report.commands, "command") + " in " + number_text(report.seconds) + " s, " +
              number_text(report.commands_per_second()) + " per second, " +
              count_text(report.disagreements, "disagreement"));
  if (report.oracles != Oracles{}) add_row(out, "oracles", to_text(report.oracles) + " alone");
  for (const auto& number : report.numbers) add_row(out, number.first, number_text(number.second));
  add_scope(out, report);
  // After a divergence the goals do not matter.
  if (!report.divergence) add_goals(out, report);
  if (report.divergence && !report.scenario.empty()) add_scenario(out, report);
  if (!report.reproduce.empty()) out += "reproduce: " + report.reproduce + "\n";
  return out;
}

std::string to_json(const Report& report) {
  nlohmann::ordered_json json = {{"target", report.target},
                                 {"source", report.source},
                                 {"expected", report.expected_name},
                                 {"actual", report.actual_name},
                                 {"passed", report.passed()},
                                 {"seed", report.seed},
                                 {"commands", report.commands},
                                 {"seconds", report.seconds},
                                 {"commands_per_second", report.commands_per_second()},
                                 {"disagreements", report.disagreements}};
  if (report.oracles != Oracles{}) json["oracles"] = to_text(report.oracles);
  if (report.divergence) json["divergence"] = divergence_json(*report.divergence);
  if (!report.scenario.empty()) json["scenario"] = print(report.scenario);
  if (report.commands_before_shrinking > 0) {
    json["commands_before_shrinking"] = report.commands_before_shrinking;
  }
  if (!report.reproduce.empty()) json["reproduce"] = report.reproduce;
  for (const auto& number : report.numbers) json["numbers"][number.first] = number.second;
  if (!report.compared.empty()) json["compared"] = report.compared;
  if (report.corrections > 0) json["corrections"] = report.corrections;
  if (!report.unreported.empty()) json["unreported"] = report.unreported;
  if (!report.unjudged.empty()) json["unjudged"] = report.unjudged;
  for (const Refusal& each : report.refusals.reasons()) json["refused"][each.why] = each.count;
  for (const ReachCount& reach : report.reach) {
    json["reach"][reach.name] = {{"count", reach.count}, {"goal", reach.goal}};
  }
  return json.dump(-1, ' ', /*ensure_ascii=*/true,
                   nlohmann::ordered_json::error_handler_t::replace);
}

std::string to_junit(const std::vector<Report>& reports, const std::vector<NotRun>& not_run) {
  double seconds = 0;
  for (const Report& report : reports) seconds += report.seconds;
  const auto num_failures = std::ranges::count(reports, false, &Report::passed);
  const std::string totals =
      xml_attribute("tests", std::to_string(reports.size() + not_run.size())) +
      xml_attribute("failures", std::to_string(num_failures)) +
      xml_attribute("errors", std::to_string(not_run.size())) +
      xml_attribute("time", plain_number(seconds));
  std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites" + totals + ">\n";
  out += "  <testsuite" + xml_attribute("name", "kvfence") + totals + ">\n";
  for (const Report& report : reports) {
    out += "    <testcase" + xml_attribute("classname", "kvfence." + report.target) +
           xml_attribute("name", report.source) +
           xml_attribute("time", plain_number(report.seconds));
    if (report.passed()) {
      out += "/>\n";
      continue;
    }
    const std::string_view type = report.divergence ? std::string_view(report.divergence->oracle)
                                  : report.disagreements > 0 ? "lockstep"
                                                             : "reach";
    out += ">\n      <failure" + xml_attribute("message", headline(report)) +
           xml_attribute("type", type) + ">" + escape_xml(to_text(report)) +
           "</failure>\n    </testcase>\n";
  }
  for (const auto& [source, why] : not_run) {
    out += "    <testcase" + xml_attribute("classname", "kvfence") + xml_attribute("name", source) +
           ">\n      <error" + xml_attribute("message", why) + "/>\n    </testcase>\n";
  }
  return out + "  </testsuite>\n</testsuites>\n";
}

}  // namespace kvfence
