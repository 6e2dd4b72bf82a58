#pragma once

/// What the tests of a target's typed parts share: the setup of a configuration, its world, and an
/// implementation that takes typed commands.

#include <memory>
#include <utility>

#include <gtest/gtest.h>

#include "contract/core/check.h"
#include "contract/core/implementation.h"
#include "contract/core/target.h"

namespace kvfence {

/// Requires: a valid configuration, as all here do.
template <class T>
typename T::Setup setup_of(const typename T::Config& config) {
  auto setup = T::prepare(config, {}, {});
  KVFENCE_CHECK(setup, "a configuration that is not valid");
  return std::move(*setup);
}

template <class T>
typename T::World fresh_world(const typename T::Config& config) {
  const kvfence::Setup setup = prepared(T::description(), Config(config));
  return typed_world<typename T::World>(*T::description().make_world(setup));
}

/// An implementation with its world. The whole state is observed after each command.
template <class T>
class TypedRun {
 public:
  TypedRun(std::unique_ptr<Implementation> implementation, const typename T::Config& config)
      : implementation_(std::move(implementation)) {
    const Setup setup = prepared(T::description(), Config(config));
    world_ = T::description().make_world(setup);
    EXPECT_FALSE(implementation_->reset(setup));
  }

  /// Returns the observation: the same object each time.
  const typename T::Observation& run(const typename T::Command& command) {
    command_.reuse<typename T::Command>() = command;
    world_->apply(command_);
    EXPECT_FALSE(implementation_->apply(command_, *world_, Observe::kState, shown_));
    return seen();
  }

  /// The last observation.
  const typename T::Observation& seen() const { return shown_.as<typename T::Observation>(); }
  const typename T::World& world() const { return typed_world<typename T::World>(*world_); }

 private:
  std::unique_ptr<Implementation> implementation_;
  std::unique_ptr<World> world_;
  Command command_;
  Observation shown_;
};

}  // namespace kvfence
