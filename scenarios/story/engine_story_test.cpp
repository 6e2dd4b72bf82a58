// Goal: the story of an engine shows what the devices of all ranks did and for which request, the
// accesses that race, and the wrong tokens.
// Method: a whole text; each scenario of cases/engine/offloading_on_device/races/ with its planted
// bug and without, with and without a look at races, and on symbols. Pages and traces:
// command/test_command.py.

#include "scenarios/story/device_story.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "contract/engine/engine_target.h"
#include "scenarios/story/observed_member.h"
#include "scenarios/story/story_recorder.h"
#include "scenarios/story/story_test_rig.h"
#include "scenarios/targets/targets.h"

namespace kvfence {
namespace {

std::vector<RaceFile> engine_race_files() {
  return race_files(EngineTarget::description(),
                    KVFENCE_ENGINE_CASES_DIR "/offloading_on_device/races");
}

DeviceStory story_of(const std::string& name) {
  for (const RaceFile& file : engine_race_files()) {
    if (file.name == name) return story_of_engine(file.scenario, file.planted_bug);
  }
  ADD_FAILURE() << "no scenario " << name;
  return {};
}

std::vector<std::string> wrong_tokens_of(const DeviceStory& story) {
  std::vector<std::string> wrong;
  for (const StoryCommand& command : story.commands) {
    wrong.insert(wrong.end(), command.wrong_tokens.begin(), command.wrong_tokens.end());
  }
  return wrong;
}

TEST(EngineStory, ShowsARaceAndTheTokenThatComesOfIt) {
  EXPECT_EQ(story_text(story_of("store_reads_a_preempted_block")),
            R"(The device, the engine with preempted_stores_not_flushed
      > begins   < is over   ! takes part in a race   A:0..1 the KV of A's tokens 0 and 1

0     add_request id=A tokens=[5 6] max_tokens=2
1     add_request id=B tokens=[7 8] max_tokens=2
2     schedule
3     execute
      host     enqueues forward 1 (launch): for A, B: reads GPU 1, GPU 2, writes GPU 1, GPU 2
4     poll
5     update
      compute  > forward 1
      compute  < forward 1
      pages    GPU 1 = A:0..1   GPU 2 = B:0..1
      -> outputs=[(output request=A tokens=[12679526]) (output request=B tokens=[14956973])]
6     schedule
      -> preempted=[B]
7     execute
      compute  records event 0 after forward 1
      store    waits for event 0: forward 1
      host     enqueues store 0 (cudaMemcpyBatchAsync): for A: reads GPU 1, writes CPU 0
      store    records event 0 after store 0
      compute  records event 1 after forward 1
      store    waits for event 1: forward 1
    ! host     enqueues store 1 (cudaMemcpyBatchAsync): for B: reads GPU 2, writes CPU 1
      store    records event 1 after store 1
    ! host     enqueues forward 2 (launch): for A: reads GPU 1, GPU 2, writes GPU 2
    ! race 1: store 1 and forward 2
8     advance stream=compute
    ! compute  > forward 2
    ! compute  < forward 2
      pages    GPU 2 = A:2 B:1
      -> advanced=true
9     advance stream=store
      store    > store 0
      store    < store 0
      pages    CPU 0 = A:0..1
      -> advanced=true
10    advance stream=store
    ! store    > store 1
    ! store    < store 1
      pages    CPU 1 = A:2 B:1
      -> advanced=true
11    poll
      host     sees the end of store 0 (cudaEventQuery)
      host     sees the end of store 1 (cudaEventQuery)
      -> completed_jobs=[(completed job=0 num_workers=1) (completed job=1 num_workers=1)] ended=[(ended job=0 store=true) (ended job=1 store=true)]
12    update
      -> outputs=[(output request=A tokens=[11891835] status=finished_length_capped)]
13    finish_requests requests=[B]
14    add_request id=C tokens=[7 8 9] max_tokens=1
15    schedule
16    execute
      compute  records event 2 after forward 2
      load     waits for event 2: forward 2
      host     enqueues load 2 (cudaMemcpyBatchAsync): for C: reads CPU 1, writes GPU 2
      load     records event 1 after load 2
17    advance stream=load
      load     > load 2
      load     < load 2
      -> advanced=true
18    poll
      host     sees the end of load 2 (cudaEventQuery)
      -> finished_recving=[C] completed_jobs=[(completed job=2 num_workers=1)] ended=[(ended job=2)]
19    update
20    schedule
21    execute
      host     enqueues forward 3 (launch): for C: reads GPU 1, GPU 2, writes GPU 1
22    poll
23    update
      compute  > forward 3
      compute  < forward 3
      pages    GPU 1 = wrong A:1
    ! token    C generates 16697137; without a cache it is 12224979
      -> outputs=[(output request=C tokens=[16697137] status=finished_length_capped)]

! race 1  store 1 (store stream) reads GPU 2,
          forward 2 (compute stream) writes GPU 2,
          unordered.
          No event recorded in the store stream after store 1 was waited for in the compute stream before forward 2, and the host has not seen store 1 end.
)");
}

TEST(EngineStory, ShowsEveryRank) {
  const DeviceStory story = story_of("loaded_on_one_rank_of_two");
  EXPECT_EQ(lanes_of(story).size(), 7U);
  std::vector<std::string> loads;
  for (const StoryOperation& operation : story.operations) {
    if (operation.lane.stream != StoryStream::kLoad) continue;
    loads.push_back(operation.name + " for " + operation.requests);
  }
  EXPECT_EQ(loads, (std::vector<std::string>{"load 1 for B", "load 1 r1 for B"}));
  const std::vector<std::string> wrong = wrong_tokens_of(story);
  ASSERT_EQ(wrong.size(), 1U);
  EXPECT_TRUE(wrong[0].starts_with("the ranks do not agree on what B generates; ")) << wrong[0];
}

TEST(EngineStory, EachRaceEndsWithAWrongTokenWithItsBugAndNotWithout) {
  const std::vector<RaceFile> files = engine_race_files();
  EXPECT_GE(files.size(), 12U);
  std::size_t num_with_races = 0;
  for (const RaceFile& file : files) {
    const DeviceStory clean = story_of_engine(file.scenario, "");
    EXPECT_TRUE(clean.races.empty() && clean.misuses.empty()) << file.name;
    EXPECT_FALSE(differs(engine_sides(), file.scenario, "")) << file.name;
    EXPECT_TRUE(wrong_tokens_of(clean).empty()) << file.name;
    const DeviceStory story = story_of_engine(file.scenario, file.planted_bug);
    EXPECT_TRUE(differs(engine_sides(), file.scenario, file.planted_bug)) << file.name;
    EXPECT_FALSE(wrong_tokens_of(story).empty()) << file.name;
    num_with_races += !story.races.empty();
    for (const StoryOperation& operation : story.operations) {
      EXPECT_FALSE(operation.requests.empty()) << file.name << " " << operation.name;
    }
  }
  // The others have failed or misdirected copies.
  EXPECT_EQ(num_with_races + 3, files.size());
}

/// The answers of an engine with its bug to each command.
std::vector<std::string> answers_of(const RaceFile& file, bool tokens_only) {
  auto config = file.scenario.config.as<engine::Config>();
  config.tokens_only = tokens_only;
  const auto engine = engine_sides().make_planted(file.planted_bug);
  DeviceStory story;
  record_commands(file.scenario, prepared(EngineTarget::description(), Config(config)), *engine,
                  story, [](const Command&, const Observation& observation) {
                    return answer_of(observation, [](auto, auto) { return true; });
                  });
  std::vector<std::string> answers;
  for (const StoryCommand& command : story.commands) answers.push_back(command.answer);
  return answers;
}

TEST(EngineStory, LookingForRacesChangesNoAnswer) {
  for (const RaceFile& file : engine_race_files()) {
    EXPECT_EQ(answers_of(file, true), answers_of(file, false)) << file.name;
  }
}

TEST(EngineStory, OnSymbolsIsTheSameStory) {
  RaceFile file = engine_race_files().front();
  const std::string on_virtual_device = story_text(story_of_engine(file.scenario, ""));
  auto config = file.scenario.config.as<engine::Config>();
  EngineTarget::complete(config);
  config.device = engine::DeviceKind::kSymbols;
  file.scenario.config = Config(config);
  EXPECT_EQ(story_text(story_of_engine(file.scenario, "")), on_virtual_device);
}

}  // namespace
}  // namespace kvfence
