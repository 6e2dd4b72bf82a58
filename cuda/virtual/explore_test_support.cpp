#include "cuda/virtual/explore_test_support.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "contract/core/check.h"

namespace kvfence::virtual_device {
namespace {

ByteRange source(const Entry& entry, const Chunk& chunk) {
  if (entry.src == nullptr) return {};
  return {entry.src + chunk.begin, entry.src + chunk.begin + chunk.size};
}

ByteRange destination(const Entry& entry, const Chunk& chunk) {
  // The first write of an entry overwrites all of it.
  if (!entry.is_poisoned) return {entry.dst, entry.dst + entry.size};
  return {entry.dst + chunk.begin, entry.dst + chunk.begin + chunk.size};
}

/// Whether the order of the two can matter to any byte.
bool conflicts(const WorkQueue& queue, const Step& a, const Step& b) {
  const Work* work_a = queue.find(a.stream, a.time);
  const Work* work_b = queue.find(b.stream, b.time);
  if (work_a == nullptr || work_b == nullptr) return true;
  const auto chunk_of = [](const Work& work, const Step& step) {
    return std::find_if(work.chunks.begin(), work.chunks.end(),
                        [&](const Chunk& chunk) { return chunk.number == step.chunk; });
  };
  // All ranges that an action declares count as written; it may do more than it declares.
  if (a.phase == Step::Phase::kRun && b.phase == Step::Phase::kRun) return true;
  if (b.phase == Step::Phase::kRun) return conflicts(queue, b, a);
  const auto chunk_b = chunk_of(*work_b, b);
  if (chunk_b == work_b->chunks.end()) return true;
  const Entry& entry_b = work_b->entries[chunk_b->entry];
  const bool writes_b = b.phase == Step::Phase::kWrite;
  const ByteRange range_b = writes_b ? destination(entry_b, *chunk_b) : source(entry_b, *chunk_b);
  if (a.phase == Step::Phase::kRun) {
    return std::any_of(work_a->ranges.begin(), work_a->ranges.end(),
                       [&](const ByteRange& range) { return overlap(range, range_b); });
  }
  const auto chunk_a = chunk_of(*work_a, a);
  if (chunk_a == work_a->chunks.end()) return true;
  const Entry& entry_a = work_a->entries[chunk_a->entry];
  const bool writes_a = a.phase == Step::Phase::kWrite;
  // Chunks of one entry share no byte, and all are written in the end.
  if (work_a == work_b && chunk_a->entry == chunk_b->entry) return false;
  if (!writes_a && !writes_b) return false;
  return overlap(writes_a ? destination(entry_a, *chunk_a) : source(entry_a, *chunk_a), range_b);
}

/// Depth first over the choices of a run. The stack holds the choices of the current run. A run
/// repeats all of them but the last, for which it takes the next untried option.
class DepthFirst : public Chooser {
 public:
  explicit DepthFirst(bool prunes) : prunes_(prunes) {}

  std::size_t choose(const WorkQueue& queue, const std::vector<Step>& steps,
                     bool host_may_go_on) override {
    const std::size_t num_options = steps.size() + (host_may_go_on ? 1 : 0);
    // The rest of a redundant run does not matter: take the shortest way to its end.
    if (is_redundant_) return num_options - 1;
    if (depth_ == stack_.size()) {
      Node node;
      node.steps = steps;
      node.num_options = num_options;
      if (prunes_ && depth_ > 0) node.asleep = still_asleep_;
      node.chosen = next_awake(node, 0);
      stack_.push_back(std::move(node));
    }
    Node& node = stack_[depth_++];
    KVFENCE_CHECK(node.steps == steps && node.num_options == num_options,
                  "a program that is explored depends on nothing but the device");
    if (node.chosen == num_options) {
      is_redundant_ = true;
      return num_options - 1;
    }
    if (prunes_) fall_asleep(queue, node);
    return node.chosen;
  }

  void start_run() {
    depth_ = 0;
    is_redundant_ = false;
    still_asleep_.clear();
  }
  /// False: nothing is left.
  bool next_run() {
    while (!stack_.empty()) {
      Node& node = stack_.back();
      if (node.chosen < node.num_options) node.chosen = next_awake(node, node.chosen + 1);
      if (node.chosen < node.num_options) return true;
      stack_.pop_back();
    }
    return false;
  }
  bool is_redundant() const { return is_redundant_; }

 private:
  struct Node {
    std::vector<Step> steps;
    std::size_t num_options = 0;  ///< one more than steps where the program may go on
    std::vector<Step> asleep;     ///< steps that a visited order has already taken here
    std::size_t chosen = 0;
  };

  static bool is_asleep(const Node& node, std::size_t option) {
    return option < node.steps.size() && std::find(node.asleep.begin(), node.asleep.end(),
                                                   node.steps[option]) != node.asleep.end();
  }
  static std::size_t next_awake(const Node& node, std::size_t option) {
    while (option < node.num_options && is_asleep(node, option)) ++option;
    return option;
  }

  /// Before the choice is done: the steps that sleep after it. These are the steps tried here
  /// before and those asleep, unless their order with the choice matters. The program's calls wake
  /// all.
  void fall_asleep(const WorkQueue& queue, const Node& node) {
    still_asleep_.clear();
    if (node.chosen == node.steps.size()) return;
    const Step& done = node.steps[node.chosen];
    for (std::size_t option = 0; option < node.steps.size(); ++option) {
      const bool was_tried = option < node.chosen || is_asleep(node, option);
      if (was_tried && !conflicts(queue, node.steps[option], done)) {
        still_asleep_.push_back(node.steps[option]);
      }
    }
  }

  bool prunes_;
  std::vector<Node> stack_;
  std::size_t depth_ = 0;
  bool is_redundant_ = false;
  std::vector<Step> still_asleep_;
};

}  // namespace

Exploration explore(const ExploreOptions& options, const std::function<void(Device&)>& program,
                    const std::function<void(Device&)>& at_end) {
  DepthFirst chooser(options.prunes);
  Options device_options = options.device;
  device_options.schedule = Schedule::kChosen;
  device_options.chooser = &chooser;
  Exploration exploration;
  do {
    if (exploration.num_orders + exploration.num_redundant == options.runs_max) return exploration;
    chooser.start_run();
    Device device(device_options);
    const Installed installed(device);
    program(device);
    static_cast<void>(cudaDeviceSynchronize());
    if (chooser.is_redundant()) {
      ++exploration.num_redundant;
      continue;
    }
    ++exploration.num_orders;
    if (at_end) at_end(device);
  } while (chooser.next_run());
  exploration.is_complete = true;
  return exploration;
}

}  // namespace kvfence::virtual_device
