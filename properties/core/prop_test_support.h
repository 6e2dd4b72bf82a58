#pragma once

/// What the property suites share: implementations as types, and one implementation behind a random
/// history.

#include <cstddef>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "contract/core/declare.h"
#include "contract/core/implementation.h"
#include "properties/core/all_checks.h"
#include "properties/core/checks.h"
#include "properties/core/choices.h"
#include "properties/core/rapid_property.h"
#include "scenarios/targets/implementations.h"

namespace kvfence {

/// An implementation as a type.
template <class T>
struct ReferenceSide {
  using Target = T;
  static std::unique_ptr<Implementation<T>> make() { return Implementations<T>::make_reference(); }
};

template <class T>
struct OptimizedSide {
  using Target = T;
  static std::unique_ptr<Implementation<T>> make() { return Implementations<T>::make_optimized(); }
};

template <class... Targets>
using BothSides = ::testing::Types<ReferenceSide<Targets>..., OptimizedSide<Targets>...>;

template <class... Targets>
using OptimizedSides = ::testing::Types<OptimizedSide<Targets>...>;

using EveryTarget = AllTargets::Apply<::testing::Types>;
using OptimizedSideOfEveryTarget = AllTargets::Apply<OptimizedSides>;
using BothSidesOfEveryTarget = AllTargets::Apply<BothSides>;

/// A command that is never refused and leaves a fresh instance as it is: it takes the events, or
/// sets the pause state, where the target has that, and else asks for something.
template <class Target>
typename Target::Command harmless_command() {
  using Command = typename Target::Command;
  Command command;
  for_each_command<Command>([&](auto type) {
    using Alternative = typename decltype(type)::type;
    constexpr std::string_view kVerb = Alternative::kVerb;
    if constexpr (kVerb == "take_events" || kVerb == "set_pause_state") command = Alternative{};
  });
  return command;
}

/// One implementation, its world, and what it showed last. The whole state is shown from the start.
template <class Target>
class Session {
 public:
  using Config = typename Target::Config;
  using World = typename Target::World;
  using Command = typename Target::Command;
  using Observation = typename Target::Observation;

  Session(std::unique_ptr<Implementation<Target>> implementation, const Config& config)
      : implementation_(std::move(implementation)), world_(Target::make_world(config)) {
    RC_ASSERT_FALSE(implementation_->reset(config).has_value());
    run(harmless_command<Target>());
  }

  const Observation& run(const Command& command) {
    world_.apply(command);
    RC_ASSERT_FALSE(implementation_->submit(command, world_, Observe::kState).has_value());
    RC_ASSERT_FALSE(implementation_->collect(now_).has_value());
    return now_;
  }

  const Observation& now() const { return now_; }
  const World& world() const { return world_; }

 private:
  std::unique_ptr<Implementation<Target>> implementation_;
  World world_;
  Observation now_;
};

/// A session behind a random history, and the history.
template <class Target>
struct Wanderer {
  typename Target::Config config;
  std::unique_ptr<Session<Target>> session;
  std::vector<typename Target::Command> history;
  std::vector<typename Target::Observation> shown;  ///< after each command of the history
};

template <class Side>
Wanderer<typename Side::Target> wander() {
  using Target = typename Side::Target;
  using Generator = typename Checks<Target>::Generator;
  const std::vector<std::uint8_t> bytes = draw_episode_bytes(1000);
  Choices choices = Choices::from_bytes(bytes);
  Wanderer<Target> wanderer;
  wanderer.config = Generator::draw_config(choices);
  wanderer.session = std::make_unique<Session<Target>>(Side::make(), wanderer.config);
  Session<Target>& session = *wanderer.session;
  Generator generator(wanderer.config, choices);
  while (!choices.exhausted()) {
    wanderer.history.push_back(generator.next(choices, session.now(), session.world()));
    wanderer.shown.push_back(session.run(wanderer.history.back()));
  }
  return wanderer;
}

}  // namespace kvfence
