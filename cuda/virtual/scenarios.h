#pragma once

/// Small programs with one bug each, of those that real workers had, and programs without: for the
/// test that shows that happens-before finds each in every run and bytes find it in some.

#include <vector>

#include "cuda/virtual/test_rig.h"

namespace kvfence::virtual_device {

struct Scenario {
  const char* name;
  const char* id;  ///< of the catalogue in README.md; "" for programs that are right
  void (*program)(TestRig& rig);
};

/// Wrong in their order: a race.
const std::vector<Scenario>& racy_scenarios();
/// Nothing is wrong with them.
const std::vector<Scenario>& right_scenarios();

}  // namespace kvfence::virtual_device
