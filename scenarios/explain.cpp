#include "scenarios/explain.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "properties/block_pool_checks.h"
#include "properties/difference.h"
#include "properties/kv_cache_checks.h"
#include "properties/lockstep.h"
#include "properties/scheduler_checks.h"
#include "scenarios/scheduler_story.h"

namespace kvfence {
namespace {

/// Blocks shown side by side; a wider pool shows those that change.
constexpr std::size_t kColumnsMax = 32;
/// A longer free queue is cut in the middle.
constexpr std::size_t kQueueShownMax = 12;
/// Commands are cut to this many characters in the picture; the history shows them whole.
constexpr std::size_t kCommandShownMax = 66;

std::string padded(std::string text, std::size_t width) {
  if (text.size() < width) text.resize(width, ' ');
  return text;
}

std::string shortened(std::string text, std::size_t width) {
  if (text.size() > width) text = text.substr(0, width - 3) + "...";
  return text;
}

/// One block in the picture.
template <class Observation>
std::string cell(const Observation& observation, BlockId block) {
  if (block == kNullBlockId) return "N";
  const std::uint32_t ref_cnt = (*observation.ref_cnts)[block];
  const bool has_key = !(*observation.keys)[block].empty();
  if (ref_cnt == 0) return has_key ? "c" : ".";
  return std::to_string(ref_cnt) + (has_key ? "*" : "");
}

template <class Observation>
std::string queue_text(const Observation& observation) {
  const std::vector<BlockId>& queue = *observation.free_queue;
  std::string text;
  for (std::size_t index = 0; index < queue.size(); ++index) {
    if (queue.size() > kQueueShownMax && index == kQueueShownMax / 2) {
      text += " ..";
      index = queue.size() - kQueueShownMax / 2;
    }
    text += (text.empty() ? "" : " ") + std::to_string(queue[index]);
  }
  return text.empty() ? "(empty)" : text;
}

/// A command and what was seen behind it.
template <class Observation>
struct Scene {
  std::size_t step = 0;
  std::string command;
  Observation expected;
  Observation actual;
};

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
    choose_columns();
    text_ = "reference: " + expected_name_ + "    under test: " + actual_name_ + "\n" +
            print(config_line<Target>(scenario_.config)) + "\n\n";
    if (!scenes_.empty()) tell_pictures();
    if (divergence_) {
      tell_divergence();
    } else {
      text_ += "\nBoth sides agree on every step, and every invariant holds.\n";
    }
    return {std::move(text_), divergence_.has_value()};
  }

 private:
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

  static bool has_state(const Observation& observation) {
    return observation.ref_cnts.has_value() && observation.keys.has_value() &&
           observation.free_queue.has_value();
  }

  void choose_columns() {
    const std::uint32_t num_blocks = scenario_.config.num_gpu_blocks;
    for (BlockId block = 0; block < num_blocks; ++block) {
      bool shown = num_blocks <= kColumnsMax;
      for (const Scene<Observation>& scene : scenes_) {
        if (shown || !has_state(scene.expected)) break;
        shown = cell(scene.expected, block) != "." ||
                (has_state(scene.actual) && cell(scene.actual, block) != ".");
      }
      if (shown && columns_.size() < kColumnsMax) columns_.push_back(block);
    }
    for (BlockId block : columns_) {
      std::size_t width = std::to_string(block).size();
      for (const Scene<Observation>& scene : scenes_) {
        for (const Observation* observation : {&scene.expected, &scene.actual}) {
          if (has_state(*observation)) width = std::max(width, cell(*observation, block).size());
        }
      }
      widths_.push_back(width);
    }
  }

  void tell_pictures() {
    text_ +=
        "N null   2 referenced (ref_cnt)   2* referenced and findable   c free and findable   . "
        "free and empty\n\n";
    std::string heading = padded("step  command", kCommandShownMax + 8);
    for (std::size_t index = 0; index < columns_.size(); ++index) {
      heading += padded(std::to_string(columns_[index]), widths_[index]) + " ";
    }
    text_ += heading + "  free queue, head first\n";
    for (const Scene<Observation>& scene : scenes_) {
      const bool is_last = &scene == &scenes_.back();
      text_ += padded(std::to_string(scene.step), 6) +
               padded(shortened(scene.command, kCommandShownMax), kCommandShownMax + 2);
      text_ += picture(scene.expected) + "\n";
      tell_answer(scene.expected);
      tell_tables(scene);
      if (is_last && divergence_ && scene.expected != scene.actual) tell_other_side(scene);
    }
  }

  std::string picture(const Observation& observation) const {
    if (!has_state(observation)) return "(not reported)";
    std::string row;
    for (std::size_t index = 0; index < columns_.size(); ++index) {
      row += padded(cell(observation, columns_[index]), widths_[index]) + " ";
    }
    return row + "  " + queue_text(observation);
  }

  void tell_answer(const Observation& observation) {
    if constexpr (std::is_same_v<Target, SchedulerTarget>) {
      for (const std::string& line : story_of(observation)) {
        text_ += "      " + shortened(line, 154) + "\n";
      }
      return;
    }
    std::vector<Field> answer;
    for_each_field<Observation>([&](const auto& declaration) {
      if (declaration.domain != Domain::kResult) return;
      const auto& member = observation.*declaration.member;
      const Value value = to_value(member);
      if (!is_present(member) || value.get_if<None>()) return;
      answer.push_back({std::string(declaration.name), value, {}});
    });
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

  /// The block tables that this step changed, where the target has tables.
  void tell_tables(const Scene<Observation>& scene) {
    if constexpr (requires { scene.expected.tables; }) {
      if (!scene.expected.tables.has_value()) return;
      const auto* const before =
          scene.step > 0 && scenes_[scene.step - 1].expected.tables.has_value()
              ? &*scenes_[scene.step - 1].expected.tables
              : nullptr;
      for (const auto& table : *scene.expected.tables) {
        const bool is_old =
            before && std::find(before->begin(), before->end(), table) != before->end();
        if (!is_old) text_ += "      " + shortened(print(to_value(table)), 154) + "\n";
      }
    }
  }

  void tell_other_side(const Scene<Observation>& scene) {
    text_ +=
        padded("      ! " + shortened(actual_name_, kCommandShownMax - 4), kCommandShownMax + 8) +
        picture(scene.actual) + "\n";
    if (!has_state(scene.expected) || !has_state(scene.actual)) return;
    std::string marks;
    for (std::size_t index = 0; index < columns_.size(); ++index) {
      const bool differs =
          cell(scene.expected, columns_[index]) != cell(scene.actual, columns_[index]);
      marks += padded(differs ? "^" : "", widths_[index]) + " ";
    }
    marks += "  ";
    if (*scene.expected.free_queue != *scene.actual.free_queue) marks += "^ the queues differ";
    while (!marks.empty() && marks.back() == ' ') marks.pop_back();
    if (!marks.empty()) text_ += std::string(kCommandShownMax + 8, ' ') + marks + "\n";
  }

  void tell_divergence() {
    text_ += "\n" + divergence_->oracle + ": " + divergence_->message + "\n";
    if (!divergence_->field.empty()) {
      text_ += "  step " + std::to_string(divergence_->step) + ", " + divergence_->field + "\n";
      text_ += "  expected  " + divergence_->expected + "\n";
      text_ += "  actual    " + divergence_->actual + "\n";
    }
    for (BlockId block : blocks_concerned()) tell_history(block);
  }

  /// The blocks that the two sides show differently at the end.
  std::vector<BlockId> blocks_concerned() const {
    std::vector<BlockId> blocks;
    const Scene<Observation>& last = scenes_.back();
    if (!has_state(last.expected) || !has_state(last.actual)) return blocks;
    const std::size_t num_blocks =
        std::min(last.expected.ref_cnts->size(), last.actual.ref_cnts->size());
    for (BlockId block = 0; block < num_blocks && blocks.size() < 3; ++block) {
      const auto count = [block](const Observation& observation) {
        return std::count(observation.free_queue->begin(), observation.free_queue->end(), block);
      };
      if (cell(last.expected, block) != cell(last.actual, block) ||
          (*last.expected.keys)[block] != (*last.actual.keys)[block] ||
          count(last.expected) != count(last.actual)) {
        blocks.push_back(block);
      }
    }
    return blocks;
  }

  /// Every step at which the block changed on the reference's side.
  void tell_history(BlockId block) {
    text_ += "\nblock " + std::to_string(block) + "\n";
    std::string before = block == kNullBlockId ? "N" : ".";
    for (const Scene<Observation>& scene : scenes_) {
      if (!has_state(scene.expected)) continue;
      const std::string now = cell(scene.expected, block);
      const bool is_last = &scene == &scenes_.back();
      if (now != before || is_last) {
        text_ += "  step " + padded(std::to_string(scene.step), 4) + padded(before, 3) + "-> " +
                 padded(now, 3);
        if (is_last && has_state(scene.actual) && cell(scene.actual, block) != now) {
          text_ += "(" + cell(scene.actual, block) + " on the other side) ";
        }
        text_ += " " + scene.command + "\n";
      }
      before = now;
    }
  }

  const Scenario<Target>& scenario_;
  std::string expected_name_;
  std::string actual_name_;
  Lockstep<Target> lockstep_;
  std::vector<Scene<Observation>> scenes_;
  std::optional<Divergence> divergence_;
  std::vector<BlockId> columns_;
  std::vector<std::size_t> widths_;
  std::string text_;
};

}  // namespace

template <class Target>
Explanation explain_scenario(const Scenario<Target>& scenario, Implementation<Target>& expected,
                             Implementation<Target>& actual) {
  return Story<Target>(scenario, expected, actual).tell();
}

template Explanation explain_scenario(const Scenario<BlockPoolTarget>&,
                                      Implementation<BlockPoolTarget>&,
                                      Implementation<BlockPoolTarget>&);
template Explanation explain_scenario(const Scenario<KVCacheTarget>&,
                                      Implementation<KVCacheTarget>&,
                                      Implementation<KVCacheTarget>&);
template Explanation explain_scenario(const Scenario<SchedulerTarget>&,
                                      Implementation<SchedulerTarget>&,
                                      Implementation<SchedulerTarget>&);

}  // namespace kvfence
