#pragma once

/// Puts any scheduler that satisfies the concept behind the interface that a lockstep drives, with
/// the world around it: a scripted connector, and a worker that takes steps in order.
///
/// Besides the scheduler's own codes, and looked for before them:
///   kAlreadyDeclared  add_request: the name was used before
///   kUnknownRequest   a name that was never added
///   kBadRange         finish_requests, finish_all_requests: the status is not a finished one
///   kNotInConfig      script_connector: no connector
///   kNoStepInFlight   update: nothing was planned
///   kWrongTokenCount  update: samples names a request twice, or one that is not in the step

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "contract/core/check.h"
#include "contract/scheduler/scheduler.h"
#include "contract/scheduler/scheduler_target.h"
#include "contract/scripted/scripted_connector.h"
#include "properties/core/driver.h"
#include "properties/scheduler/observer.h"

namespace kvfence {

/// make_scheduler builds the scheduler from its configuration and connector: the place where a
/// planted variant gets its bug.
template <Scheduler SchedulerType, class MakeScheduler>
class SchedulerDriver final : public DriverOf<SchedulerTarget> {
 public:
  SchedulerDriver(std::string name, MakeScheduler make_scheduler)
      : name_(std::move(name)), make_scheduler_(std::move(make_scheduler)) {}

  std::string name() const override { return name_; }

  std::optional<ImplementationFailure> start(const Config& config, const Setup& setup) override {
    KVConnectorHandle connector;
    if (config.connector) connector = KVConnectorHandle(std::make_unique<ScriptedConnector>());
    scheduler_.emplace(make_scheduler_(setup, std::move(connector)));
    observer_.reset();
    num_in_flight_ = 0;
    return std::nullopt;
  }

  void submit_typed(const Command& command, const World& world, Observe observe) override {
    Observer::forget_answer(observation_);
    observation_.error =
        std::visit([&](const auto& alternative) { return run(alternative, world); }, command);
    observe_connector_calls();
    observer_.observe(*scheduler_, observe, observation_);
  }

  void collect_typed(Observation& observation) override { observation = std::move(observation_); }

 private:
  using Observer = SchedulerObserver<SchedulerType>;

  ScriptedConnector* connector() {
    return static_cast<ScriptedConnector*>(scheduler_->connector());
  }

  RequestIndex index_of(const World& world, const std::string& name) const {
    return Observer::index_of(*scheduler_, world, name);
  }

  ErrorCode run(const scheduler::AddRequest& command, const World& world) {
    const scheduler::World::Entry* entry = world.find(command.id);
    if (!entry || !entry->is_new) return ErrorCode::kAlreadyDeclared;
    NewRequest request;
    request.id = command.id;
    request.spec = {command.tokens, std::nullopt, command.cache_salt, {}};
    if (command.lora_name) request.spec.lora = LoraRequest{*command.lora_name, command.lora_id};
    request.max_tokens = command.max_tokens;
    request.min_tokens = command.min_tokens;
    request.eos_token_id = command.eos_token;
    request.stop_token_ids = command.stop_tokens;
    request.priority = command.priority;
    request.arrival_time = command.arrival_time;
    request.skip_reading_prefix_cache = command.skip_reading_prefix_cache;
    request.needs_grammar = command.grammar;
    if (connector()) connector()->set_script(command.id, scheduler::make_script(command));
    RequestIndex index = 0;
    const ErrorCode error = scheduler_->add_request(request, index);
    if (error != ErrorCode::kNone) return error;
    observer_.add(index, command.id);
    return ErrorCode::kNone;
  }

  ErrorCode run(const scheduler::Schedule&, const World&) {
    if (num_in_flight_ == in_flight_.size()) in_flight_.emplace_back();
    SchedulerOutput& output = in_flight_[num_in_flight_];
    const ErrorCode error = scheduler_->schedule(output);
    if (error != ErrorCode::kNone) return error;
    ++num_in_flight_;
    observer_.observe_output(*scheduler_, output, observation_);
    return ErrorCode::kNone;
  }

  ErrorCode run(const scheduler::Update& command, const World& world) {
    for (const scheduler::Sample& sample : command.samples) {
      if (!world.find(sample.request)) return ErrorCode::kUnknownRequest;
    }
    if (!Observer::all_known(world, command.finished_recving) ||
        !Observer::all_known(world, command.finished_sending)) {
      return ErrorCode::kUnknownRequest;
    }
    if (num_in_flight_ == 0) return ErrorCode::kNoStepInFlight;
    const SchedulerOutput& output = in_flight_.front();
    if (!observer_.sample(command.samples, command.token, command.accepted, output,
                          runner_output_.sampled_token_ids)) {
      return ErrorCode::kWrongTokenCount;
    }

    KVConnectorOutput connector_output;
    connector_output.finished_recving =
        Observer::indices_of(*scheduler_, world, command.finished_recving);
    connector_output.finished_sending =
        Observer::indices_of(*scheduler_, world, command.finished_sending);
    connector_output.invalid_block_ids = command.invalid_blocks;
    runner_output_.kv_connector_output = connector_output.empty() ? nullptr : &connector_output;
    const ErrorCode error = scheduler_->update_from_output(output, runner_output_, outputs_);
    if (error != ErrorCode::kNone) return error;
    std::rotate(in_flight_.begin(), in_flight_.begin() + 1, in_flight_.end());
    --num_in_flight_;
    observer_.observe_outputs(outputs_, observation_);
    return ErrorCode::kNone;
  }

  ErrorCode run(const scheduler::UpdateDraftTokenIds& command, const World& world) {
    if (!world.find(command.request)) return ErrorCode::kUnknownRequest;
    return scheduler_->update_draft_token_ids(index_of(world, command.request), command.tokens);
  }

  ErrorCode run(const scheduler::GrammarCompiled& command, const World& world) {
    if (!world.find(command.request)) return ErrorCode::kUnknownRequest;
    scheduler_->grammar_compiled(index_of(world, command.request));
    return ErrorCode::kNone;
  }

  ErrorCode run(const scheduler::FinishRequests& command, const World& world) {
    if (!Observer::all_known(world, command.requests)) return ErrorCode::kUnknownRequest;
    if (!is_finished(command.status)) return ErrorCode::kBadRange;
    scheduler_->finish_requests(Observer::indices_of(*scheduler_, world, command.requests),
                                command.status);
    return ErrorCode::kNone;
  }

  ErrorCode run(const scheduler::FinishAllRequests& command, const World&) {
    if (!is_finished(command.status)) return ErrorCode::kBadRange;
    scheduler_->finish_all_requests(command.status);
    return ErrorCode::kNone;
  }

  ErrorCode run(const scheduler::SetPauseState& command, const World&) {
    scheduler_->set_pause_state(command.state);
    return ErrorCode::kNone;
  }

  ErrorCode run(const scheduler::ResetPrefixCache& command, const World&) {
    if (connector()) connector()->set_reset_fails(command.connector_fails);
    observation_.success.emplace() =
        scheduler_->reset_prefix_cache(command.reset_running_requests, command.reset_connector);
    return ErrorCode::kNone;
  }

  ErrorCode run(const scheduler::ScriptConnector& command, const World& world) {
    if (!world.find(command.request)) return ErrorCode::kUnknownRequest;
    if (!connector()) return ErrorCode::kNotInConfig;
    connector()->set_script(command.request, scheduler::make_script(command));
    return ErrorCode::kNone;
  }

  void observe_connector_calls() {
    if (!connector()) return;
    connector()->take_calls(calls_);
    if (calls_.empty()) return;
    auto& list = observation_.connector_calls.emplace();
    list.resize(calls_.size());
    for (std::size_t k = 0; k < list.size(); ++k) {
      list[k].method = calls_[k].method;
      list[k].request = calls_[k].request;
      list[k].num_tokens = calls_[k].num_tokens;
      list[k].answer = calls_[k].answer;
      static_cast<BlocksByGroup&>(list[k].blocks) = calls_[k].blocks;
    }
  }

  std::string name_;
  MakeScheduler make_scheduler_;
  std::optional<SchedulerType> scheduler_;
  Observer observer_;
  std::deque<SchedulerOutput> in_flight_;  ///< the first num_in_flight_, oldest first; then spares
  std::size_t num_in_flight_ = 0;
  ModelRunnerOutput runner_output_;
  EngineCoreOutputs outputs_;
  Observation observation_;
  std::vector<ConnectorCall> calls_;
};

}  // namespace kvfence
