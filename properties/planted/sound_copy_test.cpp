// Goal: checks catch the planted bug itself, not a difference of the copy that has it. Method: the
// copy without a bug agrees with the reference.

#include <gtest/gtest.h>

#include "properties/core/campaign.h"
#include "properties/core/prop_test_support.h"

namespace kvfence {
namespace {

class SoundCopy : public ::testing::TestWithParam<const CheckedPart*> {};
INSTANTIATE_TEST_SUITE_P(EveryPart, SoundCopy, ::testing::ValuesIn(every_part()), name_of_part);

TEST_P(SoundCopy, AgreesWithTheReference) {
  const CheckedPart& part = *GetParam();
  const auto reference = part.sides->make_reference();
  const auto copy = part.sides->make_planted("");
  if (!copy) return;  // its bugs are in its own source
  CampaignOptions options;
  options.commands_max = 20'000;
  const CampaignResult result = run_campaign(*part.checks, *reference, *copy, options,
                                             [](const CampaignProgress&) { return true; });
  EXPECT_FALSE(result.failure);
  EXPECT_GE(result.progress.commands, options.commands_max);
}

}  // namespace
}  // namespace kvfence
