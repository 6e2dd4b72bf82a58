/// Bytes -> configuration and commands -> reference against optimized, with every invariant.
///
/// Compiled once for each target, KVFENCE_TARGET, and linked twice: with no planted bug, and
/// with one in the optimized side (fuzz/planted_bug.h). That one has to abort with a report on the
/// corpus of its target, the proof that a silent fuzz run means something.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "fuzz/corpus_goals.h"
#include "fuzz/episodes.h"
#include "fuzz/planted_bug.h"
#include "scenarios/targets/implementations.h"

#include KVFENCE_TARGET_CHECKS

namespace kvfence::fuzz {
namespace {

using Target = KVFENCE_TARGET;

std::unique_ptr<Implementation<Target>> make_actual() {
  const std::string_view bug = planted_bug();
  return bug.empty() ? Implementations<Target>::make_optimized()
                     : Implementations<Target>::make_planted(bug);
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
