#include "properties/core/rapid_property_test_support.h"

#include <iostream>

#include <rapidcheck.h>

namespace kvfence {

bool holds(const std::string& description, const std::function<void()>& property) {
  return rc::check(description, property);
}

bool holds(const std::string& description, const std::function<bool()>& has_come_about,
           const std::function<void()>& property) {
  if (!holds(description, property)) return false;
  rc::detail::TestParams params = rc::detail::configuration().testParams;
  for (int round = 1; round < 10 && !has_come_about(); ++round) {
    ++params.seed;
    const rc::detail::TestResult result = rc::detail::checkTestable(
        property, rc::detail::TestMetadata{description, description}, params);
    rc::detail::printResultMessage(result, std::cerr << "with seed=" << params.seed << ": ");
    std::cerr << std::endl;
    if (!result.is<rc::detail::SuccessResult>()) return false;
  }
  return has_come_about();
}

std::vector<std::uint8_t> draw_episode_bytes(int bytes_max) {
  return *rc::gen::resize(bytes_max, rc::gen::container<std::vector<std::uint8_t>>(
                                         rc::gen::resize(100, rc::gen::arbitrary<std::uint8_t>())));
}

std::uint64_t draw_seed() { return *rc::gen::arbitrary<std::uint64_t>(); }

}  // namespace kvfence
