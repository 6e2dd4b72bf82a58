// Compiled once a target, with its class in KVFENCE_TARGET.

#include "scenarios/story/explain.h"

#include <cstddef>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "properties/core/difference.h"
#include "properties/core/lockstep.h"
#include "scenarios/story/choices_picture.h"
#include "scenarios/story/lists_picture.h"
#include "scenarios/story/pair_picture.h"
#include "scenarios/story/pool_picture.h"
#include "scenarios/story/scheduler_story.h"
#include "scenarios/story/worker_picture.h"

#include KVFENCE_TARGET_CHECKS

namespace kvfence {
namespace {

template <class Observation>
concept ShowsPool = requires(const Observation& observation) {
  observation.free_queue;
};

template <class Observation>
concept ShowsChoices = requires(const Observation& observation) {
  observation.chosen;
};

template <class Observation>
concept ShowsAPair = requires(const Observation& observation) {
  observation.of(EngineRole::kProducer);
};

template <class Observation>
concept ShowsPages = requires(const Observation& observation) {
  observation.gpu_pages;
};

/// How a target's observations are drawn.
template <class Target>
auto picture_of() {
  using Observation = typename Target::Observation;
  if constexpr (ShowsPool<Observation>) {
    return std::type_identity<PoolPicture<Target>>{};
  } else if constexpr (ShowsAPair<Observation>) {
    return std::type_identity<PairPicture<Target>>{};
  } else if constexpr (ShowsChoices<Observation>) {
    return std::type_identity<ChoicesPicture<Target>>{};
  } else if constexpr (ShowsPages<Observation>) {
    return std::type_identity<WorkerPicture<Target>>{};
  } else {
    return std::type_identity<ListsPicture<Target>>{};
  }
}
template <class Target>
using PictureOf = typename decltype(picture_of<Target>())::type;

template <class Target>
class Story {
 public:
  using Observation = typename Target::Observation;

  Story(const Scenario<Target>& scenario, Implementation<Target>& expected,
        Implementation<Target>& actual)
      : scenario_(scenario), expected_name_(expected.name()), lockstep_(expected, actual) {
    divergence_ = lockstep_.start(scenario.config);
    // The name of a child process is known once it runs.
    actual_name_ = actual.name();
    for (const Step<Target>& step : scenario.steps) {
      if (divergence_) break;
      run(step);
    }
  }

  Explanation tell() {
    text_ = "reference: " + expected_name_ + "    under test: " + actual_name_ + "\n" +
            print(config_line<Target>(scenario_.config)) + "\n\n";
    const Picture picture(scenario_.config, scenes_);
    if (!scenes_.empty()) tell_pictures(picture);
    if (divergence_) {
      tell_divergence(picture);
    } else {
      text_ += "\nBoth sides agree on every step, and every invariant holds.\n";
    }
    return {std::move(text_), divergence_.has_value()};
  }

 private:
  using Picture = PictureOf<Target>;

  void run(const Step<Target>& step) {
    divergence_ = lockstep_.step(step.command, step.expectation, /*want_state=*/true);
    // A pipe answers late: wait, so that each picture shows both sides behind the same command.
    if (!divergence_) divergence_ = lockstep_.finish();
    Scene<Observation> scene;
    scene.step = scenes_.size();
    scene.command = print(to_line(step.command));
    scene.expected = lockstep_.last_expected();
    scene.actual = lockstep_.last_actual();
    scenes_.push_back(std::move(scene));
  }

  void tell_pictures(const Picture& picture) {
    text_ += picture.legend() + "\n\n";
    text_ += padded("step  command", kPictureColumn) + picture.heading() + "\n";
    for (const Scene<Observation>& scene : scenes_) {
      const bool is_last = &scene == &scenes_.back();
      text_ += padded(std::to_string(scene.step), 6) +
               padded(shortened(scene.command, kCommandShownMax), kCommandShownMax + 2);
      text_ += row(picture, scene.expected) + "\n";
      tell_answer(scene.expected);
      const auto* const before = scene.step > 0 ? &scenes_[scene.step - 1] : nullptr;
      for (std::string& line : picture.more_of(scene, before)) {
        text_ += "      " + shortened(std::move(line), 154) + "\n";
      }
      if (is_last && divergence_ && scene.expected != scene.actual) {
        tell_other_side(picture, scene);
      }
    }
  }

  static std::string row(const Picture& picture, const Observation& observation) {
    return Picture::has_state(observation) ? picture.row(observation) : "(not reported)";
  }

  void tell_answer(const Observation& observation) {
    if constexpr (requires { story_of(observation); }) {
      for (const std::string& line : story_of(observation)) {
        text_ += "      " + shortened(line, 154) + "\n";
      }
      return;
    }
    std::vector<Field> answer;
    const DeclaredObject members = object_of(observation);
    for (std::size_t index = 0; index < members.size(); ++index) {
      const MemberRef member = members[index];
      if (member.domain() != Domain::kResult || !member.is_present()) continue;
      Value value = member.value();
      if (value.get_if<None>()) continue;
      answer.push_back({std::string(member.declaration().name), std::move(value), {}});
    }
    if (answer.empty()) return;
    std::string line = "      ->";
    for (Field& field : answer) {
      symbolize(field.value, [this](std::string_view bytes) {
        return Checks<Target>::symbol_of(lockstep_.world(), bytes);
      });
      line += " ";
      print_to(line, field);
    }
    text_ += shortened(line, 160) + "\n";
  }

  void tell_other_side(const Picture& picture, const Scene<Observation>& scene) {
    text_ += padded("      ! " + shortened(actual_name_, kCommandShownMax - 4), kPictureColumn) +
             row(picture, scene.actual) + "\n";
    if (!Picture::has_state(scene.expected) || !Picture::has_state(scene.actual)) return;
    std::string marks = picture.marks(scene.expected, scene.actual);
    while (!marks.empty() && marks.back() == ' ') marks.pop_back();
    if (!marks.empty()) text_ += std::string(kPictureColumn, ' ') + marks + "\n";
  }

  void tell_divergence(const Picture& picture) {
    text_ += "\n" + divergence_->oracle + ": " + divergence_->message + "\n";
    if (!divergence_->field.empty()) {
      text_ += "  step " + std::to_string(divergence_->step) + ", " + divergence_->field + "\n";
      text_ += "  expected  " + divergence_->expected + "\n";
      text_ += "  actual    " + divergence_->actual + "\n";
    }
    if (!scenes_.empty()) text_ += picture.histories(scenes_);
  }

  const Scenario<Target>& scenario_;
  std::string expected_name_;
  std::string actual_name_;
  Lockstep<Target> lockstep_;
  std::vector<Scene<Observation>> scenes_;
  std::optional<Divergence> divergence_;
  std::string text_;
};

}  // namespace

template <class Target>
Explanation explain_scenario(const Scenario<Target>& scenario, Implementation<Target>& expected,
                             Implementation<Target>& actual) {
  return Story<Target>(scenario, expected, actual).tell();
}

template Explanation explain_scenario(const Scenario<KVFENCE_TARGET>&,
                                      Implementation<KVFENCE_TARGET>&,
                                      Implementation<KVFENCE_TARGET>&);

}  // namespace kvfence
