#pragma once

/// For a suite with one test per rule, which the reference and the optimized side both run.
/// Over a concept:
///
///     using Sides = ::testing::Types<reference::BlockPool, optimized::BlockPool>;
///     TYPED_TEST_SUITE(BlockPoolRules, Sides, SideNames);
///
/// Over an interface that each side has a function for, with a release as second parameter or
/// without:
///
///     using Maker = BySide<decltype(&reference::make_worker)>;
///     constexpr Maker kSides[] = {{"reference", reference::make_worker},
///                                 {"optimized", optimized::make_worker}};
///     INSTANTIATE_TEST_SUITE_P(Any, WorkerRules, ::testing::ValuesIn(kSides), SideNames());

#include <ostream>
#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "contract/core/rules.h"

namespace kvfence {

/// A factory of one side, and the name of the side.
template <class Maker>
struct BySide {
  const char* name;
  Maker make;

  friend std::ostream& operator<<(std::ostream& out, const BySide& side) {
    return out << side.name;
  }
};

struct SideNames {
  template <class Side>
  static std::string GetName(int place) {
    return place == 0 ? "reference" : "optimized";
  }

  template <class Maker>
  std::string operator()(const ::testing::TestParamInfo<BySide<Maker>>& tested) const {
    return tested.param.name;
  }
  template <class Maker>
  std::string operator()(
      const ::testing::TestParamInfo<std::tuple<BySide<Maker>, Profile>>& tested) const {
    return std::string(std::get<0>(tested.param).name) +
           (std::get<1>(tested.param) == Profile::kV019 ? "_v019" : "_v023");
  }
};

}  // namespace kvfence
