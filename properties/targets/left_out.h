#pragma once

/// All that is left out on purpose, as one table.

#include <string>
#include <string_view>
#include <vector>

namespace kvfence {

/// kind: `pair`, values of a configuration that are not drawn together (never_together.h); `draw`,
/// what a generator does not draw; `rule`, what a rule passes over (core/left_out.h); `refused`,
/// what the contract refuses because upstream goes wrong; `missing`, what upstream does and the
/// contract cannot express; `same`, a value that means the same as one that is drawn.
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
