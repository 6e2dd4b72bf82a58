#pragma once

/// An implementation from an instrumented copy of the product, with one planted bug.

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "contract/core/implementation.h"
#include "properties/planted/bugs.h"
#include "properties/planted/switches.h"

namespace kvfence {

/// The bug of that name in a file of properties/planted/; null if there is none.
inline const planted::Bug* find_planted_bug(std::string_view room, std::string_view name) {
  for (const planted::Bug& bug : planted::bugs_of(room)) {
    if (bug.name == name) return &bug;
  }
  return nullptr;
}

/// Switches its bug on before each call, so that several with different bugs can be used in turn.
/// The bug stays on after the call, for the implementation's threads.
class PlantedSide final : public Implementation {
 public:
  /// The bug for a setup: a number of planted::Bug.
  using BugOf = std::function<int(const Setup&)>;

  /// bug: a number of planted::Bug. make() makes the copy with the bug switched on.
  template <class Make>
  PlantedSide(int bug, const Make& make) : PlantedSide(bug, nullptr, make) {}

  /// make() makes the copy without a bug; reset() chooses the bug.
  template <class Make>
  PlantedSide(BugOf bug_of, const Make& make)
      : PlantedSide(planted::kSound, std::move(bug_of), make) {}
  ~PlantedSide() override { planted::plant(bug_); }

  std::string name() const override { return copy_->name(); }
  std::optional<ImplementationFailure> reset(const Setup& setup) override {
    if (bug_of_) bug_ = bug_of_(setup);
    planted::plant(bug_);
    return copy_->reset(setup);
  }
  std::optional<ImplementationFailure> apply(const Command& command, const World& world,
                                             Observe observe, Observation& observation) override {
    planted::plant(bug_);
    return copy_->apply(command, world, observe, observation);
  }
  std::optional<ImplementationFailure> contradicted(const Observation& last) override {
    planted::plant(bug_);
    return copy_->contradicted(last);
  }
  std::unique_ptr<Implementation> clone() const override {
    planted::plant(bug_);
    auto copy = copy_->clone();
    if (!copy) return nullptr;
    return std::unique_ptr<Implementation>(
        new PlantedSide(bug_, bug_of_, [&copy] { return std::move(copy); }));
  }
  void assign(const Implementation& other) override {
    const auto& side = static_cast<const PlantedSide&>(other);
    bug_ = side.bug_;
    planted::plant(bug_);
    copy_->assign(*side.copy_);
  }
  StateDigest digest() const override {
    planted::plant(bug_);
    return copy_->digest();
  }
  std::optional<std::size_t> num_entries() const override {
    planted::plant(bug_);
    return copy_->num_entries();
  }

 private:
  template <class Make>
  PlantedSide(int bug, BugOf bug_of, const Make& make) : bug_(bug), bug_of_(std::move(bug_of)) {
    planted::plant(bug_);
    copy_ = make();
  }

  int bug_;
  BugOf bug_of_;
  std::unique_ptr<Implementation> copy_;
};

}  // namespace kvfence
