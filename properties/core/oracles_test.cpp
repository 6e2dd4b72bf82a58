#include "properties/core/oracles.h"

#include <gtest/gtest.h>

namespace kvfence {
namespace {

TEST(Oracles, AListNamesThoseThatJudge) {
  EXPECT_EQ(*oracles_of("lockstep,expectation,rules,leaks"), Oracles{});
  EXPECT_EQ(*oracles_of("rules,lockstep,leaks,rules"), Oracles{.expectation = false});
  for (const OracleName& each : kOracleNames) {
    const Parsed<Oracles> alone = oracles_of(each.name);
    ASSERT_TRUE(alone) << each.name;
    EXPECT_TRUE((*alone).*(each.member));
    EXPECT_EQ(to_text(*alone), each.name);
  }
}

TEST(Oracles, AWrongNameIsAnError) {
  for (const char* const text : {"", "rules,", "rule", "lockstep, rules"}) {
    EXPECT_FALSE(oracles_of(text)) << text;
  }
  EXPECT_EQ(oracles_of("rules,crash", "--oracles").error().to_text(),
            "--oracles: found 'crash', expected a list of lockstep, expectation, rules, leaks");
}

}  // namespace
}  // namespace kvfence
