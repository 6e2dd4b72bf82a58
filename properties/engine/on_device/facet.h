#pragma once

/// The devices of an engine: what the model runner computes on them, how their streams come along,
/// and what is observed of them.

#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "contract/core/flat_lists.h"
#include "contract/core/state_digest.h"
#include "contract/core/status.h"
#include "contract/engine/engine_target.h"
#include "properties/engine/model_runner.h"
#include "properties/engine/planned_step.h"
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
  /// What the model runners need of a step when it is executed.
  static void plan(const SchedulerObservation& shown, PlannedStep& step);

  /// What a command is run on.
  struct Around {
    std::list<PlannedStep>& in_flight;  ///< oldest first
    std::vector<EngineRank>& ranks;
  };
  ErrorCode run(const Execute& command, const Around& around, DeviceObserved& observed);
  ErrorCode run(const Advance& command, const Around& around, DeviceObserved& observed);
  ErrorCode run(const FailNext& command, const Around& around, DeviceObserved& observed);

  /// Takes what the ranks' halves report, as far as there are some, to their step. polled: that
  /// step, if all ranks have now been asked for it, else left alone.
  ErrorCode poll(const Poll& command, const Around& around, DeviceObserved& observed,
                 PlannedStep*& polled);
  /// Waits for the step's forwards. Replaces sampled by what all ranks say.
  static void take_sampled(const PlannedStep& step, std::vector<EngineRank>& ranks,
                           FlatLists<TokenId>& sampled);
  /// The oldest step is over.
  void end_step() { progress_.update(); }

  // What a drain begins and ends with.
  static void begin_drain(std::vector<EngineRank>& ranks);
  static void end_drain(std::vector<EngineRank>& ranks);
  static bool is_copying(const std::vector<EngineRank>& ranks);

  void observe(const std::vector<EngineRank>& ranks, std::size_t num_steps, bool has_state,
               DeviceObserved& observed);
  void add_to(StateHash& hash) const { hash.add_all(runners_, progress_); }

 private:
  void execute(PlannedStep& step, std::uint32_t number, EngineRank& rank);
  static void take_submitted(std::vector<EngineRank>& ranks, DeviceObserved& observed);
  void observe_pages(const std::vector<EngineRank>& ranks, DeviceObserved& observed);

  const EngineSetup* setup_ = nullptr;
  EngineRole role_ = EngineRole::kProducer;
  std::vector<ModelRunner> runners_;  ///< by rank
  RankProgress progress_;
};

}  // namespace kvfence::engine::on_device
