#pragma once

/// clone and assign of implementations whose state is more than values: devices with addresses,
/// files on disk, connectors over shared storage. A copy is made by running the history once more,
/// which is as good as a copy because a run is decided by its commands.
///
/// Cost: of a copy as many commands as its original has run since its reset; of each command, a
/// copy of it.

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

  std::unique_ptr<Implementation> clone() const override {
    auto copy = std::make_unique<ReplayedImplementation>(make_);
    copy->become(*this);
    return copy;
  }
  void assign(const Implementation& other) override {
    become(static_cast<const ReplayedImplementation&>(other));
  }
  StateDigest digest() const override { return implementation_->digest(); }

 private:
  void become(const ReplayedImplementation& other) {
    if (!other.is_started_) return;
    KVFENCE_CHECK(!reset(other.setup_), "what started once starts again");
    const std::unique_ptr<World> world = setup_.target().make_world(setup_);
    Observation observation;
    for (std::size_t i = 0; i < other.num_commands_; ++i) {
      world->apply(other.history_[i]);
      const auto failure = apply(other.history_[i], *world, Observe::kNumbers, observation);
      KVFENCE_CHECK(!failure, "what ran once runs again");
    }
  }

  Make make_;
  std::unique_ptr<Implementation> implementation_;
  bool is_started_ = false;
  Setup setup_;
  std::vector<Command> history_;  ///< beyond num_commands_ it is storage
  std::size_t num_commands_ = 0;  ///< since the reset
};

}  // namespace kvfence
