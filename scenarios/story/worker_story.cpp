#include "scenarios/story/device_story.h"

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "contract/worker/worker_target.h"
#include "planted/cuda/worker/worker_on_virtual_device.h"
#include "properties/planted/bugs.h"
#include "properties/worker/driver.h"
#include "scenarios/story/observed_member.h"
#include "scenarios/story/story_recorder.h"

namespace kvfence {
namespace {

using planted::cuda::WorkersOnVirtualDevices;

StoryContent content_of(const worker::Page& page, bool is_gpu, std::size_t command) {
  StoryContent content{.page = {0, is_gpu, page.number}, .command = command};
  if (page.torn) {
    content.text = "torn";
    content.meaning = "parts of several writes, or none";
    content.is_torn = true;
  } else if (page.undefined) {
    content.text = "undefined";
    content.meaning = "a write of it may be under way";
  } else if (page.generation == 0) {
    content.text = "nothing";
  } else {
    const std::string generation = std::to_string(page.generation);
    content.text = std::to_string(page.of_block) + "g" + generation;
    content.meaning =
        "what forward " + generation + " wrote into GPU block " + std::to_string(page.of_block);
  }
  return content;
}

bool worker_reports(std::string_view name, std::string_view text) {
  const bool is_empty_list = text == "[]" && name == "seen";
  return !is_empty_list;
}

}  // namespace

DeviceStory story_of_worker(const Scenario& scenario, const std::string& planted_bug) {
  DeviceStory story{.subject = "worker",
                    .content_example = "0g1",
                    .content_meaning = "what forward 1 wrote into GPU block 0",
                    .planted_bug = planted_bug};
  std::optional<StoryRecorder> recorder;  // outlives the devices
  const planted::SwitchedOn bug("worker", planted_bug);
  auto make_worker = [&](const worker::Options& options) {
    auto made = std::make_unique<WorkersOnVirtualDevices>(options);
    recorder.emplace(made->rank(0), 0U, story);
    return made;
  };
  WorkerDriver<WorkersOnVirtualDevices, decltype(make_worker)> driver("worker", make_worker);
  const auto show = [&](const Observation& observation, bool is_gpu) {
    const auto& pages =
        observed<std::vector<worker::Page>>(observation, is_gpu ? "gpu_pages" : "cpu_pages");
    for (const worker::Page& page : pages) {
      if (page.rank == 0) {
        recorder->show(content_of(page, is_gpu, story.commands.size() - 1));
      }
    }
  };
  const auto take_in = [&](const Command&, const Observation& observation) {
    recorder->take_in();
    show(observation, true);
    show(observation, false);
    return answer_of(observation, worker_reports);
  };
  record_commands(scenario, prepared(*scenario.target, scenario.config), driver, story, take_in);
  recorder->finish();
  return story;
}

}  // namespace kvfence
