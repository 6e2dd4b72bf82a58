#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "contract/core/line.h"
#include "contract/core/lists.h"
#include "contract/core/types.h"
#include "contract/pool/block_pool_target.h"
#include "scenarios/story/explain_picture.h"
#include "scenarios/story/observed_member.h"

namespace kvfence {
namespace {

/// Most blocks shown side by side; a wider pool shows only those that change.
constexpr std::size_t kColumnsMax = 32;
/// A longer free queue is cut in the middle.
constexpr std::size_t kQueueShownMax = 12;
constexpr std::size_t kHistoriesMax = 3;

/// The state of a pool as an observation holds it.
struct Pool {
  const std::vector<BlockId>* free_queue;
  const std::vector<std::uint32_t>* ref_cnts;
  const KeyList* keys;
};

std::string cell(const Pool& pool, BlockId block) {
  if (block == kNullBlockId) return "N";
  const std::uint32_t ref_cnt = (*pool.ref_cnts)[block];
  const bool has_key = !(*pool.keys)[block].empty();
  if (ref_cnt == 0) return has_key ? "c" : ".";
  return std::to_string(ref_cnt) + (has_key ? "*" : "");
}

std::string queue_text(const std::vector<BlockId>& queue) {
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

/// The differences between the two sides.
std::vector<BlockId> blocks_concerned(const Pool& expected, const Pool& actual) {
  std::vector<BlockId> blocks;
  const std::size_t num_blocks = std::min(expected.ref_cnts->size(), actual.ref_cnts->size());
  for (BlockId block = 0; block < num_blocks && blocks.size() < kHistoriesMax; ++block) {
    const auto count = [block](const Pool& pool) {
      return std::count(pool.free_queue->begin(), pool.free_queue->end(), block);
    };
    if (cell(expected, block) != cell(actual, block) ||
        (*expected.keys)[block] != (*actual.keys)[block] || count(expected) != count(actual)) {
      blocks.push_back(block);
    }
  }
  return blocks;
}

class PoolPicture final : public ScenePicture {
 public:
  PoolPicture(std::uint32_t num_blocks, const Scenes& scenes, std::string prefix)
      : prefix_(std::move(prefix)) {
    choose_columns(num_blocks, pools_of(scenes));
  }

  bool has_state(const Observation& observation) const override {
    return find_pool(observation).has_value();
  }

  std::string legend() const override {
    return "N null   2 referenced (ref_cnt)   2* referenced and findable   c free and findable   . "
           "free and empty";
  }

  std::string heading() const override {
    std::string heading;
    for (std::size_t index = 0; index < columns_.size(); ++index) {
      heading += padded(std::to_string(columns_[index]), widths_[index]) + " ";
    }
    return heading + "  free queue, head first";
  }

  std::string row(const Observation& observation) const override {
    const Pool pool = *find_pool(observation);
    std::string row;
    for (std::size_t index = 0; index < columns_.size(); ++index) {
      row += padded(cell(pool, columns_[index]), widths_[index]) + " ";
    }
    return row + "  " + queue_text(*pool.free_queue);
  }

  /// The block tables that a scene changed, where the target has tables, one per line.
  std::vector<std::string> more_of(const Scene& scene, const Scene* before) const override {
    std::vector<std::string> lines;
    const Value::List old = before ? tables_of(before->expected) : Value::List();
    for (const Value& table : tables_of(scene.expected)) {
      const bool is_old = contains(old, table);
      if (!is_old) lines.push_back(print(table));
    }
    return lines;
  }

  std::string marks(const Observation& expected, const Observation& actual) const override {
    const Pool a = *find_pool(expected);
    const Pool b = *find_pool(actual);
    std::string marks;
    for (std::size_t index = 0; index < columns_.size(); ++index) {
      const bool differs = cell(a, columns_[index]) != cell(b, columns_[index]);
      marks += padded(differs ? "^" : "", widths_[index]) + " ";
    }
    marks += "  ";
    if (*a.free_queue != *b.free_queue) marks += "^ the queues differ";
    return marks;
  }

  /// Of each block.
  std::string histories(const Scenes& scenes) const override {
    const auto expected = find_pool(scenes.back().expected);
    const auto actual = find_pool(scenes.back().actual);
    if (!expected || !actual) return "";
    std::string text;
    for (const BlockId block : blocks_concerned(*expected, *actual)) {
      const auto shown_of = [&](const Observation& observation) -> std::optional<std::string> {
        const auto pool = find_pool(observation);
        if (!pool) return std::nullopt;
        return cell(*pool, block);
      };
      text += history_of(scenes, "block " + std::to_string(block),
                         block == kNullBlockId ? "N" : ".", 3, shown_of);
    }
    return text;
  }

 private:
  std::optional<Pool> find_pool(const Observation& observation) const {
    const Pool pool{find_observed<std::vector<BlockId>>(observation, prefix_ + "free_queue"),
                    find_observed<std::vector<std::uint32_t>>(observation, prefix_ + "ref_cnts"),
                    find_observed<KeyList>(observation, prefix_ + "keys")};
    if (!pool.free_queue || !pool.ref_cnts || !pool.keys) return std::nullopt;
    return pool;
  }

  /// Of both sides after each command, where they are shown.
  std::vector<Pool> pools_of(const Scenes& scenes) const {
    std::vector<Pool> pools;
    for (const Scene& scene : scenes) {
      for (const Observation* observation : {&scene.expected, &scene.actual}) {
        if (const auto pool = find_pool(*observation)) pools.push_back(*pool);
      }
    }
    return pools;
  }

  Value::List tables_of(const Observation& observation) const {
    return observed_values(observation, prefix_ + "tables");
  }

  void choose_columns(std::uint32_t num_blocks, const std::vector<Pool>& pools) {
    for (BlockId block = 0; block < num_blocks && columns_.size() < kColumnsMax; ++block) {
      const bool changes = std::any_of(pools.begin(), pools.end(), [block](const Pool& pool) {
        return cell(pool, block) != ".";
      });
      if (!changes && num_blocks > kColumnsMax) continue;
      std::size_t width = std::to_string(block).size();
      for (const Pool& pool : pools) width = std::max(width, cell(pool, block).size());
      columns_.push_back(block);
      widths_.push_back(width);
    }
  }

  std::string prefix_;
  std::vector<BlockId> columns_;
  std::vector<std::size_t> widths_;
};

}  // namespace

std::unique_ptr<ScenePicture> make_pool_picture(std::uint32_t num_blocks, const Scenes& scenes,
                                                std::string prefix) {
  return std::make_unique<PoolPicture>(num_blocks, scenes, std::move(prefix));
}

}  // namespace kvfence
