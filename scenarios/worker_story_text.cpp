/// A worker's story as text: see worker_story.h.

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "scenarios/explain_picture.h"
#include "scenarios/worker_story.h"

namespace kvfence {
namespace {

constexpr std::size_t kLaneColumn = 9;

std::string line_of(bool is_racing, StoryLane lane, const std::string& text) {
  return std::string(is_racing ? "    ! " : "      ") +
         padded(std::string(to_text(lane)), kLaneColumn) + text + "\n";
}

/// What happened at each moment.
std::map<StoryMoment, std::string> lines_of(const WorkerStory& story) {
  std::map<StoryMoment, std::string> lines;
  for (const StoryOperation& operation : story.operations) {
    const bool is_racing = operation.is_racing;
    lines[operation.enqueued] = line_of(
        is_racing, StoryLane::kHost,
        "enqueues " + operation.name + " (" + operation.function + "): " + touches_of(operation));
    if (operation.started != kNever) {
      lines[operation.started] = line_of(is_racing, operation.lane, "> " + operation.name);
    }
    if (operation.ended != kNever) {
      lines[operation.ended] = line_of(is_racing, operation.lane, "< " + operation.name);
    }
  }
  for (const StoryMark& mark : story.marks) {
    lines[mark.moment] = line_of(mark.is_racing, mark.lane, to_text(story, mark));
  }
  return lines;
}

std::string contents_after(const WorkerStory& story, std::size_t command) {
  std::string text;
  for (const StoryContent& content : story.contents) {
    if (content.command != command) continue;
    text += (text.empty() ? "" : "   ") + to_text(content.page) + " = " + to_text(content);
  }
  return text.empty() ? "" : "      " + padded("pages", kLaneColumn) + text + "\n";
}

std::string races_text(const WorkerStory& story) {
  std::string text;
  for (std::size_t index = 0; index < story.races.size(); ++index) {
    const StoryRace& race = story.races[index];
    text += "\n! race " + std::to_string(index + 1) + "  " + deed_of(story, race, true) +
            ",\n          " + deed_of(story, race, false) + ",\n          unordered.\n          " +
            race.missing + "\n";
  }
  for (const std::string& misuse : story.misuses) text += "\n! misuse  " + misuse + "\n";
  if (text.empty()) text = "\nEvery two accesses to the same bytes, one a write, are ordered.\n";
  return text;
}

}  // namespace

std::string story_text(const WorkerStory& story) {
  std::string text =
      "The device" +
      (story.planted_bug.empty() ? std::string() : ", the worker with " + story.planted_bug) +
      "\n      > begins   < is over   ! takes part in a race   0g1 what forward 1 wrote into GPU "
      "block 0\n\n";
  const std::map<StoryMoment, std::string> lines = lines_of(story);
  for (std::size_t index = 0; index < story.commands.size(); ++index) {
    const StoryCommand& command = story.commands[index];
    text += padded(std::to_string(index), 6) + command.text + "\n";
    const auto end = lines.lower_bound(command.end);
    for (auto at = lines.lower_bound(command.begin); at != end; ++at) text += at->second;
    for (std::size_t race = 0; race < story.races.size(); ++race) {
      const StoryMoment moment = story.races[race].moment;
      if (moment < command.begin || moment >= command.end) continue;
      text += "    ! race " + std::to_string(race + 1) + ": " +
              name_of(story, story.races[race].first) + " and " +
              name_of(story, story.races[race].second) + "\n";
    }
    text += contents_after(story, index);
    if (!command.answer.empty()) text += "      -> " + shortened(command.answer, 150) + "\n";
  }
  return text + races_text(story);
}

}  // namespace kvfence
