#include "properties/core/rapid_property.h"

#include <rapidcheck.h>

namespace kvfence {

bool holds(const std::string& description, const std::function<void()>& property) {
  return rc::check(description, property);
}

std::vector<std::uint8_t> draw_episode_bytes(int bytes_max) {
  return *rc::gen::resize(bytes_max, rc::gen::container<std::vector<std::uint8_t>>(
                                         rc::gen::resize(100, rc::gen::arbitrary<std::uint8_t>())));
}

std::uint64_t draw_seed() { return *rc::gen::arbitrary<std::uint64_t>(); }

}  // namespace kvfence
