#include "cuda/virtual/scheduler.h"

#include <bit>

#include "contract/core/check.h"

namespace kvfence::virtual_device {
namespace {

/// kPriority: one in this many steps and host calls draws a new priority for the one that runs.
constexpr std::uint64_t kStepsPerChange = 32;
constexpr std::uint64_t kCallsPerChange = 8;

Actor lowest(std::uint32_t streams) { return static_cast<Actor>(std::countr_zero(streams)); }

}  // namespace

Scheduler::Scheduler(const Options& options) : options_(options), random_(options.seed) {
  KVFENCE_CHECK((options_.schedule == Schedule::kChosen) == (options_.chooser != nullptr),
                "a chooser goes with Schedule::kChosen");
  KVFENCE_CHECK(options_.chunks_max > 0, "a copy has one part at least");
  for (std::uint64_t& priority : priority_) priority = random_.next();
  early_priority_ = random_.next();
}

void Scheduler::cut(Work& work) {
  const bool is_torn =
      options_.schedule != Schedule::kEager && options_.schedule != Schedule::kLazy;
  WorkQueue::cut(work, is_torn ? options_.chunks_max : 1, is_random() ? &random_ : nullptr);
}

void Scheduler::before_call(WorkQueue& queue) {
  if (!queue.can_step()) return;
  switch (options_.schedule) {
    case Schedule::kEager:
    case Schedule::kLazy:
    case Schedule::kCommanded:
      return;
    case Schedule::kRandom: {
      // Mostly no step, seldom many: a program meets both a busy and an idle device.
      const std::uint64_t draw = random_.below(8);
      std::uint64_t num_steps = draw < 4 ? 0 : draw < 7 ? random_.below(8) : random_.below(64);
      for (; num_steps > 0 && queue.can_step(); --num_steps) step_random(queue);
      return;
    }
    case Schedule::kPriority:
      if (random_.one_in(kCallsPerChange)) priority_[kHost] = random_.next();
      while (step_by_priority(queue, true)) {
      }
      return;
    case Schedule::kChosen:
      while (queue.can_step() && !choose(queue, true)) {
      }
      return;
  }
}

void Scheduler::after_enqueue(WorkQueue& queue) {
  if (options_.schedule == Schedule::kEager) run_all(queue);
}

void Scheduler::run_all(WorkQueue& queue) {
  while (queue.ready() != 0) queue.finish_head(lowest(queue.ready()));
}

bool Scheduler::force(WorkQueue& queue, Moment moment) {
  while (!queue.is_over(moment)) {
    const std::optional<Actor> next = queue.next_towards(moment);
    if (!next) return false;
    switch (options_.schedule) {
      case Schedule::kEager:
      case Schedule::kLazy:
      case Schedule::kCommanded:
        queue.finish_head(*next);
        break;
      case Schedule::kRandom:
        if (random_.one_in(2)) {
          step_random(queue);
        } else {
          queue.step(*next, random_);
        }
        break;
      case Schedule::kPriority:
        // Streams of higher priority than the one that is waited for go first.
        if (random_.one_in(2) && step_by_priority(queue, false)) break;
        queue.step(*next, random_);
        break;
      case Schedule::kChosen:
        choose(queue, false);
        break;
    }
  }
  return true;
}

bool Scheduler::is_spurious(std::uint32_t num_in_a_row) {
  return is_random() && num_in_a_row < options_.spurious_not_ready_max && random_.one_in(4);
}

bool Scheduler::has_waited_enough(std::uint32_t num_polls) const {
  return options_.schedule != Schedule::kCommanded && num_polls >= options_.polls_max;
}

void Scheduler::step_random(WorkQueue& queue) {
  const auto num_ready = static_cast<std::uint64_t>(std::popcount(queue.ready()));
  std::uint64_t index = random_.below(num_ready + queue.early().size());
  if (index >= num_ready) return queue.step_early(index - num_ready, random_);
  std::uint32_t streams = queue.ready();
  for (; index > 0; --index) streams &= streams - 1;
  queue.step(lowest(streams), random_);
}

bool Scheduler::step_by_priority(WorkQueue& queue, bool above_host) {
  std::uint64_t best = above_host ? priority_[kHost] : 0;
  Actor chosen = kHost;
  for (std::uint32_t rest = queue.ready(); rest != 0; rest &= rest - 1) {
    const Actor stream = lowest(rest);
    if (priority_[stream] <= best) continue;
    best = priority_[stream];
    chosen = stream;
  }
  const bool is_early = !queue.early().empty() && early_priority_ > best;
  if (!is_early && chosen == kHost) return false;
  if (random_.one_in(kStepsPerChange)) {
    (is_early ? early_priority_ : priority_[chosen]) = random_.next();
  }
  if (is_early) {
    queue.step_early(random_.below(queue.early().size()), random_);
  } else {
    queue.step(chosen, random_);
  }
  return true;
}

bool Scheduler::choose(WorkQueue& queue, bool host_may_go_on) {
  queue.list_steps(steps_);
  const std::size_t choice = options_.chooser->choose(queue, steps_, host_may_go_on);
  const bool host_goes_on = choice == steps_.size();
  KVFENCE_CHECK(choice < steps_.size() || (host_goes_on && host_may_go_on),
                "the chooser chose what is not there");
  if (!host_goes_on) KVFENCE_CHECK(queue.step(steps_[choice]), "a listed step can be done");
  return host_goes_on;
}

}  // namespace kvfence::virtual_device
