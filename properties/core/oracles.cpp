#include "properties/core/oracles.h"

#include <algorithm>
#include <vector>

#include "contract/core/joined.h"

namespace kvfence {

Parsed<Oracles> oracles_of(std::string_view text, std::string_view file) {
  Oracles oracles{.lockstep = false, .expectation = false, .rules = false, .leaks = false};
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view name = text.substr(begin, end - begin);
    const auto* const found = std::ranges::find_if(
        kOracleNames, [&](const OracleName& each) { return each.name == name; });
    if (found == kOracleNames.end()) {
      return InputError{std::string(file),
                        {},
                        "'" + std::string(name) + "'",
                        "a list of " + joined(kOracleNames, ", ", &OracleName::name)};
    }
    oracles.*(found->member) = true;
    begin = end + 1;
  }
  return oracles;
}

std::string to_text(const Oracles& oracles) {
  std::vector<std::string_view> names;
  for (const OracleName& each : kOracleNames) {
    if (oracles.*(each.member)) names.push_back(each.name);
  }
  return joined(names, ",");
}

}  // namespace kvfence
