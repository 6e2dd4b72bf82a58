#pragma once

/// A connector over several others, its *children*: what is loaded comes from the first child that
/// has it, what is saved goes to all of them. This file states the rules of each operation once;
/// `reference/` and `optimized/` implement them independently.
///
/// Source: vLLM v0.19.0 and v0.23.0 distributed/kv_transfer/kv_connector/v1/multi_connector.py.
///
/// Common to all operations:
///   - Children have a fixed order, the same in the scheduler and on every rank. *Each child* is
///     called in that order, once, with what the operation was called with.
///   - Requests are named by their ids. Lists of requests and blocks that come out of an operation
///     name each once, in no particular order (upstream: sets).
///   - The *chosen* child of a request is the one that loads it; a request has none or one.
///   - A request whose blocks n > 1 children hold has n - 1 *extra saves*: the worker's half of
///     each rank drops that many notices that it is sent, so that only the last one reaches the
///     scheduler (vllm#18246).
///
/// What is left out: layouts, bind_gpu_block_pool, a MultiConnector among the children.
///
/// Workers report one list of jobs and share one copy engine per rank, so the jobs of children have
/// numbers of the MultiConnector's there (multi_connector_job). Each child sees its own alone.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/connectors/kv_connector.h"
#include "contract/connectors/kv_connector_worker.h"
#include "contract/core/declare.h"
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

/// Converts a child's job number to one that is unique among all children, and back: the same on
/// every rank and in the scheduler, without state. A child among n has at most 2^32 / n jobs; its
/// numbers stay in order.
constexpr JobId multi_connector_job(ChildJob job, std::uint32_t num_children) {
  return job.job * num_children + job.child;
}
constexpr ChildJob child_job(JobId job, std::uint32_t num_children) {
  return {job % num_children, job / num_children};
}

/// How often a request will be reported as sent before that counts.
struct ExtraAsyncSaves {
  std::string request;
  std::uint32_t saves = 0;  ///< at least 1
  friend bool operator==(const ExtraAsyncSaves&, const ExtraAsyncSaves&) = default;
};

/// A request and the place of its chosen child.
struct ChosenConnector {
  static constexpr std::string_view kWord = "chosen";
  std::string request;
  std::uint32_t child = 0;
  static void declare(auto& fields) {
    fields.add("request", &ChosenConnector::request, "the request");
    fields.add("child", &ChosenConnector::child, "the child that loads it");
  }
};

/// What the scheduler's half sends to the workers for a step.
struct MultiConnectorMetadata final : KVConnectorMetadata {
  std::vector<std::shared_ptr<const KVConnectorMetadata>> metadata;  ///< a child's at its place
  std::vector<ExtraAsyncSaves> extra_async_saves;

  const KVConnectorMetadata* child(std::size_t place) const override {
    return place < metadata.size() ? metadata[place].get() : nullptr;
  }
  void add_to(StateHash& hash) const override { hash.add_all(metadata, extra_async_saves); }
};

/// Those of a step of a MultiConnector. Requires: metadata of such a step, and each child's.
const MultiConnectorMetadata& multi_connector_metadata(const KVConnectorMetadata& metadata);

/// Thrown where upstream raises: the engine ends.
struct EngineEnded {
  ErrorCode code = ErrorCode::kNone;
};

/// What a client gets of a finished request; upstream: a dict.
struct ClientParams {
  static constexpr std::string_view kWord = "params";
  std::string request;
  std::string params;
  static void declare(auto& fields) {
    fields.add("request", &ClientParams::request, "the request");
    fields.add("params", &ClientParams::params, "those of the one child with some");
  }
};

/// The scheduler's half. Requires: at least one child; several groups only with
/// Rules::multi_connector_hma and children that all support them.
///
/// set_xfer_handshake_metadata(handshakes)
///     Each child, with those of all ranks, whichever child's they are.
///
/// on_new_request(request)
///     Each child. Requires: Rules::connector_learns_new_requests.
///
/// get_num_new_matched_tokens(request, num_computed_tokens)
///     The children in order. One that wants to be asked again ends the search: later ones are not
///     asked, and that is the answer. Else the answer is that of the first child with tokens, which
///     is the chosen one from then on, also if a child after it wants to be asked again; or 0
///     tokens. If no child has tokens, an earlier choice stays.
///
/// update_state_after_alloc(request, blocks, num_external_tokens)
///     Each child; the chosen one gets the blocks and the tokens, the others 0 and, with the rule
///     multi_connector_shares_blocks, the blocks; without, as many groups without a block (so a
///     child that only saves never gets the blocks here, vllm#46865).
///
/// build_connector_meta(host, output)
///     The metadata of each child, and the extra saves since the last time.
///
/// update_connector_output(host, output)
///     Each child, with the jobs that are its own.
///
/// request_finished(host, request, blocks)
///     Each child; blocks are held if any child holds them. If several do, all but one are the
///     request's extra saves from now on, whatever they were. No child is chosen any more. The
///     engine ends (EngineEnded) with kSeveralParams at the second child that has parameters for
///     the client: the children after it are not called, and what was noted stays (upstream
///     raises).
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
/// For an observer: chosen(out) and extra_async_saves(out), those that no metadata carries yet,
/// replace out, in no particular order. loading_child(request): the child that loads it while it
/// waits, until that is over; nothing: none does. take_all_client_params(out) appends what clients
/// get of requests that finished since the last call, oldest first.
///
/// Cost of the optimized side: O(children), besides what these take and what is handed in and out.
class MultiConnectorScheduler : public KVConnector {
 public:
  virtual void chosen(std::vector<ChosenConnector>& out) const = 0;
  virtual void extra_async_saves(std::vector<ExtraAsyncSaves>& out) const = 0;
  virtual std::optional<std::uint32_t> loading_child(std::string_view request) const = 0;
  virtual void take_all_client_params(std::vector<ClientParams>& out) = 0;
};

/// The worker's half of a child, and what names its statistics.
struct MultiConnectorChildWorker {
  std::string connector_class;
  KVConnectorWorkerHandle worker;
  void add_to(StateHash& hash) const { hash.add(worker); }
};

/// The worker's half, of one rank. Requires: at least one child.
///
/// prefer_cross_layer_blocks()
///     Whether each child prefers them.
///
/// register_kv_caches(copies), register_cross_layers_kv_cache(copies)
///     Each child, in the same form, with its own view of the copy engine.
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
///     Invalid blocks: those of each child. Jobs: those of each child, with the MultiConnector's
///     numbers. Statistics: of each child that has some; those of one class are aggregated, in
///     order, at the place of the first (0.19.0 keeps the last child's alone).
///
/// shutdown()
///     Each child, also after one that failed; false if one did.
///
/// extra_async_saves(out): for an observer; replaces out, in no particular order.
///
/// Cost of the optimized side: O(children), besides what these take and what is handed in and out;
/// statistics O(children) per class.
class MultiConnectorWorker : public KVConnectorWorker {
 public:
  virtual void extra_async_saves(std::vector<ExtraAsyncSaves>& out) const = 0;
};

}  // namespace kvfence
