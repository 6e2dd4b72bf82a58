#pragma once

/// The races of a copy worker as small programs, each in two arms: with the barrier that orders it,
/// and without, as the control that has to show wrong bytes.
///
/// Compute is held back by a latch, so that on a GPU the control arm has one outcome: the copy is
/// over before the latch opens. Each program is rehearsed with the latch open, so that no memory is
/// allocated and no kernel loaded while a stream is held. The same programs run on the virtual
/// device, where the schedule holds back instead.
///
/// Source: the mistakes of real workers; properties/planted/worker.edits cites the threads.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "cuda/copy_paths/copy_path.h"

namespace kvfence::cuda {

class RaceStage;

struct RaceOutcome {
  cudaError_t code = cudaSuccess;  ///< the first of the runtime's that was not expected
  std::string refusal = {};        ///< of the worker; nothing was shown then
  /// Whether the transfer was over before the latch opened.
  bool is_early = false;
  bool has_timed_out = false;           ///< the latch opened by itself: nothing was shown
  std::vector<std::string> wrong = {};  ///< the blocks that are not what they should be

  bool has_run() const { return code == cudaSuccess && refusal.empty() && !has_timed_out; }
};

struct HeldRace {
  const char* id = "";
  const char* name = "";
  const char* bug = "";  ///< of the control arm, by its name; empty: it is in the program
  std::vector<CopyPathKind> paths = {};
  /// Without the barrier a GPU always shows it. Otherwise it may: what is documented as allowed
  /// need not be what a GPU does.
  bool must_corrupt = true;
  /// Without the barrier the transfer is over before the latch opens; with it, never.
  bool is_early = false;
  struct Arm {
    bool has_barrier = false;
    bool is_early = false;  ///< the transfer is over before the latch opens
  };
  void (*program)(RaceStage& stage, const Arm& arm) = nullptr;
};

std::span<const HeldRace> held_races();

/// Runs one arm. `page_bytes`: of the blocks; a multiple of 16.
/// Cost: milliseconds; seconds where the latch times out.
RaceOutcome run_race(const HeldRace& race, CopyPathKind path, bool has_barrier,
                     std::size_t page_bytes);

}  // namespace kvfence::cuda
