#pragma once

/// Makes a DeviceStory from the records of virtual devices: one recorder per device, all in one
/// story, whose `end` counts the moments.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "contract/core/implementation.h"
#include "contract/core/scenario.h"
#include "cuda/virtual/story.h"
#include "planted/cuda/worker/rank_device.h"
#include "scenarios/story/device_story.h"

namespace kvfence {

/// The device must live until finish(), and no longer than this and the story.
class StoryRecorder {
 public:
  StoryRecorder(planted::cuda::RankDevice& device, std::uint32_t rank, DeviceStory& story)
      : rank_(rank), story_(story), device_(device) {
    device_.set_story(&raw_);
  }
  StoryRecorder(const StoryRecorder&) = delete;
  StoryRecorder& operator=(const StoryRecorder&) = delete;

  /// What the device did since the last time, as part of the story's last command.
  void take_in();
  /// Adds the content if it differs from the page's last one. text: "nothing" if never written.
  void show(const StoryContent& content);
  /// Adds races and misuses. Once, after the last command.
  void finish();

 private:
  StoryLane lane_of_stream(virtual_device::Actor actor) const;
  std::vector<StoryPage> pages_in(std::uintptr_t begin, std::uintptr_t end) const;
  void take_in(const virtual_device::StoryEntry& entry);
  void take_in_operation(const virtual_device::StoryEntry& entry);
  void take_in_host_access(const virtual_device::StoryEntry& entry);
  void take_in_mark(const virtual_device::StoryEntry& entry, StoryMark::Kind kind);
  void name_parts(std::size_t first);
  StoryParty party_of(const virtual_device::Access& access);
  void add_race(const virtual_device::Race& found);
  std::string missing_of(const StoryRace& race, const virtual_device::Race& found) const;

  std::uint32_t rank_;
  DeviceStory& story_;
  planted::cuda::RankDevice& device_;
  virtual_device::Story raw_;
  std::size_t num_taken_ = 0;
  std::vector<virtual_device::Access> pending_;  ///< of the operation to be enqueued
  /// By stream, then in order: which of the story's.
  std::map<std::pair<virtual_device::Actor, virtual_device::Time>, std::size_t> operations_;
  std::size_t num_forwards_ = 0;
  std::map<std::uint64_t, std::size_t> host_accesses_;  ///< by call
  std::map<StoryPage, std::string> contents_;
};

/// Records the scenario's texts, and runs its commands to the end, with the configuration of
/// `setup`. take_in records what came of each, and returns its answer.
void record_commands(const Scenario& scenario, const Setup& setup, Implementation& implementation,
                     DeviceStory& story,
                     const std::function<std::string(const Command&, const Observation&)>& take_in);

}  // namespace kvfence
