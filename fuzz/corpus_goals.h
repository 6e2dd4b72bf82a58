#pragma once

/// What a fuzz target promises to whoever replays its corpus.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace kvfence::fuzz {

/// A situation that the corpus of a target has to lead to, and how often the inputs run so far did.
struct CorpusGoal {
  std::string_view name;
  std::uint64_t count = 0;
};

/// Defined once by each target.
std::vector<CorpusGoal> corpus_goals();

/// What the inputs so far consisted of, e.g. {"commands", 812}. Defined once by each target.
CorpusGoal corpus_size();

}  // namespace kvfence::fuzz

/// libFuzzer's entry. Returns 0, or aborts at a finding.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
