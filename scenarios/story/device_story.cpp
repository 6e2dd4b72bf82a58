#include "scenarios/story/device_story.h"

#include <algorithm>
#include <tuple>

#include "contract/core/joined.h"

namespace kvfence {
namespace {

std::string of_rank(std::uint32_t rank) { return rank == 0 ? "" : " r" + std::to_string(rank); }

}  // namespace

std::string_view to_text(StoryStream stream) {
  constexpr std::string_view kNames[] = {"host", "compute", "store", "load"};
  return kNames[static_cast<std::size_t>(stream)];
}

std::string to_text(StoryLane lane) {
  return std::string(to_text(lane.stream)) + of_rank(lane.rank);
}

std::size_t index_of(StoryLane lane) {
  return static_cast<std::size_t>(lane.stream) + 3 * std::size_t{lane.rank};
}

std::string to_text(const StoryPage& page) {
  return (page.is_gpu ? "GPU " : "CPU ") + std::to_string(page.number) + of_rank(page.rank);
}

std::string to_text(const std::vector<StoryPage>& pages) {
  return joined(pages, ", ", [](const StoryPage& page) { return to_text(page); });
}

std::string name_of(const DeviceStory& story, const StoryParty& party) {
  return party.operation ? story.operations[*party.operation].name : "the host";
}

StoryLane lane_of(const DeviceStory& story, const StoryParty& party) {
  return party.operation ? story.operations[*party.operation].lane : kHostLane;
}

std::string deed_of(const DeviceStory& story, const StoryRace& race, bool is_first) {
  const StoryParty& party = is_first ? race.first : race.second;
  std::string text = name_of(story, party);
  if (party.operation) {
    text += " (" + std::string(to_text(lane_of(story, party).stream)) + " stream)";
  } else if (party.mark) {
    text += " (" + story.marks[*party.mark].function + ")";
  }
  return text + (party.is_write ? " writes " : " reads ") + race.memory;
}

std::string to_text(const DeviceStory& story, const StoryMark& mark) {
  const std::string after = mark.operation ? story.operations[*mark.operation].name : "no work";
  const std::string event = "event " + std::to_string(mark.event);
  switch (mark.kind) {
    case StoryMark::Kind::kRecorded:
      return "records " + event + " after " + after;
    case StoryMark::Kind::kWaits:
      return "waits for " + event + ": " + after;
    case StoryMark::Kind::kHostSaw:
      return "sees the end of " + after + " (" + mark.function + ")";
    case StoryMark::Kind::kHostAccess:
      return std::string(mark.is_write ? "writes " : "reads ") +
             (mark.pages.empty() ? "pinned memory" : to_text(mark.pages)) + " (" + mark.function +
             ")";
  }
  return {};
}

std::string touches_of(const StoryOperation& operation) {
  std::string text;
  if (!operation.reads.empty()) {
    text += "reads " + to_text(operation.reads) + (operation.reads_out_of_order ? " early" : "");
  }
  if (!operation.writes.empty()) {
    text += (text.empty() ? "" : ", ") + ("writes " + to_text(operation.writes));
  }
  if (text.empty()) text = "touches no page";
  return operation.requests.empty() ? text : "for " + operation.requests + ": " + text;
}

std::map<StoryMoment, StoryEvent> events_of(const DeviceStory& story) {
  using Kind = StoryEvent::Kind;
  std::map<StoryMoment, StoryEvent> events;
  for (const StoryOperation& operation : story.operations) {
    const bool is_racing = operation.is_racing;
    events[operation.enqueued] = {
        Kind::kNote, kHostLane, is_racing,
        "enqueues " + operation.name + " (" + operation.function + "): " + touches_of(operation)};
    if (operation.started != kNever) {
      events[operation.started] = {Kind::kBegins, operation.lane, is_racing, operation.name};
    }
    if (operation.ended != kNever) {
      events[operation.ended] = {Kind::kEnds, operation.lane, is_racing, operation.name};
    }
  }
  for (const StoryMark& mark : story.marks) {
    events[mark.moment] = {Kind::kNote, mark.lane, mark.is_racing, to_text(story, mark)};
  }
  return events;
}

std::vector<StoryLane> lanes_of(const DeviceStory& story) {
  std::vector<StoryLane> lanes = {kHostLane};
  for (std::uint32_t rank = 0; rank < story.num_ranks; ++rank) {
    for (const StoryStream stream :
         {StoryStream::kCompute, StoryStream::kStore, StoryStream::kLoad}) {
      lanes.push_back({stream, rank});
    }
  }
  return lanes;
}

void add_page(std::vector<StoryPage>& pages, StoryPage page) {
  const auto at = std::lower_bound(pages.begin(), pages.end(), page);
  if (at == pages.end() || *at != page) pages.insert(at, page);
}

std::vector<StoryPage> pages_of(const DeviceStory& story) {
  std::vector<StoryPage> pages;
  for (const StoryOperation& operation : story.operations) {
    for (const StoryPage& page : operation.reads) add_page(pages, page);
    for (const StoryPage& page : operation.writes) add_page(pages, page);
  }
  for (const StoryContent& content : story.contents) add_page(pages, content.page);
  std::sort(pages.begin(), pages.end(), [](const StoryPage& a, const StoryPage& b) {
    return std::tuple(a.rank, !a.is_gpu, a.number) < std::tuple(b.rank, !b.is_gpu, b.number);
  });
  return pages;
}

}  // namespace kvfence
