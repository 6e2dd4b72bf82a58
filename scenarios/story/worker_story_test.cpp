// Goal: the story shows what the device did, and the accesses that race.
// Method: a whole text; each scenario of cases/worker/races/ with its planted bug and without.
// Pages and traces: command/test_command.py.

#include "scenarios/story/device_story.h"

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "contract/worker/worker_target.h"
#include "scenarios/story/story_test_rig.h"

namespace kvfence {
namespace {

/// A store that is not waited for reads the block of the next owner.
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

std::vector<RaceFile> worker_race_files() {
  return race_files(WorkerTarget::description(), KVFENCE_RACES_DIR);
}

TEST(WorkerStory, ShowsARace) {
  const DeviceStory story = story_of_worker(
      parsed(WorkerTarget::description(), kPreempted, "a.kvs"), "wait_returns_at_once");
  EXPECT_EQ(story_text(story),
            R"(The device, the worker with wait_returns_at_once
      > begins   < is over   ! takes part in a race   0g1 what forward 1 wrote into GPU block 0

0     forward writes=[0]
      host     enqueues forward 1 (launch): writes GPU 0
1     transfer_async job=1 direction=store gpu_blocks=[0] cpu_blocks=[0]
2     wait jobs=[1]
      compute  records event 0 after forward 1
      store    waits for event 0: forward 1
    ! host     enqueues store 1 (cudaMemcpyBatchAsync): reads GPU 0, writes CPU 0
      store    records event 0 after store 1
      -> waited=true
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
          No event recorded in the store stream after store 1 was waited for in the compute stream before forward 2, and the host has not seen store 1 end.
)");
}

TEST(WorkerStory, SaysThatAllIsOrdered) {
  const Scenario scenario = parsed(WorkerTarget::description(), kPreempted, "a.kvs");
  EXPECT_FALSE(differs(worker_sides(), scenario, ""));
  const DeviceStory story = story_of_worker(scenario, "");
  EXPECT_TRUE(story.races.empty());
  const std::string text = story_text(story);
  EXPECT_NE(text.find("host     sees the end of store 1 (cudaEventSynchronize)\n"), text.npos)
      << text;
  EXPECT_NE(text.find("CPU 0 = 0g1"), text.npos) << text;
  EXPECT_NE(text.find("\nEvery two accesses to the same bytes, one a write, are ordered.\n"),
            text.npos);
}

std::vector<std::string> names_of(const DeviceStory& story) {
  std::vector<std::string> names;
  for (const StoryOperation& operation : story.operations) names.push_back(operation.name);
  return names;
}

TEST(WorkerStory, NamesTheCopiesOfTwoEqualTransfersApart) {
  const DeviceStory story = story_of_worker(parsed(WorkerTarget::description(),
                                                   "target worker\n"
                                                   "config path=looped num_gpu_blocks=1\n"
                                                   "transfer_async job=7 direction=load "
                                                   "gpu_blocks=[0] cpu_blocks=[0]\n"
                                                   "transfer_async job=8 direction=load "
                                                   "gpu_blocks=[0] cpu_blocks=[0]\n",
                                                   "a.kvs"),
                                            "");
  for (const StoryOperation& operation : story.operations) EXPECT_EQ(operation.started, kNever);
  EXPECT_EQ(names_of(story),
            (std::vector<std::string>{"load 7.1", "load 7.2", "load 8.1", "load 8.2"}));
}

TEST(WorkerStory, CountsThePartsOfAJobAgainWhenItsNumberIsUsedAgain) {
  const std::string transfer =
      "transfer_async job=7 direction=load gpu_blocks=[0] cpu_blocks=[0]\n";
  const DeviceStory story =
      story_of_worker(parsed(WorkerTarget::description(),
                             "target worker\nconfig path=looped num_gpu_blocks=1\n" + transfer +
                                 "advance stream=load\nget_finished\n" + transfer,
                             "a.kvs"),
                      "");
  EXPECT_EQ(names_of(story),
            (std::vector<std::string>{"load 7.1", "load 7.2", "load 7.1", "load 7.2"}));
}

TEST(WorkerStory, EachRaceIsRedWithItsBugAndNotWithout) {
  const std::vector<RaceFile> files = worker_race_files();
  EXPECT_GE(files.size(), 12U);
  std::size_t num_with_races = 0;
  for (const RaceFile& file : files) {
    const DeviceStory clean = story_of_worker(file.scenario, "");
    EXPECT_TRUE(clean.races.empty() && clean.misuses.empty()) << file.name;
    EXPECT_FALSE(differs(worker_sides(), file.scenario, "")) << file.name;
    const DeviceStory story = story_of_worker(file.scenario, file.planted_bug);
    EXPECT_TRUE(differs(worker_sides(), file.scenario, file.planted_bug)) << file.name;
    num_with_races += !story.races.empty();
    for (const StoryRace& race : story.races) {
      EXPECT_TRUE(race.first.is_write || race.second.is_write) << file.name;
      for (const StoryParty& party : {race.first, race.second}) {
        EXPECT_NE(party.operation.has_value(), party.mark.has_value()) << file.name;
      }
      EXPECT_LT(race.moment, story.end) << file.name;
    }
  }
  // The others have failures that were not reported.
  EXPECT_EQ(num_with_races + 2, files.size());
}

}  // namespace
}  // namespace kvfence
