#include "scenarios/story/explain.h"

#include <string_view>
#include <utility>
#include <vector>

#include "properties/core/difference.h"
#include "properties/core/lockstep.h"
#include "scenarios/story/explain_picture.h"
#include "scenarios/story/observed_member.h"
#include "scenarios/story/scheduler_story.h"

namespace kvfence {
namespace {

class Story {
 public:
  Story(const Scenario& scenario, const Checks& checks, Implementation& expected,
        Implementation& actual, const Oracles& oracles)
      : scenario_(scenario),
        setup_(prepared(*scenario.target, scenario.config)),
        has_scheduler_(shows_a_scheduler(*scenario.target) && !has_two_engines(setup_.config())),
        expected_name_(expected.name()),
        lockstep_(checks, expected, actual, {.oracles = oracles}) {
    divergence_ = lockstep_.start(setup_);
    // The name of a child process is known once it runs.
    actual_name_ = actual.name();
    for (const Step& step : scenario.steps) {
      if (divergence_) break;
      run(step);
    }
    if (!divergence_) divergence_ = lockstep_.compare_tables();
  }

  Explanation explain() {
    text_ = "reference: " + expected_name_ + "    under test: " + actual_name_ + "\n" +
            print(config_line(scenario_.config)) + "\n\n";
    const auto picture = make_picture(*scenario_.target, setup_.config(), scenes_);
    if (!scenes_.empty()) print_pictures(*picture);
    if (divergence_) {
      print_divergence(*picture);
    } else if (lockstep_.oracles() == Oracles{}) {
      text_ += "\nBoth sides agree on every step, and every rule holds.\n";
    } else {
      text_ += "\nNothing was found, judged by " + to_text(lockstep_.oracles()) + " alone.\n";
    }
    return {std::move(text_), std::move(divergence_)};
  }

 private:
  void run(const Step& step) {
    static const std::optional<std::vector<Field>> kNone;
    // A digest covers several steps, so no single picture shows it.
    const auto& expectation = scenario_.digests ? kNone : step.expectation;
    divergence_ = lockstep_.step(step.command, expectation, /*want_state=*/true);
    // A pipe answers late: wait, so that each picture shows both sides after the same command.
    if (!divergence_) divergence_ = lockstep_.finish();
    scenes_.push_back({.step = scenes_.size(),
                       .command = print(to_line(step.command)),
                       .expected = lockstep_.last_expected(),
                       .actual = lockstep_.last_actual()});
  }

  void print_pictures(const ScenePicture& picture) {
    text_ += picture.legend() + "\n\n";
    text_ += padded("step  command", kPictureColumn) + picture.heading() + "\n";
    for (const Scene& scene : scenes_) {
      const bool is_last = &scene == &scenes_.back();
      text_ += padded(std::to_string(scene.step), 6) +
               padded(shortened(scene.command, kCommandShownMax), kCommandShownMax + 2);
      text_ += row(picture, scene.expected) + "\n";
      print_answer(scene.expected);
      const auto* const before = scene.step > 0 ? &scenes_[scene.step - 1] : nullptr;
      for (std::string& line : picture.more_of(scene, before)) {
        text_ += "      " + shortened(std::move(line), 154) + "\n";
      }
      if (is_last && divergence_ && scene.expected != scene.actual) {
        print_other_side(picture, scene);
      }
    }
  }

  static std::string row(const ScenePicture& picture, const Observation& observation) {
    return picture.has_state(observation) ? picture.row(observation) : "(not reported)";
  }

  void print_answer(const Observation& observation) {
    if (has_scheduler_) {
      for (const std::string& line : story_of(observation)) {
        text_ += "      " + shortened(line, 154) + "\n";
      }
      return;
    }
    std::vector<Field> answer = answers_of(observation);
    if (answer.empty()) return;
    std::string line = "      ->";
    for (Field& field : answer) {
      symbolize(field.value,
                [this](std::string_view bytes) { return lockstep_.world().symbol_of(bytes); });
      line += " ";
      print_to(line, field);
    }
    text_ += shortened(line, 160) + "\n";
  }

  void print_other_side(const ScenePicture& picture, const Scene& scene) {
    text_ += padded("      ! " + shortened(actual_name_, kCommandShownMax - 4), kPictureColumn) +
             row(picture, scene.actual) + "\n";
    if (!picture.has_state(scene.expected) || !picture.has_state(scene.actual)) return;
    std::string marks = picture.marks(scene.expected, scene.actual);
    while (!marks.empty() && marks.back() == ' ') marks.pop_back();
    if (!marks.empty()) text_ += std::string(kPictureColumn, ' ') + marks + "\n";
  }

  void print_divergence(const ScenePicture& picture) {
    text_ += "\n" + divergence_->oracle + ": " + divergence_->message + "\n";
    if (!divergence_->field.empty()) {
      text_ += "  step " + std::to_string(divergence_->step) + ", " + divergence_->field + "\n";
      text_ += "  expected  " + divergence_->expected + "\n";
      text_ += "  actual    " + divergence_->actual + "\n";
    }
    if (!scenes_.empty()) text_ += picture.histories(scenes_);
  }

  const Scenario& scenario_;
  Setup setup_;
  bool has_scheduler_;  ///< one, whose answers are shown as those of a scheduler
  std::string expected_name_;
  std::string actual_name_;
  Lockstep lockstep_;
  Scenes scenes_;
  std::optional<Divergence> divergence_;
  std::string text_;
};

}  // namespace

Explanation explain_scenario(const Scenario& scenario, const Checks& checks,
                             Implementation& expected, Implementation& actual,
                             const Oracles& oracles) {
  return Story(scenario, checks, expected, actual, oracles).explain();
}

}  // namespace kvfence
