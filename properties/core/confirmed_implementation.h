#pragma once

/// An implementation beside which another runs that has to answer the same: whoever drives the one
/// drives both.

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "contract/core/check.h"
#include "contract/core/implementation.h"
#include "properties/core/checks.h"
#include "properties/core/difference.h"

namespace kvfence {

/// Its name and its answers are those of `shown`. Where `witness` answers otherwise, the
/// implementation has failed, and says who, where and what.
///
/// Requires: two implementations that answer at once.
template <class Target>
class ConfirmedImplementation final : public Implementation<Target> {
 public:
  using typename Implementation<Target>::Config;
  using typename Implementation<Target>::World;
  using typename Implementation<Target>::Command;
  using typename Implementation<Target>::Observation;

  ConfirmedImplementation(std::unique_ptr<Implementation<Target>> shown,
                          std::unique_ptr<Implementation<Target>> witness)
      : shown_(std::move(shown)), witness_(std::move(witness)) {
    KVFENCE_CHECK(shown_->window() == 1 && witness_->window() == 1, "both answer at once");
  }

  std::string name() const override { return shown_->name(); }

  std::optional<ImplementationFailure> reset(const Config& config) override {
    num_answers_ = 0;
    if (auto failure = shown_->reset(config)) return failure;
    return of_witness(witness_->reset(config));
  }

  std::optional<ImplementationFailure> submit(const Command& command, const World& world,
                                              Observe observe) override {
    world_ = &world;
    if (auto failure = shown_->submit(command, world, observe)) return failure;
    return of_witness(witness_->submit(command, world, observe));
  }

  std::optional<ImplementationFailure> collect(Observation& observation) override {
    if (auto failure = shown_->collect(observation)) return failure;
    if (auto failure = of_witness(witness_->collect(witnessed_))) return failure;
    const std::size_t step = num_answers_++;
    if (observation == witnessed_) return std::nullopt;
    const auto found = first_difference(
        observation, witnessed_, step,
        [this](std::string_view bytes) { return Checks<Target>::symbol_of(*world_, bytes); });
    KVFENCE_CHECK(found, "what differs, differs in a declared member");
    return ImplementationFailure{"beside it " + witness_->name() + " has " + found->field + "=" +
                                 found->actual + ", it has " + found->expected};
  }

 private:
  std::optional<ImplementationFailure> of_witness(std::optional<ImplementationFailure> failure) {
    if (failure) failure->message = witness_->name() + " beside it: " + failure->message;
    return failure;
  }

  std::unique_ptr<Implementation<Target>> shown_;
  std::unique_ptr<Implementation<Target>> witness_;
  const World* world_ = nullptr;  ///< of the command under way
  Observation witnessed_;
  std::size_t num_answers_ = 0;
};

}  // namespace kvfence
