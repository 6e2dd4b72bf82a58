#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "contract/core/line.h"
#include "contract/core/types.h"
#include "contract/pool/block_pool_target.h"
#include "scenarios/story/explain_picture.h"
#include "scenarios/story/observed_member.h"

namespace kvfence {
namespace {

/// Blocks shown side by side; a wider pool shows those that change.
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

/// Of both sides after a command, where they hold it.
struct Pools {
  std::optional<Pool> expected;
  std::optional<Pool> actual;
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

std::vector<BlockId> blocks_concerned(const Pools& last) {
  std::vector<BlockId> blocks;
  if (!last.expected || !last.actual) return blocks;
  const Pool& expected = *last.expected;
  const Pool& actual = *last.actual;
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
      const bool is_old = std::find(old.begin(), old.end(), table) != old.end();
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
    const std::vector<Pools> pools = pools_of(scenes);
    std::string text;
    for (BlockId block : blocks_concerned(pools.back())) text += history(scenes, pools, block);
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

  std::vector<Pools> pools_of(const Scenes& scenes) const {
    std::vector<Pools> pools;
    for (const Scene& scene : scenes) {
      pools.push_back({find_pool(scene.expected), find_pool(scene.actual)});
    }
    return pools;
  }

  Value::List tables_of(const Observation& observation) const {
    return observed_values(observation, prefix_ + "tables");
  }

  void choose_columns(std::uint32_t num_blocks, const std::vector<Pools>& scenes) {
    for (BlockId block = 0; block < num_blocks; ++block) {
      bool shown = num_blocks <= kColumnsMax;
      for (const Pools& scene : scenes) {
        if (shown || !scene.expected) break;
        shown = cell(*scene.expected, block) != "." ||
                (scene.actual && cell(*scene.actual, block) != ".");
      }
      if (shown && columns_.size() < kColumnsMax) columns_.push_back(block);
    }
    for (BlockId block : columns_) {
      std::size_t width = std::to_string(block).size();
      for (const Pools& scene : scenes) {
        for (const std::optional<Pool>* pool : {&scene.expected, &scene.actual}) {
          if (*pool) width = std::max(width, cell(**pool, block).size());
        }
      }
      widths_.push_back(width);
    }
  }

  /// Every step at which the block changed on the reference's side.
  static std::string history(const Scenes& scenes, const std::vector<Pools>& pools, BlockId block) {
    std::string text = "\nblock " + std::to_string(block) + "\n";
    std::string before = block == kNullBlockId ? "N" : ".";
    for (std::size_t at = 0; at < scenes.size(); ++at) {
      const auto& [expected, actual] = pools[at];
      if (!expected) continue;
      const std::string now = cell(*expected, block);
      const bool is_last = at + 1 == scenes.size();
      if (now != before || is_last) {
        const bool differs = is_last && actual && cell(*actual, block) != now;
        text += history_line(scenes[at], before, now, 3, differs ? cell(*actual, block) : "");
      }
      before = now;
    }
    return text;
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
