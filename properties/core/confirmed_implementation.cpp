#include "properties/core/confirmed_implementation.h"

#include <string_view>

#include "properties/core/difference.h"

namespace kvfence {

std::optional<ImplementationFailure> ConfirmedImplementation::contradicted(
    const Observation& last) {
  if (!is_needed_(shown_->setup())) return std::nullopt;
  const std::unique_ptr<Implementation> witness = make_witness_();
  const std::unique_ptr<World> world = shown_->setup().target().make_world(shown_->setup());
  Observation witnessed;
  // A witness that fails before that decides nothing.
  if (shown_->run_again(*witness, *world, observe_, witnessed)) return std::nullopt;
  const auto found =
      first_difference(last.declared(), witnessed.declared(), 0,
                       [&](std::string_view bytes) { return world->symbol_of(bytes); });
  if (!found) return std::nullopt;
  return ImplementationFailure{"beside it " + witness->name() + " has " + found->field + "=" +
                               found->actual + ", it has " + found->expected};
}

std::unique_ptr<Implementation> ConfirmedImplementation::clone() const {
  auto copy = std::make_unique<ConfirmedImplementation>(shown_->copy(), make_witness_, is_needed_);
  copy->observe_ = observe_;
  return copy;
}

void ConfirmedImplementation::assign(const Implementation& other) {
  const auto& original = static_cast<const ConfirmedImplementation&>(other);
  shown_->assign(*original.shown_);
  observe_ = original.observe_;
}

}  // namespace kvfence
