#pragma once

/// The races of a copy worker as small programs, each with two arms: one with the barrier that
/// orders it, and a control without, which must show wrong bytes.
///
/// Compute is held back by a latch, so that on a GPU the control arm has one outcome: the copy is
/// over before the latch opens. Each program first runs once with the latch open, so that no memory
/// is allocated and no kernel loaded while a stream is held. The same programs run on the virtual
/// device, where the schedule delays compute instead.
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
  cudaError_t code = cudaSuccess;  ///< the first unexpected code of the runtime
  std::string refusal = {};        ///< of the worker; the arm shows nothing then
  /// Whether the transfer was over before the latch opened.
  bool is_early = false;
  bool has_timed_out = false;           ///< the latch opened by itself: the arm shows nothing
  std::vector<std::string> wrong = {};  ///< the blocks with wrong contents

  bool has_run() const { return code == cudaSuccess && refusal.empty() && !has_timed_out; }
};

struct HeldRace {
  const char* id = "";
  const char* name = "";
  const char* bug = "";  ///< the planted bug of the control arm; empty: the bug is in the program
  std::vector<CopyPathKind> paths = {};
  /// Without the barrier a GPU always shows the race. False: it may, since a GPU need not do
  /// everything that the documentation allows.
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
