#pragma once

/// How a room declares and counts its coverage goals, each by its name.
///
///   constexpr Goal kGoals[] = {
///       {"pool_exhausted", "an allocation took the last free block"},
///       {"block_touched_twice", "one call touched a block twice"}};
///
///   class Counts : public GoalCounter<BlockPoolTarget, kGoals> {
///     ... add("pool_exhausted", after().num_free_blocks == 0);
///
/// A name that is not in kGoals does not compile. Refusals are counted here: each error code that a
/// command of the target declares has a goal, error_<code>, which no room lists.

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "contract/core/check.h"
#include "contract/core/status.h"
#include "contract/core/target.h"
#include "properties/core/checks.h"
#include "properties/core/named_place.h"

namespace kvfence {

/// The base of the counter of a room, of which each run has one. A counter has, in public,
///   count(command)           one overload per struct of a command with something to count
///   count_accepted(command)  what any accepted command counts; called before count
///   count_any(command)       if refused commands count, too; called first
/// before(), after() and world() are the observations and the world.
template <class T, const auto& kGoals>
class GoalCounter {
 public:
  using Command = typename T::Command;
  using World = typename T::World;
  using Config = typename T::Config;

  GoalCounter(const Setup& setup, std::span<std::uint64_t> counts)
      : setup_(setup), counts_(counts) {}

  /// Sets the observations of the command that is counted next; they must outlive the count.
  void see(const typename T::Observation& before, const typename T::Observation& after,
           const World& world) {
    before_ = &before;
    after_ = &after;
    world_ = &world;
  }

 protected:
  using Name = NamedPlace<kGoals>;

  void add(Name goal, bool happened = true) { counts_[goal.place()] += happened; }

  const Config& config() const { return setup_.config().template as<Config>(); }
  const typename T::Setup& setup() const { return setup_.template as<typename T::Setup>(); }

  /// What was observed after the previous command, including its reply; for the first command of a
  /// run it has default numbers.
  const typename T::Observation& before() const { return *before_; }
  const typename T::Observation& after() const { return *after_; }
  const World& world() const { return *world_; }

 private:
  Setup setup_;
  std::span<std::uint64_t> counts_;
  const typename T::Observation* before_ = nullptr;
  const typename T::Observation* after_ = nullptr;
  const World* world_ = nullptr;
};

/// The goals of a room without its types.
struct GoalSuite {
  std::vector<Goal> goals;
  std::unique_ptr<GoalCounts> (*make_counts)(std::span<const Goal> goals);
};

/// error_<code> of each code that a command of the target declares.
std::vector<Goal> refusal_goals(const Target& target);

namespace detail {

template <class T>
const auto& typed_observation(const Observation& observation) {
  return observation.as<typename T::Observation>();
}

/// Counts of a suite: the goals of the room, which come first, and refusals.
template <class T, const auto& kGoals, class Counter>
class GoalCountsOf final : public GoalCounts {
 public:
  explicit GoalCountsOf(std::span<const Goal> goals) : goals_(goals) {}

  void start(const Setup& setup) override { counter_.emplace(setup, std::span(counts_)); }

  void count(const kvfence::Command& command, const Observation& before, const Observation& after,
             const World& world) override {
    const auto& typed = command.as<typename T::Command>();
    const auto& typed_world = kvfence::typed_world<typename T::World>(world);
    const auto& was = typed_observation<T>(before);
    const auto& is = typed_observation<T>(after);
    counter_->see(was, is, typed_world);
    if constexpr (requires { counter_->count_any(typed); }) counter_->count_any(typed);
    if (is.error == ErrorCode::kNone) {
      if constexpr (requires { counter_->count_accepted(typed); }) counter_->count_accepted(typed);
      std::visit(
          [&](const auto& accepted) {
            if constexpr (requires { counter_->count(accepted); }) counter_->count(accepted);
          },
          typed);
      return;
    }
    KVFENCE_CHECK(T::description().commands[typed.index()].declares(is.error),
                  "a refusal with a code that the command does not declare");
    ++num_refused_[static_cast<std::size_t>(is.error)];
  }

  std::uint64_t count_of(std::size_t goal) const override {
    const ErrorCode refusal = goals_[goal].refusal;
    return refusal == ErrorCode::kNone ? counts_[goal]
                                       : num_refused_[static_cast<std::size_t>(refusal)];
  }

 private:
  std::span<const Goal> goals_;
  std::array<std::uint64_t, std::size(kGoals)> counts_{};
  std::array<std::uint64_t, kNumErrorCodes> num_refused_{};
  std::optional<Counter> counter_;  ///< of the run
};

}  // namespace detail

template <class T, const auto& kGoals, class Counter>
GoalSuite goal_suite() {
  return {{std::begin(kGoals), std::end(kGoals)},
          [](std::span<const Goal> goals) -> std::unique_ptr<GoalCounts> {
            return std::make_unique<detail::GoalCountsOf<T, kGoals, Counter>>(goals);
          }};
}

}  // namespace kvfence
