/// Goal: a story holds what the program asked and the device did, in order, and only while one is
/// set.

#include "cuda/virtual/story.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "cuda/virtual/test_rig.h"

namespace kvfence::virtual_device {
namespace {

using Kind = StoryEntry::Kind;

std::vector<Kind> kinds_of(const Story& story) {
  std::vector<Kind> kinds;
  for (const StoryEntry& entry : story.entries) kinds.push_back(entry.kind);
  return kinds;
}

TEST(Story, HoldsWorkEventsAndWhatTheHostSaw) {
  TestRig rig({.schedule = Schedule::kLazy});
  cudaEvent_t event = nullptr;
  ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  Story story;
  rig.device().set_story(&story);
  rig.device().set_label({"job", 7});
  ok(rig.device().launch(rig.stream(0), {}, {}, [] {}));
  rig.device().set_label({});
  ok(cudaEventRecord(event, rig.stream(0)));
  ok(cudaStreamWaitEvent(rig.stream(1), event, 0));
  ok(rig.device().launch(rig.stream(1), {}, {}, [] {}));
  ok(cudaStreamSynchronize(rig.stream(1)));
  EXPECT_EQ(kinds_of(story), (std::vector{Kind::kEnqueued, Kind::kRecorded, Kind::kWaits,
                                          Kind::kEnqueued, Kind::kStarted, Kind::kEnded,
                                          Kind::kStarted, Kind::kEnded, Kind::kHostSaw}));
  const Actor first = rig.device().stream_number(rig.stream(0));
  const Actor second = rig.device().stream_number(rig.stream(1));
  EXPECT_EQ(story.entries[1].moment.stream, first);
  EXPECT_EQ(story.entries[2].stream, second);
  EXPECT_EQ(story.entries[2].event, story.entries[1].event);
  EXPECT_EQ(story.entries[2].moment.time, story.entries[1].moment.time);
  EXPECT_EQ(story.entries[4].stream, first);
  EXPECT_EQ(story.entries[6].stream, second);
  EXPECT_EQ(story.entries[8].moment.stream, second);
  EXPECT_EQ(story.entries[0].label.number, 7U);
  EXPECT_STREQ(story.entries[4].label.text, "job");
  EXPECT_STREQ(story.entries[6].label.text, "");

  rig.device().set_story(nullptr);
  const std::size_t num_entries = story.entries.size();
  ok(rig.device().launch(rig.stream(0), {}, {}, [] {}));
  ok(cudaStreamSynchronize(rig.stream(0)));
  EXPECT_EQ(story.entries.size(), num_entries);
}

TEST(Story, HoldsTheAccessesOfAnOperationBeforeIt) {
  for (const Schedule schedule : {Schedule::kEager, Schedule::kRandom, Schedule::kCommanded}) {
    TestRig rig({.schedule = schedule});
    void* host = nullptr;
    void* device = nullptr;
    ok(cudaHostAlloc(&host, 64, cudaHostAllocDefault));
    ok(cudaMalloc(&device, 64));
    Story story;
    rig.device().set_story(&story);
    ok(cudaMemcpyAsync(device, host, 64, cudaMemcpyHostToDevice, rig.stream(0)));
    ok(cudaStreamSynchronize(rig.stream(0)));
    EXPECT_EQ(kinds_of(story), (std::vector{Kind::kAccess, Kind::kAccess, Kind::kEnqueued,
                                            Kind::kStarted, Kind::kEnded, Kind::kHostSaw}));
    EXPECT_FALSE(story.entries[0].access.is_write);
    EXPECT_TRUE(story.entries[1].access.is_write);
    for (std::size_t index = 0; index < 5; ++index) {
      EXPECT_EQ(story.entries[index].time, 1U);
      EXPECT_EQ(story.entries[index].function, Function::kMemcpyAsync);
    }
    rig.device().set_story(nullptr);
    ok(cudaFree(device));
    ok(cudaFreeHost(host));
  }
}

}  // namespace
}  // namespace kvfence::virtual_device
