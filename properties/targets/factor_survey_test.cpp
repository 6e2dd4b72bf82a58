// Pairwise coverage of the configurations of every part.
// Method: survey what generators draw (draws/factor_survey.h); canaries draw too little, or have
// rows that leave out too much.

#include "properties/draws/factor_survey.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "contract/pool/block_pool_target.h"
#include "properties/core/prop_test_support.h"
#include "properties/engine/never_together.h"
#include "properties/targets/checks.h"

namespace kvfence {
namespace {

class Factors : public ::testing::TestWithParam<const CheckedPart*> {};
INSTANTIATE_TEST_SUITE_P(Every, Factors, ::testing::ValuesIn(every_part()), name_of_part);

TEST_P(Factors, WhatTheContractAcceptsIsDrawnOrARowSaysWhyNot) {
  const FactorSurvey survey = survey_factors(*GetParam()->checks);
  for (const FactorHole& hole : survey.holes) {
    ADD_FAILURE() << hole.first << (hole.second.empty() ? "" : " and ") << hole.second
                  << " is never drawn, but the contract takes\n  " << hole.example;
  }
  for (const NeverTogether& row : survey.idle_rows) {
    ADD_FAILURE() << "this row leaves nothing out: " << row.first << " " << row.second;
  }
  EXPECT_GT(survey.num_pairs_drawn, 40U);
}

TEST(NeverTogether, RowsAreOfExistingParts) {
  for (const std::string_view part : parts_with_rows()) {
    EXPECT_NE(find_part(part), nullptr) << part;
  }
}

/// The block pool with a generator that never draws what satisfies the predicate.
template <class Predicate>
Checks without(const Predicate& is_left_out) {
  Checks checks = block_pool_checks();
  checks.draw_config = [draw = checks.draw_config, is_left_out](Choices& choices) {
    Config config = draw(choices);
    while (is_left_out(config.as<block_pool::Config>())) config = draw(choices);
    return config;
  };
  return checks;
}

std::vector<std::string> names_of(const std::vector<FactorHole>& holes) {
  std::vector<std::string> names;
  for (const FactorHole& hole : holes) names.push_back(hole.first + " " + hole.second);
  std::ranges::sort(names);
  return names;
}

TEST(FactorSurveyCanary, APairThatIsNeverDrawnIsFoundAndARowExplainsIt) {
  Checks checks = without([](const block_pool::Config& config) {
    return !config.enable_caching && config.hash_algorithm == HashAlgorithm::kXxhashCbor;
  });
  const FactorSurvey survey = survey_factors(checks);
  ASSERT_EQ(survey.holes.size(), 1U);
  const FactorHole& hole = survey.holes.front();
  EXPECT_EQ(std::minmax(hole.first, hole.second),
            std::minmax<std::string>("enable_caching=false", "hash_algorithm=xxhash_cbor"));
  EXPECT_NE(hole.example.find("enable_caching=false"), std::string::npos) << hole.example;
  EXPECT_NE(hole.example.find("xxhash_cbor"), std::string::npos) << hole.example;

  checks.never_together = {{"hash_algorithm=xxhash_cbor", "enable_caching=false", "a test"},
                           {"profile=v0.19", "enable_caching=false", "they are drawn"}};
  const FactorSurvey explained = survey_factors(checks);
  EXPECT_TRUE(explained.holes.empty());
  EXPECT_EQ(explained.num_explained, 1U);
  ASSERT_EQ(explained.idle_rows.size(), 1U);
  EXPECT_EQ(explained.idle_rows.front().first, "profile=v0.19");
}

TEST(FactorSurveyCanary, AFlagAWordAndAnOverrideThatAreNeverDrawnAreFound) {
  const Checks checks = without([](const block_pool::Config& config) {
    return config.enable_kv_cache_events || config.profile == Profile::kV019 ||
           config.free_blocks_prepend.value_or(false);
  });
  EXPECT_EQ(names_of(survey_factors(checks).holes),
            (std::vector<std::string>{"enable_kv_cache_events=true ", "free_blocks_prepend=true ",
                                      "profile=v0.19 "}));
}

}  // namespace
}  // namespace kvfence
