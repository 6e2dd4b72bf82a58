/// The block_pool_lockstep target with a bug planted in the optimized side. Its corpus has to make
/// it abort with a report: the proof that a silent fuzz run means something.

#include "fuzz/corpus_goals.h"
#include "fuzz/episodes.h"
#include "properties/block_pool_checks.h"
#include "scenarios/implementations.h"

namespace kvfence::fuzz {
namespace {

Episodes<BlockPoolTarget>& episodes() {
  static Episodes<BlockPoolTarget> instance(
      [] { return Implementations<BlockPoolTarget>::make_planted("pop_removes_first_copy"); });
  return instance;
}

}  // namespace

std::vector<CorpusGoal> corpus_goals() { return {}; }
CorpusGoal corpus_size() { return episodes().size(); }

}  // namespace kvfence::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  kvfence::fuzz::episodes().run({data, size});
  return 0;
}
