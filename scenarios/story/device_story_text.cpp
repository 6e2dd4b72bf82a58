/// A story of devices as text: see device_story.h.

#include <map>
#include <string>

#include "scenarios/story/device_story.h"
#include "scenarios/story/explain_picture.h"

namespace kvfence {
namespace {

/// With room for a rank if there are several.
std::size_t lane_column(const DeviceStory& story) { return story.num_ranks > 1 ? 12 : 9; }

std::string line_of(const DeviceStory& story, bool is_marked, const std::string& lane,
                    const std::string& text) {
  return std::string(is_marked ? "    ! " : "      ") + padded(lane, lane_column(story)) + text +
         "\n";
}

std::string line_of(const DeviceStory& story, const StoryEvent& event) {
  const char* const sign = event.kind == StoryEvent::Kind::kBegins ? "> "
                           : event.kind == StoryEvent::Kind::kEnds ? "< "
                                                                   : "";
  return line_of(story, event.is_racing, to_text(event.lane), sign + event.text);
}

std::string contents_after(const DeviceStory& story, std::size_t command) {
  std::string text;
  for (const StoryContent& content : story.contents) {
    if (content.command != command) continue;
    text += (text.empty() ? "" : "   ") + to_text(content.page) + " = " + content.text;
  }
  return text.empty() ? "" : line_of(story, false, "pages", text);
}

std::string races_text(const DeviceStory& story) {
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

std::string story_text(const DeviceStory& story) {
  std::string text =
      "The device" +
      (story.planted_bug.empty() ? std::string()
                                 : ", the " + story.subject + " with " + story.planted_bug) +
      "\n      > begins   < is over   ! takes part in a race   " + story.content_example + " " +
      story.content_meaning + "\n\n";
  const std::map<StoryMoment, StoryEvent> events = events_of(story);
  for (std::size_t index = 0; index < story.commands.size(); ++index) {
    const StoryCommand& command = story.commands[index];
    text += padded(std::to_string(index), 6) + command.text + "\n";
    const auto end = events.lower_bound(command.end);
    for (auto at = events.lower_bound(command.begin); at != end; ++at) {
      text += line_of(story, at->second);
    }
    for (std::size_t race = 0; race < story.races.size(); ++race) {
      const StoryMoment moment = story.races[race].moment;
      if (moment < command.begin || moment >= command.end) continue;
      text += "    ! race " + std::to_string(race + 1) + ": " +
              name_of(story, story.races[race].first) + " and " +
              name_of(story, story.races[race].second) + "\n";
    }
    text += contents_after(story, index);
    for (const std::string& wrong : command.wrong_tokens) {
      text += line_of(story, true, "token", wrong);
    }
    if (!command.answer.empty()) text += "      -> " + shortened(command.answer, 150) + "\n";
  }
  return text + races_text(story);
}

}  // namespace kvfence
