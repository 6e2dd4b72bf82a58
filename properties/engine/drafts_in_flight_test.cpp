// Goal: a step is compared with its own drafts, also after a drain took back the steps before it.
// Method: handmade steps and answers.

#include "properties/engine/drafts_in_flight.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "contract/engine/engine_target.h"

namespace kvfence::engine {
namespace {

Observation step_with(std::vector<TokenId> drafts) {
  Observation answer;
  answer.of(EngineRole::kProducer).scheduled.emplace() = {
      {.request = "A", .num_tokens = 3, .spec_tokens = std::move(drafts)}};
  return answer;
}

Observation output_of(std::vector<TokenId> tokens) {
  Observation answer;
  RequestOutput& output = answer.of(EngineRole::kProducer).outputs.emplace().emplace_back();
  output.request = "A";
  output.tokens = std::move(tokens);
  return answer;
}

TEST(DraftsInFlight, ARejectedDraftIsOneWithoutAToken) {
  DraftsInFlight drafts;
  for (const bool rejects : {true, false}) {
    EXPECT_FALSE(drafts.rejects(Schedule{}, step_with({7, 8})));
    const Observation output =
        output_of(rejects ? std::vector<TokenId>{7, 1} : std::vector<TokenId>{7, 8, 1});
    EXPECT_EQ(drafts.rejects(Update{}, output), rejects);
  }
}

TEST(DraftsInFlight, WhatADrainTookBackIsForgotten) {
  DraftsInFlight drafts;
  EXPECT_FALSE(drafts.rejects(Schedule{}, step_with({7, 8})));
  EXPECT_FALSE(drafts.rejects(Drain{}, Observation()));
  EXPECT_FALSE(drafts.rejects(Schedule{}, step_with({})));
  EXPECT_FALSE(drafts.rejects(Update{}, output_of({1})));
}

TEST(DraftsInFlight, ADrainOfTheOtherEngineForgetsNothing) {
  DraftsInFlight drafts;
  EXPECT_FALSE(drafts.rejects(Schedule{}, step_with({7, 8})));
  EXPECT_FALSE(drafts.rejects(Drain{EngineRole::kConsumer}, Observation()));
  EXPECT_TRUE(drafts.rejects(Update{}, output_of({1})));
}

}  // namespace
}  // namespace kvfence::engine
