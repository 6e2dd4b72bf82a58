#pragma once

/// The oracles that judge a run. Each can be switched off, to measure what the others find. A crash
/// or failure of an implementation is always reported.

#include <array>
#include <string>
#include <string_view>

#include "contract/core/line.h"

namespace kvfence {

struct Oracles {
  bool lockstep = true;     ///< the two observations must be equal
  bool expectation = true;  ///< what a scenario or trace expects must be observed
  bool rules = true;        ///< the target's rules must hold on one side
  bool leaks = true;        ///< tables are empty again when those of the reference are

  friend bool operator==(const Oracles&, const Oracles&) = default;
};

struct OracleName {
  std::string_view name;  ///< Divergence::oracle, except for rules, which have names of their own
  bool Oracles::*member;
};
inline constexpr std::array<OracleName, 4> kOracleNames = {{{"lockstep", &Oracles::lockstep},
                                                            {"expectation", &Oracles::expectation},
                                                            {"rules", &Oracles::rules},
                                                            {"leaks", &Oracles::leaks}}};

/// Reads "lockstep,rules": only those are on. `file` names the source of the text.
/// Errors: no name, or one that is not in kOracleNames.
Parsed<Oracles> oracles_of(std::string_view text, std::string_view file = {});
std::string to_text(const Oracles& oracles);

}  // namespace kvfence
