#pragma once

/// What all drivers share: they put typed components behind the interface that a lockstep drives.

#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

#include "contract/core/implementation.h"
#include "contract/core/target.h"

namespace kvfence {

/// A driver of a target whose commands have replies of their own. Derived has
///   start(config, setup) -> std::optional<ImplementationFailure>   builds the component afresh
///   run(command, world, reply) or run(command, world) -> ErrorCode  one overload per command; the
///   reply
///       may hold whatever it held before
///   observe_numbers(numbers), observe_state(state)                  likewise
template <class Derived, class T>
class ReplyingDriver : public Implementation {
 public:
  using Config = typename T::Config;
  using Setup = typename T::Setup;
  using World = typename T::World;

  std::optional<ImplementationFailure> reset(const kvfence::Setup& setup) final {
    return derived().start(setup.config().as<Config>(), setup.as<Setup>());
  }

  std::optional<ImplementationFailure> apply(const Command& command, const kvfence::World& world,
                                             Observe observe, Observation& observation) final {
    const World& typed = typed_world<World>(world);
    std::visit(
        [&](const auto& alternative) {
          using Alternative = std::decay_t<decltype(alternative)>;
          if constexpr (requires { typename Alternative::Reply; }) {
            auto& reply = observation.reply.reuse<typename Alternative::Reply>();
            observation.error = derived().run(alternative, typed, reply);
            if (observation.error != ErrorCode::kNone) observation.reply.clear();
          } else {
            observation.reply.clear();
            observation.error = derived().run(alternative, typed);
          }
        },
        command.as<typename T::Command>());
    derived().observe_numbers(observation.numbers.reuse<typename T::Numbers>());
    if constexpr (requires { typename T::State; }) {
      if (observe == Observe::kState) {
        derived().observe_state(observation.state.reuse<typename T::State>());
      } else {
        observation.state.clear();
      }
    }
    return std::nullopt;
  }

  std::unique_ptr<Implementation> clone() const override {
    return std::make_unique<Derived>(static_cast<const Derived&>(*this));
  }
  void assign(const Implementation& other) override {
    derived() = static_cast<const Derived&>(other);
  }

 private:
  Derived& derived() { return static_cast<Derived&>(*this); }
};

/// A driver has
///   start(config, setup)                builds the component afresh
///   submit(command, world, observe)     runs the command and observes
///   collect(observation)                hands the observation out
/// and, where its component is a value,
///   clone()                             a copy of the driver
///   assign(other)                       copies the component of a driver of the same type, and no
///                                       more: what a driver keeps besides is the factory's, or
///                                       storage of single calls
///   add_to(hash)                        takes in the state of the component
template <class T>
class DriverOf : public Implementation {
 public:
  using Config = typename T::Config;
  using Setup = typename T::Setup;
  using World = typename T::World;
  using Command = typename T::Command;
  using Observation = typename T::Observation;

  std::optional<ImplementationFailure> reset(const kvfence::Setup& setup) final {
    return start(setup.config().as<Config>(), setup.as<Setup>());
  }

  std::optional<ImplementationFailure> apply(const kvfence::Command& command,
                                             const kvfence::World& world, Observe observe,
                                             kvfence::Observation& observation) final {
    submit_typed(command.as<Command>(), typed_world<World>(world), observe);
    Observation& typed = observation.numbers.reuse<Observation>();
    collect_typed(typed);
    observation.error = typed.error;
    return std::nullopt;
  }

  /// Requires: an add_to of the driver's own.
  StateDigest digest() const final {
    StateHash hash;
    add_to(hash);
    return hash.digest();
  }

  virtual std::optional<ImplementationFailure> start(const Config& config, const Setup& setup) = 0;
  virtual void submit_typed(const Command& command, const World& world, Observe observe) = 0;
  virtual void collect_typed(Observation& observation) = 0;

  /// Takes in the state of the component.
  virtual void add_to(StateHash&) const {
    check_failed(__FILE__, __LINE__, "add_to", "an implementation without a digest");
  }
};

}  // namespace kvfence
