#pragma once

/// One implementation of a target, as a lockstep drives it: in this process, or at the other end of
/// a pipe.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace kvfence {

/// How much an observation holds: the answer and the numbers, or the whole state besides.
enum class Observe : std::uint8_t { kNumbers, kState };

/// A problem with the implementation itself, not with what it answered: a child that died, babbled,
/// or fell silent.
struct ImplementationFailure {
  std::string message;
};

/// Commands go in by submit, observations come out by collect, in the same order. An implementation
/// in this process answers at once; one behind a pipe takes up to window() commands before the
/// first is collected, so that a batch costs one round trip.
template <class Target>
class Implementation {
 public:
  using Config = typename Target::Config;
  using World = typename Target::World;
  using Command = typename Target::Command;
  using Observation = typename Target::Observation;

  virtual ~Implementation() = default;

  /// "reference", "optimized", or what a child says of itself.
  virtual std::string name() const = 0;

  /// Starts afresh, with nothing outstanding. Requires: a config that the target accepts.
  virtual std::optional<ImplementationFailure> reset(const Config& config) = 0;

  /// Most commands that may be outstanding; at least 1.
  virtual std::size_t window() const { return 1; }

  /// Takes one command. The world has taken it in already. Requires: fewer than window()
  /// outstanding.
  virtual std::optional<ImplementationFailure> submit(const Command& command, const World& world,
                                                      Observe observe) = 0;

  /// Overwrites the observation with the answer to the oldest outstanding command. Members that the
  /// implementation does not report keep what they held, so a caller that passes the expected
  /// observation claims nothing about them.
  virtual std::optional<ImplementationFailure> collect(Observation& observation) = 0;
};

}  // namespace kvfence
