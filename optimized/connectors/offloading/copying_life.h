#pragma once

/// For tests of the planted bugs of connectors that copy blocks.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "contract/connectors/kv_connector_worker.h"
#include "contract/connectors/kv_output_aggregator.h"
#include "contract/core/check.h"
#include "contract/scheduler/scheduler.h"
#include "contract/scripted/scripted_transfer_engine.h"

namespace kvfence::optimized {

/// What one step answered and left behind, but for what is the connector's own.
struct LifeObservation {
  ErrorCode code = ErrorCode::kNone;
  std::optional<bool> flag;
  std::vector<SchedulerOutput::Scheduled> scheduled;
  AggregatedOutput report;
  std::vector<RequestIndex> requests;
  std::vector<RequestIndex> running;
  std::vector<std::vector<ScriptedTransferEngine::Transfer>> transfers;
  friend bool operator==(const LifeObservation&, const LifeObservation&) = default;
};

/// Clients, a scheduler, workers and copy engines. Two lives with the same seed give their
/// connectors the same commands for as long as the answers are the same.
///
/// World has `scheduler` and `spec`, what both are built from; Side has make_scheduler(world),
/// make_worker(world), make_aggregator(num_workers). Observation is a LifeObservation. `Derived`
/// draws and observes what is its connector's own, and befriends this one:
///   draw_params(NewRequest&)
///   move_a_copy(ScriptedTransferEngine&)
///   observe_metadata(const KVConnectorMetadata&, Observation&)
///   observe_outputs(const EngineCoreOutputs&, Observation&)
///   observe_connector(Observation&)
template <class Derived, class World, class Side, class Observation>
class CopyingLife {
 public:
  CopyingLife(const World& world, const Side& side, std::uint32_t seed)
      : world_(world),
        scheduler_(side.make_scheduler(world)),
        aggregator_(side.make_aggregator(world.spec.num_workers)),
        engines_(world.spec.num_workers),
        random_(seed) {
    for (std::uint32_t rank = 0; rank < world.spec.num_workers; ++rank) {
      workers_.emplace_back(side.make_worker(world));
    }
  }

  Observation step() {
    Observation seen;
    switch (below(20)) {
      case 0:
      case 1:
      case 2:
        add(seen);
        break;
      case 3:
        if (below(4) == 0) finish();
        break;
      case 4:
        if (below(8) == 0) seen.flag = scheduler_.reset_prefix_cache(false, /*connector=*/flip());
        break;
      case 5:
      case 6:
      case 7:
      case 8:
        derived().move_a_copy(engines_[below(static_cast<std::uint32_t>(engines_.size()))]);
        break;
      default:
        if (steps_.empty() || (steps_.size() < max_steps() && flip())) {
          plan(seen);
        } else {
          update(seen);
        }
    }
    observe(seen);
    return seen;
  }

 protected:
  using SchedulerType =
      decltype(std::declval<const Side&>().make_scheduler(std::declval<const World&>()));
  using Aggregator = decltype(std::declval<const Side&>().make_aggregator(0));

  std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>(random_() % bound); }
  bool flip() { return below(2) == 0; }
  const World& world() const { return world_; }
  SchedulerType& scheduler() { return scheduler_; }

 private:
  static constexpr std::uint32_t kNumRequestsMax = 6;

  struct Planned {
    SchedulerOutput output;
    std::vector<std::string> finished;
  };

  std::size_t max_steps() const { return world_.scheduler.max_concurrent_batches; }
  Derived& derived() { return static_cast<Derived&>(*this); }

  void add(Observation& seen) {
    scheduler_.requests(seen.requests);
    if (seen.requests.size() >= kNumRequestsMax) return;
    NewRequest request;
    request.id = std::to_string(num_added_);
    const std::uint32_t num_tokens = 2 + below(30);
    const TokenId first = 100 * below(3);
    const std::uint32_t num_common = below(4) != 0 ? num_tokens : below(num_tokens);
    for (TokenId token = 0; token < num_tokens; ++token) {
      request.spec.tokens.push_back(first + (token < num_common ? token : 1'000 + token));
    }
    request.max_tokens = 1 + below(16);
    derived().draw_params(request);
    RequestIndex index = 0;
    seen.code = scheduler_.add_request(request, index);
    if (seen.code != ErrorCode::kNone) return;
    ++num_added_;
    if (index >= name_of_.size()) name_of_.resize(std::size_t{index} + 1);
    name_of_[index] = request.id;
  }

  void finish() {
    std::vector<RequestIndex> requests;
    scheduler_.requests(requests);
    if (requests.empty()) return;
    const RequestIndex request = requests[below(static_cast<std::uint32_t>(requests.size()))];
    scheduler_.finish_requests(std::span(&request, 1), RequestStatus::kFinishedAborted);
  }

  void plan(Observation& seen) {
    Planned& planned = steps_.emplace_back();
    seen.code = scheduler_.schedule(planned.output);
    if (seen.code != ErrorCode::kNone) {
      steps_.pop_back();
      return;
    }
    for (RequestIndex index : planned.output.finished) planned.finished.push_back(name_of_[index]);
    seen.scheduled = planned.output.scheduled;
    derived().observe_metadata(*planned.output.kv_connector_metadata, seen);
  }

  void update(Observation& seen) {
    const Planned planned = std::move(steps_.front());
    steps_.pop_front();
    run_on_all_ranks(planned, seen.report);
    const KVConnectorOutput report = report_of(seen.report);
    ModelRunnerOutput runner_output;
    for (const SchedulerOutput::Scheduled& entry : planned.output.scheduled) {
      if (entry.samples) runner_output.sampled_token_ids.push_back(1 + below(3));
      runner_output.sampled_token_ids.end_list();
    }
    runner_output.kv_connector_output = report.empty() ? nullptr : &report;
    EngineCoreOutputs out;
    seen.code = scheduler_.update_from_output(planned.output, runner_output, out);
    if (seen.code != ErrorCode::kNone) {
      runner_output.kv_connector_output = nullptr;
      const ErrorCode error = scheduler_.update_from_output(planned.output, runner_output, out);
      KVFENCE_CHECK(error == ErrorCode::kNone,
                    "what a broken connector reports may be refused, but not the step");
    }
    derived().observe_outputs(out, seen);
  }

  void run_on_all_ranks(const Planned& planned, AggregatedOutput& report) {
    const KVConnectorMetadata& metadata = *planned.output.kv_connector_metadata;
    std::vector<KVConnectorWorkerOutput> outputs(workers_.size());
    for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
      KVConnectorWorkerHandle& worker = workers_[rank];
      worker->handle_preemptions(metadata, engines_[rank]);
      worker->start_load_kv(metadata, engines_[rank]);
      if (planned.output.total_num_scheduled_tokens > 0) {
        worker->wait_for_save(metadata, engines_[rank]);
      }
      worker->get_finished(metadata, planned.finished, engines_[rank], outputs[rank]);
    }
    aggregator_.aggregate(outputs, report);
  }

  KVConnectorOutput report_of(const AggregatedOutput& aggregated) const {
    KVConnectorOutput report;
    report.finished_recving = indices_of(aggregated.finished_recving);
    report.finished_sending = indices_of(aggregated.finished_sending);
    report.invalid_block_ids = aggregated.invalid_block_ids;
    report.completed_jobs = aggregated.completed_jobs;
    return report;
  }

  std::vector<RequestIndex> indices_of(const std::vector<std::string>& names) const {
    std::vector<RequestIndex> indices;
    for (const std::string& name : names) {
      if (const auto index = scheduler_.find_request(name)) indices.push_back(*index);
    }
    return indices;
  }

  void observe(Observation& seen) {
    scheduler_.requests(seen.requests);
    scheduler_.running(seen.running);
    for (const ScriptedTransferEngine& engine : engines_) {
      seen.transfers.push_back(engine.transfers());
    }
    derived().observe_connector(seen);
  }

  const World& world_;
  SchedulerType scheduler_;
  Aggregator aggregator_;
  std::vector<KVConnectorWorkerHandle> workers_;
  std::vector<ScriptedTransferEngine> engines_;
  std::mt19937 random_;
  std::deque<Planned> steps_;
  std::uint32_t num_added_ = 0;
  std::vector<std::string> name_of_;  ///< by index, the last that had it
};

}  // namespace kvfence::optimized
