#pragma once

/// Decides which step a virtual device does next, and how many at a time.

#include <array>
#include <cstddef>
#include <vector>

#include "contract/core/state_digest.h"
#include "cuda/virtual/options.h"
#include "cuda/virtual/random.h"
#include "cuda/virtual/work_queue.h"

namespace kvfence::virtual_device {

/// A schedule that the caller chooses.
class Chooser {
 public:
  virtual ~Chooser() = default;
  /// Which of `steps` is next; steps.size(), if `host_may_go_on`: the program goes on.
  /// Requires: one of the two is possible.
  virtual std::size_t choose(const WorkQueue& queue, const std::vector<Step>& steps,
                             bool host_may_go_on) = 0;
};

class Scheduler {
 public:
  /// The options outlive it.
  explicit Scheduler(const Options& options);

  /// How the next copy is cut.
  void cut(Work& work);
  /// The program makes a call; before it, the device may do something.
  void before_call(WorkQueue& queue);
  /// The call has enqueued something.
  void after_enqueue(WorkQueue& queue);
  /// Runs what `moment` needs, and perhaps more. False: it cannot come.
  bool force(WorkQueue& queue, Moment moment);
  /// Whether a query says NotReady though the work is over.
  bool is_spurious(std::uint32_t num_in_a_row);
  /// Whether the work must run now after so many NotReady in a row.
  bool has_waited_enough(std::uint32_t num_polls) const;

  void add_to(StateHash& hash) const { hash.add_all(random_, priority_, early_priority_); }

 private:
  bool is_random() const {
    return options_.schedule == Schedule::kRandom || options_.schedule == Schedule::kPriority;
  }
  void step_random(WorkQueue& queue);
  /// One step of the stream of highest priority; false: none is above the host's.
  bool step_by_priority(WorkQueue& queue, bool above_host);
  /// Does the step that the chooser chooses; true: it chose none, and the host goes on.
  bool choose(WorkQueue& queue, bool host_may_go_on);
  void run_all(WorkQueue& queue);

  const Options& options_;
  Random random_;
  std::array<std::uint64_t, kActorsMax> priority_{};  ///< of the host at 0, of streams
  std::uint64_t early_priority_ = 0;
  std::vector<Step> steps_;
};

}  // namespace kvfence::virtual_device
