/// Bytes -> configuration and commands -> reference against optimized, with every rule.
///
/// One program for all targets; the environment says which:
///   KVFENCE_FUZZ_TARGET       a target's name, or engine.ASSEMBLY
///   KVFENCE_FUZZ_PLANTED_BUG  one of its planted bugs, in the optimized side; unset for none. Such
///                             a run has to abort with a report on the corpus of the target, the
///                             proof that a silent fuzz run means something.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "fuzz/corpus_goals.h"
#include "fuzz/episodes.h"
#include "scenarios/targets/targets.h"

namespace kvfence::fuzz {
namespace {

std::string_view setting(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

Episodes& episodes() {
  static Episodes instance = [] {
    const std::string_view target = setting("KVFENCE_FUZZ_TARGET");
    const CheckedPart* part = find_part(target);
    const std::string_view bug = setting("KVFENCE_FUZZ_PLANTED_BUG");
    if (!part || (!bug.empty() && !part->sides->make_planted(bug))) {
      std::fprintf(stderr,
                   "KVFENCE_FUZZ_TARGET=%s KVFENCE_FUZZ_PLANTED_BUG=%s: expected a target "
                   "of kvfence list, or engine.ASSEMBLY, and, if any, a planted bug of it\n",
                   std::string(target).c_str(), std::string(bug).c_str());
      std::exit(2);
    }
    return Episodes(*part, bug);
  }();
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
