#pragma once

/// Reads a scheduler into observations, with requests by name.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "contract/connectors/kv_output_aggregator.h"
#include "contract/core/check.h"
#include "contract/core/flat_lists.h"
#include "contract/core/implementation.h"
#include "contract/core/state_digest.h"
#include "contract/engine/engine_target.h"
#include "contract/scheduler/scheduler.h"

namespace kvfence {

/// Fills members of an observation and reads none. The scheduler's owner passes the observation.
class SchedulerObserver {
 public:
  using Observation = engine::SchedulerObservation;
  using World = engine::World;
  using Names = std::vector<std::string>;

  /// A request was added.
  void add(RequestIndex index, const std::string& name) {
    if (index >= names_.size()) names_.resize(index + 1);
    names_[index] = name;
  }

  static bool all_known(const World& world, const Names& names) {
    return std::ranges::all_of(
        names, [&](const std::string& name) { return world.find(name).has_value(); });
  }

  // The names of the following functions must be known to the world.

  /// The current index of a name. If its request is gone, an index that no scheduler uses.
  static RequestIndex index_of(const Scheduler& scheduler, const World& world,
                               const std::string& name) {
    const std::optional<RequestIndex> index = scheduler.find_request(name);
    return index ? *index : kGone + world.find(name)->number;
  }

  static std::vector<RequestIndex> indices_of(const Scheduler& scheduler, const World& world,
                                              const Names& names) {
    std::vector<RequestIndex> indices(names.size());
    std::ranges::transform(names, indices.begin(), [&](const std::string& name) {
      return index_of(scheduler, world, name);
    });
    return indices;
  }

  /// Orders names that are a set upstream.
  static void sort_by_declaration(Names& names, const World& world) {
    std::ranges::sort(names, [&](const std::string& left, const std::string& right) {
      return world.find(left)->number < world.find(right)->number;
    });
  }

  /// The ranks' report, as the scheduler takes it.
  static KVConnectorOutput report_of(const Scheduler& scheduler, const World& world,
                                     const AggregatedOutput& aggregated) {
    KVConnectorOutput report;
    report.finished_recving = indices_of(scheduler, world, aggregated.finished_recving);
    report.finished_sending = indices_of(scheduler, world, aggregated.finished_sending);
    report.invalid_block_ids = aggregated.invalid_block_ids;
    report.completed_jobs = aggregated.completed_jobs;
    return report;
  }

  const std::string& name_of(RequestIndex index) const { return names_[index]; }
  void names_of(const std::vector<RequestIndex>& indices, Names& names) const {
    names.resize(indices.size());
    for (std::size_t k = 0; k < indices.size(); ++k) names[k] = names_[indices[k]];
  }

  /// What a step samples: `token`, once more for each of up to `accepted` drafts, unless `samples`
  /// names the request. must_be_right: only drafts before the first other token are accepted.
  /// False: samples does not fit the step.
  bool sample(const engine::Update& command, bool must_be_right, const SchedulerOutput& output,
              FlatLists<TokenId>& sampled) const {
    sampled.clear();
    std::size_t num_named = 0;
    for (std::size_t k = 0; k < output.scheduled.size(); ++k) {
      const SchedulerOutput::Scheduled& scheduled = output.scheduled[k];
      const auto named =
          std::ranges::find(command.samples, names_[scheduled.request], &engine::Sample::request);
      if (named != command.samples.end()) {
        ++num_named;
        sampled.append(named->tokens);
      } else if (scheduled.samples) {
        for (const TokenId draft : output.spec_token_ids[k].first(
                 std::min(command.accepted, scheduled.num_spec_tokens))) {
          if (must_be_right && draft != command.token) break;
          sampled.push_back(command.token);
        }
        sampled.push_back(command.token);
      }
      sampled.end_list();
    }
    return num_named == command.samples.size();
  }

  /// The answer of schedule.
  void observe_output(const Scheduler& scheduler, const SchedulerOutput& output,
                      Observation& observation) const {
    observe_scheduled(output, observation);
    observe_new(scheduler, output, observation);
    observe_cached(scheduler, output, observation);
    observation.common_prefix.emplace() = output.num_common_prefix_blocks;
    names_of(output.preempted, observation.preempted.emplace());
    names_of(output.finished, observation.finished.emplace());
    observation.new_block_ids.emplace() = output.new_block_ids;
    if (output.never_fits) observation.never_fits.emplace() = names_[*output.never_fits];
  }

  /// What update_from_output reported; the events are taken out of it.
  void observe_outputs(EngineCoreOutputs& outputs, Observation& observation) const {
    auto& list = observation.outputs.emplace();
    list.resize(outputs.outputs.size());
    for (std::size_t k = 0; k < list.size(); ++k) {
      const EngineCoreOutputs::Output& entry = outputs.outputs[k];
      const std::span<const TokenId> tokens = outputs.new_token_ids[k];
      list[k].request = names_[entry.request];
      list[k].tokens.assign(tokens.begin(), tokens.end());
      list[k].status = entry.status;
      list[k].stop_reason = entry.stop_reason;
    }
    std::swap(observation.events.emplace(), outputs.events);
    stats_of(outputs.prefix_cache_stats, observation.stats.emplace());
    stats_of(outputs.connector_prefix_cache_stats, observation.connector_stats.emplace());
    const SpecDecodingStats& spec = outputs.spec_decoding_stats;
    std::vector<std::uint32_t>& spec_stats = observation.spec_stats.emplace();
    spec_stats = {spec.num_drafts, spec.num_draft_tokens, spec.num_accepted_tokens};
    spec_stats.insert(spec_stats.end(), spec.num_accepted_tokens_per_pos.begin(),
                      spec.num_accepted_tokens_per_pos.end());
  }

  /// After every command: the numbers, and the whole state or none of it.
  void observe(const Scheduler& scheduler, Observe observe, Observation& observation) {
    scheduler.running(indices_);
    observe_queue(observe, observation.num_running, observation.running);
    scheduler.waiting(indices_);
    observe_queue(observe, observation.num_waiting, observation.waiting);
    scheduler.skipped_waiting(indices_);
    observe_queue(observe, observation.num_skipped_waiting, observation.skipped_waiting);
    observation.num_unfinished = scheduler.get_num_unfinished_requests();
    observation.has_finished = scheduler.has_finished_requests();
    const BlockCounts counts = scheduler.block_counts();
    observation.num_empty_blocks = counts.empty;
    observation.num_cached_blocks = counts.cached;
    observation.num_referenced_blocks = counts.referenced;
    if (observe == Observe::kState) {
      scheduler.observe_blocks(observation);
      observe_requests(scheduler, observation);
    }
  }

  /// Adds the names of the indices.
  void add_to(StateHash& hash) const { hash.add(names_); }

 private:
  /// Indices from here on stand for requests that are gone; no scheduler uses them.
  static constexpr RequestIndex kGone = 0x8000'0000;

  /// The queue that indices_ holds.
  void observe_queue(Observe observe, std::uint32_t& length, Reusable<Names>& names) const {
    length = static_cast<std::uint32_t>(indices_.size());
    if (observe == Observe::kState) names_of(indices_, names.emplace());
  }

  void observe_requests(const Scheduler& scheduler, Observation& observation) {
    scheduler.requests(indices_);
    auto& requests = observation.requests.emplace();
    auto& tables = observation.tables.emplace();
    requests.resize(indices_.size());
    std::size_t num_tables = 0;
    for (std::size_t k = 0; k < indices_.size(); ++k) {
      observe_request(scheduler, indices_[k], requests[k]);
      scheduler.get_block_ids(indices_[k], table_);
      if (!has_blocks(table_)) continue;
      if (num_tables == tables.size()) tables.emplace_back();
      tables[num_tables].request = names_[indices_[k]];
      tables[num_tables++].blocks.swap(table_);
    }
    tables.resize(num_tables);
  }

  void observe_scheduled(const SchedulerOutput& output, Observation& observation) const {
    auto& list = observation.scheduled.emplace();
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

  void observe_new(const Scheduler& scheduler, const SchedulerOutput& output,
                   Observation& observation) const {
    auto& list = observation.new_reqs.emplace();
    list.resize(output.scheduled_new_reqs.size());
    for (std::size_t k = 0; k < list.size(); ++k) {
      const SchedulerOutput::New& entry = output.scheduled_new_reqs[k];
      list[k].request = names_[entry.request];
      list[k].num_computed_tokens = entry.num_computed_tokens;
      blocks_of(scheduler, output, entry.first_list, list[k].blocks);
    }
  }

  void observe_cached(const Scheduler& scheduler, const SchedulerOutput& output,
                      Observation& observation) const {
    auto& list = observation.cached_reqs.emplace();
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
        blocks_of(scheduler, output, entry.first_list, list[k].blocks.emplace());
      }
    }
  }

  static void blocks_of(const Scheduler& scheduler, const SchedulerOutput& output,
                        std::uint32_t first_list, BlocksByGroup& blocks) {
    blocks.resize(scheduler.config().kv_cache.groups.size());
    for (std::size_t group = 0; group < blocks.size(); ++group) {
      const std::span<const BlockId> list = output.block_lists[first_list + group];
      blocks[group].assign(list.begin(), list.end());
    }
  }

  static void stats_of(const PrefixCacheStats& stats, std::vector<std::uint32_t>& list) {
    list.clear();
    for (std::uint64_t number :
         {std::uint64_t{stats.reset}, stats.requests, stats.queries, stats.hits,
          stats.preempted_requests, stats.preempted_queries, stats.preempted_hits}) {
      list.push_back(static_cast<std::uint32_t>(number));
    }
  }

  static void observe_request(const Scheduler& scheduler, RequestIndex index,
                              engine::RequestState& state) {
    const RequestView view = scheduler.view(index);
    state.id = view.id;
    state.status = view.status;
    state.num_tokens = static_cast<std::uint32_t>(view.request.all_token_ids().size());
    state.num_computed_tokens = view.num_computed_tokens;
    state.num_output_placeholders = view.num_output_placeholders;
    state.num_preemptions = view.num_preemptions;
    state.spec_tokens.assign(view.spec_token_ids.begin(), view.spec_token_ids.end());
  }

  Names names_;  ///< by index; kept after a request is gone until its index is reused
  std::vector<RequestIndex> indices_;
  BlocksByGroup table_;
};

}  // namespace kvfence
