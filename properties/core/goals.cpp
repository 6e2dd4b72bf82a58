#include "properties/core/goals.h"

#include <algorithm>
#include <string>

namespace kvfence {
namespace {

struct Names {
  std::string name;
  std::string doc;
};

/// The storage of goal names, by code.
const std::array<Names, kNumErrorCodes>& names_of_refusals() {
  static const std::array<Names, kNumErrorCodes> kNames = [] {
    std::array<Names, kNumErrorCodes> names;
    for (int code = 0; code < kNumErrorCodes; ++code) {
      const std::string text(to_text(static_cast<ErrorCode>(code)));
      names[static_cast<std::size_t>(code)] = {"error_" + text, "refused with " + text};
    }
    return names;
  }();
  return kNames;
}

}  // namespace

std::vector<Goal> refusal_goals(const Target& target) {
  std::vector<Goal> goals;
  for (int number = 1; number < kNumErrorCodes; ++number) {
    const auto code = static_cast<ErrorCode>(number);
    if (std::ranges::none_of(target.commands,
                             [&](const CommandType& type) { return type.declares(code); })) {
      continue;
    }
    const Names& names = names_of_refusals()[static_cast<std::size_t>(number)];
    goals.push_back({names.name, names.doc, code});
  }
  return goals;
}

}  // namespace kvfence
