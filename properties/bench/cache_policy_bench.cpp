// Times the eviction policies: BM_<Stream><Policy><Implementation>/<capacity>.
//
// The streams are those of scenarios/adapters/bench_vllm_eviction.py, whose docstring defines them,
// so that the figures of the implementations are comparable. An iteration is one pass of a stream;
// its keys are made before it, off the clock. "hits" counts over all passes, whose number is fixed,
// so implementations that decide alike have the same count.

#include <benchmark/benchmark.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "contract/eviction/cache_policy.h"
#include "contract/pool/block_hash.h"
#include "optimized/eviction/cache_policy.h"
#include "properties/bench/timed_passes.h"

namespace kvfence {
namespace {

constexpr std::size_t kKeyBytes = 32;
constexpr std::size_t kPassAccesses = 1'000'000;
constexpr int kNumPasses = 3;
/// The blocks of a short prompt: so many keys are known when the first of them is looked up.
constexpr std::size_t kKeysAhead = 16;
constexpr std::uint32_t kDefaultCapacityMax = 10'000'000;

/// The simplest LRU: the standard list and the standard hash table, with the members of a policy
/// that the benchmark uses. The keys of the table are views into the nodes of the list, so none is
/// stored twice.
class StdLRU {
 public:
  explicit StdLRU(const CachePolicyConfig& config) { by_key_.reserve(config.capacity); }

  bool get(OffloadKeyView key, BlockStatus& out) const {
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) return false;
    out = found->second->status;
    return true;
  }

  ErrorCode insert(OffloadKeyView key, SlotId slot) {
    const auto node = blocks_.insert(blocks_.end(), {OffloadKey(key), {kNotReady, slot}});
    by_key_.emplace(node->key, node);
    return ErrorCode::kNone;
  }

  ErrorCode make_ready(OffloadKeyView key) {
    by_key_.find(key)->second->status.ref_cnt = 0;
    return ErrorCode::kNone;
  }

  void touch(std::span<const OffloadKeyView> keys) {
    for (std::size_t i = keys.size(); i > 0; --i) {
      const auto found = by_key_.find(keys[i - 1]);
      if (found != by_key_.end()) blocks_.splice(blocks_.end(), blocks_, found->second);
    }
  }

  /// Requires: num_blocks is 1, and nothing is protected.
  bool evict(std::uint32_t, std::span<const OffloadKeyView>, std::vector<EvictedBlock>& out) {
    for (auto node = blocks_.begin(); node != blocks_.end(); ++node) {
      if (node->status.ref_cnt != 0) continue;
      by_key_.erase(node->key);
      out.push_back({std::move(node->key), node->status.slot});
      blocks_.erase(node);
      return true;
    }
    return false;
  }

  std::uint32_t size() const { return static_cast<std::uint32_t>(by_key_.size()); }

 private:
  std::list<PolicyEntry> blocks_;  ///< oldest first
  std::unordered_map<OffloadKeyView, std::list<PolicyEntry>::iterator> by_key_;
};

enum class Stream { kZipf, kScan, kLoop };

/// Key bytes of numbers, back to back.
class Keys {
 public:
  void clear() { bytes_.clear(); }

  void add(std::uint64_t number) {
    char word[sizeof(number)];
    for (char& byte : word) {
      byte = static_cast<char>(number);
      number >>= 8;
    }
    bytes_ += digest(HashAlgorithm::kSha256Cbor, {word, sizeof(word)});
  }

  std::size_t size() const { return bytes_.size() / kKeyBytes; }
  OffloadKeyView operator[](std::size_t i) const {
    return OffloadKeyView(bytes_).substr(i * kKeyBytes, kKeyBytes);
  }

 private:
  std::string bytes_;
};

/// The keys of the numbers below a capacity, of one capacity at a time.
const Keys& first_keys(std::uint32_t capacity) {
  static Keys keys;
  if (keys.size() != capacity) {
    keys.clear();
    for (std::uint64_t number = 0; number < capacity; ++number) keys.add(number);
  }
  return keys;
}

/// The numbers of a stream.
class Numbers {
 public:
  Numbers(Stream stream, std::uint32_t capacity)
      : stream_(stream),
        capacity_(capacity),
        log_num_ranks_(std::log(4 * static_cast<double>(capacity) + 1)) {}

  std::uint64_t next() {
    const std::uint64_t i = position_++;
    switch (stream_) {
      case Stream::kZipf:
        return zipf(i);
      case Stream::kScan:
        return i / kScanLength % 2 == 0 ? zipf(i) : kFirstScanned + i;
      case Stream::kLoop:
        return (capacity_ + i) % (capacity_ + capacity_ / 4);
    }
    return 0;
  }

 private:
  static constexpr std::uint64_t kScanLength = 1000;
  static constexpr std::uint64_t kFirstScanned = std::uint64_t{1} << 32;

  std::uint64_t zipf(std::uint64_t i) const {
    const double uniform = static_cast<double>(splitmix64(i) >> 11) * 0x1p-53;
    return static_cast<std::uint64_t>(std::exp(uniform * log_num_ranks_)) - 1;
  }

  Stream stream_;
  std::uint64_t capacity_;
  double log_num_ranks_;
  std::uint64_t position_ = 0;
};

/// A policy and the operations of its owner.
template <class Policy>
class Cache {
 public:
  explicit Cache(const CachePolicyConfig& config) : capacity_(config.capacity), policy_(config) {}

  bool access(OffloadKeyView key) {
    BlockStatus status;
    if (policy_.get(key, status)) {
      policy_.touch({&key, 1});
      return true;
    }
    SlotId slot = policy_.size();
    if (slot == capacity_) slot = evict();
    policy_.insert(key, slot);
    policy_.make_ready(key);
    return false;
  }

  /// The key will be accessed soon, like all keys of a request after its first. The owner of the
  /// optimized policy announces it twice; a list of the standard library has no use for it.
  void announce(OffloadKeyView key) const {
    if constexpr (requires { policy_.prefetch(key); }) policy_.prefetch(key);
  }
  void announce_again(OffloadKeyView key) const {
    if constexpr (requires { policy_.prefetch_entry(key); }) policy_.prefetch_entry(key);
  }

  bool is_full() const { return policy_.size() == capacity_; }

 private:
  /// The slot of the evicted block. Neither side copies its key: the list moves it, the optimized
  /// policy shows the victim in place.
  SlotId evict() {
    if constexpr (requires { policy_.victims(); }) {
      policy_.evict(1, std::span<const typename Policy::Index>());
      return policy_.slot(policy_.victims().front());
    } else {
      evicted_.clear();
      policy_.evict(1, {}, evicted_);
      return evicted_.front().slot;
    }
  }

  std::uint32_t capacity_;
  Policy policy_;
  std::vector<EvictedBlock> evicted_;
};

template <class Policy>
void time_stream(benchmark::State& state, const CachePolicyConfig& config, Stream stream) {
  Cache<Policy> cache(config);
  const Keys& first = first_keys(config.capacity);
  for (std::size_t i = 0; i < first.size(); ++i) {
    cache.access(first[stream == Stream::kLoop ? i : first.size() - 1 - i]);
  }
  Numbers numbers(stream, config.capacity);
  Keys keys;
  std::size_t num_hits = 0;
  time_passes<CpuClock>(
      state, "access", kPassAccesses,
      [&] {
        keys.clear();
        for (std::size_t i = 0; i < kPassAccesses; ++i) keys.add(numbers.next());
      },
      [&] {
        for (std::size_t i = 0; i < kPassAccesses; ++i) {
          if (i + kKeysAhead < kPassAccesses) {
            cache.announce(keys[i + kKeysAhead]);
            cache.announce_again(keys[i + kKeysAhead / 2]);
          }
          num_hits += cache.access(keys[i]) ? 1 : 0;
        }
      },
      [&] { return cache.is_full(); });
  state.counters["hits"] = static_cast<double>(num_hits);
}

template <class Policy>
void register_benchmarks(const std::string& implementation, EvictionPolicy policy,
                         std::uint32_t capacity) {
  const std::pair<const char*, Stream> streams[] = {
      {"Zipf", Stream::kZipf}, {"Scan", Stream::kScan}, {"Loop", Stream::kLoop}};
  for (const auto& entry : streams) {
    const Stream stream = entry.second;
    const CachePolicyConfig config{.policy = policy, .capacity = capacity};
    add_benchmark(
        entry.first + std::string(policy == EvictionPolicy::kLRU ? "LRU" : "ARC") + implementation,
        benchmark::kMillisecond,
        [config, stream](benchmark::State& state) { time_stream<Policy>(state, config, stream); })
        ->Arg(capacity)
        ->Iterations(kNumPasses);
  }
}

}  // namespace
}  // namespace kvfence

int main(int argc, char** argv) {
  using kvfence::EvictionPolicy;
  for (std::uint32_t capacity = 10'000; capacity <= kvfence::kDefaultCapacityMax; capacity *= 10) {
    kvfence::register_benchmarks<kvfence::StdLRU>("Std", EvictionPolicy::kLRU, capacity);
    for (EvictionPolicy policy : {EvictionPolicy::kLRU, EvictionPolicy::kARC}) {
      kvfence::register_benchmarks<kvfence::optimized::CachePolicy>("Optimized", policy, capacity);
    }
  }
  return kvfence::run_benchmarks("cache_policy_bench", argc, argv);
}
