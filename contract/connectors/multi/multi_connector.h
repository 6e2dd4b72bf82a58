#pragma once

/// A connector over several others, its *children*: what is loaded comes from the first child that
/// has it, what is saved goes to all of them. The rules of each operation stand here, once;
/// `reference/` and `optimized/` each code them.
///
/// Source: vLLM v0.19.0 and v0.23.0 distributed/kv_transfer/kv_connector/v1/multi_connector.py.
///
/// Common to all operations:
///   - Children have a fixed order, the same in the scheduler and on every rank. *Each child* is
///     called in that order, once, with what the operation was called with.
///   - Requests are named by their ids. Lists of requests and blocks that come out of an operation
///     name each once, in no particular order (upstream: sets).
///   - The *chosen* child of a request is the one that loads it; a request has none or one.
///   - A request that n > 1 children hold the blocks of has n - 1 *extra saves*: so many notices
///     that it is sent are swallowed by the worker's half of each rank, so that the scheduler hears
///     of the last one alone (vllm#18246).
///
/// What is left out: layouts, bind_gpu_block_pool.
///
/// Among KVConnectors (contract/connectors/kv_connector.h), whose workers report one list of jobs
/// and share one copy engine a rank, jobs of a MultiConnector have numbers of its own:
/// multi_connector_job.

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/connectors/kv_connector.h"
#include "contract/connectors/kv_connector_worker.h"
#include "contract/connectors/kv_output_aggregator.h"
#include "contract/core/rules.h"
#include "contract/core/state_digest.h"
#include "contract/core/status.h"
#include "contract/kv_cache/kv_cache_manager.h"

namespace kvfence {

/// A transfer as the child that has it names it.
struct ChildJob {
  std::uint32_t child = 0;  ///< its place
  JobId job = 0;
  friend bool operator==(const ChildJob&, const ChildJob&) = default;
};

/// The number of a child's job among those of all children, and back: the same on every rank and in
/// the scheduler, with nothing to remember. A child among n has at most 2^32 / n jobs; its numbers
/// stay in order.
constexpr JobId multi_connector_job(ChildJob job, std::uint32_t num_children) {
  return job.job * num_children + job.child;
}
constexpr ChildJob child_job(JobId job, std::uint32_t num_children) {
  return {job % num_children, job / num_children};
}

/// What one of several reports and all together report: aggregate(other) takes the other one in.
template <class T>
concept Aggregate = std::copyable<T> && std::default_initializable<T> &&
    requires(T aggregate, const T& other) {
  { aggregate.aggregate(other) } -> std::same_as<void>;
};

/// What a connector answers about a finished request.
struct FinishedAnswer {
  bool hold_blocks = false;                       ///< until it reports them as sent
  std::optional<std::string> kv_transfer_params;  ///< for the client; upstream: a dict
  friend bool operator==(const FinishedAnswer&, const FinishedAnswer&) = default;
};

/// What a worker's half reports of requests.
struct FinishedTransfers {
  std::vector<std::string> sending;
  std::vector<std::string> recving;
  friend bool operator==(const FinishedTransfers&, const FinishedTransfers&) = default;
};

/// How often a request will be reported as sent before that counts.
struct ExtraAsyncSaves {
  std::string request;
  std::uint32_t saves = 0;  ///< at least 1
  void add_to(StateHash& hash) const { hash.add_all(request, saves); }
  friend bool operator==(const ExtraAsyncSaves&, const ExtraAsyncSaves&) = default;
};

/// A request and the place of its chosen child.
struct ChosenConnector {
  std::string request;
  std::uint32_t child = 0;
  void add_to(StateHash& hash) const { hash.add_all(request, child); }
  friend bool operator==(const ChosenConnector&, const ChosenConnector&) = default;
};

/// What a step tells the workers.
template <class Metadata>
struct MultiConnectorMetadata {
  std::vector<Metadata> metadata;  ///< a child's at its place
  std::vector<ExtraAsyncSaves> extra_async_saves;
  void add_to(StateHash& hash) const { hash.add_all(metadata, extra_async_saves); }
};

/// What the workers tell the scheduler's halves.
template <class WorkerMetadata>
struct MultiConnectorWorkerMetadata {
  std::vector<std::optional<WorkerMetadata>> metadata;  ///< a child's at its place, if it has any
};

/// The statistics of all children of one class.
template <class Stats>
struct StatsOfClass {
  std::string connector_class;
  Stats stats;
};

/// The scheduler's half of a child.
///
///   Metadata, WorkerMetadata, Event, Handshake: its own; those of all children are of one type. A
///     Handshake is false where there is none.
///   supports_hma(): whether request_finished_all_groups may be called, instead of
///     request_finished, which is for one group
///   update_connector_output(output, metadata): metadata is the child's own, or null
///   take_events(out): appends
///   reset_cache(): false if it failed; nothing: done, or nothing to do
///   shutdown(): false if it failed
template <class C>
concept MultiConnectorChild = std::copyable<C> && Aggregate<typename C::WorkerMetadata> &&
    requires(C child, const C& const_child, std::string_view request, std::uint32_t num_tokens,
             const BlocksByGroup& blocks, std::span<const BlockId> group,
             const AggregatedOutput& output, const typename C::WorkerMetadata* metadata,
             std::vector<typename C::Event>& events,
             const std::vector<typename C::Handshake>& handshakes) {
  { const_child.supports_hma() } -> std::same_as<bool>;
  { child.on_new_request(request) } -> std::same_as<void>;
  { child.get_num_new_matched_tokens(request, num_tokens) } -> std::same_as<MatchedTokens>;
  { child.update_state_after_alloc(request, blocks, num_tokens) } -> std::same_as<void>;
  { child.build_connector_meta() } -> std::same_as<typename C::Metadata>;
  { child.update_connector_output(output, metadata) } -> std::same_as<void>;
  { child.request_finished(request, group) } -> std::same_as<FinishedAnswer>;
  { child.request_finished_all_groups(request, blocks) } -> std::same_as<FinishedAnswer>;
  { child.take_events(events) } -> std::same_as<void>;
  { child.reset_cache() } -> std::same_as<std::optional<bool>>;
  { child.set_xfer_handshake_metadata(handshakes) } -> std::same_as<void>;
  { child.shutdown() } -> std::same_as<bool>;
};

/// The worker's half of a child.
///
///   connector_class(): what names its statistics
///   get_finished(finished_req_ids, out): replaces out
///   get_block_ids_with_load_errors(out): appends
///   get_kv_connector_stats(), build_connector_worker_meta(): nothing where there is nothing
///   shutdown(): false if it failed
template <class W>
concept MultiConnectorWorkerChild = std::copyable<W> && Aggregate<typename W::WorkerMetadata> &&
    Aggregate<typename W::Stats> &&
    requires(W child, const W& const_child, const typename W::Metadata& metadata,
             std::string_view layer, std::span<const std::string> requests, FinishedTransfers& out,
             std::vector<BlockId>& blocks) {
  { const_child.connector_class() } -> std::convertible_to<std::string_view>;
  { const_child.prefer_cross_layer_blocks() } -> std::same_as<bool>;
  { child.register_kv_caches() } -> std::same_as<void>;
  { child.register_cross_layers_kv_cache() } -> std::same_as<void>;
  { child.get_handshake_metadata() } -> std::same_as<typename W::Handshake>;
  { child.handle_preemptions(metadata) } -> std::same_as<void>;
  { child.bind_connector_metadata(metadata) } -> std::same_as<void>;
  { child.start_load_kv() } -> std::same_as<void>;
  { child.wait_for_layer_load(layer) } -> std::same_as<void>;
  { child.save_kv_layer(layer) } -> std::same_as<void>;
  { child.wait_for_save() } -> std::same_as<void>;
  { child.get_finished(requests, out) } -> std::same_as<void>;
  { child.get_block_ids_with_load_errors(blocks) } -> std::same_as<void>;
  { child.get_kv_connector_stats() } -> std::same_as<std::optional<typename W::Stats>>;
  {
    child.build_connector_worker_meta()
    } -> std::same_as<std::optional<typename W::WorkerMetadata>>;
  { child.clear_connector_metadata() } -> std::same_as<void>;
  { child.shutdown() } -> std::same_as<bool>;
};

/// MultiConnector(rules, children): the scheduler's half. Requires: at least one child.
///
/// set_xfer_handshake_metadata(handshakes)
///     Each child, with those of all ranks, whichever child's they are.
///
/// on_new_request(request)
///     Each child.
///     Errors: kNotInProfile, without the rule connector_learns_new_requests
///
/// get_num_new_matched_tokens(request, num_computed_tokens)
///     The children in order. One that wants to be asked again ends it: those behind are not asked,
///     and that is the answer. Else the answer is that of the first child with tokens, which is the
///     chosen one from then on, also if a child behind it wants to be asked again; or 0 tokens.
///     Where no child has tokens, whoever was chosen before stays it.
///
/// update_state_after_alloc(request, blocks, num_external_tokens)
///     Each child; the chosen one gets the blocks and the tokens, the others 0 and, with the rule
///     multi_connector_shares_blocks, the blocks; without, as many groups without a block (so a
///     child that only saves never learns of the blocks here, vllm#46865).
///
/// build_connector_meta(out)
///     Replaces out by what each child has to tell, and the extra saves since the last time.
///
/// update_connector_output(output, metadata)
///     Each child, with its own part of the metadata; null: nobody has any.
///
/// request_finished(request, blocks, out)
///     Each child; blocks are held if any child holds them. If several do, all but one are the
///     request's extra saves from now on, whatever they were. Nobody is chosen any more. Each child
///     gets all groups if the rule multi_connector_hma holds and all children support it; else the
///     blocks of the one group. Requires: there is one, then.
///     Errors: kSeveralParams, at the second child that answers with parameters; those behind it
///             are not told, and what was noted stays (upstream raises)
///
/// take_events(out)
///     Appends those of each child.
///
/// reset_cache()
///     Each child, also after one that failed; false if one did.
///
/// shutdown()
///     Likewise.
///
/// chosen(out), extra_async_saves(out): for an observer; the extra saves are those that no metadata
/// carries yet. Both replace out, in no particular order.
///
/// Cost of the optimized side: O(children), besides what these take and what is handed in and out.
template <class M, class Child>
concept MultiConnector = std::copyable<M> &&
    std::constructible_from<M, const Rules&, std::vector<Child>> &&
    requires(M connector, const M& const_connector, std::string_view request,
             std::uint32_t num_tokens, const BlocksByGroup& blocks, const AggregatedOutput& output,
             MultiConnectorMetadata<typename Child::Metadata>& metadata,
             const MultiConnectorWorkerMetadata<typename Child::WorkerMetadata>* worker_metadata,
             FinishedAnswer& answer, std::vector<typename Child::Event>& events,
             std::vector<ChosenConnector>& chosen, std::vector<ExtraAsyncSaves>& saves,
             const std::vector<typename Child::Handshake>& handshakes) {
  { connector.children() } -> std::same_as<std::span<Child>>;
  { connector.on_new_request(request) } -> std::same_as<ErrorCode>;
  { connector.get_num_new_matched_tokens(request, num_tokens) } -> std::same_as<MatchedTokens>;
  { connector.update_state_after_alloc(request, blocks, num_tokens) } -> std::same_as<void>;
  { connector.build_connector_meta(metadata) } -> std::same_as<void>;
  { connector.update_connector_output(output, worker_metadata) } -> std::same_as<void>;
  { connector.request_finished(request, blocks, answer) } -> std::same_as<ErrorCode>;
  { connector.take_events(events) } -> std::same_as<void>;
  { connector.reset_cache() } -> std::same_as<bool>;
  { connector.set_xfer_handshake_metadata(handshakes) } -> std::same_as<void>;
  { connector.shutdown() } -> std::same_as<bool>;
  { const_connector.chosen(chosen) } -> std::same_as<void>;
  { const_connector.extra_async_saves(saves) } -> std::same_as<void>;
};

/// MultiConnectorWorker(children): the worker's half, of one rank. Requires: at least one child.
///
/// prefer_cross_layer_blocks()
///     Whether each child prefers them.
///
/// register_kv_caches(), register_cross_layers_kv_cache()
///     Each child, in the same form.
///
/// get_handshake_metadata()
///     That of the first child that has some; those after it are not asked.
///
/// handle_preemptions(metadata), bind_connector_metadata(metadata)
///     Each child, with its own metadata. What is bound brings its extra saves: they replace those
///     of the same request and leave those of others.
///
/// start_load_kv(), wait_for_layer_load(layer), save_kv_layer(layer), wait_for_save(),
/// clear_connector_metadata()
///     Each child.
///
/// get_finished(finished_req_ids, out)
///     Replaces out. Each child. What any child received is received. What a child has sent takes
///     one from the extra saves of the request, if it has any; else the request is sent.
///
/// get_block_ids_with_load_errors(out)
///     Replaces out by the blocks of each child.
///
/// get_kv_connector_stats(out) -> whether there are any
///     Replaces out by the statistics of each child that has some; those of one class are
///     aggregated, in order, at the place of the first (0.19.0 keeps the last child's alone).
///
/// build_connector_worker_meta(out) -> whether any child has some
///     Replaces out by the metadata of each child.
///
/// aggregate(into, other), of worker metadata, and of statistics
///     Takes in those of a later rank: place by place; class by class, new ones last.
///
/// shutdown()
///     Each child, also after one that failed; false if one did.
///
/// extra_async_saves(out): for an observer; replaces out, in no particular order.
///
/// Cost of the optimized side: O(children), besides what these take and what is handed in and out;
/// statistics O(children) a class.
template <class M, class Child>
concept MultiConnectorWorker = std::copyable<M> && std::constructible_from<M, std::vector<Child>> &&
    requires(M connector, const M& const_connector,
             const MultiConnectorMetadata<typename Child::Metadata>& metadata,
             std::string_view layer, std::span<const std::string> requests, FinishedTransfers& out,
             std::vector<BlockId>& blocks, std::vector<StatsOfClass<typename Child::Stats>>& stats,
             const std::vector<StatsOfClass<typename Child::Stats>>& other_stats,
             MultiConnectorWorkerMetadata<typename Child::WorkerMetadata>& worker_metadata,
             const MultiConnectorWorkerMetadata<typename Child::WorkerMetadata>& other_metadata,
             std::vector<ExtraAsyncSaves>& saves) {
  { connector.children() } -> std::same_as<std::span<Child>>;
  { const_connector.prefer_cross_layer_blocks() } -> std::same_as<bool>;
  { connector.register_kv_caches() } -> std::same_as<void>;
  { connector.register_cross_layers_kv_cache() } -> std::same_as<void>;
  { connector.get_handshake_metadata() } -> std::same_as<typename Child::Handshake>;
  { connector.handle_preemptions(metadata) } -> std::same_as<void>;
  { connector.bind_connector_metadata(metadata) } -> std::same_as<void>;
  { connector.start_load_kv() } -> std::same_as<void>;
  { connector.wait_for_layer_load(layer) } -> std::same_as<void>;
  { connector.save_kv_layer(layer) } -> std::same_as<void>;
  { connector.wait_for_save() } -> std::same_as<void>;
  { connector.get_finished(requests, out) } -> std::same_as<void>;
  { connector.get_block_ids_with_load_errors(blocks) } -> std::same_as<void>;
  { connector.get_kv_connector_stats(stats) } -> std::same_as<bool>;
  { connector.build_connector_worker_meta(worker_metadata) } -> std::same_as<bool>;
  { connector.clear_connector_metadata() } -> std::same_as<void>;
  { connector.shutdown() } -> std::same_as<bool>;
  { const_connector.aggregate(worker_metadata, other_metadata) } -> std::same_as<void>;
  { const_connector.aggregate(stats, other_stats) } -> std::same_as<void>;
  { const_connector.extra_async_saves(saves) } -> std::same_as<void>;
};

}  // namespace kvfence
