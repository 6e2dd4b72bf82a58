#pragma once

/// Replays recorded traffic over two tiers: a GPU pool, and below it CPU memory under an offloading
/// manager, driven as by vLLM's OffloadingConnector.
///
/// The requests come one after the other, in order of arrival; a transfer ends before the next
/// command. The blocks of a request after its GPU hits are *asked*. For each request:
///
///   v0.19  touch all its blocks; look up what is asked
///   v0.23  look up what is asked, key by key until the first that is not ready; touch all
///   both   load the leading blocks that are ready: these are *found*; then store what comes after
///          them, or, if none was found, every block of the request; where something is written,
///          touch all again
///
/// A request whose blocks are all GPU hits is not looked up. A refused store is not repeated.
/// Source: vLLM v0.19.0 and v0.23.0
/// distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py get_num_new_matched_tokens,
/// update_state_after_alloc, _get_reqs_to_store (v0.23.0: _build_store_jobs).
///
/// A block is what a hash id of the trace stands for, the last and partly filled one included, as
/// in scenarios/replay/traffic_replay.h.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "contract/core/implementation.h"
#include "contract/offload/offload_target.h"
#include "scenarios/replay/offload_requests.h"

namespace kvfence {

/// Most slots of a CPU tier: the limit of the optimized manager.
inline constexpr std::uint32_t kCpuBlocksMax = std::uint32_t{1} << 28;

struct OffloadReplayOptions {
  std::uint32_t gpu_blocks = 2'048;  ///< of the GPU tier, with the null block
  std::uint32_t concurrency = 16;    ///< requests that hold GPU blocks at a time
  std::vector<std::uint32_t> cpu_blocks = {1'000,  2'000,  5'000,   10'000,
                                           20'000, 50'000, 100'000, 200'000};
  std::vector<EvictionPolicy> policies = {EvictionPolicy::kLRU, EvictionPolicy::kARC};
  std::uint32_t store_threshold = 0;  ///< lookups before a block may be stored; below 2: no filter
  Profile profile = Profile::kV019;
  bool enable_events = false;  ///< taken after every store
  /// In lockstep, the whole state is compared after every n-th command and the last; answers and
  /// numbers always.
  std::uint32_t state_every = 64;
  std::size_t requests_max = SIZE_MAX;  ///< replays the first ones only
};

/// The GPU tier's share of the options.
TrafficReplayOptions gpu_options_of(const OffloadReplayOptions& options);

/// The manager's configuration.
offload::Config config_of(const OffloadReplayOptions& options, EvictionPolicy policy,
                          std::uint32_t cpu_blocks);

/// What is wrong with the options; nothing if a replay can run with them.
std::optional<InputError> validate(const OffloadReplayOptions& options);

/// The figures of one manager.
struct OffloadTierResult : ReplayEnd {
  std::uint64_t asked = 0;    ///< blocks after the GPU hits
  std::uint64_t found = 0;    ///< of them, leading ones that were ready
  std::uint64_t stored = 0;   ///< blocks written
  std::uint64_t evicted = 0;  ///< blocks evicted for them
  std::uint64_t refused = 0;  ///< requests whose store was refused
};

/// Drives one manager until the end or the first divergence.
///
/// The answers of `expected` decide the next commands. With `actual` both run in lockstep with
/// equality and rules; without it `expected` runs alone, its state is never read, and only refusals
/// are looked for.
///
/// Requires: a valid configuration.
OffloadTierResult replay_offload_tier(std::span<const OffloadRequest> requests,
                                      const offload::Config& config, std::uint32_t state_every,
                                      Implementation& expected, Implementation* actual,
                                      const ReplayProgress& progress = {});

/// A capacity of the CPU tier, with the figures of each policy.
struct OffloadPoint {
  std::uint32_t cpu_blocks = 0;
  std::vector<OffloadTierResult> results;  ///< one per policy of the options, in their order
  std::uint64_t optimum = 0;               ///< scenarios/replay/offload_optimum.h
};

struct OffloadReplayResult {
  OffloadRequests traffic;
  std::vector<EvictionPolicy> policies;
  std::vector<OffloadPoint> points;  ///< in the order of the options
  std::uint64_t found_max = 0;       ///< the optimum without a bound on the capacity

  /// Shares from 0 to 1; 0 of nothing. Found of asked, and GPU hits and found of all blocks.
  double cpu_hit_rate(std::uint64_t found) const;
  double hit_rate(std::uint64_t found) const;

  std::size_t commands() const;
  /// The divergence of the last run, which ended the replay; null if all runs agreed.
  const OffloadTierResult* diverged() const;
};

/// Runs every policy at every capacity, and the optimum; stops after a run that diverged.
/// progress counts the requests of all runs.
///
/// Requires: valid options.
OffloadReplayResult replay_offload_tiers(OffloadRequests traffic,
                                         const OffloadReplayOptions& options,
                                         Implementation& expected, Implementation* actual,
                                         const ReplayProgress& progress = {});

}  // namespace kvfence
