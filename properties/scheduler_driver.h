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
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "contract/check.h"
#include "contract/implementation.h"
#include "contract/scheduler.h"
#include "contract/scheduler_target.h"
#include "contract/scripted_connector.h"

namespace kvfence {

/// make_scheduler builds the scheduler from its configuration and connector: the place where a
/// planted variant gets its bug.
template <Scheduler SchedulerType, class MakeScheduler>
class SchedulerDriver final : public Implementation<SchedulerTarget> {
 public:
  SchedulerDriver(std::string name, MakeScheduler make_scheduler)
      : name_(std::move(name)), make_scheduler_(std::move(make_scheduler)) {}

  std::string name() const override { return name_; }

  std::optional<ImplementationFailure> reset(const Config& config) override {
    const Parsed<SchedulerConfig> parsed = make_scheduler_config(config);
    KVFENCE_CHECK(parsed, "reset with a configuration that was not validated");
    KVConnectorHandle connector;
    if (config.connector) connector = KVConnectorHandle(std::make_unique<ScriptedConnector>());
    scheduler_.emplace(make_scheduler_(*parsed, std::move(connector)));
    names_.clear();
    num_in_flight_ = 0;
    return std::nullopt;
  }

  std::optional<ImplementationFailure> submit(const Command& command, const World& world,
                                              Observe observe) override {
    forget_answer();
    observation_.error =
        std::visit([&](const auto& alternative) { return run(alternative, world); }, command);
    observe_connector_calls();
    observe_numbers();
    if (observe == Observe::kState) {
      observe_state();
    } else {
      forget_state();
    }
    return std::nullopt;
  }

  std::optional<ImplementationFailure> collect(Observation& observation) override {
    std::swap(observation, observation_);
    return std::nullopt;
  }

 private:
  using Names = std::vector<std::string>;

  /// Indices from here on stand for names whose request is gone; a scheduler has no such index.
  static constexpr RequestIndex kGone = 0x8000'0000;

  void forget_answer() {
    observation_.scheduled.reset();
    observation_.new_reqs.reset();
    observation_.cached_reqs.reset();
    observation_.common_prefix.reset();
    observation_.preempted.reset();
    observation_.finished.reset();
    observation_.new_block_ids.reset();
    observation_.never_fits.reset();
    observation_.outputs.reset();
    observation_.events.reset();
    observation_.stats.reset();
    observation_.connector_stats.reset();
    observation_.spec_stats.reset();
    observation_.success.reset();
    observation_.connector_calls.reset();
  }

  void forget_state() {
    observation_.running.reset();
    observation_.waiting.reset();
    observation_.skipped_waiting.reset();
    observation_.requests.reset();
    observation_.free_queue.reset();
    observation_.ref_cnts.reset();
    observation_.keys.reset();
    observation_.tables.reset();
  }

  ScriptedConnector* connector() {
    return static_cast<ScriptedConnector*>(scheduler_->connector());
  }

  RequestIndex index_of(const World& world, const std::string& name) const {
    const std::optional<RequestIndex> index = scheduler_->find_request(name);
    return index ? *index : kGone + world.find(name)->number;
  }

  bool all_known(const World& world, const Names& names) const {
    return std::all_of(names.begin(), names.end(),
                       [&](const std::string& name) { return world.find(name) != nullptr; });
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
    if (index >= names_.size()) names_.resize(index + 1);
    names_[index] = command.id;
    return ErrorCode::kNone;
  }

  ErrorCode run(const scheduler::Schedule&, const World&) {
    if (num_in_flight_ == in_flight_.size()) in_flight_.emplace_back();
    SchedulerOutput& output = in_flight_[num_in_flight_];
    const ErrorCode error = scheduler_->schedule(output);
    if (error != ErrorCode::kNone) return error;
    ++num_in_flight_;
    observe_output(output);
    return ErrorCode::kNone;
  }

  ErrorCode run(const scheduler::Update& command, const World& world) {
    for (const scheduler::Sample& sample : command.samples) {
      if (!world.find(sample.request)) return ErrorCode::kUnknownRequest;
    }
    if (!all_known(world, command.finished_recving) ||
        !all_known(world, command.finished_sending)) {
      return ErrorCode::kUnknownRequest;
    }
    if (num_in_flight_ == 0) return ErrorCode::kNoStepInFlight;
    const SchedulerOutput& output = in_flight_.front();
    if (!sample(command, output)) return ErrorCode::kWrongTokenCount;

    KVConnectorOutput connector_output;
    for (const std::string& name : command.finished_recving) {
      connector_output.finished_recving.push_back(index_of(world, name));
    }
    for (const std::string& name : command.finished_sending) {
      connector_output.finished_sending.push_back(index_of(world, name));
    }
    connector_output.invalid_block_ids = command.invalid_blocks;
    const bool has_reports = !command.finished_recving.empty() ||
                             !command.finished_sending.empty() || !command.invalid_blocks.empty();
    runner_output_.kv_connector_output = has_reports ? &connector_output : nullptr;
    const ErrorCode error = scheduler_->update_from_output(output, runner_output_, outputs_);
    if (error != ErrorCode::kNone) return error;
    std::rotate(in_flight_.begin(), in_flight_.begin() + 1, in_flight_.end());
    --num_in_flight_;
    observe_outputs();
    return ErrorCode::kNone;
  }

  /// Fills runner_output_.sampled_token_ids. False: samples does not fit the step.
  bool sample(const scheduler::Update& command, const SchedulerOutput& output) {
    FlatLists<TokenId>& sampled = runner_output_.sampled_token_ids;
    sampled.clear();
    std::size_t num_named = 0;
    for (const SchedulerOutput::Scheduled& scheduled : output.scheduled) {
      const auto named = std::find_if(
          command.samples.begin(), command.samples.end(),
          [&](const scheduler::Sample& each) { return each.request == names_[scheduled.request]; });
      if (named != command.samples.end()) {
        ++num_named;
        sampled.append(named->tokens);
      } else if (scheduled.samples) {
        const std::uint32_t num_accepted = std::min(command.accepted, scheduled.num_spec_tokens);
        for (std::uint32_t i = 0; i < 1 + num_accepted; ++i) sampled.push_back(command.token);
      }
      sampled.end_list();
    }
    return num_named == command.samples.size();
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
    if (!all_known(world, command.requests)) return ErrorCode::kUnknownRequest;
    if (!is_finished(command.status)) return ErrorCode::kBadRange;
    std::vector<RequestIndex> indices;
    for (const std::string& name : command.requests) indices.push_back(index_of(world, name));
    scheduler_->finish_requests(indices, command.status);
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

  void observe_output(const SchedulerOutput& output) {
    observe_scheduled(output);
    observe_new(output);
    observe_cached(output);
    observation_.common_prefix.emplace() = output.num_common_prefix_blocks;
    names_of(output.preempted, observation_.preempted.emplace());
    names_of(output.finished, observation_.finished.emplace());
    observation_.new_block_ids.emplace() = output.new_block_ids;
    if (output.never_fits) observation_.never_fits.emplace() = names_[*output.never_fits];
  }

  void observe_scheduled(const SchedulerOutput& output) {
    auto& list = observation_.scheduled.emplace();
    list.resize(output.scheduled.size());
    for (std::size_t k = 0; k < list.size(); ++k) {
      const SchedulerOutput::Scheduled& entry = output.scheduled[k];
      const std::span<const TokenId> spec_tokens = output.spec_token_ids[k];
      list[k].request = names_[entry.request];
      list[k].num_tokens = entry.num_tokens;
      list[k].samples = entry.samples;
      KVFENCE_CHECK(spec_tokens.size() == entry.num_spec_tokens, "drafts do not fit their number");
      list[k].spec_tokens.assign(spec_tokens.begin(), spec_tokens.end());
    }
  }

  void observe_new(const SchedulerOutput& output) {
    auto& list = observation_.new_reqs.emplace();
    list.resize(output.scheduled_new_reqs.size());
    for (std::size_t k = 0; k < list.size(); ++k) {
      const SchedulerOutput::New& entry = output.scheduled_new_reqs[k];
      list[k].request = names_[entry.request];
      list[k].num_computed_tokens = entry.num_computed_tokens;
      blocks_of(output, entry.first_list, list[k].blocks);
    }
  }

  void observe_cached(const SchedulerOutput& output) {
    auto& list = observation_.cached_reqs.emplace();
    list.resize(output.scheduled_cached_reqs.size());
    for (std::size_t k = 0; k < list.size(); ++k) {
      const SchedulerOutput::Cached& entry = output.scheduled_cached_reqs[k];
      list[k].request = names_[entry.request];
      list[k].resumed = entry.resumed;
      list[k].all_token_ids = entry.sends_all_token_ids;
      list[k].num_computed_tokens = entry.num_computed_tokens;
      list[k].num_output_tokens = entry.num_output_tokens;
      if (entry.first_list == SchedulerOutput::kNoLists) {
        list[k].blocks.reset();
      } else {
        blocks_of(output, entry.first_list, list[k].blocks.emplace());
      }
    }
  }

  void blocks_of(const SchedulerOutput& output, std::uint32_t first_list, BlocksByGroup& blocks) {
    blocks.resize(scheduler_->config().kv_cache.groups.size());
    for (std::size_t group = 0; group < blocks.size(); ++group) {
      const std::span<const BlockId> list = output.block_lists[first_list + group];
      blocks[group].assign(list.begin(), list.end());
    }
  }

  void observe_outputs() {
    auto& list = observation_.outputs.emplace();
    list.resize(outputs_.outputs.size());
    for (std::size_t k = 0; k < list.size(); ++k) {
      const EngineCoreOutputs::Output& entry = outputs_.outputs[k];
      const std::span<const TokenId> tokens = outputs_.new_token_ids[k];
      list[k].request = names_[entry.request];
      list[k].tokens.assign(tokens.begin(), tokens.end());
      list[k].status = entry.status;
      list[k].stop_reason = entry.stop_reason;
    }
    std::swap(observation_.events.emplace(), outputs_.events);
    stats_of(outputs_.prefix_cache_stats, observation_.stats.emplace());
    stats_of(outputs_.connector_prefix_cache_stats, observation_.connector_stats.emplace());
    const SpecDecodingStats& spec = outputs_.spec_decoding_stats;
    std::vector<std::uint32_t>& spec_stats = observation_.spec_stats.emplace();
    spec_stats = {spec.num_drafts, spec.num_draft_tokens, spec.num_accepted_tokens};
    spec_stats.insert(spec_stats.end(), spec.num_accepted_tokens_per_pos.begin(),
                      spec.num_accepted_tokens_per_pos.end());
  }

  static void stats_of(const PrefixCacheStats& stats, std::vector<std::uint32_t>& list) {
    list.clear();
    for (std::uint64_t number :
         {std::uint64_t{stats.reset}, stats.requests, stats.queries, stats.hits,
          stats.preempted_requests, stats.preempted_queries, stats.preempted_hits}) {
      list.push_back(static_cast<std::uint32_t>(number));
    }
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

  void observe_numbers() {
    scheduler_->running(indices_);
    observation_.num_running = static_cast<std::uint32_t>(indices_.size());
    scheduler_->waiting(indices_);
    observation_.num_waiting = static_cast<std::uint32_t>(indices_.size());
    scheduler_->skipped_waiting(indices_);
    observation_.num_skipped_waiting = static_cast<std::uint32_t>(indices_.size());
    observation_.num_unfinished = scheduler_->get_num_unfinished_requests();
    observation_.has_finished = scheduler_->has_finished_requests();
    const BlockCounts counts = scheduler_->kv_cache_manager().block_pool().block_counts();
    observation_.num_empty_blocks = counts.empty;
    observation_.num_cached_blocks = counts.cached;
    observation_.num_referenced_blocks = counts.referenced;
  }

  void observe_state() {
    scheduler_->running(indices_);
    names_of(indices_, observation_.running.emplace());
    scheduler_->waiting(indices_);
    names_of(indices_, observation_.waiting.emplace());
    scheduler_->skipped_waiting(indices_);
    names_of(indices_, observation_.skipped_waiting.emplace());
    observe_pool();
    scheduler_->requests(indices_);
    auto& requests = observation_.requests.emplace();
    auto& tables = observation_.tables.emplace();
    requests.resize(indices_.size());
    std::size_t num_tables = 0;
    for (std::size_t k = 0; k < indices_.size(); ++k) {
      observe_request(indices_[k], requests[k]);
      scheduler_->kv_cache_manager().get_block_ids(indices_[k], table_);
      if (std::all_of(table_.begin(), table_.end(),
                      [](const std::vector<BlockId>& group) { return group.empty(); })) {
        continue;
      }
      if (num_tables == tables.size()) tables.emplace_back();
      tables[num_tables].request = names_[indices_[k]];
      tables[num_tables++].blocks = table_;
    }
    tables.resize(num_tables);
  }

  void observe_request(RequestIndex index, scheduler::RequestState& state) {
    const RequestView view = scheduler_->view(index);
    state.id = view.id;
    state.status = view.status;
    state.num_tokens = static_cast<std::uint32_t>(view.request.all_token_ids().size());
    state.num_computed_tokens = view.num_computed_tokens;
    state.num_output_placeholders = view.num_output_placeholders;
    state.num_preemptions = view.num_preemptions;
    state.spec_tokens.assign(view.spec_token_ids.begin(), view.spec_token_ids.end());
  }

  void observe_pool() {
    const auto& pool = scheduler_->kv_cache_manager().block_pool();
    const std::uint32_t num_blocks = pool.config().num_gpu_blocks;
    pool.get_all_free_blocks(observation_.free_queue.emplace());
    std::vector<std::uint32_t>& ref_cnts = observation_.ref_cnts.emplace();
    KeyList& keys = observation_.keys.emplace();
    ref_cnts.resize(num_blocks);
    keys.resize(num_blocks);
    for (BlockId block = 0; block < num_blocks; ++block) {
      ref_cnts[block] = pool.ref_cnt(block);
      keys[block].assign(std::string_view(pool.block_key(block)));
    }
  }

  void names_of(const std::vector<RequestIndex>& indices, Names& names) const {
    names.resize(indices.size());
    for (std::size_t k = 0; k < indices.size(); ++k) names[k] = names_[indices[k]];
  }

  std::string name_;
  MakeScheduler make_scheduler_;
  std::optional<SchedulerType> scheduler_;
  Names names_;  ///< by index; of a request that is gone until its index is used again
  std::deque<SchedulerOutput> in_flight_;  ///< the first num_in_flight_, oldest first; then spares
  std::size_t num_in_flight_ = 0;
  ModelRunnerOutput runner_output_;
  EngineCoreOutputs outputs_;
  Observation observation_;
  std::vector<ConnectorCall> calls_;
  std::vector<RequestIndex> indices_;
  BlocksByGroup table_;
};

}  // namespace kvfence
