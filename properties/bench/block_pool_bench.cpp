// Times each operation of both block pools: BM_<Operation><Implementation>/<num_blocks>.
//
// The shapes are those of scenarios/adapters/bench_vllm.py, whose docstring defines them, so that
// the figures of the implementations are comparable. An iteration is one pass over all blocks of a
// pool; the state it needs is restored before it, off the clock.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/core/check.h"
#include "contract/pool/block_hash.h"
#include "contract/pool/block_pool.h"
#include "contract/pool/request.h"
#include "optimized/pool/block_pool.h"
#include "properties/bench/timed_passes.h"
#include "reference/pool/block_pool.h"

namespace kvfence {
namespace {

constexpr std::size_t kCallBlocks = 1000;
constexpr std::uint32_t kBlockSize = 16;
constexpr std::uint32_t kDefaultBlocksMax = 10'000'000;
/// The reference walks lists where the optimized pool does not: a pass is quadratic in the blocks.
constexpr std::uint32_t kReferenceBlocksMax = 10'000;

BlockPoolConfig config_of(std::uint32_t num_blocks) {
  BlockPoolConfig config;
  config.num_gpu_blocks = num_blocks;
  config.hash.hash_block_size = kBlockSize;
  config.max_block_size = kBlockSize;
  return config;
}

/// Calls visit with each piece of kCallBlocks elements; the last one may be shorter.
template <class Element, class Visit>
void in_calls(std::span<Element> all, Visit visit) {
  for (std::size_t begin = 0; begin < all.size(); begin += kCallBlocks) {
    visit(all.subspan(begin, std::min(kCallBlocks, all.size() - begin)));
  }
}

/// The arguments of the operations: the same for both implementations, built once per pool size.
struct Inputs {
  explicit Inputs(std::uint32_t num_blocks)
      : config(config_of(num_blocks)),
        hash_size(hash_bytes(config.hash.algorithm)),
        ascending(num_blocks - 1),
        shuffled(num_blocks - 1) {
    std::iota(ascending.begin(), ascending.end(), BlockId{1});
    std::vector<std::pair<std::uint64_t, BlockId>> keyed;
    keyed.reserve(ascending.size());
    for (BlockId block : ascending) keyed.emplace_back(splitmix64(block), block);
    std::ranges::sort(keyed);
    std::ranges::transform(keyed, shuffled.begin(), [](const auto& entry) { return entry.second; });

    std::string hashes;
    in_calls(std::span<const BlockId>(ascending), [this, &hashes](std::span<const BlockId> blocks) {
      RequestSpec spec;
      spec.tokens.resize(blocks.size() * kBlockSize);
      std::iota(spec.tokens.begin(), spec.tokens.end(), (blocks.front() - 1) * kBlockSize);
      requests.emplace_back(std::move(spec), config.hash);
      hashes += requests.back().hash_bytes();
    });
    hits.reserve(hashes.size());
    misses.reserve(hashes.size());
    for (BlockId block : shuffled) {
      const std::string_view hash(hashes.data() + (block - 1) * hash_size, hash_size);
      hits += hash;
      misses += digest(config.hash.algorithm, "miss" + std::string(hash));
    }
  }

  std::size_t size() const { return ascending.size(); }

  BlockPoolConfig config;
  std::size_t hash_size;
  std::vector<BlockId> ascending;
  std::vector<BlockId> shuffled;
  std::vector<Request> requests;  ///< one for each kCallBlocks ids of `ascending`
  std::string hits;               ///< the hash of each block of `shuffled`, back to back
  std::string misses;             ///< the same number of hashes that no block has
};

/// The inputs of one size at a time: those of 10^7 blocks fill 1.7 GB.
const Inputs& inputs_of(std::uint32_t num_blocks) {
  static std::unique_ptr<Inputs> inputs;
  if (inputs == nullptr || inputs->config.num_gpu_blocks != num_blocks) {
    inputs.reset();
    inputs = std::make_unique<Inputs>(num_blocks);
  }
  return *inputs;
}

/// A pool and one pass of each operation over it.
template <class Pool>
class Passes {
 public:
  explicit Passes(const Inputs& inputs)
      : inputs_(inputs), pool_(inputs.config), out_(inputs.size()) {}

  void get() {
    in_calls(std::span(out_), [this](std::span<BlockId> out) { must(pool_.get_new_blocks(out)); });
  }

  void free(const std::vector<BlockId>& order) {
    in_calls(std::span(order), [this](std::span<const BlockId> blocks) {
      must(pool_.free_blocks(blocks, FreeTo::kTail));
    });
  }

  void touch() {
    in_calls(std::span(inputs_.shuffled),
             [this](std::span<const BlockId> blocks) { must(pool_.touch(blocks)); });
  }

  void cache() {
    std::size_t number = 0;
    in_calls(std::span(inputs_.ascending), [this, &number](std::span<const BlockId> blocks) {
      const CacheFullBlocksArgs args{.request = inputs_.requests[number++],
                                     .blocks = blocks,
                                     .num_cached_blocks = 0,
                                     .num_full_blocks = static_cast<std::uint32_t>(blocks.size()),
                                     .block_size = kBlockSize,
                                     .kv_cache_group_id = 0,
                                     .block_mask = std::nullopt};
      must(pool_.cache_full_blocks(args));
    });
  }

  /// Looks up each of the hashes, one per call; returns the number of hits.
  std::size_t look_up(const std::string& hashes) {
    const GroupId group = 0;
    const std::size_t hash_size = inputs_.hash_size;
    const char* hash = hashes.data();
    std::size_t num_hits = 0;
    for (BlockId *out = out_.data(), *const end = out + out_.size(); out != end; ++out) {
      const BlockHashView view(hash, hash_size);
      num_hits += pool_.get_cached_block(view, {&group, 1}, {out, 1}) ? 1 : 0;
      hash += hash_size;
    }
    return num_hits;
  }

  void evict() { must(pool_.evict_blocks(inputs_.ascending)); }

  const Pool& pool() const { return pool_; }
  const std::vector<BlockId>& out() const { return out_; }

 private:
  static void must(ErrorCode code) {
    KVFENCE_CHECK(code == ErrorCode::kNone, "the pool refused what is timed");
  }

  const Inputs& inputs_;
  Pool pool_;
  std::vector<BlockId> out_;  ///< results of the last pass of get or look_up
};

template <class Pool>
void time_get_new_blocks(benchmark::State& state, const Inputs& inputs) {
  Passes<Pool> passes(inputs);
  bool is_fresh = true;
  time_passes(
      state, "block", inputs.size(),
      [&] {
        // Frees in ascending order leave the queue as a fresh pool has it.
        if (!std::exchange(is_fresh, false)) passes.free(inputs.ascending);
      },
      [&] { passes.get(); }, [&] { return passes.out() == inputs.ascending; });
}

template <class Pool>
void time_free_blocks(benchmark::State& state, const Inputs& inputs) {
  Passes<Pool> passes(inputs);
  time_passes(
      state, "block", inputs.size(), [&] { passes.get(); }, [&] { passes.free(inputs.shuffled); },
      [&] { return passes.pool().get_num_free_blocks() == inputs.size(); });
}

template <class Pool>
void time_touch(benchmark::State& state, const Inputs& inputs) {
  Passes<Pool> passes(inputs);
  passes.get();
  time_passes(
      state, "block", inputs.size(), [&] { passes.free(inputs.shuffled); }, [&] { passes.touch(); },
      [&] { return passes.pool().get_num_free_blocks() == 0; });
}

template <class Pool>
void time_cache_full_blocks(benchmark::State& state, const Inputs& inputs) {
  Passes<Pool> passes(inputs);
  passes.get();
  time_passes(
      state, "block", inputs.size(),
      [&] {
        if (passes.pool().num_cached_keys() > 0) passes.evict();
      },
      [&] { passes.cache(); }, [&] { return passes.pool().num_cached_keys() == inputs.size(); });
}

template <class Pool, bool kIsHit>
void time_get_cached_block(benchmark::State& state, const Inputs& inputs) {
  Passes<Pool> passes(inputs);
  passes.get();
  passes.cache();
  const std::string& hashes = kIsHit ? inputs.hits : inputs.misses;
  std::size_t num_hits = 0;
  time_passes(
      state, "block", inputs.size(), [] {}, [&] { num_hits = passes.look_up(hashes); },
      [&] {
        if (!kIsHit) return num_hits == 0;
        return num_hits == inputs.size() && passes.out() == inputs.shuffled;
      });
}

template <class Pool>
void time_get_new_blocks_evicting(benchmark::State& state, const Inputs& inputs) {
  Passes<Pool> passes(inputs);
  passes.get();
  time_passes(
      state, "block", inputs.size(),
      [&] {
        passes.cache();
        passes.free(inputs.shuffled);
      },
      [&] { passes.get(); },
      [&] { return passes.pool().num_cached_keys() == 0 && passes.out() == inputs.shuffled; });
}

template <class Pool>
void register_benchmarks(const std::string& implementation, std::uint32_t num_blocks) {
  const auto add = [&](const char* operation, void (*time)(benchmark::State&, const Inputs&)) {
    add_benchmark(operation + implementation, benchmark::kMillisecond,
                  [=](benchmark::State& state) { time(state, inputs_of(num_blocks)); })
        ->Arg(num_blocks);
  };
  add("GetNewBlocks", time_get_new_blocks<Pool>);
  add("FreeBlocks", time_free_blocks<Pool>);
  add("Touch", time_touch<Pool>);
  add("CacheFullBlocks", time_cache_full_blocks<Pool>);
  add("GetCachedBlockHit", time_get_cached_block<Pool, /*kIsHit=*/true>);
  add("GetCachedBlockMiss", time_get_cached_block<Pool, /*kIsHit=*/false>);
  add("GetNewBlocksEvicting", time_get_new_blocks_evicting<Pool>);
}

}  // namespace
}  // namespace kvfence

int main(int argc, char** argv) {
  for (std::uint32_t num_blocks = 1000; num_blocks <= kvfence::kDefaultBlocksMax;
       num_blocks *= 10) {
    if (num_blocks <= kvfence::kReferenceBlocksMax) {
      kvfence::register_benchmarks<kvfence::reference::BlockPool>("Reference", num_blocks);
    }
    kvfence::register_benchmarks<kvfence::optimized::BlockPool>("Optimized", num_blocks);
  }
  return kvfence::run_benchmarks("block_pool_bench", argc, argv);
}
