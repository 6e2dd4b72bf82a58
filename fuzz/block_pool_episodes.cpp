#include "fuzz/block_pool_episodes.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <utility>

#include "contract/line.h"
#include "properties/campaign.h"
#include "properties/choices.h"
#include "properties/lockstep.h"
#include "scenarios/implementations.h"

namespace kvfence::fuzz {

std::string to_scenario_text(const Divergence& divergence, Scenario<BlockPoolTarget> scenario) {
  scenario.steps.resize(std::min(scenario.steps.size(), divergence.step + 1));
  scenario.comments = {
      " divergence at command " + std::to_string(divergence.step + 1) + ", seen by " +
          divergence.oracle,
      " " + divergence.message,
      " " + divergence.field,
      "   expected " + divergence.expected,
      "   actual   " + divergence.actual,
  };
  return print(to_document(scenario));
}

void BlockPoolEpisodes::run(std::span<const std::uint8_t> bytes) {
  const auto reference = Implementations<BlockPoolTarget>::make_reference();
  const auto actual = make_actual_();
  Lockstep<BlockPoolTarget> lockstep(*reference, *actual);
  Choices choices = Choices::from_bytes(bytes);
  Scenario<BlockPoolTarget> scenario;
  const std::optional<Divergence> divergence =
      run_episode(lockstep, choices, kCommandsMax, scenario);
  num_commands_ += lockstep.num_commands();
  reach_.merge(lockstep.reach());
  if (!divergence) return;
  const std::string text = to_scenario_text(*divergence, std::move(scenario));
  std::fprintf(stderr, "%s# end of the scenario\n", text.c_str());
  std::abort();
}

}  // namespace kvfence::fuzz
