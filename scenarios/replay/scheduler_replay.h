#pragma once

/// Replays recorded traffic through a whole scheduler, in simulated time: requests arrive at the
/// times of the trace, the scheduler plans steps, and a simple model gives the time of a step.
///
/// A request has the tokens that its hash ids stand for (prompt_of), generates output_length tokens
/// and ends there. Time passes only while a step runs, and until the next arrival if there is
/// nothing to do; a step of n tokens takes step_us + n * token_ns / 1000 microseconds, one without
/// tokens takes none. Requests that arrived are added before each step is planned. With
/// asynchronous scheduling a second step is planned while the first one runs; they run one after
/// the other.
///
/// The replay depends only on the trace and the options, not on the speed of the scheduler.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "contract/core/implementation.h"
#include "contract/core/line.h"
#include "contract/engine/engine_target.h"
#include "contract/scheduler/scheduler.h"
#include "scenarios/replay/mooncake_trace.h"
#include "scenarios/replay/replay_sides.h"

namespace kvfence {

struct SchedulerReplayOptions {
  std::uint32_t gpu_blocks = 65'536;  ///< with the null block, as everywhere
  std::uint32_t block_size = 16;      ///< tokens
  std::uint32_t max_num_seqs = 256;
  std::uint32_t max_num_batched_tokens = 8192;
  std::uint32_t max_model_len = 0;  ///< tokens; 0: the longest request of the trace
  std::uint32_t long_prefill_token_threshold = 0;
  SchedulingPolicy policy = SchedulingPolicy::kFCFS;
  std::uint32_t num_priorities = 1;  ///< request i has priority i modulo this
  bool async_scheduling = false;     ///< with two steps in flight
  std::uint32_t num_speculative_tokens = 0;
  /// The number of accepted drafts of the first list of drafts, of the second, ..., repeated.
  /// Empty: all.
  std::vector<std::uint32_t> accepted = {};
  HashAlgorithm hash_algorithm = HashAlgorithm::kXxhashCbor;  ///< another changes no figure
  Profile profile = Profile::kV019;
  bool enable_kv_cache_events = false;  ///< costs time, changes no figure
  /// In lockstep, the whole state is compared after every n-th command; answers and numbers always.
  std::uint32_t state_every = 64;

  std::uint32_t block_tokens = kMooncakeBlockTokens;  ///< prompt tokens of a hash id
  std::uint32_t step_us = 5000;                       ///< microseconds
  std::uint32_t token_ns = 20'000;                    ///< nanoseconds
  std::size_t requests_max = SIZE_MAX;                ///< replays the first ones only
  std::uint32_t interval_ms = 0;  ///< of the time series; 0: a 200th of the trace, at least 100
};

/// The engine's configuration for these options and this trace: a scheduler without a connector.
engine::Config config_of(const SchedulerReplayOptions& options,
                         std::span<const MooncakeRequest> requests);

/// What is wrong with the options; nothing if a replay of this trace can run with them.
std::optional<InputError> validate(const SchedulerReplayOptions& options,
                                   std::span<const MooncakeRequest> requests);

/// The prompt: each hash id stands for block_tokens tokens, of which the first is the id and the
/// others count up from 1. Equal ids in equal places give equal tokens, and since ids are
/// prefix-chained, two prompts share a block of any size only where the trace says so.
///
/// Requires: hash_ids for all of input_length.
std::vector<TokenId> prompt_of(const MooncakeRequest& request, std::uint32_t block_tokens);

/// The report on a refusal.
inline constexpr const char* kEnginePromise =
    "the traffic asks only for what an engine has to grant";

/// Microseconds of simulated time, over the requests that have them. Percentiles are the smallest
/// value that at least that share of the values does not exceed.
struct Distribution {
  std::size_t num = 0;
  double mean = 0;
  std::uint64_t p50 = 0;
  std::uint64_t p99 = 0;
  std::uint64_t max = 0;
};
Distribution distribution_of(std::vector<std::uint64_t> values);

/// A number over the time in which steps ran; the mean is weighted with it.
struct NumberRange {
  std::uint32_t min = 0;
  std::uint32_t max = 0;
  double mean = 0;

  void add(std::uint32_t value, std::uint64_t duration_us);

 private:
  std::uint64_t num_ = 0;
  double weighted_sum_ = 0;
  double weight_ = 0;
};

/// A row of the time series. Sums count the steps that ended in (end - interval, end]; numbers are
/// those at the end.
struct SchedulerSample {
  std::uint64_t end_ms = 0;
  std::uint32_t running = 0;
  std::uint32_t waiting = 0;  ///< arrived, not running; those that are not admissible included
  BlockCounts counts;
  std::uint32_t steps = 0;
  std::uint64_t tokens = 0;  ///< scheduled
  std::uint32_t preemptions = 0;
  std::uint64_t admitted_tokens = 0;  ///< of the prompts that were scheduled for the first time
  std::uint64_t found_tokens = 0;     ///< of them, in the prefix cache
  std::uint64_t queries = 0;          ///< PrefixCacheStats
  std::uint64_t hits = 0;

  /// As SchedulerReplayResult::hit_rate.
  double hit_rate() const;
  friend bool operator==(const SchedulerSample&, const SchedulerSample&) = default;
};

/// What became of the requests of any engine.
struct EngineReplayCounts {
  std::size_t requests = 0;      ///< arrived
  std::size_t refused = 0;       ///< by add_request: too long, or without tokens
  std::size_t completed = 0;     ///< with all their output
  std::size_t never_fit = 0;     ///< ended since they do not fit into the empty pool
  std::size_t cut_short = 0;     ///< reached max_model_len first
  std::uint64_t steps = 0;       ///< with tokens
  std::uint64_t idle_steps = 0;  ///< without
  std::uint64_t prompt_tokens = 0;
  std::uint64_t output_tokens = 0;
  std::uint64_t preemptions = 0;
};

/// The commands, and the step of a divergence, count the calls of schedule, from 1. No commands are
/// kept.
struct SchedulerReplayResult : EngineReplayCounts, ReplayEnd {
  std::uint64_t tokens = 0;           ///< scheduled
  std::uint64_t admitted_tokens = 0;  ///< of the prompts that were scheduled for the first time
  std::uint64_t found_tokens = 0;     ///< of them, in the prefix cache
  PrefixCacheStats prefix_cache;      ///< sums
  std::uint64_t draft_tokens = 0;
  std::uint64_t accepted_draft_tokens = 0;
  std::uint64_t end_us = 0;   ///< simulated time at the end
  std::uint64_t busy_us = 0;  ///< of it, steps ran

  Distribution queueing;         ///< from arrival to the step in which it is first scheduled
  Distribution first_token;      ///< from arrival to its first output
  Distribution completion;       ///< from arrival to its end
  Distribution time_per_output;  ///< after the first, for requests with more than one
  NumberRange running;
  NumberRange waiting;
  NumberRange empty;
  NumberRange cached;
  NumberRange referenced;
  std::vector<SchedulerSample> samples;

  /// Wall time of schedule and update, including the driver's observation: the only figure that
  /// differs from run to run.
  double scheduler_seconds = 0;

  /// Share of found among admitted tokens: each prompt counts once.
  double hit_rate() const;

  /// Share of hits among queries as upstream counts them: a request that waits for room counts at
  /// each attempt to admit it, so that this falls when requests queue. Without the lookups of
  /// preempted requests.
  double lookup_hit_rate() const;
};

/// Replays a trace until its last request ended, or until the first divergence: two schedulers
/// that differ, or one that fails well-formed traffic (refuses it, plans more than the token budget
/// or runs more than max_num_seqs requests, loses blocks, ends a request with a wrong number of
/// tokens, stops making progress).
///
/// The answers of `expected` decide the next commands. With `actual` both run in lockstep with
/// equality and rules; without it `expected` runs alone. tap: with enable_kv_cache_events.
///
/// Requires: valid options.
SchedulerReplayResult replay_traffic(std::span<const MooncakeRequest> requests,
                                     const SchedulerReplayOptions& options,
                                     Implementation& expected, Implementation* actual,
                                     const ReplayProgress& progress = {},
                                     const EventsTap& tap = {});

}  // namespace kvfence
