#pragma once

/// What each room adds to the checks of its assembly: configurations and the draws of its facet
/// (generator.cpp), coverage goals (goals.cpp), and rules besides the core rules (rules.cpp).

#include <memory>

#include "contract/engine/engine_setup.h"
#include "contract/engine/engine_target.h"
#include "properties/core/goals.h"
#include "properties/core/typed_checks.h"
#include "properties/draws/choices.h"
#include "properties/engine/generator.h"

namespace kvfence::engine {

using Rules = RulesFor<EngineTarget>;

/// Cost of a check: linear in the observation.
RuleSuite<EngineTarget> core_rules();

/// The draws of the configuration's facets, besides the actions of every engine.
DrawsList draws_of(const Config& config, Choices& choices);

namespace scheduler {

/// A valid configuration of Assembly::kScheduler: 5 to 24 blocks, the groups that
/// kv_cache::draw_config draws and often a single one of full attention, every setting of the
/// scheduler.
Config draw_config(Choices& choices);
/// Draws of the scheduler itself.
std::unique_ptr<Draws> make_draws(const Config& config, Choices& choices);
/// Draws of the scripted connector.
std::unique_ptr<Draws> make_scripted_draws(const Config& config, Choices& choices);
GoalSuite goals();

}  // namespace scheduler

namespace offloading {

/// A valid configuration of 5 to 20 GPU blocks and 1 to 9 slots; with several groups up to twice as
/// many. Groups, block sizes and failures do not fail upstream's own assertions: windowed groups
/// have one block size, which divides that of the others.
Config draw_config(Choices& choices);
/// The same without eagle and drafts; it may need make_valid.
Config draw_without_drafts(Choices& choices);
std::unique_ptr<Draws> make_draws(const Config& config, Choices& choices, EngineRole role);
GoalSuite goals();
RuleSuite<EngineTarget> rules();

}  // namespace offloading

namespace on_device {

/// With the OffloadingConnector: a valid configuration of 5 to 20 GPU blocks and 1 to 15 slots.
Config draw_config(Choices& choices);
/// With no connector, the simple one, or both under a MultiConnector; or a pair over NIXL.
Config draw_config_of_others(Choices& choices);
std::unique_ptr<Draws> make_draws(const Config& config, Choices& choices, EngineRole role);
GoalSuite goals();
GoalSuite goals_of_others();
RuleSuite<EngineTarget> rules();

}  // namespace on_device

namespace simple {

/// A valid configuration of 5 to 20 GPU blocks and 1 to 12 CPU blocks, eager or lazy, with each
/// profile's rules and mixtures of them.
Config draw_config(Choices& choices);
std::unique_ptr<Draws> make_draws(const Config& config, Choices& choices, EngineRole role);
GoalSuite goals();
RuleSuite<EngineTarget> rules();

}  // namespace simple

namespace files {

/// A valid configuration of 5 to 20 GPU blocks, 1 to 3 ranks of 1 or 2 layers, of either connector
/// and profile. Several groups: DecodeBenchConnector.
Config draw_config(Choices& choices);
std::unique_ptr<Draws> make_draws(const Config& config, Choices& choices);
GoalSuite goals();
RuleSuite<EngineTarget> rules();

}  // namespace files

namespace nixl {

/// A valid configuration of 5 to 20 blocks per engine, up to 4 ranks each, and small deadlines.
Config draw_config(Choices& choices);
/// Draws the record, groups, ranks and pools of a pair.
Record draw_pair(Choices& choices, Config& config);
std::unique_ptr<Draws> make_draws(const Config& config, Choices& choices);
GoalSuite goals();
/// Requires of the setup: it has NIXL.
RuleSuite<EngineTarget> rules();

}  // namespace nixl

namespace multi {

/// A valid configuration: the OffloadingConnector and one or two others, now and then with
/// scripted ones among them; or scripted ones alone; or a pair over NIXL and one or two others.
/// In any order.
Config draw_config(Choices& choices);
/// Draws of the scripted children. Requires: there are some.
std::unique_ptr<Draws> make_scripted_draws(const Config& config, Choices& choices, EngineRole role);
GoalSuite goals();
/// They include those of NIXL, which are not checked beside scripted children.
RuleSuite<EngineTarget> rules();

}  // namespace multi

}  // namespace kvfence::engine
