#pragma once

/// Replays recorded traffic through a whole engine, down to the bytes: scheduler,
/// OffloadingConnector, copy workers and device (assembly offloading_on_device), with the toy model
/// instead of the recorded one.
///
/// A hash id stands for one block of block_size tokens, so that a token of the toy model stands for
/// kMooncakeBlockTokens / block_size recorded ones, of prompt and output, rounded up. The sampled
/// tokens are the model's own; two requests share them only if their whole prompts are equal.
///
/// Requests arrive in the order of the trace, as soon as fewer than `concurrency` are unfinished.
/// Each step is planned and executed; then each direction runs up to transfers_a_step transfers;
/// then the step is polled, and the scheduler updated, with asynchronous scheduling one step later.
/// The replay depends only on the trace and the options.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "contract/core/implementation.h"
#include "contract/engine/engine_target.h"
#include "scenarios/replay/mooncake_trace.h"
#include "scenarios/replay/replay_sides.h"
#include "scenarios/replay/scheduler_replay.h"

namespace kvfence {

struct EngineReplayOptions {
  std::uint32_t gpu_blocks = 512;    ///< with the null block, as everywhere
  std::uint32_t cpu_blocks = 4'096;  ///< slots of CPU memory, of a GPU block each
  std::uint32_t block_size = 16;     ///< tokens of the toy model
  std::uint32_t concurrency = 16;    ///< unfinished requests at a time
  std::uint32_t max_num_batched_tokens = 512;
  bool async_scheduling = false;  ///< with two steps in flight
  std::uint32_t transfers_a_step = 2;
  Profile profile = Profile::kV019;
  /// In lockstep, the whole state is compared after every n-th command and the last; answers and
  /// numbers always.
  std::uint32_t state_every = 64;
  std::size_t requests_max = SIZE_MAX;  ///< replays the first ones only
};

/// The same request with lengths in tokens of the toy model.
MooncakeRequest in_toy_tokens(const MooncakeRequest& request, std::uint32_t block_size);

/// The engine's configuration for these options and this trace.
engine::Config config_of(const EngineReplayOptions& options,
                         std::span<const MooncakeRequest> requests);

/// What is wrong with the options; nothing if a replay of this trace can run with them.
std::optional<InputError> validate(const EngineReplayOptions& options,
                                   std::span<const MooncakeRequest> requests);

/// Copies of one direction.
struct CopiesMade {
  std::uint64_t transfers = 0;
  std::uint64_t blocks = 0;
  friend bool operator==(const CopiesMade&, const CopiesMade&) = default;
};

/// What became of a request. Tokens are the toy model's.
struct ReplayedRequest {
  std::uint32_t prompt_tokens = 0;
  std::uint32_t output_tokens = 0;
  /// Leading prompt tokens that were found when it was first scheduled: in GPU memory, or loaded
  /// for it from CPU memory.
  std::uint32_t gpu_hit_tokens = 0;
  std::uint32_t cpu_hit_tokens = 0;
  std::uint32_t preemptions = 0;
  friend bool operator==(const ReplayedRequest&, const ReplayedRequest&) = default;
};

/// A completed request had each token as without a cache. A prompt counts once it is scheduled.
struct EngineReplayResult : EngineReplayCounts, ReplayEnd {
  std::uint64_t gpu_hit_tokens = 0;
  std::uint64_t cpu_hit_tokens = 0;
  CopiesMade stored;
  CopiesMade loaded;
  std::uint32_t peak_referenced = 0;      ///< blocks; the null block counts
  std::vector<ReplayedRequest> replayed;  ///< as the trace has them
};

/// Replays a trace until no request, step or transfer remains, or until the first divergence.
///
/// The answers of `expected` decide the next commands. With `actual` both run in lockstep with
/// equality and rules; without it `expected` runs alone. In either case the replay itself compares
/// every token with a run without a cache, and looks for refusals, races, misuses, an engine that
/// makes no progress and blocks that are never freed.
///
/// Requires: valid options.
EngineReplayResult replay_traffic(std::span<const MooncakeRequest> requests,
                                  const EngineReplayOptions& options, Implementation& expected,
                                  Implementation* actual, const ReplayProgress& progress = {});

}  // namespace kvfence
