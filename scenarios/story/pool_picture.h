#pragma once

/// The picture of a pool: its blocks in columns, and the free queue.

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "contract/core/declare.h"
#include "contract/core/line.h"
#include "contract/core/types.h"
#include "scenarios/story/explain_picture.h"

namespace kvfence {

/// For observations with a pool's free_queue, ref_cnts and keys.
template <class Target>
class PoolPicture {
 public:
  using Observation = typename Target::Observation;
  using Scenes = std::vector<Scene<Observation>>;

  PoolPicture(const typename Target::Config& config, const Scenes& scenes) {
    choose_columns(config.num_gpu_blocks, scenes);
  }

  static bool has_state(const Observation& observation) {
    return observation.ref_cnts.has_value() && observation.keys.has_value() &&
           observation.free_queue.has_value();
  }

  std::string legend() const {
    return "N null   2 referenced (ref_cnt)   2* referenced and findable   c free and findable   . "
           "free and empty";
  }

  std::string heading() const {
    std::string heading;
    for (std::size_t index = 0; index < columns_.size(); ++index) {
      heading += padded(std::to_string(columns_[index]), widths_[index]) + " ";
    }
    return heading + "  free queue, head first";
  }

  /// Requires: has_state(observation)
  std::string row(const Observation& observation) const {
    std::string row;
    for (std::size_t index = 0; index < columns_.size(); ++index) {
      row += padded(cell(observation, columns_[index]), widths_[index]) + " ";
    }
    return row + "  " + queue_text(observation);
  }

  /// The block tables that a scene changed, where the target has tables, one a line.
  std::vector<std::string> more_of(const Scene<Observation>& scene,
                                   const Scene<Observation>* scene_before) const {
    std::vector<std::string> lines;
    if constexpr (requires { scene.expected.tables; }) {
      if (!scene.expected.tables.has_value()) return lines;
      const auto* const before = scene_before && scene_before->expected.tables.has_value()
                                     ? &*scene_before->expected.tables
                                     : nullptr;
      for (const auto& table : *scene.expected.tables) {
        const bool is_old =
            before && std::find(before->begin(), before->end(), table) != before->end();
        if (!is_old) lines.push_back(print(to_value(table)));
      }
    }
    return lines;
  }

  /// What differs between the two rows. Requires: both have the state.
  std::string marks(const Observation& expected, const Observation& actual) const {
    std::string marks;
    for (std::size_t index = 0; index < columns_.size(); ++index) {
      const bool differs = cell(expected, columns_[index]) != cell(actual, columns_[index]);
      marks += padded(differs ? "^" : "", widths_[index]) + " ";
    }
    marks += "  ";
    if (*expected.free_queue != *actual.free_queue) marks += "^ the queues differ";
    return marks;
  }

  /// The life of each block that the two sides show differently at the end.
  std::string histories(const Scenes& scenes) const {
    std::string text;
    for (BlockId block : blocks_concerned(scenes.back())) text += history(scenes, block);
    return text;
  }

 private:
  /// Blocks shown side by side; a wider pool shows those that change.
  static constexpr std::size_t kColumnsMax = 32;
  /// A longer free queue is cut in the middle.
  static constexpr std::size_t kQueueShownMax = 12;
  static constexpr std::size_t kHistoriesMax = 3;

  static std::string cell(const Observation& observation, BlockId block) {
    if (block == kNullBlockId) return "N";
    const std::uint32_t ref_cnt = (*observation.ref_cnts)[block];
    const bool has_key = !(*observation.keys)[block].empty();
    if (ref_cnt == 0) return has_key ? "c" : ".";
    return std::to_string(ref_cnt) + (has_key ? "*" : "");
  }

  static std::string queue_text(const Observation& observation) {
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

  void choose_columns(std::uint32_t num_blocks, const Scenes& scenes) {
    for (BlockId block = 0; block < num_blocks; ++block) {
      bool shown = num_blocks <= kColumnsMax;
      for (const Scene<Observation>& scene : scenes) {
        if (shown || !has_state(scene.expected)) break;
        shown = cell(scene.expected, block) != "." ||
                (has_state(scene.actual) && cell(scene.actual, block) != ".");
      }
      if (shown && columns_.size() < kColumnsMax) columns_.push_back(block);
    }
    for (BlockId block : columns_) {
      std::size_t width = std::to_string(block).size();
      for (const Scene<Observation>& scene : scenes) {
        for (const Observation* observation : {&scene.expected, &scene.actual}) {
          if (has_state(*observation)) width = std::max(width, cell(*observation, block).size());
        }
      }
      widths_.push_back(width);
    }
  }

  static std::vector<BlockId> blocks_concerned(const Scene<Observation>& last) {
    std::vector<BlockId> blocks;
    if (!has_state(last.expected) || !has_state(last.actual)) return blocks;
    const std::size_t num_blocks =
        std::min(last.expected.ref_cnts->size(), last.actual.ref_cnts->size());
    for (BlockId block = 0; block < num_blocks && blocks.size() < kHistoriesMax; ++block) {
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
  static std::string history(const Scenes& scenes, BlockId block) {
    std::string text = "\nblock " + std::to_string(block) + "\n";
    std::string before = block == kNullBlockId ? "N" : ".";
    for (const Scene<Observation>& scene : scenes) {
      if (!has_state(scene.expected)) continue;
      const std::string now = cell(scene.expected, block);
      const bool is_last = &scene == &scenes.back();
      if (now != before || is_last) {
        const bool differs = is_last && has_state(scene.actual) && cell(scene.actual, block) != now;
        text += history_line(scene, before, now, 3, differs ? cell(scene.actual, block) : "");
      }
      before = now;
    }
    return text;
  }

  std::vector<BlockId> columns_;
  std::vector<std::size_t> widths_;
};

}  // namespace kvfence
