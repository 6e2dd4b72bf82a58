// Times a scheduler's calls to both KV-cache managers: BM_<Operation><Implementation>/<blocks of
// the long prompt>/.
//
// The shapes are those of scenarios/adapters/bench_vllm_kv_cache.py, whose docstring defines them,
// so that the figures of the implementations are comparable. An iteration is one pass; the state it
// needs is restored before it, off the clock.

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "contract/core/check.h"
#include "contract/kv_cache/kv_cache_manager.h"
#include "contract/pool/request.h"
#include "optimized/kv_cache/kv_cache_manager.h"
#include "properties/bench/timed_passes.h"
#include "reference/kv_cache/kv_cache_manager.h"

namespace kvfence {
namespace {

constexpr std::uint32_t kBlockSize = 16;
constexpr std::uint32_t kPromptBlocks = 8192;
constexpr std::uint32_t kNumGpuBlocks = 20'000;
constexpr std::uint32_t kSlidingWindow = 1024;
constexpr std::uint32_t kRunningRequests = 256;
constexpr std::uint32_t kRunningTokens = 1024;
constexpr std::uint32_t kMissesAPass = 1000;

enum class Groups : bool { kFull, kFullAndSlidingWindow };

KVCacheManagerConfig config_of(Groups groups) {
  KVCacheManagerConfig config;
  config.pool.num_gpu_blocks = kNumGpuBlocks;
  config.pool.hash.hash_block_size = kBlockSize;
  config.pool.max_block_size = kBlockSize;
  config.groups.push_back({.kind = KVCacheSpecKind::kFullAttention, .block_size = kBlockSize});
  if (groups == Groups::kFullAndSlidingWindow) {
    config.groups.push_back({.kind = KVCacheSpecKind::kSlidingWindow,
                             .block_size = kBlockSize,
                             .sliding_window = kSlidingWindow});
  }
  config.max_model_len = kPromptBlocks * kBlockSize + 1;
  config.max_num_batched_tokens = config.max_model_len;
  return config;
}

Request request_of(TokenId first_token, std::uint32_t num_tokens) {
  RequestSpec spec;
  spec.tokens.resize(num_tokens);
  std::iota(spec.tokens.begin(), spec.tokens.end(), first_token);
  return Request(std::move(spec), config_of(Groups::kFull).pool.hash);
}

/// The requests: the same for both implementations. Hashes are computed here, off the clock.
struct Inputs {
  Inputs()
      : prompt(request_of(0, kPromptBlocks * kBlockSize + 1)),
        stranger(request_of(1'000'000, kPromptBlocks * kBlockSize + 1)) {
    constexpr std::uint32_t kNumTokens = kRunningTokens + kBlockSize;
    for (std::uint32_t number = 0; number < kRunningRequests; ++number) {
      running.push_back(request_of(2'000'000 + number * kNumTokens, kNumTokens));
    }
  }

  Request prompt;
  Request stranger;              ///< as long as the prompt; none of it is cached
  std::vector<Request> running;  ///< with the tokens that a pass decodes
};

const Inputs& inputs() {
  static const Inputs the_inputs;
  return the_inputs;
}

std::uint32_t num_tokens_of(const KVRequest& request) {
  return static_cast<std::uint32_t>(request.request.all_token_ids().size());
}

/// A manager and the calls that are timed; a refused one is an error.
template <class Manager>
class Calls {
 public:
  explicit Calls(Groups groups) : manager_(config_of(groups)) {}

  void look_up(const KVRequest& request) { manager_.get_computed_blocks(request, hit_); }

  void allocate(const KVRequest& request, std::uint32_t num_new_tokens, bool with_hit) {
    const AllocateSlotsArgs args{
        .request = request, .num_new_tokens = num_new_tokens, .hit = with_hit ? &hit_ : nullptr};
    bool allocated = false;
    const ErrorCode code = manager_.allocate_slots(args, allocated, new_blocks_);
    KVFENCE_CHECK(code == ErrorCode::kNone && allocated, "the manager refused what is timed");
  }

  void free(const KVRequest& request) { manager_.free(request.index); }

  /// The request's blocks are cached and free.
  void cache(const KVRequest& request) {
    allocate(request, num_tokens_of(request), /*with_hit=*/false);
    free(request);
  }

  void forget() { KVFENCE_CHECK(manager_.reset_prefix_cache(), "a block is still referenced"); }

  const ComputedBlocks& hit() const { return hit_; }
  std::uint32_t num_free_blocks() const { return manager_.block_pool().get_num_free_blocks(); }

 private:
  Manager manager_;
  ComputedBlocks hit_;
  BlocksByGroup new_blocks_;
};

template <class Manager>
void time_allocate_slots_decode(benchmark::State& state) {
  Calls<Manager> calls(Groups::kFull);
  std::vector<KVRequest> running;
  for (const Request& request : inputs().running) {
    const auto index = static_cast<RequestIndex>(running.size());
    running.push_back(KVRequest{.index = index, .request = request});
  }
  time_passes(
      state, "call", std::size_t{kRunningRequests} * kBlockSize,
      [&] {
        for (const KVRequest& request : running) calls.free(request);
        calls.forget();
        for (KVRequest& request : running) {
          request.num_computed_tokens = 0;
          calls.allocate(request, kRunningTokens, /*with_hit=*/false);
          request.num_computed_tokens = kRunningTokens;
        }
      },
      [&] {
        for (std::uint32_t step = 0; step < kBlockSize; ++step) {
          for (KVRequest& request : running) {
            calls.allocate(request, 1, /*with_hit=*/false);
            ++request.num_computed_tokens;
          }
        }
      },
      [&] {
        constexpr std::uint32_t kBlocksEach = kRunningTokens / kBlockSize + 1;
        return calls.num_free_blocks() == kNumGpuBlocks - 1 - kRunningRequests * kBlocksEach;
      });
}

template <class Manager, Groups kGroups>
void time_get_computed_blocks_hit(benchmark::State& state) {
  Calls<Manager> calls(kGroups);
  const KVRequest prompt{.request = inputs().prompt};
  calls.cache(prompt);
  time_passes(
      state, "call", 1, [] {}, [&] { calls.look_up(prompt); },
      [&] { return calls.hit().num_tokens == kPromptBlocks * kBlockSize; });
}

template <class Manager>
void time_get_computed_blocks_miss(benchmark::State& state) {
  Calls<Manager> calls(Groups::kFull);
  calls.cache(KVRequest{.request = inputs().prompt});
  const KVRequest stranger{.request = inputs().stranger};
  std::uint32_t num_hit_tokens = 0;
  time_passes(
      state, "call", kMissesAPass, [] {},
      [&] {
        for (std::uint32_t call = 0; call < kMissesAPass; ++call) {
          calls.look_up(stranger);
          num_hit_tokens += calls.hit().num_tokens;
        }
      },
      [&] { return num_hit_tokens == 0; });
}

template <class Manager>
void time_allocate_slots_hit(benchmark::State& state) {
  Calls<Manager> calls(Groups::kFull);
  const KVRequest prompt{.request = inputs().prompt};
  calls.cache(prompt);
  time_passes(
      state, "call", 1,
      [&] {
        calls.free(prompt);
        calls.look_up(prompt);
      },
      [&] { calls.allocate(prompt, 1, /*with_hit=*/true); },
      [&] { return calls.num_free_blocks() == kNumGpuBlocks - 1 - (kPromptBlocks + 1); });
}

template <class Manager>
void time_free(benchmark::State& state) {
  Calls<Manager> calls(Groups::kFull);
  const KVRequest prompt{.request = inputs().prompt};
  calls.cache(prompt);
  time_passes(
      state, "call", 1,
      [&] {
        calls.look_up(prompt);
        calls.allocate(prompt, 1, /*with_hit=*/true);
      },
      [&] { calls.free(prompt); }, [&] { return calls.num_free_blocks() == kNumGpuBlocks - 1; });
}

template <class Manager>
void register_benchmarks(const std::string& implementation) {
  const auto add = [&](const char* operation, void (*time)(benchmark::State&)) {
    add_benchmark(operation + implementation, benchmark::kMicrosecond, time)->Arg(kPromptBlocks);
  };
  add("AllocateSlotsDecode", time_allocate_slots_decode<Manager>);
  add("GetComputedBlocksHit", time_get_computed_blocks_hit<Manager, Groups::kFull>);
  add("GetComputedBlocksMiss", time_get_computed_blocks_miss<Manager>);
  add("AllocateSlotsHit", time_allocate_slots_hit<Manager>);
  add("Free", time_free<Manager>);
  add("GetComputedBlocksHitHybrid",
      time_get_computed_blocks_hit<Manager, Groups::kFullAndSlidingWindow>);
}

}  // namespace
}  // namespace kvfence

int main(int argc, char** argv) {
  kvfence::register_benchmarks<kvfence::reference::KVCacheManager>("Reference");
  kvfence::register_benchmarks<kvfence::optimized::KVCacheManager>("Optimized");
  return kvfence::run_benchmarks("kv_cache_bench", argc, argv);
}
