/// A story of devices as a trace of the Chrome format: see device_story.h.

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "scenarios/story/device_story.h"

namespace kvfence {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kStepsProcess = 1;
constexpr int kPagesProcess = 2;
constexpr int kCommandsThread = 1;
constexpr std::uint64_t kMicroseconds = 10;  ///< of a moment

int thread_of(StoryLane lane) { return kCommandsThread + 1 + static_cast<int>(index_of(lane)); }

class Trace {
 public:
  explicit Trace(const DeviceStory& story) : story_(story) {}

  std::string write() {
    name_threads();
    for (std::size_t index = 0; index < story_.commands.size(); ++index) {
      const StoryCommand& command = story_.commands[index];
      slice(kStepsProcess, kCommandsThread, command.begin, command.end, command.text,
            {{"step", index}, {"answer", command.answer}, {"wrong_tokens", command.wrong_tokens}});
    }
    for (const StoryOperation& operation : story_.operations) add(operation);
    for (const StoryMark& mark : story_.marks) add(mark);
    for (std::size_t index = 0; index < story_.races.size(); ++index) add_race(index);
    add_contents();
    const Json other = {{"file", story_.file},
                        {"config", story_.config},
                        {"planted_bug", story_.planted_bug},
                        {"races", story_.races.size()}};
    return Json{
               {"traceEvents", std::move(events_)}, {"displayTimeUnit", "ns"}, {"otherData", other}}
               .dump(1) +
           "\n";
  }

 private:
  void name(const char* what, int process, int thread, const std::string& text) {
    events_.push_back({{"ph", "M"},
                       {"name", what},
                       {"pid", process},
                       {"tid", thread},
                       {"args", {{"name", text}}}});
  }

  void name_threads() {
    name("process_name", kStepsProcess, 0, "device");
    name("thread_name", kStepsProcess, kCommandsThread, "commands");
    for (const StoryLane lane : lanes_of(story_)) {
      name("thread_name", kStepsProcess, thread_of(lane), to_text(lane));
    }
    name("process_name", kPagesProcess, 0, "pages");
    const std::vector<StoryPage> pages = pages_of(story_);
    for (std::size_t index = 0; index < pages.size(); ++index) {
      name("thread_name", kPagesProcess, static_cast<int>(index) + 1, to_text(pages[index]));
    }
  }

  void slice(int process, int thread, StoryMoment begin, StoryMoment end, const std::string& text,
             Json arguments) {
    events_.push_back({{"ph", "X"},
                       {"name", text},
                       {"pid", process},
                       {"tid", thread},
                       {"ts", begin * kMicroseconds},
                       {"dur", (end - begin) * kMicroseconds},
                       {"args", std::move(arguments)}});
  }

  /// Work that never ran comes after the last command. Each has its own moments, so that slices nest.
  std::pair<StoryMoment, StoryMoment> span_of(const StoryOperation& operation) const {
    if (operation.started != kNever) {
      const StoryMoment end = operation.ended != kNever ? operation.ended : story_.end;
      return {operation.started, end};
    }
    const auto index = static_cast<StoryMoment>(&operation - story_.operations.data());
    return {story_.end + 2 * index, story_.end + 2 * index + 1};
  }

  void add(const StoryOperation& operation) {
    const auto [begin, end] = span_of(operation);
    const bool has_run = operation.started != kNever;
    slice(kStepsProcess, thread_of(operation.lane), begin, end,
          operation.name + (has_run ? "" : " (never ran)"),
          {{"function", operation.function},
           {"touches", touches_of(operation)},
           {"enqueued", operation.enqueued * kMicroseconds},
           {"is_racing", operation.is_racing}});
    slice(kStepsProcess, thread_of(kHostLane), operation.enqueued, operation.enqueued + 1,
          "enqueues " + operation.name, {{"function", operation.function}});
  }

  void add(const StoryMark& mark) {
    if (mark.kind == StoryMark::Kind::kHostAccess) {
      return slice(kStepsProcess, thread_of(mark.lane), mark.moment, mark.moment + 1,
                   to_text(story_, mark), {{"is_racing", mark.is_racing}});
    }
    events_.push_back({{"ph", "i"},
                       {"name", to_text(story_, mark)},
                       {"pid", kStepsProcess},
                       {"tid", thread_of(mark.lane)},
                       {"ts", mark.moment * kMicroseconds},
                       {"s", "t"}});
  }

  /// The beginning of the party's slice.
  StoryMoment begin_of(const StoryParty& party) const {
    if (party.operation) return span_of(story_.operations[*party.operation]).first;
    return party.mark ? story_.marks[*party.mark].moment : 0;
  }

  void add_race(std::size_t index) {
    const StoryRace& race = story_.races[index];
    // A flow goes forward: from the one that came to pass first.
    const StoryParty* from = &race.first;
    const StoryParty* to = &race.second;
    if (begin_of(*to) < begin_of(*from)) std::swap(from, to);
    for (const bool is_start : {true, false}) {
      const StoryParty& party = is_start ? *from : *to;
      Json event = {{"ph", is_start ? "s" : "f"},
                    {"name", "race " + std::to_string(index + 1)},
                    {"cat", "race"},
                    {"id", index + 1},
                    {"pid", kStepsProcess},
                    {"tid", thread_of(lane_of(story_, party))},
                    {"ts", begin_of(party) * kMicroseconds}};
      if (!is_start) event["bp"] = "e";
      if (is_start) {
        event["args"] = {{"first", deed_of(story_, race, true)},
                         {"second", deed_of(story_, race, false)},
                         {"missing", race.missing}};
      }
      events_.push_back(std::move(event));
    }
  }

  void add_contents() {
    const std::vector<StoryPage> pages = pages_of(story_);
    for (std::size_t index = 0; index < pages.size(); ++index) {
      const StoryContent* before = nullptr;
      const auto end_before = [&](StoryMoment end) {
        if (!before || before->text == "nothing") return;
        slice(kPagesProcess, static_cast<int>(index) + 1, story_.commands[before->command].end, end,
              before->text, Json::object());
      };
      for (const StoryContent& content : story_.contents) {
        if (content.page != pages[index]) continue;
        end_before(story_.commands[content.command].end);
        before = &content;
      }
      end_before(story_.end + 1);
    }
  }

  const DeviceStory& story_;
  Json events_ = Json::array();
};

}  // namespace

std::string story_trace(const DeviceStory& story) { return Trace(story).write(); }

}  // namespace kvfence
