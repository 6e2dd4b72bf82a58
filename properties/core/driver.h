#pragma once

/// What all drivers share: they connect typed components to the interface that a lockstep drives.

#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "contract/core/declare.h"
#include "contract/core/implementation.h"
#include "contract/core/state_digest.h"
#include "contract/core/target.h"

namespace kvfence {

/// Adds the state of a component; one without add_to is opaque.
template <class Component>
void add_state(StateHash& hash, const Component& component) {
  if constexpr (requires { component.add_to(hash); }) {
    hash.add(component);
  } else {
    hash.add_unknown();
  }
}

namespace detail {

/// Empties each declared member of an observation.
template <class Observation>
struct Emptier {
  Observation& observation;

  template <class Owner, class T>
  void add(std::string_view /*name*/, T Owner::*member, auto...) {
    T& value = observation.*member;
    if constexpr (requires { value.reset(); }) {
      value.reset();
    } else if constexpr (Declared<T>) {
      Emptier<T> part{value};
      T::declare(part);
    } else if constexpr (requires { value.clear(); }) {
      value.clear();
    } else {
      value = T();
    }
  }
  void result(auto... field) { add(field...); }
  void state(auto... field) { add(field...); }
  void optional(auto... field) { add(field...); }
  void add_part(auto... field) { add(field...); }
};

}  // namespace detail

/// Makes optional members of an observation absent and resets the others; storage is kept.
template <class Observation>
void empty(Observation& observation) {
  detail::Emptier<Observation> members{observation};
  Observation::declare(members);
}

/// The answer of a command: the result of `run`. If `run` returns nothing, the command is never
/// refused.
template <class Run>
ErrorCode error_of(Run run) {
  if constexpr (std::is_void_v<std::invoke_result_t<Run&>>) {
    run();
    return ErrorCode::kNone;
  } else {
    return run();
  }
}

/// Runs what may fail, or throw.
template <class Run>
std::optional<ImplementationFailure> failure_of(Run run) {
  try {
    return run();
  } catch (const UnsupportedConfig& error) {
    return ImplementationFailure{error.what(), ImplementationFailure::Kind::kUnsupported};
  } catch (const std::exception& error) {
    return ImplementationFailure{std::string("threw an exception: ") + error.what()};
  } catch (...) {
    return ImplementationFailure{"threw something that is no std::exception"};
  }
}

/// A driver has
///   start(config, setup)                builds the component afresh
///   answer(command, world, observe)     runs the command and fills observed(), empty before
///   add_to(hash)                        adds the state of the component
/// and, if its component is a value (others: properties/core/replayed_implementation.h),
///   clone()                             a copy of the driver
///   assign(other)                       copies only the component of a driver of the same type:
///                                       the rest of a driver comes from its factory, or is storage
///                                       of single calls
template <class T>
class DriverOf : public Implementation {
 public:
  using Config = typename T::Config;
  using Setup = typename T::Setup;
  using World = typename T::World;
  using Command = typename T::Command;
  using Observation = typename T::Observation;

  std::optional<ImplementationFailure> reset(const kvfence::Setup& setup) final {
    return failure_of([&] { return start(setup.config().as<Config>(), setup.as<Setup>()); });
  }

  std::optional<ImplementationFailure> apply(const kvfence::Command& command,
                                             const kvfence::World& world, Observe observe,
                                             kvfence::Observation& observation) final {
    observed_ = &observation.reuse<Observation>();
    empty(*observed_);
    return failure_of([&]() -> std::optional<ImplementationFailure> {
      answer(command.as<Command>(), typed_world<World>(world), observe);
      return std::nullopt;
    });
  }

  StateDigest digest() const final {
    StateHash hash;
    add_to(hash);
    return hash.digest();
  }
  std::optional<std::size_t> num_entries() const final {
    StateHash hash = StateHash::for_entries();
    add_to(hash);
    return hash.num_entries();
  }

  virtual std::optional<ImplementationFailure> start(const Config& config, const Setup& setup) = 0;
  virtual void answer(const Command& command, const World& world, Observe observe) = 0;
  virtual void add_to(StateHash& hash) const = 0;

 protected:
  /// The observation of the current command, in the caller's storage.
  Observation& observed() { return *observed_; }

 private:
  Observation* observed_ = nullptr;
};

/// A driver of a component that is a value. make(setup) makes it, with the bug of a planted
/// variant. Derived has
///   run(command, world)          for each command
///   observe(world, with_state)   fills the members besides the answer
template <class Derived, class T, class Make>
class ValueDriver : public DriverOf<T> {
 public:
  using typename DriverOf<T>::Config;
  using typename DriverOf<T>::Setup;
  using typename DriverOf<T>::World;
  using typename DriverOf<T>::Command;
  using typename DriverOf<T>::Observation;
  using Component = std::invoke_result_t<Make&, const Setup&>;

  ValueDriver(std::string name, Make make) : name_(std::move(name)), make_(std::move(make)) {}

  std::string name() const override { return name_; }

  std::optional<ImplementationFailure> start(const Config&, const Setup& setup) override {
    component_.emplace(make_(setup));
    return std::nullopt;
  }

  void answer(const Command& command, const World& world, Observe observe) override {
    auto& self = static_cast<Derived&>(*this);
    this->observed().error = std::visit(
        [&](const auto& typed) { return error_of([&] { return self.run(typed, world); }); },
        command);
    self.observe(world, observe == Observe::kState);
  }

  /// Does not copy the storage of single calls, which may hold views.
  std::unique_ptr<Implementation> clone() const override {
    auto copy = std::make_unique<Derived>(name_, make_);
    copy->component_ = component_;
    return copy;
  }
  void assign(const Implementation& other) override {
    component_ = static_cast<const Derived&>(other).component_;
  }
  void add_to(StateHash& hash) const override { add_state(hash, *component_); }

 protected:
  std::optional<Component> component_;

 private:
  std::string name_;
  Make make_;
};

/// A driver of components that make(setup) makes.
template <template <class> class Driver, class Make>
std::unique_ptr<Implementation> make_driver(std::string name, Make make) {
  return std::make_unique<Driver<Make>>(std::move(name), std::move(make));
}

/// A driver of components that are made from their setup alone.
template <template <class> class Driver, class Component>
std::unique_ptr<Implementation> make_driver(std::string name) {
  return make_driver<Driver>(std::move(name), [](const auto& setup) { return Component(setup); });
}

}  // namespace kvfence
