#include "cuda/virtual/explore.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "contract/core/check.h"

namespace kvfence::virtual_device {
namespace {

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
      if (was_tried && !queue.conflicts(node.steps[option], done)) {
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
