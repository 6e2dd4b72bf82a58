#pragma once

/// clone and assign of implementations whose state is more than values: devices with addresses,
/// files on disk, connectors over shared storage. A copy is made by running the history once more:
/// the commands determine a run.
///
/// Cost: a copy runs as many commands as its original since its reset; each command is copied.

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "contract/core/check.h"
#include "contract/core/implementation.h"
#include "contract/core/observation.h"
#include "contract/core/target.h"

namespace kvfence {

class ReplayedImplementation final : public Implementation {
 public:
  using Make = std::function<std::unique_ptr<Implementation>()>;

  /// make: an implementation before its reset, each time.
  explicit ReplayedImplementation(Make make) : make_(std::move(make)), implementation_(make_()) {}

  std::string name() const override { return implementation_->name(); }

  std::optional<ImplementationFailure> reset(const Setup& setup) override {
    is_started_ = true;
    setup_ = setup;
    num_commands_ = 0;
    return implementation_->reset(setup);
  }

  std::optional<ImplementationFailure> apply(const Command& command, const World& world,
                                             Observe observe, Observation& observation) override {
    if (num_commands_ == history_.size()) history_.emplace_back();
    history_[num_commands_++] = command;
    return implementation_->apply(command, world, observe, observation);
  }

  std::optional<ImplementationFailure> contradicted(const Observation& last) override {
    return implementation_->contradicted(last);
  }

  std::unique_ptr<ReplayedImplementation> copy() const {
    auto copy = std::make_unique<ReplayedImplementation>(make_);
    copy->become(*this);
    return copy;
  }
  std::unique_ptr<Implementation> clone() const override { return copy(); }
  void assign(const Implementation& other) override {
    become(static_cast<const ReplayedImplementation&>(other));
  }
  StateDigest digest() const override { return implementation_->digest(); }
  std::optional<std::size_t> num_entries() const override { return implementation_->num_entries(); }

  /// The setup of the last reset. Requires: there was one.
  const Setup& setup() const { return setup_; }

  /// Resets another implementation and runs the commands since the reset on it, in a new world.
  /// Observes the last one as `last` says. A failure ends it.
  std::optional<ImplementationFailure> run_again(Implementation& other, World& world, Observe last,
                                                 Observation& observation) const {
    if (auto failure = other.reset(setup_)) return failure;
    for (std::size_t i = 0; i < num_commands_; ++i) {
      world.apply(history_[i]);
      const Observe observe = i + 1 < num_commands_ ? Observe::kNumbers : last;
      if (auto failure = other.apply(history_[i], world, observe, observation)) return failure;
    }
    return std::nullopt;
  }

 private:
  void become(const ReplayedImplementation& other) {
    if (!other.is_started_) return;
    const std::unique_ptr<World> world = other.setup_.target().make_world(other.setup_);
    Observation observation;
    const auto failure = other.run_again(*this, *world, Observe::kNumbers, observation);
    KVFENCE_CHECK(!failure, "what ran once runs again");
  }

  Make make_;
  std::unique_ptr<Implementation> implementation_;
  bool is_started_ = false;
  Setup setup_;
  std::vector<Command> history_;  ///< beyond num_commands_ only storage
  std::size_t num_commands_ = 0;  ///< since the reset
};

}  // namespace kvfence
