#include "contract/connectors/simple/simple_facet.h"

#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "contract/core/rules.h"

namespace kvfence {
namespace {

using Record = engine::simple::Record;

TEST(SimpleRecord, OverridesItsRulesAndNoOther) {
  constexpr std::pair<std::optional<bool> Record::*, bool Rules::*> kOverrides[] = {
      {&Record::simple_offload_pins_hits, &Rules::simple_offload_pins_hits},
      {&Record::simple_offload_skips_stores_under_way,
       &Rules::simple_offload_skips_stores_under_way},
      {&Record::simple_offload_skips_unhashed_blocks, &Rules::simple_offload_skips_unhashed_blocks},
      {&Record::simple_offload_aligns_stores, &Rules::simple_offload_aligns_stores},
  };
  for (const Profile profile : {Profile::kV019, Profile::kV023}) {
    const Rules of_profile = rules_of(profile);
    for (const auto& [given, rule] : kOverrides) {
      for (const bool value : {false, true}) {
        Record record;
        record.*given = value;
        Rules rules = of_profile;
        override_rules(object_of(record), rules);
        Rules expected = of_profile;
        expected.*rule = value;
        EXPECT_EQ(rules, expected);
      }
    }
  }
}

}  // namespace
}  // namespace kvfence
