#pragma once

/// An implementation and a witness: the same implementation with other parts. The witness
/// separates faults of those parts from faults of what both have in common.

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "contract/core/implementation.h"
#include "properties/core/replayed_implementation.h"

namespace kvfence {

/// All answers come from `shown`. The witness runs only if an answer is in doubt: it gets all
/// commands since the reset. If its answer to the last one differs, the implementation has failed,
/// and the message has the member and both values.
///
/// Cost: if in doubt, as many commands as were run since the reset.
class ConfirmedImplementation final : public Implementation {
 public:
  using Make = ReplayedImplementation::Make;

  /// is_needed: whether the parts differ with a setup at all.
  ConfirmedImplementation(std::unique_ptr<ReplayedImplementation> shown, Make make_witness,
                          bool (*is_needed)(const Setup&))
      : shown_(std::move(shown)), make_witness_(std::move(make_witness)), is_needed_(is_needed) {}

  std::string name() const override { return shown_->name(); }
  std::optional<ImplementationFailure> reset(const Setup& setup) override {
    return shown_->reset(setup);
  }
  std::optional<ImplementationFailure> apply(const Command& command, const World& world,
                                             Observe observe, Observation& observation) override {
    observe_ = observe;
    return shown_->apply(command, world, observe, observation);
  }
  std::optional<ImplementationFailure> contradicted(const Observation& last) override;

  std::unique_ptr<Implementation> clone() const override;
  void assign(const Implementation& other) override;
  StateDigest digest() const override { return shown_->digest(); }
  std::optional<std::size_t> num_entries() const override { return shown_->num_entries(); }

 private:
  std::unique_ptr<ReplayedImplementation> shown_;
  Make make_witness_;
  bool (*is_needed_)(const Setup&);
  Observe observe_ = Observe::kState;  ///< what to observe of the last command
};

}  // namespace kvfence
