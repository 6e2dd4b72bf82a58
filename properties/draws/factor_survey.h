#pragma once

/// Pairwise coverage of configurations: which values of factors (draws/factors.h) a part's
/// generator draws, which it draws together, and which it never draws although the contract accepts
/// them.
/// Source: Kuhn, Wallace, Gallo, "Software fault interactions and implications for software
/// testing", IEEE TSE 2004: most faults need one factor or two.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "properties/core/checks.h"

namespace kvfence {

struct FactorValue {
  std::string factor;
  std::string value;
  std::uint64_t count = 0;  ///< configurations that have it
};

/// A value or a pair that is never drawn although the contract accepts it.
struct FactorHole {
  std::string first;    ///< factor=value
  std::string second;   ///< empty: the first is never drawn at all
  std::string example;  ///< the line of a configuration that has both
};

struct FactorSurvey {
  std::uint64_t num_configs = 0;
  std::vector<FactorValue> values;  ///< in the order in which they were first drawn
  std::uint64_t num_pairs_drawn = 0;
  /// Pairs that are not drawn, of values so rare that chance explains it.
  std::uint64_t num_pairs_rare = 0;
  /// Other pairs that the contract refuses in every drawn configuration with one of the values, or
  /// that no configuration can have.
  std::uint64_t num_pairs_refused = 0;
  std::vector<FactorHole> holes;  ///< that no row explains
  /// Other pairs that are not drawn because a row of the checks leaves them out.
  std::uint64_t num_explained = 0;
  std::vector<NeverTogether> idle_rows;  ///< that explain nothing
};

struct FactorSurveyOptions {
  std::uint64_t seed = 1;
  std::uint64_t num_configs = 20'000;
};

/// Draws the configurations with which the episodes of a campaign with that seed begin.
FactorSurvey survey_factors(const Checks& checks, const FactorSurveyOptions& options = {});

}  // namespace kvfence
