#pragma once

/// The codes of refusals. A refusal is part of the observation and is compared: both sides refuse
/// the same command with the same code, and a refused command changes nothing.

#include <cstdint>
#include <string_view>

#include "contract/core/check.h"
#include "contract/core/words.h"

namespace kvfence {

/// Each code has one meaning. Each operation lists its codes in the order in which they are
/// checked; the whole of a list argument is checked for one code before the next.
enum class ErrorCode : std::uint8_t {
  kNone,             ///< done
  kUnknownRequest,   ///< no request of that name was declared
  kUnknownBlock,     ///< a block id is not below num_gpu_blocks
  kNoFreeBlocks,     ///< more blocks asked for than are free
  kNotInProfile,     ///< the profile's release does not have this option
  kCachingDisabled,  ///< the pool was built with enable_caching=false
  kBadBlockSize,     ///< not a multiple of hash_block_size, or above max_block_size
  kBadRange,         ///< num_full_blocks is beyond the list of blocks
  kBadMask,          ///< the mask is not as long as the range that it masks
  kMissingHash,      ///< the request has no hash for that block yet
  kAlreadyHashed,    ///< the block carries a hash, or is listed twice
  kDoubleFree,  ///< a block would be released more often than it is held, or would be queued twice
  kAlreadyDeclared,    ///< a request of that name was declared before
  kAlreadyAllocated,   ///< the request holds blocks, or was computed in part
  kNotAllocated,       ///< the request holds no blocks
  kNoTokens,           ///< slots for no token
  kBeyondModelLength,  ///< more tokens than max_model_len
  kTableShrinks,       ///< fewer blocks wanted than the request holds
  kNotInConfig,        ///< the configuration does not have what the command is about
  kNoStepInFlight,     ///< no step waits for its output, or another one is older
  kStepsInFlight,      ///< as many steps wait for their output as may
  kWrongTokenCount,    ///< not as many sampled tokens as the step can have produced
  kSingleGroupOnly,    ///< not for a configuration with several groups
  kNotLoading,         ///< no load of the request is under way
  kNotFinished,        ///< the request is not finished, or holds nothing any more
  kUnknownKey,         ///< no block of that key is held
  kAlreadyStored,      ///< a block of that key is held
  kNotReady,           ///< the block is being written
  kAlreadyReady,       ///< the block is not being written
  kNotReading,         ///< fewer transfers read the block than are said to be done
  kUnknownJob,         ///< no transfer of that number, or it has ended
  kListedTwice,        ///< named twice where once is allowed
  kSeveralParams,      ///< several connectors have parameters for the client
  kShutDown,           ///< the worker takes no transfer any more
  kJobInFlight,        ///< a transfer of that number is deferred or in flight
  kCountsDiffer,       ///< the blocks of the two sides of a transfer do not fit
  kBlockInFlight,      ///< a transfer that is not over reads or writes the block
  kNotOrdered,         ///< nothing says what the transfer has to wait for
};

inline constexpr int kNumErrorCodes = static_cast<int>(ErrorCode::kNotOrdered) + 1;

/// The names of the codes in the line language.
constexpr auto words_of(ErrorCode) {
  return words({
      "none",
      "unknown_request",
      "unknown_block",
      "no_free_blocks",
      "not_in_profile",
      "caching_disabled",
      "bad_block_size",
      "bad_range",
      "bad_mask",
      "missing_hash",
      "already_hashed",
      "double_free",
      "already_declared",
      "already_allocated",
      "not_allocated",
      "no_tokens",
      "beyond_model_length",
      "table_shrinks",
      "not_in_config",
      "no_step_in_flight",
      "steps_in_flight",
      "wrong_token_count",
      "single_group_only",
      "not_loading",
      "not_finished",
      "unknown_key",
      "already_stored",
      "not_ready",
      "already_ready",
      "not_reading",
      "unknown_job",
      "listed_twice",
      "several_params",
      "shut_down",
      "job_in_flight",
      "counts_differ",
      "block_in_flight",
      "not_ordered",
  });
}

/// An assertion about kvfence itself, as KVFENCE_CHECK: an operation that its caller has checked is
/// not refused. It reports the caller's place.
inline void must(ErrorCode code, std::string_view why, const char* file = __builtin_FILE(),
                 int line = __builtin_LINE()) {
  if (code != ErrorCode::kNone) [[unlikely]]
    check_failed(file, line, to_text(code).data(), why);
}

}  // namespace kvfence
