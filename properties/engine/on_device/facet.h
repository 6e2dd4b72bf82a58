#pragma once

/// The devices of an engine: the model runner's computation, the progress of their streams, and
/// their observations.

#include <cstdint>
#include <string>
#include <vector>

#include "contract/core/flat_lists.h"
#include "contract/core/state_digest.h"
#include "contract/core/status.h"
#include "contract/engine/engine_target.h"
#include "properties/engine/model_runner.h"
#include "properties/engine/rank.h"
#include "properties/engine/rank_progress.h"

namespace kvfence::engine::on_device {

class Facet {
 public:
  /// setup: of the engine, which outlives it. Requires: no forward is enqueued.
  void start(const EngineSetup& setup, EngineRole role);

  void add(const std::string& request, const RequestSpec& spec) {
    for (ModelRunner& runner : runners_) runner.add(request, spec);
  }
  /// Copies what the model runners need when the step is executed.
  static void plan(const SchedulerObservation& shown, PlannedStep& step);

  ErrorCode run(const Execute& command, Engine& engine, DeviceObserved& observed);
  ErrorCode run(const Advance& command, Engine& engine, DeviceObserved& observed);
  ErrorCode run(const FailNext& command, Engine& engine, DeviceObserved& observed);

  /// Adds the reports of the ranks' halves, if any, to their step. polled: set to that step once
  /// all ranks were polled for it, else unchanged.
  ErrorCode poll(const Poll& command, Engine& engine, DeviceObserved& observed,
                 PlannedStep*& polled);
  /// Waits for the oldest step's forwards. Replaces sampled by the tokens of all ranks.
  static void take_sampled(Engine& engine, FlatLists<TokenId>& sampled);
  /// The oldest step came back.
  void end_step() { progress_.update(); }

  // The start and the end of a drain.
  static void begin_drain(Engine& engine);
  static void end_drain(Engine& engine);
  static bool is_copying(const Engine& engine);

  void observe(const Engine& engine, bool has_state, DeviceObserved& observed) const;
  void add_to(StateHash& hash) const { hash.add_all(runners_, progress_); }

 private:
  void execute(PlannedStep& step, std::uint32_t number, EngineRank& rank);
  static void take_submitted(Engine& engine, DeviceObserved& observed);
  static void observe_pages(const Engine& engine, DeviceObserved& observed);

  const EngineSetup* setup_ = nullptr;
  EngineRole role_ = EngineRole::kProducer;
  std::vector<ModelRunner> runners_;  ///< by rank
  RankProgress progress_;
};

}  // namespace kvfence::engine::on_device
