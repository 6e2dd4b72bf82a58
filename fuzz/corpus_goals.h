#pragma once

/// What a fuzz target provides for a replay of its corpus.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace kvfence::fuzz {

/// A goal that the corpus of a target has to reach, and how often the inputs so far reached it.
struct CorpusGoal {
  std::string_view name;
  std::uint64_t count = 0;
};

/// Defined once by each target.
std::vector<CorpusGoal> corpus_goals();

/// The size of the inputs so far, e.g. {"commands", 812}. Defined once by each target.
CorpusGoal corpus_size();

}  // namespace kvfence::fuzz

/// libFuzzer's entry. Returns 0, or aborts at a finding.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
