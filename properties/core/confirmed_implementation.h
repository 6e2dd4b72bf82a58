#pragma once

/// An implementation beside which another runs that has to answer the same: whoever drives the one
/// drives both.

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "contract/core/implementation.h"

namespace kvfence {

/// Its name and its answers are those of `shown`. Where `witness` answers otherwise, the
/// implementation has failed, and its message has the member and both values. The witness runs with
/// those setups of which is_needed says so.
///
/// Requires: two implementations that answer at once.
class ConfirmedImplementation final : public Implementation {
 public:
  ConfirmedImplementation(std::unique_ptr<Implementation> shown,
                          std::unique_ptr<Implementation> witness, bool (*is_needed)(const Setup&));

  std::string name() const override { return shown_->name(); }
  std::optional<ImplementationFailure> reset(const Setup& setup) override;
  std::optional<ImplementationFailure> apply(const Command& command, const World& world,
                                             Observe observe, Observation& observation) override;

  std::unique_ptr<Implementation> clone() const override;
  void assign(const Implementation& other) override;
  /// Of the two, as far as they run.
  StateDigest digest() const override;

 private:
  std::optional<ImplementationFailure> of_witness(std::optional<ImplementationFailure> failure);

  std::unique_ptr<Implementation> shown_;
  std::unique_ptr<Implementation> witness_;
  bool (*is_needed_)(const Setup&);
  bool has_witness_ = false;  ///< of this run
  Observation witnessed_;
  std::size_t num_answers_ = 0;
};

}  // namespace kvfence
