#include "scenarios/worker_story.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <variant>

#include "contract/check.h"
#include "contract/declared_object.h"
#include "cuda/planted_worker_bugs.h"
#include "cuda/worker_on_virtual_device.h"
#include "properties/lockstep.h"
#include "properties/worker_checks.h"
#include "properties/worker_driver.h"
#include "scenarios/implementations.h"

namespace kvfence {
namespace {

using cuda::PlantedWorkerOnVirtualDevice;
using cuda::PlantedWorkersOnVirtualDevices;
using virtual_device::Access;
using virtual_device::Actor;
using virtual_device::Race;
using virtual_device::StoryEntry;
using virtual_device::Time;

cuda::PlantedWorkerBug bug_of(const std::string& name) {
  if (name.empty()) return cuda::PlantedWorkerBug::kNone;
  for (const cuda::PlantedWorkerBugInfo& info : cuda::kPlantedWorkerBugs) {
    if (info.name == name) return info.bug;
  }
  KVFENCE_CHECK(false, "a planted bug that the worker does not have");
  return cuda::PlantedWorkerBug::kNone;
}

void add_page(std::vector<StoryPage>& pages, StoryPage page) {
  const auto at = std::lower_bound(pages.begin(), pages.end(), page);
  if (at == pages.end() || *at != page) pages.insert(at, page);
}

std::string answer_of(const worker::Observation& observation) {
  std::string answer;
  const DeclaredObject members = object_of(observation);
  for (std::size_t index = 0; index < members.size(); ++index) {
    const MemberRef member = members[index];
    if (member.domain() != Domain::kResult || !member.is_present()) continue;
    const Value value = member.value();
    if (value.get_if<None>()) continue;
    const std::string text = print(value);
    const bool is_empty_list = text == "[]" && member.declaration().name == "seen";
    if (is_empty_list) continue;
    answer += (answer.empty() ? "" : " ") + std::string(member.declaration().name) + "=" + text;
  }
  return answer;
}

/// Makes the story out of what the device of the first rank has written down.
class Teller {
 public:
  Teller(const Scenario<WorkerTarget>& scenario, const std::string& planted_bug)
      : scenario_(scenario), bug_{bug_of(planted_bug)} {
    story_.file = scenario.file;
    story_.comments = scenario.comments;
    story_.config = print(config_line<WorkerTarget>(scenario.config));
    story_.planted_bug = planted_bug;
  }

  WorkerStory tell() {
    auto make_worker = [this](const worker::Options& options) {
      auto made = std::make_unique<PlantedWorkersOnVirtualDevices>(options, bug_);
      made->rank(0).set_story(&raw_);
      device_ = &made->rank(0);
      block_size_factor_ = options.block_size_factor;
      return made;
    };
    WorkerDriver<PlantedWorkersOnVirtualDevices, decltype(make_worker)> driver("worker",
                                                                               make_worker);
    driver.reset(scenario_.config);
    WorkerTarget::World world = WorkerTarget::make_world(scenario_.config);
    for (const Step<WorkerTarget>& step : scenario_.steps) {
      story_.commands.push_back({.text = print(to_line(step.command)), .begin = now_++});
      world.apply(step.command);
      driver.submit(step.command, world, Observe::kState);
      worker::Observation observation;
      driver.collect(observation);
      take_in_entries();
      take_in(step.command, observation);
      story_.commands.back().answer = answer_of(observation);
      story_.commands.back().end = now_;
    }
    story_.end = now_;
    compare();
    name_operations();
    const virtual_device::Device& device = device_->device();
    for (const Race& race : device.races()) add_race(race);
    for (const virtual_device::Misuse& misuse : device.misuses()) {
      const std::string text = virtual_device::to_text(misuse);
      story_.misuses.push_back(text.substr(text.find(": ") + 2));
    }
    return std::move(story_);
  }

 private:
  /// The pages of a transfer that was accepted.
  struct Submitted {
    worker::Direction direction = worker::Direction::kStore;
    std::uint32_t job = 0;
    std::set<StoryPage> pages;
    std::set<std::uintptr_t> written;  ///< by the operations found to be its own
    std::vector<std::size_t> operations;
  };

  void compare() {
    const auto expected = Implementations<WorkerTarget>::make_reference();
    const auto actual = story_.planted_bug.empty()
                            ? Implementations<WorkerTarget>::make_optimized()
                            : Implementations<WorkerTarget>::make_planted(story_.planted_bug);
    Lockstep<WorkerTarget> lockstep(*expected, *actual);
    story_.difference = run_scenario(lockstep, scenario_);
  }

  StoryLane lane_of_stream(Actor actor) const {
    const auto stream = device_->stream_of(actor);
    if (!stream) return StoryLane::kHost;
    return static_cast<StoryLane>(static_cast<std::size_t>(*stream) + 1);
  }

  std::vector<StoryPage> pages_in(std::uintptr_t begin, std::uintptr_t end) const {
    std::vector<StoryPage> pages;
    for (const cuda::PageName& page : device_->pages_in(begin, end)) {
      add_page(pages, {page.is_gpu, page.number});
    }
    return pages;
  }

  void take_in_entries() {
    for (; num_taken_ < raw_.entries.size(); ++num_taken_) take_in(raw_.entries[num_taken_]);
  }

  void take_in(const StoryEntry& entry) {
    const std::pair key(entry.stream, entry.time);
    switch (entry.kind) {
      case StoryEntry::Kind::kAccess:
        if (entry.stream == virtual_device::kHost) return take_in_host_access(entry);
        pending_.push_back(entry.access);
        return;
      case StoryEntry::Kind::kEnqueued:
        return take_in_operation(entry);
      case StoryEntry::Kind::kStarted:
        if (operations_.contains(key)) story_.operations[operations_[key]].started = now_++;
        return;
      case StoryEntry::Kind::kEnded:
        if (operations_.contains(key)) story_.operations[operations_[key]].ended = now_++;
        return;
      case StoryEntry::Kind::kRecorded:
        return take_in_mark(entry, StoryMark::Kind::kRecorded);
      case StoryEntry::Kind::kWaits:
        return take_in_mark(entry, StoryMark::Kind::kWaits);
      case StoryEntry::Kind::kHostSaw:
        return take_in_mark(entry, StoryMark::Kind::kHostSaw);
    }
  }

  void take_in_operation(const StoryEntry& entry) {
    StoryOperation operation{.lane = lane_of_stream(entry.stream),
                             .function = virtual_device::to_text(entry.function),
                             .enqueued = now_++};
    std::set<std::uintptr_t> written;
    for (const Access& access : std::exchange(pending_, {})) {
      for (const StoryPage& page : pages_in(access.begin, access.end)) {
        add_page(access.is_write ? operation.writes : operation.reads, page);
      }
      if (access.is_write) written.insert(access.begin);
      operation.reads_out_of_order |= access.is_out_of_order;
    }
    operations_[{entry.stream, entry.time}] = story_.operations.size();
    story_.operations.push_back(std::move(operation));
    written_.push_back(std::move(written));
  }

  void take_in_host_access(const StoryEntry& entry) {
    host_accesses_[entry.call] = story_.marks.size();
    story_.marks.push_back({.kind = StoryMark::Kind::kHostAccess,
                            .moment = now_++,
                            .function = virtual_device::to_text(entry.function),
                            .pages = pages_in(entry.access.begin, entry.access.end),
                            .is_write = entry.access.is_write});
  }

  void take_in_mark(const StoryEntry& entry, StoryMark::Kind kind) {
    StoryMark mark{.kind = kind,
                   .lane = lane_of_stream(entry.stream),
                   .moment = now_++,
                   .event = entry.event,
                   .function = virtual_device::to_text(entry.function)};
    // The last work of the moment's stream; waits are work of the stream, but no operations.
    const auto after = operations_.upper_bound({entry.moment.stream, entry.moment.time});
    if (after != operations_.begin() && std::prev(after)->first.first == entry.moment.stream) {
      mark.operation = std::prev(after)->second;
    }
    story_.marks.push_back(std::move(mark));
  }

  void take_in(const worker::Command& command, const worker::Observation& observation) {
    const auto* transfer = std::get_if<worker::TransferAsync>(&command);
    if (transfer && observation.error == ErrorCode::kNone) take_in(*transfer);
    show(*observation.gpu_pages, true);
    show(*observation.cpu_pages, false);
  }

  void take_in(const worker::TransferAsync& command) {
    const worker::Transfer transfer{.gpu_blocks = command.gpu_blocks,
                                    .cpu_blocks = command.cpu_blocks,
                                    .block_index = command.block_index};
    Submitted submitted{.direction = *worker::direction_from_text(command.direction),
                        .job = command.job,
                        .pages = {},
                        .written = {},
                        .operations = {}};
    for (const std::uint32_t block : command.gpu_blocks) submitted.pages.insert({true, block});
    for (const std::uint32_t page : worker::cpu_pages_of(transfer, block_size_factor_)) {
      submitted.pages.insert({false, page});
    }
    submitted_.push_back(std::move(submitted));
  }

  void show(const std::vector<worker::Page>& pages, bool is_gpu) {
    for (const worker::Page& page : pages) {
      if (page.rank > 0) continue;
      const StoryContent content{.page = {is_gpu, page.number},
                                 .command = story_.commands.size() - 1,
                                 .of_block = page.of_block,
                                 .generation = page.generation,
                                 .is_torn = page.torn,
                                 .is_undefined = page.undefined};
      const auto [known, is_new] = contents_.try_emplace(content.page, content);
      const StoryContent before = std::exchange(known->second, content);
      if (is_new || to_text(before) != to_text(content)) story_.contents.push_back(content);
    }
  }

  /// The virtual device knows no jobs: an operation belongs to the first transfer of its direction,
  /// from the one of the operation before it on, that has its pages and has not written them yet.
  void name_operations() {
    std::size_t num_forwards = 0;
    std::size_t cursors[worker::kNumDirections] = {};
    for (std::size_t index = 0; index < story_.operations.size(); ++index) {
      StoryOperation& operation = story_.operations[index];
      if (operation.lane == StoryLane::kCompute) {
        operation.name = "forward " + std::to_string(++num_forwards);
        continue;
      }
      const auto direction =
          operation.lane == StoryLane::kLoad ? worker::Direction::kLoad : worker::Direction::kStore;
      operation.name = worker::to_text(direction);
      std::size_t& cursor = cursors[static_cast<std::size_t>(direction)];
      for (std::size_t at = cursor; at < submitted_.size(); ++at) {
        Submitted& transfer = submitted_[at];
        if (transfer.direction != direction || !covers(transfer, operation)) continue;
        const std::set<std::uintptr_t>& written = written_[index];
        const bool is_again =
            std::any_of(written.begin(), written.end(),
                        [&](std::uintptr_t address) { return transfer.written.contains(address); });
        if (is_again) continue;
        transfer.written.insert(written.begin(), written.end());
        transfer.operations.push_back(index);
        operation.name += " " + std::to_string(transfer.job);
        cursor = at;
        break;
      }
    }
    for (const Submitted& transfer : submitted_) {
      if (transfer.operations.size() < 2) continue;
      std::size_t part = 0;
      for (const std::size_t index : transfer.operations) {
        story_.operations[index].name += "." + std::to_string(++part);
      }
    }
  }

  static bool covers(const Submitted& transfer, const StoryOperation& operation) {
    const auto has = [&](const StoryPage& page) { return transfer.pages.contains(page); };
    return std::all_of(operation.reads.begin(), operation.reads.end(), has) &&
           std::all_of(operation.writes.begin(), operation.writes.end(), has);
  }

  StoryParty party_of(const Access& access) {
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

  void add_race(const Race& found) {
    StoryRace race{.first = party_of(found.first), .second = party_of(found.second)};
    const std::uintptr_t base = found.first.begin - found.first_begin;
    race.pages = pages_in(base + found.begin, base + found.end);
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
    race.memory =
        race.pages.empty() ? "pinned memory of descriptors" : kvfence::to_text(race.pages);
    story_.races.push_back(std::move(race));
  }

  std::string missing_of(const StoryRace& race, const Race& found) const {
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
      return "Neither a query nor a wait has told the host that " + first + " is over.";
    }
    if (race.first.mark) return "The host's access is ordered by no call with " + second + ".";
    const StoryLane from = lane_of(story_, race.first);
    const StoryLane to = lane_of(story_, race.second);
    return "No event recorded in the " + std::string(kvfence::to_text(from)) + " stream behind " +
           first + " was waited for in the " + std::string(kvfence::to_text(to)) +
           " stream before " + second + ", and the host has not seen " + first + " end.";
  }

  const Scenario<WorkerTarget>& scenario_;
  cuda::PlantedWorkerInstrumentation bug_;
  virtual_device::Story raw_;
  std::size_t num_taken_ = 0;
  const PlantedWorkerOnVirtualDevice* device_ = nullptr;
  std::uint32_t block_size_factor_ = 1;
  StoryMoment now_ = 0;
  WorkerStory story_;
  std::vector<Access> pending_;                               ///< of the operation to be enqueued
  std::map<std::pair<Actor, Time>, std::size_t> operations_;  ///< by stream, then in order
  std::vector<std::set<std::uintptr_t>> written_;             ///< by each operation: where
  std::map<std::uint64_t, std::size_t> host_accesses_;        ///< by call
  std::vector<Submitted> submitted_;
  std::map<StoryPage, StoryContent> contents_;
};

}  // namespace

std::string_view to_text(StoryLane lane) {
  constexpr std::string_view kNames[kNumStoryLanes] = {"host", "compute", "store", "load"};
  return kNames[static_cast<std::size_t>(lane)];
}

std::string to_text(const StoryPage& page) {
  return (page.is_gpu ? "GPU " : "CPU ") + std::to_string(page.number);
}

std::string to_text(const std::vector<StoryPage>& pages) {
  std::string text;
  for (const StoryPage& page : pages) text += (text.empty() ? "" : ", ") + to_text(page);
  return text;
}

std::string to_text(const StoryContent& content) {
  if (content.is_torn) return "torn";
  if (content.is_undefined) return "undefined";
  if (content.generation == 0) return "nothing";
  return std::to_string(content.of_block) + "g" + std::to_string(content.generation);
}

WorkerStory tell_worker(const Scenario<WorkerTarget>& scenario, const std::string& planted_bug) {
  return Teller(scenario, planted_bug).tell();
}

std::string name_of(const WorkerStory& story, const StoryParty& party) {
  return party.operation ? story.operations[*party.operation].name : "the host";
}

StoryLane lane_of(const WorkerStory& story, const StoryParty& party) {
  return party.operation ? story.operations[*party.operation].lane : StoryLane::kHost;
}

std::string deed_of(const WorkerStory& story, const StoryRace& race, bool is_first) {
  const StoryParty& party = is_first ? race.first : race.second;
  std::string text = name_of(story, party);
  if (party.operation) {
    text += " (" + std::string(to_text(lane_of(story, party))) + " stream)";
  } else if (party.mark) {
    text += " (" + story.marks[*party.mark].function + ")";
  }
  return text + (party.is_write ? " writes " : " reads ") + race.memory;
}

std::string to_text(const WorkerStory& story, const StoryMark& mark) {
  const std::string behind = mark.operation ? story.operations[*mark.operation].name : "no work";
  const std::string event = "event " + std::to_string(mark.event);
  switch (mark.kind) {
    case StoryMark::Kind::kRecorded:
      return "records " + event + " behind " + behind;
    case StoryMark::Kind::kWaits:
      return "waits for " + event + ": " + behind;
    case StoryMark::Kind::kHostSaw:
      return "sees the end of " + behind + " (" + mark.function + ")";
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
  return text.empty() ? "touches no page" : text;
}

std::vector<StoryPage> pages_of(const WorkerStory& story) {
  std::vector<StoryPage> pages;
  for (const StoryOperation& operation : story.operations) {
    for (const StoryPage& page : operation.reads) add_page(pages, page);
    for (const StoryPage& page : operation.writes) add_page(pages, page);
  }
  for (const StoryContent& content : story.contents) add_page(pages, content.page);
  // The GPU's first.
  std::stable_partition(pages.begin(), pages.end(),
                        [](const StoryPage& page) { return page.is_gpu; });
  return pages;
}

}  // namespace kvfence
