/// `kvfence list`: targets, commands, rules, goals and so on, by name.

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "contract/core/rules.h"
#include "cuda/figures/devices.h"
#include "properties/targets/left_out.h"
#include "scenarios/command/commands.h"
#include "scenarios/command/output.h"

namespace kvfence {
namespace {

using Rows = std::vector<std::pair<std::string, std::string>>;

Rows release_rule_rows() {
  Rows rows;
  for (const RuleField& rule : kRuleFields) {
    std::string text(rule.doc);
    for (Profile profile : kProfiles) {
      text += std::string("; ") + std::string(to_text(profile)) + " " +
              (rules_of(profile).*rule.member ? "true" : "false");
    }
    rows.emplace_back(rule.name, text);
  }
  return rows;
}

Rows device_rows() {
  constexpr double kGib = 1024.0 * 1024.0 * 1024.0;
  const cuda::Devices found = cuda::find_devices();
  if (found.devices.empty()) return {{"none", found.none_because}};
  Rows rows;
  for (const cuda::Device& device : found.devices) {
    const auto memory_gib =
        static_cast<std::uint64_t>(static_cast<double>(device.memory_bytes) / kGib);
    rows.emplace_back(device.name, "compute capability " +
                                       std::to_string(device.compute_capability_major) + "." +
                                       std::to_string(device.compute_capability_minor) + ", " +
                                       std::to_string(memory_gib) + " GiB");
  }
  return rows;
}

Rows planted_bug_rows(const CheckedPart& part) {
  Rows rows;
  for (const PlantedBugInfo& info : part.planted_bugs) {
    rows.emplace_back(info.name, std::string(info.doc) + " (" + std::string(info.thread) + ")");
  }
  return rows;
}

/// Each factor with its values, and how often each was drawn; then the pairs of values.
Rows factor_rows(const FactorSurvey& survey) {
  Rows rows;
  for (const FactorValue& value : survey.values) {
    const auto known = std::ranges::find(rows, value.factor, &Rows::value_type::first);
    std::string& text =
        known == rows.end() ? rows.emplace_back(value.factor, "").second : known->second;
    text += (text.empty() ? "" : ", ") + value.value + " " + std::to_string(value.count);
  }
  rows.emplace_back("pairs drawn", std::to_string(survey.num_pairs_drawn));
  rows.emplace_back("refused by the contract", std::to_string(survey.num_pairs_refused));
  rows.emplace_back("left out on purpose", std::to_string(survey.num_explained));
  rows.emplace_back("not drawn, of rare values", std::to_string(survey.num_pairs_rare));
  for (const FactorHole& hole : survey.holes) {
    const std::string both = hole.first + (hole.second.empty() ? "" : " and " + hole.second);
    rows.emplace_back("never drawn: " + both, hole.example);
  }
  return rows;
}

void print_rows(const std::string& heading, const Rows& rows) {
  std::size_t width = 0;
  for (const auto& [name, text] : rows) width = std::max(width, name.size());
  std::printf("%s\n", heading.c_str());
  for (const auto& [name, text] : rows) {
    std::printf("  %-*s  %s\n", static_cast<int>(width), name.c_str(), text.c_str());
  }
}

}  // namespace

int list_command(const ListCommandOptions& options) {
  if (!options.target.empty()) required(tools_of(options.target, "--target"));
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  const auto show = [&](const std::string& heading, const Rows& rows) {
    if (!options.output.json) {
      print_rows(heading, rows);
      return;
    }
    for (const auto& [name, text] : rows) object[heading][name] = text;
  };
  if (options.what == "targets") {
    Rows rows;
    for (const TargetTools& target : all_tools()) rows.emplace_back(target.name(), target.doc());
    show("targets", rows);
  } else if (options.what == "release-rules") {
    show("release rules", release_rule_rows());
  } else if (options.what == "devices") {
    show("devices", device_rows());
  } else if (options.what == "left-out" && !options.output.json) {
    std::printf("%s", left_out_document().c_str());
  } else if (options.what == "left-out") {
    for (const LeftOutRow& row : left_out()) {
      object["left-out"].push_back(
          {{"kind", row.kind}, {"what", row.name}, {"why", row.why}, {"scenario", row.scenario}});
    }
  }
  for (const TargetTools& target : all_tools()) {
    if (!options.target.empty() && target.name() != options.target) continue;
    const std::string heading(target.name());
    if (options.what == "commands" && options.output.json)
      object[heading] = target.reference_text();
    if (options.what == "commands" && !options.output.json) {
      std::printf("target %s\n\n%s", heading.c_str(), target.reference_text().c_str());
    }
    if (options.what == "rules") show(heading, target.rules());
    if (options.what == "goals") show(heading, target.goals());
    for (const CheckedPart* part : target.parts()) {
      const std::string name(part->name);
      if (options.what == "planted-bugs") show(name, planted_bug_rows(*part));
      if (options.what == "factors") {
        show(name, factor_rows(survey_factors(*part->checks, options.factors)));
      }
    }
  }
  if (options.output.json) print_json(object);
  return exit_code::kAgree;
}

}  // namespace kvfence
