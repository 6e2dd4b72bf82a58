#pragma once

/// All that is left out on purpose, as one table.

#include <string>
#include <string_view>
#include <vector>

namespace kvfence {

/// kind: pair, of values of a configuration that are not drawn together (never_together.h); draw,
/// of a generator; rule, which passes something over (core/left_out.h); refused, by the contract,
/// where upstream goes wrong; missing, which upstream does and the contract has no place for; same,
/// a value that says in other words what is drawn.
struct LeftOutRow {
  std::string_view kind;
  std::string name;
  std::string_view why;
  std::string_view scenario;  ///< below scenarios/cases/; empty where nothing of upstream is wrong
  std::string_view refused;   ///< lines of target engine that are refused, or end in a refusal
};

std::vector<LeftOutRow> left_out();
/// properties/left_out.md.
std::string left_out_document();

}  // namespace kvfence
