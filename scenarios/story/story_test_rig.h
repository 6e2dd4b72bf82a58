#pragma once

/// For tests of stories: scenarios with the bugs that they name, and what is wrong with a page or a
/// trace.

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/core/check.h"
#include "contract/core/scenario.h"
#include "scenarios/command/files.h"
#include "scenarios/story/device_story.h"
#include "scenarios/story/xml_fault.h"

namespace kvfence {

inline Scenario parsed(const Target& target, std::string_view text, const std::string& file) {
  const Parsed<Document> document = parse_document(text, file);
  KVFENCE_CHECK(document, document.error().to_text());
  Parsed<Scenario> scenario = scenario_from_document(target, *document, file);
  KVFENCE_CHECK(scenario, scenario.error().to_text());
  return std::move(*scenario);
}

/// A scenario of a folder of races and the bug that it names.
struct RaceFile {
  std::string name;
  Scenario scenario;
  std::string planted_bug;
};

inline std::vector<RaceFile> race_files(const Target& target, const char* folder) {
  std::vector<RaceFile> files;
  const Parsed<std::vector<std::string>> paths = scenario_files({folder});
  KVFENCE_CHECK(paths, folder);
  for (const std::string& path : *paths) {
    RaceFile file{.name = std::filesystem::path(path).stem().string(),
                  .scenario = parsed(target, *read_file(path), path),
                  .planted_bug = {}};
    for (const std::string& comment : file.scenario.comments) {
      constexpr std::string_view kMark = "Planted bug: ";
      const std::size_t at = comment.find(kMark);
      if (at != comment.npos) file.planted_bug = comment.substr(at + kMark.size());
    }
    files.push_back(std::move(file));
  }
  return files;
}

/// What is wrong with the story's page: as XML, or as what it shows. Empty: nothing.
inline std::string page_fault(const DeviceStory& story) {
  const std::string page = story_html(story);
  // Its first line is no element.
  const std::string fault = xml_fault(std::string_view(page).substr(page.find('\n') + 1));
  if (!fault.empty()) return fault;
  const std::size_t num_races = story.races.size() + story.misuses.size();
  if (count_of(page, "<div class=\"race\">") != num_races) return "it shows other races";
  if (count_of(page, "<tr data-step=") != story.commands.size()) return "it shows other commands";
  return {};
}

inline std::pair<int, int> thread_of(const nlohmann::json& event) {
  return {event["pid"].get<int>(), event["tid"].get<int>()};
}

/// The names of the slices of a thread that hold a moment.
inline std::set<std::string> slices_at(const nlohmann::json& events, const nlohmann::json& flow) {
  std::set<std::string> names;
  for (const nlohmann::json& event : events) {
    if (event["ph"] != "X" || event["pid"] != flow["pid"] || event["tid"] != flow["tid"]) continue;
    const std::uint64_t begin = event["ts"];
    const std::uint64_t end = begin + event["dur"].get<std::uint64_t>();
    const std::uint64_t at = flow["ts"];
    if (begin <= at && at < end) names.insert(event["name"]);
  }
  return names;
}

/// The slices that the story has for the two that race.
inline std::set<std::string> slices_of(const DeviceStory& story, const StoryRace& race) {
  std::set<std::string> names;
  for (const StoryParty& party : {race.first, race.second}) {
    if (party.mark) {
      names.insert(to_text(story, story.marks[*party.mark]));
    } else {
      const StoryOperation& operation = story.operations[*party.operation];
      names.insert(operation.name + (operation.started == kNever ? " (never ran)" : ""));
    }
  }
  return names;
}

/// What is wrong with the story's trace, in which each race should be a flow between the slices of
/// the two that race, and each thread have a name. Empty: nothing.
inline std::string trace_fault(const DeviceStory& story) {
  const nlohmann::json trace = nlohmann::json::parse(story_trace(story));
  const nlohmann::json& events = trace["traceEvents"];
  std::map<std::uint64_t, std::vector<nlohmann::json>> flows;
  std::set<std::pair<int, int>> named;
  for (const nlohmann::json& event : events) {
    const std::string ph = event["ph"];
    if (ph == "M") named.insert(thread_of(event));
    if (ph == "s" || ph == "f") flows[event["id"].get<std::uint64_t>()].push_back(event);
  }
  for (const nlohmann::json& event : events) {
    if (!named.contains(thread_of(event))) return "a thread without a name: " + event.dump();
  }
  if (flows.size() != story.races.size()) return "flows of other races";
  for (std::size_t index = 0; index < story.races.size(); ++index) {
    const std::string race = "race " + std::to_string(index + 1);
    const std::vector<nlohmann::json>& ends = flows[index + 1];
    if (ends.size() != 2 || ends[0]["ph"] != "s" || ends[1]["ph"] != "f") {
      return race + " has no two ends";
    }
    if (ends[0]["ts"].get<std::uint64_t>() > ends[1]["ts"].get<std::uint64_t>()) {
      return race + " flows backwards";
    }
    std::set<std::string> joined;
    for (const nlohmann::json& end : ends) joined.merge(slices_at(events, end));
    if (joined != slices_of(story, story.races[index])) return race + " joins other slices";
  }
  return {};
}

}  // namespace kvfence
