/// Bytes -> configuration and commands -> reference against optimized, with every invariant.

#include "fuzz/corpus_goals.h"
#include "fuzz/episodes.h"
#include "properties/kv_cache_checks.h"
#include "scenarios/implementations.h"

namespace kvfence::fuzz {
namespace {

Episodes<KVCacheTarget>& episodes() {
  static Episodes<KVCacheTarget> instance(&Implementations<KVCacheTarget>::make_optimized);
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
