#include "properties/core/confirmed_implementation.h"

#include <string_view>
#include <utility>

#include "contract/core/check.h"
#include "properties/core/difference.h"

namespace kvfence {

ConfirmedImplementation::ConfirmedImplementation(std::unique_ptr<Implementation> shown,
                                                 std::unique_ptr<Implementation> witness,
                                                 bool (*is_needed)(const Setup&))
    : shown_(std::move(shown)), witness_(std::move(witness)), is_needed_(is_needed) {
  KVFENCE_CHECK(shown_->window() == 1 && witness_->window() == 1, "both answer at once");
}

std::optional<ImplementationFailure> ConfirmedImplementation::reset(const Setup& setup) {
  num_answers_ = 0;
  if (auto failure = shown_->reset(setup)) return failure;
  has_witness_ = is_needed_(setup);
  return has_witness_ ? of_witness(witness_->reset(setup)) : std::nullopt;
}

std::optional<ImplementationFailure> ConfirmedImplementation::apply(const Command& command,
                                                                    const World& world,
                                                                    Observe observe,
                                                                    Observation& observation) {
  if (auto failure = shown_->apply(command, world, observe, observation)) return failure;
  if (!has_witness_) return std::nullopt;
  if (auto failure = of_witness(witness_->apply(command, world, observe, witnessed_))) {
    return failure;
  }
  const std::size_t step = num_answers_++;
  if (observation == witnessed_) return std::nullopt;
  const auto found = first_difference(observation, witnessed_, step, [&](std::string_view bytes) {
    return world.symbol_of(bytes);
  });
  KVFENCE_CHECK(found, "what differs, differs in a declared member");
  return ImplementationFailure{"beside it " + witness_->name() + " has " + found->field + "=" +
                               found->actual + ", it has " + found->expected};
}

std::optional<ImplementationFailure> ConfirmedImplementation::of_witness(
    std::optional<ImplementationFailure> failure) {
  if (failure) failure->message = witness_->name() + " beside it: " + failure->message;
  return failure;
}

std::unique_ptr<Implementation> ConfirmedImplementation::clone() const {
  auto copy =
      std::make_unique<ConfirmedImplementation>(shown_->clone(), witness_->clone(), is_needed_);
  copy->has_witness_ = has_witness_;
  copy->num_answers_ = num_answers_;
  return copy;
}

void ConfirmedImplementation::assign(const Implementation& other) {
  const auto& original = static_cast<const ConfirmedImplementation&>(other);
  shown_->assign(*original.shown_);
  witness_->assign(*original.witness_);
  has_witness_ = original.has_witness_;
  num_answers_ = original.num_answers_;
}

StateDigest ConfirmedImplementation::digest() const {
  StateHash hash;
  hash.add(shown_->digest());
  if (has_witness_) hash.add(witness_->digest());
  return hash.digest();
}

}  // namespace kvfence
