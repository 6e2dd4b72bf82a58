#include "scenarios/story/story_recorder.h"

#include <memory>
#include <span>

#include "contract/core/check.h"
#include "contract/core/line.h"
#include "cuda/virtual/findings.h"

namespace kvfence {

using virtual_device::Access;
using virtual_device::Actor;
using virtual_device::Race;
using virtual_device::StoryEntry;

void StoryRecorder::take_in() {
  const std::size_t first = story_.operations.size();
  for (; num_taken_ < raw_.entries.size(); ++num_taken_) take_in(raw_.entries[num_taken_]);
  name_parts(first);
}

void StoryRecorder::show(const StoryContent& content) {
  const auto [known, is_new] = contents_.try_emplace(content.page, content.text);
  const std::string before = std::exchange(known->second, content.text);
  if (is_new || before != content.text) story_.contents.push_back(content);
}

void StoryRecorder::finish() {
  for (const Race& race : device_.device().races()) add_race(race);
  for (const virtual_device::Misuse& misuse : device_.device().misuses()) {
    const std::string text = virtual_device::to_text(misuse);
    story_.misuses.push_back(text.substr(text.find(": ") + 2));
  }
}

StoryLane StoryRecorder::lane_of_stream(Actor actor) const {
  const auto stream = device_.stream_of(actor);
  if (!stream) return kHostLane;
  return {static_cast<StoryStream>(static_cast<std::size_t>(*stream) + 1), rank_};
}

std::vector<StoryPage> StoryRecorder::pages_in(std::uintptr_t begin, std::uintptr_t end) const {
  std::vector<StoryPage> pages;
  for (const auto& page : device_.pages_in(begin, end)) {
    add_page(pages, {rank_, page.is_gpu, page.number});
  }
  return pages;
}

void StoryRecorder::take_in(const StoryEntry& entry) {
  const std::pair key(entry.stream, entry.time);
  switch (entry.kind) {
    case StoryEntry::Kind::kAccess:
      if (entry.stream == virtual_device::kHost) return take_in_host_access(entry);
      pending_.push_back(entry.access);
      return;
    case StoryEntry::Kind::kEnqueued:
      return take_in_operation(entry);
    case StoryEntry::Kind::kStarted:
      if (operations_.contains(key)) story_.operations[operations_[key]].started = story_.end++;
      return;
    case StoryEntry::Kind::kEnded:
      if (operations_.contains(key)) story_.operations[operations_[key]].ended = story_.end++;
      return;
    case StoryEntry::Kind::kRecorded:
      return take_in_mark(entry, StoryMark::Kind::kRecorded);
    case StoryEntry::Kind::kWaits:
      return take_in_mark(entry, StoryMark::Kind::kWaits);
    case StoryEntry::Kind::kHostSaw:
      return take_in_mark(entry, StoryMark::Kind::kHostSaw);
  }
}

void StoryRecorder::take_in_operation(const StoryEntry& entry) {
  StoryOperation operation{.lane = lane_of_stream(entry.stream),
                           .job = entry.label.number,
                           .function = virtual_device::to_text(entry.function),
                           .enqueued = story_.end++};
  operation.name = operation.lane.stream == StoryStream::kCompute
                       ? "forward " + std::to_string(++num_forwards_)
                       : std::string(entry.label.text) + " " + std::to_string(operation.job);
  for (const Access& access : std::exchange(pending_, {})) {
    for (const StoryPage& page : pages_in(access.begin, access.end)) {
      add_page(access.is_write ? operation.writes : operation.reads, page);
    }
    operation.reads_out_of_order |= access.is_out_of_order;
  }
  operations_[{entry.stream, entry.time}] = story_.operations.size();
  story_.operations.push_back(std::move(operation));
}

void StoryRecorder::take_in_host_access(const StoryEntry& entry) {
  host_accesses_[entry.call] = story_.marks.size();
  story_.marks.push_back({.kind = StoryMark::Kind::kHostAccess,
                          .moment = story_.end++,
                          .function = virtual_device::to_text(entry.function),
                          .pages = pages_in(entry.access.begin, entry.access.end),
                          .is_write = entry.access.is_write});
}

void StoryRecorder::take_in_mark(const StoryEntry& entry, StoryMark::Kind kind) {
  StoryMark mark{.kind = kind,
                 .lane = lane_of_stream(entry.stream),
                 .moment = story_.end++,
                 .event = entry.event,
                 .function = virtual_device::to_text(entry.function)};
  // The last work of the moment's stream; waits are work of the stream, but no operations.
  const auto after = operations_.upper_bound({entry.moment.stream, entry.moment.time});
  if (after != operations_.begin() && std::prev(after)->first.first == entry.moment.stream) {
    mark.operation = std::prev(after)->second;
  }
  story_.marks.push_back(std::move(mark));
}

/// Of the last command's operations: it enqueues all of a transfer.
void StoryRecorder::name_parts(std::size_t first) {
  const std::string suffix = rank_ == 0 ? "" : " r" + std::to_string(rank_);
  const std::span added = std::span(story_.operations).subspan(first);
  std::map<std::string, std::size_t> num_parts;
  for (const StoryOperation& operation : added) ++num_parts[operation.name];
  std::map<std::string, std::size_t> num_named;
  for (StoryOperation& operation : added) {
    const std::string name = operation.name;
    if (num_parts[name] > 1) operation.name += "." + std::to_string(++num_named[name]);
    operation.name += suffix;
  }
}

StoryParty StoryRecorder::party_of(const Access& access) {
  StoryParty party{.is_write = access.is_write};
  if (access.actor == virtual_device::kHost) {
    const auto found = host_accesses_.find(access.call);
    if (found == host_accesses_.end()) return party;
    party.mark = found->second;
    story_.marks[found->second].is_racing = true;
    return party;
  }
  const auto found = operations_.find({access.actor, access.time});
  KVFENCE_CHECK(found != operations_.end(), "a race of work that was never enqueued");
  party.operation = found->second;
  story_.operations[found->second].is_racing = true;
  return party;
}

void StoryRecorder::add_race(const Race& found) {
  StoryRace race{.first = party_of(found.first), .second = party_of(found.second)};
  race.pages = pages_in(found.begin, found.end);
  const StoryParty& second = race.second;
  if (second.operation) race.moment = story_.operations[*second.operation].enqueued;
  if (second.mark) race.moment = story_.marks[*second.mark].moment;
  race.missing = missing_of(race, found);
  // A pair races in each tensor, and for each entry of a batch: one race of the story.
  for (StoryRace& other : story_.races) {
    const auto same = [](const StoryParty& a, const StoryParty& b) {
      return a.operation == b.operation && a.mark == b.mark && a.is_write == b.is_write;
    };
    if (!same(other.first, race.first) || !same(other.second, race.second)) continue;
    if (other.pages.empty() != race.pages.empty()) continue;
    for (const StoryPage& page : race.pages) add_page(other.pages, page);
    if (!other.pages.empty()) other.memory = kvfence::to_text(other.pages);
    return;
  }
  race.memory = race.pages.empty() ? "pinned memory of descriptors" : kvfence::to_text(race.pages);
  story_.races.push_back(std::move(race));
}

std::string StoryRecorder::missing_of(const StoryRace& race, const Race& found) const {
  const std::string first = name_of(story_, race.first);
  const std::string second = name_of(story_, race.second);
  if (race.first.operation && race.first.operation == race.second.operation) {
    return "The entries of one batch run in any order.";
  }
  if (found.first.is_out_of_order || found.second.is_out_of_order) {
    return "The order in the stream, which a wait gives, holds for writes alone: with "
           "cudaMemcpySrcAccessOrderAny a source may be read at any time from the call on.";
  }
  if (race.second.mark) {
    return "Neither a query nor a wait has shown the host that " + first + " is over.";
  }
  if (race.first.mark) return "No call orders the host's access with " + second + ".";
  const StoryLane from = lane_of(story_, race.first);
  const StoryLane to = lane_of(story_, race.second);
  return "No event recorded in the " + kvfence::to_text(from) + " stream after " + first +
         " was waited for in the " + kvfence::to_text(to) + " stream before " + second +
         ", and the host has not seen " + first + " end.";
}

void record_commands(
    const Scenario& scenario, const Setup& setup, Implementation& implementation,
    DeviceStory& story,
    const std::function<std::string(const Command&, const Observation&)>& take_in) {
  story.file = scenario.file;
  story.comments = scenario.comments;
  story.config = print(config_line(scenario.config));
  implementation.reset(setup);
  const std::unique_ptr<World> world = setup.target().make_world(setup);
  for (const Step& step : scenario.steps) {
    story.commands.push_back({.text = print(to_line(step.command)), .begin = story.end++});
    world->apply(step.command);
    Observation observation;
    implementation.apply(step.command, *world, Observe::kState, observation);
    story.commands.back().answer = take_in(step.command, observation);
    story.commands.back().end = story.end;
  }
}

}  // namespace kvfence
