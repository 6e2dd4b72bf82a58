#pragma once

/// The status of a request in a scheduler, and how far a scheduler is paused.

#include <cstdint>

#include "contract/core/words.h"

namespace kvfence {

enum class PauseState : std::uint8_t {
  kUnpaused,
  kPausedNew,  ///< running requests go on, nothing is admitted
  kPausedAll,  ///< nothing is scheduled
};
constexpr auto words_of(PauseState) { return words({"unpaused", "paused_new", "paused_all"}); }

/// "Finished" is everything after kPreempted.
enum class RequestStatus : std::uint8_t {
  kWaiting,
  kWaitingForGrammar,    ///< WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
  kWaitingForRemoteKVs,  ///< an asynchronous load is under way
  kRunning,
  kPreempted,
  kFinishedStopped,
  kFinishedLengthCapped,
  kFinishedAborted,
  kFinishedIgnored,
  kFinishedError,
  kFinishedRepetition,
};
/// Upstream's names in lower case.
constexpr auto words_of(RequestStatus) {
  return words({"waiting", "waiting_for_structured_output_grammar", "waiting_for_remote_kvs",
                "running", "preempted", "finished_stopped", "finished_length_capped",
                "finished_aborted", "finished_ignored", "finished_error", "finished_repetition"});
}

inline bool is_finished(RequestStatus status) { return status > RequestStatus::kPreempted; }

}  // namespace kvfence
