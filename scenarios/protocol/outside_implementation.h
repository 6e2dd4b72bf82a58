#pragma once

/// An implementation at the other end of a pipe, as a lockstep drives it.

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/implementation.h"
#include "contract/core/target.h"
#include "scenarios/protocol/outside_session.h"

namespace kvfence {

/// Speaks the protocol of outside_session.h with a child that a shell command starts. The child
/// starts at the first reset(), and again at the next one after a failure; in between, one child
/// serves all resets.
class OutsideImplementation final : public Implementation {
 public:
  OutsideImplementation(const Target& target, std::string command, OutsideOptions options = {});

  std::string name() const override { return session_.name(); }
  std::vector<std::string> unreported() const override;

  /// Starts the child, unless it runs: what it answers to `target`.
  std::optional<ImplementationFailure> start();

  std::optional<ImplementationFailure> reset(const Setup& setup) override;
  std::size_t window() const override { return 256; }
  std::optional<ImplementationFailure> submit(const Command& command, Observe observe) override;
  std::optional<ImplementationFailure> collect(Observation& observation) override;

  /// One round trip.
  std::optional<ImplementationFailure> apply(const Command& command, const World& world,
                                             Observe observe, Observation& observation) override;

 private:
  /// Without these members nothing is compared.
  std::optional<ImplementationFailure> check_reported();

  /// After a divergence the answers to later commands are of no interest, nor is how they fail.
  void discard_outstanding();

  std::optional<ImplementationFailure> read_observation(const std::vector<Field>& fields,
                                                        Observation& observation);
  /// Takes over the members that the child reports.
  std::optional<ImplementationFailure> read_part(const DeclaredObject& part,
                                                 const std::vector<Field>& fields);

  const Target& target_;
  OutsideSession session_;
  std::vector<std::string_view> members_;
  /// Per command whose answer was not collected yet: a bare answer to `observe` comes first.
  std::deque<bool> follow_observe_;
  bool observes_state_ = true;
};

}  // namespace kvfence
