// Goal: each rule sees what breaks it. Method: true episodes of the reference, and in each a lie
// about what one observation shows.

#include "properties/engine/multi/rules.h"

#include <cstdint>
#include <string_view>

#include <gtest/gtest.h>

#include "properties/engine/multi/checks.h"
#include "properties/planted/told_lies.h"
#include "scenarios/targets/targets.h"

namespace kvfence::engine::multi {
namespace {

void expect_caught(std::string_view id, Reusable<std::uint32_t> Observation::*number) {
  const auto side = engine_sides().make_reference();
  expect_lie_caught<EngineTarget>(multi_checks(), *side, kInvariants, id, /*commands_behind=*/0,
                                  [&](const Command&, const Config&, Observation& shown) {
                                    return (shown.*number).has_value() && ++in(shown.*number) > 0;
                                  });
}

TEST(MultiRules, SeeASlotTooMany) { expect_caught("multi.1", &Observation::num_free_slots); }

TEST(MultiRules, SeeACPUBlockTooMany) {
  expect_caught("multi.2", &Observation::num_cached_cpu_blocks);
}

}  // namespace
}  // namespace kvfence::engine::multi
