// Goal: the story says what the device did, and which accesses race; its page and its trace are
// well-formed and show the same races.
// Method: a whole text; each scenario of cases/worker/races/ with its planted bug and without; a
// checker of XML; flows matched with the slices that they join.

#include "scenarios/worker_story.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "scenarios/files.h"
#include "scenarios/xml_fault.h"

namespace kvfence {
namespace {

using nlohmann::json;

Scenario<WorkerTarget> parsed(std::string_view text, const std::string& file) {
  const Parsed<Document> document = parse_document(text, file);
  EXPECT_TRUE(document) << document.error().to_text();
  Parsed<Scenario<WorkerTarget>> scenario = scenario_from_document<WorkerTarget>(*document, file);
  EXPECT_TRUE(scenario) << scenario.error().to_text();
  return std::move(*scenario);
}

/// A scenario of cases/worker/races/ and the bug that it names.
struct RaceFile {
  std::string name;
  Scenario<WorkerTarget> scenario;
  std::string planted_bug;
};

std::vector<RaceFile> race_files() {
  std::vector<RaceFile> files;
  const Parsed<std::vector<std::string>> paths = scenario_files({KVFENCE_RACES_DIR});
  EXPECT_TRUE(paths) << KVFENCE_RACES_DIR;
  for (const std::string& path : *paths) {
    RaceFile file{.name = std::filesystem::path(path).stem().string(),
                  .scenario = parsed(*read_file(path), path),
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

/// What is wrong with the page as XML; its first line is no element.
std::string fault_of(const std::string& page) {
  return xml_fault(std::string_view(page).substr(page.find('\n') + 1));
}

/// A store that nobody waits for reads the block of the next owner.
constexpr std::string_view kPreempted = R"(# A store of a preempted request.
target worker
config num_gpu_blocks=1 num_cpu_blocks=1
forward writes=[0]
transfer_async job=1 direction=store gpu_blocks=[0] cpu_blocks=[0]
wait jobs=[1]
get_finished
forward writes=[0]
advance stream=compute
advance stream=compute
advance stream=store
)";

TEST(WorkerStory, TellsARace) {
  const WorkerStory story = tell_worker(parsed(kPreempted, "a.kvs"), "wait_returns_at_once");
  EXPECT_EQ(story_text(story),
            R"(The device, the worker with wait_returns_at_once
      > begins   < is over   ! takes part in a race   0g1 what forward 1 wrote into GPU block 0

0     forward writes=[0]
      host     enqueues forward 1 (launch): writes GPU 0
1     transfer_async job=1 direction=store gpu_blocks=[0] cpu_blocks=[0]
2     wait jobs=[1]
      compute  records event 0 behind forward 1
      store    waits for event 0: forward 1
    ! host     enqueues store 1 (cudaMemcpyBatchAsync): reads GPU 0, writes CPU 0
      store    records event 0 behind store 1
3     get_finished
      -> finished_jobs=[(finished job=1 direction=store)]
4     forward writes=[0]
    ! host     enqueues forward 2 (launch): writes GPU 0
    ! race 1: store 1 and forward 2
5     advance stream=compute
      compute  > forward 1
      compute  < forward 1
      pages    GPU 0 = 0g1
      -> advanced=true
6     advance stream=compute
    ! compute  > forward 2
    ! compute  < forward 2
      pages    GPU 0 = 0g2
      -> advanced=true
7     advance stream=store
    ! store    > store 1
    ! store    < store 1
      pages    CPU 0 = 0g2
      -> advanced=true

! race 1  store 1 (store stream) reads GPU 0,
          forward 2 (compute stream) writes GPU 0,
          unordered.
          No event recorded in the store stream behind store 1 was waited for in the compute stream before forward 2, and the host has not seen store 1 end.
)");
}

TEST(WorkerStory, TellsThatAllIsOrdered) {
  const WorkerStory story = tell_worker(parsed(kPreempted, "a.kvs"), "");
  EXPECT_FALSE(story.difference);
  EXPECT_TRUE(story.races.empty());
  const std::string text = story_text(story);
  EXPECT_NE(text.find("host     sees the end of store 1 (cudaEventSynchronize)\n"), text.npos)
      << text;
  EXPECT_NE(text.find("CPU 0 = 0g1"), text.npos) << text;
  EXPECT_NE(text.find("\nEvery two accesses to the same bytes, one a write, are ordered.\n"),
            text.npos);
}

TEST(WorkerStory, NamesTheCopiesOfTwoEqualTransfersApart) {
  const WorkerStory story = tell_worker(parsed("target worker\n"
                                               "config path=looped num_gpu_blocks=1\n"
                                               "transfer_async job=7 direction=load "
                                               "gpu_blocks=[0] cpu_blocks=[0]\n"
                                               "transfer_async job=8 direction=load "
                                               "gpu_blocks=[0] cpu_blocks=[0]\n",
                                               "a.kvs"),
                                        "");
  std::vector<std::string> names;
  for (const StoryOperation& operation : story.operations) {
    names.push_back(operation.name);
    EXPECT_EQ(operation.started, kNever);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"load 7.1", "load 7.2", "load 8.1", "load 8.2"}));
}

TEST(WorkerStory, EachRaceIsRedWithItsBugAndNotWithout) {
  const std::vector<RaceFile> files = race_files();
  EXPECT_GE(files.size(), 12U);
  std::size_t num_with_races = 0;
  for (const RaceFile& file : files) {
    const WorkerStory clean = tell_worker(file.scenario, "");
    EXPECT_TRUE(clean.races.empty() && clean.misuses.empty() && !clean.difference) << file.name;
    const WorkerStory story = tell_worker(file.scenario, file.planted_bug);
    EXPECT_TRUE(story.difference) << file.name;
    num_with_races += !story.races.empty();
    for (const StoryRace& race : story.races) {
      EXPECT_TRUE(race.first.is_write || race.second.is_write) << file.name;
      for (const StoryParty& party : {race.first, race.second}) {
        EXPECT_NE(party.operation.has_value(), party.mark.has_value()) << file.name;
      }
      EXPECT_LT(race.moment, story.end) << file.name;
    }
  }
  // The others are of failures that nobody heard of.
  EXPECT_EQ(num_with_races + 2, files.size());
}

TEST(WorkerStory, PagesAreWellFormed) {
  for (const RaceFile& file : race_files()) {
    for (const std::string& bug : {std::string(), file.planted_bug}) {
      const WorkerStory story = tell_worker(file.scenario, bug);
      const std::string page = story_html(story);
      EXPECT_EQ(fault_of(page), "") << file.name << " " << bug;
      EXPECT_EQ(count_of(page, "<div class=\"race\">"), story.races.size() + story.misuses.size());
      EXPECT_EQ(count_of(page, "<tr data-step="), story.commands.size()) << file.name;
    }
  }
}

std::pair<int, int> thread_of(const json& event) {
  return {event["pid"].get<int>(), event["tid"].get<int>()};
}

/// The names of the slices of a thread that hold a moment.
std::set<std::string> slices_at(const json& events, const json& flow) {
  std::set<std::string> names;
  for (const json& event : events) {
    if (event["ph"] != "X" || event["pid"] != flow["pid"] || event["tid"] != flow["tid"]) continue;
    const std::uint64_t begin = event["ts"];
    const std::uint64_t end = begin + event["dur"].get<std::uint64_t>();
    const std::uint64_t at = flow["ts"];
    if (begin <= at && at < end) names.insert(event["name"]);
  }
  return names;
}

TEST(WorkerStory, FlowsJoinTheRacingSlices) {
  for (const RaceFile& file : race_files()) {
    const WorkerStory story = tell_worker(file.scenario, file.planted_bug);
    const json trace = json::parse(story_trace(story));
    const json& events = trace["traceEvents"];
    std::map<std::uint64_t, std::vector<json>> flows;
    std::set<std::pair<int, int>> named;
    for (const json& event : events) {
      const std::string ph = event["ph"];
      if (ph == "M") named.insert(thread_of(event));
      if (ph == "s" || ph == "f") flows[event["id"].get<std::uint64_t>()].push_back(event);
    }
    for (const json& event : events) {
      EXPECT_TRUE(named.contains(thread_of(event))) << file.name << event;
    }
    ASSERT_EQ(flows.size(), story.races.size()) << file.name;
    for (std::size_t index = 0; index < story.races.size(); ++index) {
      const std::vector<json>& ends = flows[index + 1];
      ASSERT_EQ(ends.size(), 2U);
      EXPECT_EQ(ends[0]["ph"], "s");
      EXPECT_EQ(ends[1]["ph"], "f");
      EXPECT_LE(ends[0]["ts"].get<std::uint64_t>(), ends[1]["ts"].get<std::uint64_t>());
      const StoryRace& race = story.races[index];
      std::set<std::string> expected;
      for (const StoryParty& party : {race.first, race.second}) {
        if (party.mark) {
          expected.insert(to_text(story, story.marks[*party.mark]));
        } else {
          const StoryOperation& operation = story.operations[*party.operation];
          const bool has_run = operation.started != kNever;
          expected.insert(operation.name + (has_run ? "" : " (never ran)"));
        }
      }
      std::set<std::string> joined;
      for (const json& end : ends) joined.merge(slices_at(events, end));
      EXPECT_EQ(joined, expected) << file.name;
    }
  }
}

}  // namespace
}  // namespace kvfence
