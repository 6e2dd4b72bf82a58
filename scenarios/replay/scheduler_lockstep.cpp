#include "scenarios/replay/scheduler_lockstep.h"

#include <utility>

#include "properties/engine/checks.h"

namespace kvfence {
namespace {

LockstepOptions options_of(std::uint32_t state_every) {
  LockstepOptions options;
  options.state_every = state_every;
  return options;
}

/// The lists of all groups; their place.
std::uint32_t put(const BlocksByGroup& blocks, FlatLists<BlockId>& lists) {
  const auto first = static_cast<std::uint32_t>(lists.size());
  for (const std::vector<BlockId>& group : blocks) {
    lists.append(group);
    lists.end_list();
  }
  return first;
}

PrefixCacheStats stats_of(const std::vector<std::uint32_t>& numbers) {
  return {numbers[0] != 0, numbers[1], numbers[2], numbers[3], numbers[4], numbers[5], numbers[6]};
}

}  // namespace

SchedulersInLockstep::SchedulersInLockstep(std::unique_ptr<Implementation> expected,
                                           std::unique_ptr<Implementation> actual,
                                           const engine::Config& config, std::uint32_t state_every)
    : expected_(std::move(expected)),
      actual_(std::move(actual)),
      lockstep_(checks_of(engine::Assembly::kScheduler), *expected_, *actual_,
                options_of(state_every)),
      num_gpu_blocks_(config.num_gpu_blocks) {
  divergence_ = lockstep_.start(prepared(EngineTarget::description(), Config(config)));
}

ErrorCode SchedulersInLockstep::step(engine::Command command) {
  divergence_ = lockstep_.step(Command(std::move(command)));
  if (divergence_) divergence_->step = num_steps_;
  return lockstep_.last_expected().error;
}

ErrorCode SchedulersInLockstep::add_request(const NewRequest& request, RequestIndex& out) {
  engine::AddRequest command;
  command.id = request.id;
  command.tokens = request.spec.tokens;
  command.max_tokens = request.max_tokens;
  command.priority = request.priority;
  command.arrival_time = request.arrival_time;
  const ErrorCode code = step(std::move(command));
  if (code != ErrorCode::kNone) return code;
  out = static_cast<RequestIndex>(names_.size());
  names_.push_back(request.id);
  index_of_.emplace(request.id, out);
  return code;
}

ErrorCode SchedulersInLockstep::schedule(SchedulerOutput& out) {
  ++num_steps_;
  const ErrorCode code = step(engine::Schedule{});
  if (code != ErrorCode::kNone || divergence_) return code;
  out = {};
  out.step = num_steps_;
  for (const engine::ScheduledRequest& entry : *seen().scheduled) {
    out.scheduled.push_back({index_of(entry.request), entry.num_tokens,
                             static_cast<std::uint32_t>(entry.spec_tokens.size()), entry.samples});
    out.spec_token_ids.append(entry.spec_tokens);
    out.spec_token_ids.end_list();
    out.total_num_scheduled_tokens += entry.num_tokens;
  }
  for (const engine::ScheduledNew& entry : *seen().new_reqs) {
    out.scheduled_new_reqs.push_back(
        {index_of(entry.request), entry.num_computed_tokens, put(entry.blocks, out.block_lists)});
  }
  for (const engine::ScheduledCached& entry : *seen().cached_reqs) {
    out.scheduled_cached_reqs.push_back(
        {index_of(entry.request), entry.resumed, entry.all_token_ids, entry.num_computed_tokens,
         entry.num_output_tokens,
         entry.blocks.has_value() ? put(*entry.blocks, out.block_lists) : out.kNoLists});
  }
  out.num_common_prefix_blocks = *seen().common_prefix;
  for (const std::string& name : *seen().preempted) out.preempted.push_back(index_of(name));
  for (const std::string& name : *seen().finished) out.finished.push_back(index_of(name));
  out.new_block_ids = *seen().new_block_ids;
  if (seen().never_fits.has_value()) out.never_fits = index_of(*seen().never_fits);
  return code;
}

ErrorCode SchedulersInLockstep::update_from_output(const SchedulerOutput& planned,
                                                   const ModelRunnerOutput& result,
                                                   EngineCoreOutputs& out) {
  engine::Update command;
  for (std::size_t k = 0; k < planned.scheduled.size(); ++k) {
    const std::span<const TokenId> tokens = result.sampled_token_ids[k];
    if (tokens.empty()) continue;
    command.samples.push_back(
        {names_[planned.scheduled[k].request], {tokens.begin(), tokens.end()}});
  }
  const ErrorCode code = step(std::move(command));
  if (code != ErrorCode::kNone || divergence_) return code;
  out = {};
  for (const engine::RequestOutput& output : *seen().outputs) {
    out.outputs.push_back({index_of(output.request), output.status, output.stop_reason});
    out.new_token_ids.append(output.tokens);
    out.new_token_ids.end_list();
  }
  out.prefix_cache_stats = stats_of(*seen().stats);
  const std::vector<std::uint32_t>& spec = *seen().spec_stats;
  out.spec_decoding_stats = {spec[0], spec[1], spec[2], {spec.begin() + 3, spec.end()}};
  return code;
}

ErrorCode SchedulersInLockstep::update_draft_token_ids(RequestIndex request,
                                                       std::span<const TokenId> tokens) {
  return step(engine::UpdateDraftTokenIds{names_[request], {tokens.begin(), tokens.end()}});
}

SchedulerNumbers SchedulersInLockstep::numbers() {
  // Before the first command nothing was shown: the null block alone is held.
  if (lockstep_.num_commands() == 0) return {0, 0, false, {num_gpu_blocks_ - 1, 0, 1}};
  const engine::SchedulerObservation& now = seen();
  return {now.num_running,
          now.num_unfinished,
          now.has_finished,
          {now.num_empty_blocks, now.num_cached_blocks, now.num_referenced_blocks}};
}

}  // namespace kvfence
