/// Bytes -> configuration and commands -> reference against optimized, with every invariant.

#include "fuzz/block_pool_episodes.h"
#include "fuzz/corpus_goals.h"
#include "scenarios/implementations.h"

namespace kvfence::fuzz {
namespace {

BlockPoolEpisodes& episodes() {
  static BlockPoolEpisodes instance(&Implementations<BlockPoolTarget>::make_optimized);
  return instance;
}

}  // namespace

std::vector<CorpusGoal> corpus_goals() {
  std::vector<CorpusGoal> goals;
  for (std::size_t index = 0; index < block_pool::Reach::num_goals(); ++index) {
    const block_pool::Reach::Goal goal = episodes().reach().goal(index);
    goals.push_back({goal.name, goal.count});
  }
  return goals;
}

CorpusGoal corpus_size() { return {"commands", episodes().num_commands()}; }

}  // namespace kvfence::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  kvfence::fuzz::episodes().run({data, size});
  return 0;
}
