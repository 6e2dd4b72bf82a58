#pragma once

/// One implementation of a target, as a lockstep drives it: in this process, or at the other end of
/// a pipe.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "contract/core/check.h"
#include "contract/core/observation.h"
#include "contract/core/state_digest.h"
#include "contract/core/target.h"

namespace kvfence {

/// A problem with the implementation itself, not with what it answered.
struct ImplementationFailure {
  enum class Kind : std::uint8_t {
    kFailed,       ///< a child exited, sent malformed output or timed out
    kUnsupported,  ///< reset: it does not have this configuration; nothing is wrong
    kUnavailable,  ///< reset: it cannot be started, or does not have this target; nothing is wrong
  };
  std::string message;
  Kind kind = Kind::kFailed;
};

/// What an implementation from outside reports about itself.
struct SelfDescription {
  std::vector<std::string> reported;    ///< members of the observation: those that are compared
  std::vector<std::string> unreported;  ///< the others
  std::uint32_t corrections = 0;        ///< of faults of the engine that it drives
};

/// Thrown by a component that is not made for a configuration: a campaign draws another one, and
/// counts the reasons. Any other exception of a component is a failure of its side.
class UnsupportedConfig : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Implementation {
 public:
  virtual ~Implementation() = default;

  /// "reference", "optimized", or what a child calls itself.
  virtual std::string name() const = 0;

  /// Starts again, with nothing outstanding.
  virtual std::optional<ImplementationFailure> reset(const Setup& setup) = 0;

  /// Runs one command and overwrites the observation. The world has applied the command already.
  /// Requires: window() is 1.
  virtual std::optional<ImplementationFailure> apply(const Command& command, const World& world,
                                                     Observe observe, Observation& observation) = 0;

  /// Called when another implementation answered the last command differently from `last`, this
  /// one's answer. A failure says that this one contradicts itself, as a second copy of its parts
  /// answers differently: the fault is found without the other.
  virtual std::optional<ImplementationFailure> contradicted(const Observation& last) {
    static_cast<void>(last);
    return std::nullopt;
  }

  /// What an implementation from outside reports about itself. Valid after a reset.
  virtual std::optional<SelfDescription> described() const { return std::nullopt; }

  /// An independent copy of the whole state, or null where it cannot be copied, as a child process.
  /// assign() makes this one a copy instead, in the storage that it has.
  /// Requires of assign: both were made by the same factory.
  virtual std::unique_ptr<Implementation> clone() const { return nullptr; }
  virtual void assign(const Implementation&) {
    check_failed(__FILE__, __LINE__, "clone()", "an implementation that cannot be copied");
  }
  /// A hash of the whole internal state in canonical form: equal ones answer every command alike.
  /// Requires: clone() does not return null.
  virtual StateDigest digest() const {
    check_failed(__FILE__, __LINE__, "clone()", "an implementation without a digest");
  }
  /// The entries of all tables of the internal state, except those kept by design
  /// (StateHash::num_entries); null where that is unknown.
  virtual std::optional<std::size_t> num_entries() const { return std::nullopt; }

  /// Most commands that may be outstanding. Above 1, which a pipe has so that a batch costs one
  /// round trip, commands go in by submit and observations come out by collect, in the same order.
  virtual std::size_t window() const { return 1; }
  /// Requires: fewer than window() outstanding.
  virtual std::optional<ImplementationFailure> submit(const Command&, Observe) {
    check_failed(__FILE__, __LINE__, "window() > 1", "an implementation that answers at once");
  }
  /// Overwrites what the implementation reports of the answer to the oldest outstanding command.
  /// The rest stays, so a caller that passes the expected observation claims nothing about it.
  virtual std::optional<ImplementationFailure> collect(Observation&) {
    check_failed(__FILE__, __LINE__, "window() > 1", "an implementation that answers at once");
  }
};

}  // namespace kvfence
