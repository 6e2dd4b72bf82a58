/// Bytes -> configuration and commands -> reference against optimized, with every invariant.
///
/// Compiled once for each target, KVFENCE_FUZZ_TARGET, and once more with a bug planted in the
/// optimized side, KVFENCE_FUZZ_PLANTED_BUG: that one has to abort with a report on the corpus of
/// its target, the proof that a silent fuzz run means something.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "fuzz/corpus_goals.h"
#include "fuzz/episodes.h"
#include "properties/all_checks.h"
#include "scenarios/implementations.h"

namespace kvfence::fuzz {
namespace {

using Target = KVFENCE_FUZZ_TARGET;
constexpr std::string_view kPlantedBug = KVFENCE_FUZZ_PLANTED_BUG;

std::unique_ptr<Implementation<Target>> make_actual() {
  return kPlantedBug.empty() ? Implementations<Target>::make_optimized()
                             : Implementations<Target>::make_planted(kPlantedBug);
}

Episodes<Target>& episodes() {
  static Episodes<Target> instance(&make_actual);
  return instance;
}

}  // namespace

std::vector<CorpusGoal> corpus_goals() { return episodes().goals(); }
CorpusGoal corpus_size() { return episodes().size(); }

}  // namespace kvfence::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  kvfence::fuzz::episodes().run({data, size});
  return 0;
}
