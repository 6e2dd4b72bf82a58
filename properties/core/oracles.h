#pragma once

/// The oracles that judge a run. Each can be left out, so that what one sees by itself is measured.
/// An implementation that crashes or fails is reported whatever is left out.

#include <array>
#include <string>
#include <string_view>

#include "contract/core/line.h"

namespace kvfence {

struct Oracles {
  bool lockstep = true;     ///< the two observations must be equal
  bool expectation = true;  ///< what a scenario or trace expects must be observed
  bool rules = true;        ///< the target's rules must hold on one side
  bool leaks = true;        ///< tables are empty again where those of the reference are

  friend bool operator==(const Oracles&, const Oracles&) = default;
};

struct OracleName {
  std::string_view name;  ///< but for rules, which have names of their own: Divergence::oracle
  bool Oracles::*member;
};
inline constexpr std::array<OracleName, 4> kOracleNames = {{{"lockstep", &Oracles::lockstep},
                                                            {"expectation", &Oracles::expectation},
                                                            {"rules", &Oracles::rules},
                                                            {"leaks", &Oracles::leaks}}};

/// "lockstep,rules": those alone. `file` says where the text stands.
/// Errors: no name, or one that is none of kOracleNames.
Parsed<Oracles> oracles_of(std::string_view text, std::string_view file = {});
std::string to_text(const Oracles& oracles);

}  // namespace kvfence
