#pragma once

/// What the tests of invariants share, for the table of any target.

#include <algorithm>
#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "properties/core/divergence.h"

namespace kvfence {

/// That the invariant of this id was found broken, in that member of the observation. Its two sides
/// differ.
template <class Invariants>
void expect_broken(const Invariants& invariants, const std::optional<Divergence>& found,
                   std::string_view id, std::string_view field) {
  ASSERT_TRUE(found) << id << " saw nothing";
  const auto rule = std::find_if(invariants.begin(), invariants.end(),
                                 [&](const auto& invariant) { return invariant.id == id; });
  ASSERT_NE(rule, invariants.end());
  EXPECT_EQ(found->oracle, rule->name);
  EXPECT_EQ(found->message, rule->rule);
  EXPECT_EQ(found->field, field);
  EXPECT_NE(found->expected, found->actual);
}

/// That the ids are the prefix and 1, 2, 3, ..., that no two names are alike, and each has a rule.
template <class Invariants>
void expect_numbered_and_named_once(const Invariants& invariants, const std::string& prefix) {
  std::set<std::string_view> names;
  for (std::size_t index = 0; index < invariants.size(); ++index) {
    EXPECT_EQ(invariants[index].id, prefix + std::to_string(index + 1));
    EXPECT_TRUE(names.insert(invariants[index].name).second) << invariants[index].name;
    EXPECT_FALSE(invariants[index].rule.empty()) << invariants[index].name;
  }
}
template <class Invariants>
void expect_numbered_and_named_once(const Invariants& invariants, char letter) {
  expect_numbered_and_named_once(invariants, std::string(1, letter));
}

}  // namespace kvfence
