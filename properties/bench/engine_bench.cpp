// Times random commands on engines with the OffloadingConnector over devices, the assembly
// `offloading_on_device`. BM_Campaign runs reference and optimized with every oracle on, as
// `kvfence check` does. BM_Commands<Engine> runs the same commands on one engine and only gets its
// answers.
//
// The configurations are those that campaigns draw: pools of 5 to 20 blocks of 2 to 4 tokens. An
// iteration is one pass over all episodes. A step is an accepted update: planned, executed, polled
// and processed.

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "contract/connectors/offloading/offloading_setup.h"
#include "contract/core/check.h"
#include "contract/core/implementation.h"
#include "contract/engine/engine_setup.h"
#include "contract/engine/engine_target.h"
#include "cuda/worker/engine_on_virtual_device.h"
#include "optimized/connectors/kv_output_aggregator.h"
#include "optimized/connectors/offloading/offloading_connector.h"
#include "optimized/scheduler/scheduler.h"
#include "properties/bench/timed_passes.h"
#include "properties/core/campaign.h"
#include "properties/engine/checks.h"
#include "properties/engine/driver.h"
#include "properties/engine/engine_parts.h"
#include "reference/engine/engine_device.h"
#include "scenarios/targets/targets.h"

namespace kvfence {
namespace {

constexpr std::uint64_t kSeed = 1;
constexpr std::uint64_t kEpisodes = 500;
constexpr std::uint32_t kEpisodeCommands = 200;

struct Episode {
  Setup setup;
  std::vector<Command> commands;
};

/// What a campaign draws, and the results of a correct engine.
struct Episodes {
  std::vector<Episode> list;
  std::size_t num_commands = 0;
  std::size_t num_steps = 0;
};

bool is_step(const Command& command, const Observation& seen) {
  return std::holds_alternative<engine::Update>(command.as<engine::Command>()) &&
         seen.as<engine::Observation>().error == ErrorCode::kNone;
}

/// Gives one command; the engine answers at once, in this process.
void give(Implementation& engine, const Command& command, World& world, Observe observe,
          Observation& seen) {
  world.apply(command);
  KVFENCE_CHECK(!engine.apply(command, world, observe, seen), "an engine in this process answers");
}

Episodes draw_episodes() {
  Episodes episodes;
  const Target& target = EngineTarget::description();
  const auto reference = engine_sides().make_reference();
  for (std::uint64_t number = 0; number < kEpisodes; ++number) {
    Choices choices = episode_choices(kSeed, number);
    Episode& episode = episodes.list.emplace_back();
    episode.setup =
        prepared(target, checks_of(engine::Assembly::kOffloadingOnDevice).draw_config(choices));
    const auto generator =
        checks_of(engine::Assembly::kOffloadingOnDevice).make_generator(episode.setup, choices);
    const auto world = target.make_world(episode.setup);
    KVFENCE_CHECK(!reference->reset(episode.setup), "an engine in this process starts");
    Observation seen = default_observation(target);
    for (std::uint32_t count = 0; count < kEpisodeCommands; ++count) {
      episode.commands.push_back(generator->next_command(choices, seen, *world));
      give(*reference, episode.commands.back(), *world, Observe::kState, seen);
      episodes.num_steps += is_step(episode.commands.back(), seen);
    }
    episodes.num_commands += episode.commands.size();
  }
  return episodes;
}

const Episodes& all_episodes() {
  static const Episodes episodes = draw_episodes();
  return episodes;
}

void report_steps(benchmark::State& state) {
  const Episodes& episodes = all_episodes();
  const double commands_a_step =
      static_cast<double>(episodes.num_commands) / static_cast<double>(episodes.num_steps);
  state.counters["ns_per_step"] = state.counters["ns_per_command"] * commands_a_step;
  state.counters["commands_per_step"] = commands_a_step;
}

void time_campaign(benchmark::State& state) {
  const auto reference = engine_sides().make_reference();
  const auto optimized = engine_sides().make_optimized();
  CampaignOptions options;
  options.seed = kSeed;
  options.episodes_max = kEpisodes;
  options.episode_commands = kEpisodeCommands;
  CampaignResult result;
  time_passes<CpuClock>(
      state, "command", all_episodes().num_commands, [] {},
      [&] {
        result = run_campaign(checks_of(engine::Assembly::kOffloadingOnDevice), *reference,
                              *optimized, options, [](const CampaignProgress&) { return true; });
      },
      [&] { return !result.failure && result.progress.commands == all_episodes().num_commands; });
  report_steps(state);
}

void time_commands(benchmark::State& state, Implementation& engine) {
  std::size_t num_steps = 0;
  bool is_clean = true;
  time_passes<CpuClock>(
      state, "command", all_episodes().num_commands, [&] { num_steps = 0; },
      [&] {
        Observation seen;
        for (const Episode& episode : all_episodes().list) {
          KVFENCE_CHECK(!engine.reset(episode.setup), "an engine in this process starts");
          const auto world = episode.setup.target().make_world(episode.setup);
          for (const Command& command : episode.commands) {
            give(engine, command, *world, Observe::kNumbers, seen);
            num_steps += is_step(command, seen);
          }
          const auto& numbers = seen.as<engine::Observation>();
          is_clean &= *numbers.num_races == 0 && *numbers.num_misuses == 0;
        }
      },
      [&] { return is_clean && num_steps == all_episodes().num_steps; });
  report_steps(state);
}

/// The optimized scheduler, connector and worker half on either device, without the witness that
/// the side in checks has.
template <class Device>
std::unique_ptr<Implementation> make_optimized_on() {
  EngineParts parts;
  parts.make_scheduler = [](const SchedulerConfig& config, KVConnectorHandle connector) {
    return std::make_unique<optimized::Scheduler>(config, std::move(connector));
  };
  parts.make_offloading = [](const ConnectorSetup& setup) {
    return optimized::make_offloading_connector_scheduler(setup.spec);
  };
  parts.make_offloading_worker = [](const ConnectorSetup& setup, std::uint32_t) {
    return optimized::make_offloading_connector_worker(setup.spec);
  };
  parts.make_aggregator = [](std::uint32_t num_ranks) {
    return std::make_unique<optimized::KVOutputAggregator>(num_ranks);
  };
  parts.make_device = [](const EngineSetup& setup, EngineRole) {
    return std::make_unique<Device>(*setup.device);
  };
  return make_engine_driver("optimized", std::move(parts));
}

template <class Device>
void time_optimized(benchmark::State& state) {
  time_commands(state, *make_optimized_on<Device>());
}

void time_reference(benchmark::State& state) {
  time_commands(state, *engine_sides().make_reference());
}

void register_benchmarks() {
  const auto add = [](const char* name, void (*time)(benchmark::State&)) {
    add_benchmark(name, benchmark::kMillisecond, time);
  };
  add("Campaign", time_campaign);
  add("CommandsOptimized", time_optimized<cuda::EngineOnVirtualDevice>);
  add("CommandsOptimizedOnSymbols", time_optimized<reference::EngineDevice>);
  add("CommandsReference", time_reference);
}

}  // namespace
}  // namespace kvfence

int main(int argc, char** argv) {
  benchmark::AddCustomContext("allocator", KVFENCE_ALLOCATOR);
  kvfence::register_benchmarks();
  return kvfence::run_benchmarks("engine_bench", argc, argv);
}
