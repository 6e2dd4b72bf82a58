#pragma once

/// Replays recorded traffic through a block pool that serves as a prefix cache, command by command:
/// through two implementations in lockstep, or through one alone for the figures.
///
/// A request declares its prompt, looks its blocks up until the first miss, touches the hits, takes
/// new blocks for the rest and caches them. It ends when `concurrency` later ones are running, or
/// earlier if its blocks are needed (the oldest first), and frees its blocks tail first, as
/// vLLM does, so that the ends of chains are evicted before their beginnings.
///
/// One symbol stands for a whole block of the trace (hash_block_size=1, the hash id as the token):
/// the ids are prefix-chained already, so equal ids have equal chains of block hashes, and 512
/// invented tokens per block would cost time and decide nothing.
///
/// Only prompts are replayed. The last, partly filled block of a prompt has an id in the trace and
/// counts as a full one, as in the published hit rates.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "contract/core/implementation.h"
#include "contract/pool/block_pool_target.h"
#include "scenarios/replay/mooncake_trace.h"
#include "scenarios/replay/replay_sides.h"

namespace kvfence {

struct TrafficReplayOptions {
  std::uint32_t gpu_blocks = 10'000;  ///< with the null block, as everywhere
  /// Requests that hold their blocks at a time. The default is about what the conversation trace
  /// keeps running: 3.4 requests per second, some five seconds each.
  std::uint32_t concurrency = 16;
  HashAlgorithm hash_algorithm = HashAlgorithm::kXxhashCbor;  ///< another changes no figure
  bool enable_kv_cache_events = false;  ///< events are taken after every request
  Profile profile = Profile::kV019;
  /// The whole state is compared after every n-th command and the last; answers and numbers always.
  std::uint32_t state_every = 64;
  std::size_t requests_max = SIZE_MAX;  ///< replays the first ones only
  std::uint32_t samples_max = 200;      ///< length of the time series
};

/// The pool's configuration for these options.
block_pool::Config config_of(const TrafficReplayOptions& options);

/// What is wrong with the options; nothing if a replay can run with them.
std::optional<InputError> validate(const TrafficReplayOptions& options);

/// A point of the time series: right after a request was admitted.
struct TrafficSample {
  std::size_t requests_done = 0;
  std::uint64_t timestamp_ms = 0;  ///< latest arrival so far
  BlockCounts counts;
  std::uint64_t blocks = 0;  ///< these three since the start
  std::uint64_t hits = 0;
  std::uint64_t evictions = 0;

  double hit_rate() const;
  friend bool operator==(const TrafficSample&, const TrafficSample&) = default;
};

struct TrafficReplayResult : ReplayEnd {
  std::size_t requests = 0;   ///< done, those too large included
  std::size_t too_large = 0;  ///< skipped: more blocks than the pool has besides the null block
  std::uint64_t blocks = 0;   ///< prompt blocks of the others
  std::uint64_t hits = 0;     ///< of them, found in the prefix cache
  /// Blocks that lost their cached content when they were handed out: what num_cached fell by
  /// during get_new_blocks, where nothing else can change it.
  std::uint64_t evictions = 0;
  std::uint32_t peak_referenced = 0;  ///< the null block counts
  std::vector<TrafficSample> samples;

  double hit_rate() const;
};

/// Replays a trace, until its end or the first divergence.
///
/// The answers of `expected` (which blocks, how many free) decide the next commands. With `actual`
/// both run in lockstep with equality and rules; without it `expected` runs alone, and only
/// refusals are looked for.
///
/// tap: with enable_kv_cache_events.
///
/// Requires: valid options.
/// Cost:     keeps all commands until the end, to report a divergence as a scenario.
TrafficReplayResult replay_traffic(std::span<const MooncakeRequest> requests,
                                   const TrafficReplayOptions& options, Implementation& expected,
                                   Implementation* actual, const ReplayProgress& progress = {},
                                   const EventsTap& tap = {});

struct HitRatePoint {
  std::uint32_t gpu_blocks = 0;
  TrafficReplayResult result;
};

/// The same traffic through pools of several sizes, in the order given (options.gpu_blocks is not
/// used); stops after a size that diverged. progress counts the requests of all sizes.
///
/// Requires: options that are valid with each of the sizes.
std::vector<HitRatePoint> hit_rate_curve(std::span<const MooncakeRequest> requests,
                                         std::span<const std::uint32_t> sizes,
                                         const TrafficReplayOptions& options,
                                         Implementation& expected, Implementation* actual,
                                         const ReplayProgress& progress = {});

}  // namespace kvfence
