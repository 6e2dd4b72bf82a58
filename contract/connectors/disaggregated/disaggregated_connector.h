#pragma once

/// A disaggregated pair: a producer engine computes prompts; a consumer engine reads their KV from
/// the producer's blocks and decodes. This file states the rules of both connectors' halves once;
/// `reference/` and `optimized/` implement them independently.
///
/// Source: vLLM v0.19.0 distributed/kv_transfer/kv_connector/v1/nixl_connector.py; v0.23.0
/// v1/nixl/{scheduler,worker}.py where a rule says so. Upstream has one class for both roles; here
/// each has its own. Not modelled: both roles in one engine (bidirectional_kv_xfer), host buffers,
/// MLA, Mamba, engines or groups with unequal block sizes.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "contract/connectors/disaggregated/transport.h"
#include "contract/connectors/kv_connector.h"
#include "contract/connectors/kv_connector_worker.h"
#include "contract/core/cloned.h"
#include "contract/core/declare.h"
#include "contract/core/rules.h"
#include "contract/core/state_digest.h"

namespace kvfence {

/// What all four halves are built from.
struct DisaggregatedSpec {
  Rules rules;
  std::string producer_engine_id = "producer";
  std::uint32_t producer_world_size = 1;
  std::uint32_t consumer_world_size = 1;
  std::optional<Seconds> deadline;  ///< how long a producer waits; nothing: for ever
  friend bool operator==(const DisaggregatedSpec&, const DisaggregatedSpec&) = default;
};

/// Returns what is wrong with a spec, or nothing if halves can be built from it: both world sizes
/// are positive and one divides the other, a deadline is positive and at most kSecondsMax.
std::optional<std::string> check_spec(const DisaggregatedSpec& spec);

/// The handshake of a rank: the transport over which its agent is reached.
struct NixlHandshake final : KVConnectorHandshakeMetadata {
  explicit NixlHandshake(Transport& of_pair) : transport(of_pair) {}
  Transport& transport;
};

/// What a producer reports to a router about a finished request: the consumer's parameters.
struct RemotePrefill {
  std::string request;
  KVTransferParams params;
  friend bool operator==(const RemotePrefill&, const RemotePrefill&) = default;
};

/// What the producer's scheduler half sends to its workers. Each list names a request once, in
/// order of arrival.
struct ProducerMetadata final : KVConnectorMetadata {
  struct Send {
    static constexpr std::string_view kWord = "send";
    std::string request;
    std::optional<Seconds> expires;  ///< when its blocks are given back unread
    static void declare(auto& fields) {
      fields.add("request", &Send::request, "the finished request");
      fields.add("expires", &Send::expires, "given back unread then");
    }
  };
  std::vector<std::string> reqs_in_batch;       ///< got blocks; a consumer may read them later
  std::vector<std::string> reqs_not_processed;  ///< finished, and no consumer will read them
  std::vector<Send> reqs_to_send;               ///< finished; held until a consumer has read them

  void add_to(StateHash& hash) const override {
    hash.add_all(reqs_in_batch, reqs_not_processed, reqs_to_send);
  }
};

/// What the consumer's scheduler half sends to its workers.
struct ConsumerMetadata final : KVConnectorMetadata {
  struct Receive {
    static constexpr std::string_view kWord = "receive";
    std::string request;
    std::string remote_request;
    std::vector<BlockId> local_blocks;   ///< group by group; none: only a notice is sent
    std::vector<BlockId> remote_blocks;  ///< as many
    static void declare(auto& fields) {
      using S = Receive;
      fields.add("request", &S::request, "its request");
      fields.add("remote_request", &S::remote_request, "the producer's request");
      fields.optional("local_blocks", &S::local_blocks, "into; none: a notice alone");
      fields.optional("remote_blocks", &S::remote_blocks, "from, one by one");
    }
  };
  std::vector<Receive> reqs_to_recv;    ///< in the order in which they came
  std::vector<std::string> heartbeats;  ///< the producer's requests whose lease is to be renewed

  void add_to(StateHash& hash) const override { hash.add_all(reqs_to_recv, heartbeats); }
};

/// The producer's scheduler's half, as KVConnector. A request is *for a consumer* if its params say
/// do_remote_decode; the half ignores all others.
///
/// set_xfer_handshake_metadata     each rank that has some listens on its transport from now on; of
///                                 others nothing can be read
/// get_num_new_matched_tokens      0
/// update_state_after_alloc        for a consumer: in the next reqs_in_batch. Again for a request
///                                 that was preempted.
/// build_connector_meta            what came since the last one
/// update_connector_output         nothing
/// request_finished(request)
///     Not for a consumer: does not hold. It did not finish with kFinishedLengthCapped
///     (Rules::stopped_requests_are_sent: nor with kFinishedStopped), or has no blocks: it is in
///     the next reqs_not_processed, and is not held. Else it is in the next reqs_to_send, which
///     expires at now + deadline, if there is a deadline; its RemotePrefill says
///     do_remote_prefill, this engine, the request and its blocks; held.
/// take_client_params              the name of the request, if it was answered with a RemotePrefill
///                                 that was not taken yet
/// take_events, reset_cache        nothing; succeeds
class DisaggregatedProducer : public KVConnector {
 public:
  /// 0 at first.
  virtual void set_time(Seconds now) = 0;

  /// Appends what was answered since the last call, oldest first.
  virtual void take_remote_prefills(std::vector<RemotePrefill>& out) = 0;
};

/// The consumer's scheduler's half, as KVConnector. A request *wants its prompt* if its params say
/// do_remote_prefill, name a remote request and have blocks (upstream takes incomplete params for
/// complete until there are slots, and the request waits for ever), and nothing was received for it
/// yet. One transfer per request: what was preempted, or failed to load, is computed here.
///
/// on_new_request(request)         Rules::kv_lease_heartbeats, and there is a deadline: it wants
///                                 its prompt: its remote request's lease is renewed from now on
/// get_num_new_matched_tokens(request, c)
///     It wants its prompt: prompt - c, asynchronously if more than 0; 0 if the prompt is one token
///     (upstream loads it, and computes it anyway). Else 0.
/// update_state_after_alloc(host, request, blocks, n_ext)
///     It wants its prompt: it is in the next reqs_to_recv, and does not want it any more. With
///     n_ext > 0: its local blocks are, group by group, those that are neither null nor cached, its
///     remote blocks those at the same places of the remote request (upstream takes as many from
///     the end of each group: the wrong ones if the producer has blocks after the prompt,
///     vllm#50558; and of a window both sides keep the last ceil(window / block) + 1 blocks: too
///     few if blocks for drafts follow). With 0: none.
///     Requires (as upstream asserts): the remote request has a block at each of these places.
/// build_connector_meta
///     What came since the last one. Heartbeats: all leases that are renewed, each once, in the
///     order in which they came, if that never happened or last happened deadline / 6 ago or
///     longer (rounded down).
/// update_connector_output         what finished_recving names is no longer renewed
/// request_finished(request)
///     Never holds. Not renewed any more. If it still wants its prompt, it was never admitted: it
///     is in the next reqs_to_recv with no blocks, so that the producer is notified.
/// take_events, reset_cache        nothing; succeeds
class DisaggregatedConsumer : public KVConnector {
 public:
  /// 0 at first.
  virtual void set_time(Seconds now) = 0;
};

/// A worker's half, as KVConnectorWorker. The metadata are those of its scheduler's half.
///
/// A consumer's rank reads from rank / (consumers / producers) of the producer where there are at
/// least as many consumer's ranks, else from the producers / consumers ranks from rank *
/// (producers / consumers) on. These are *its* producer's ranks.
///
/// producer
/// --------
///     start_load_kv   reqs_in_batch are expected; reqs_not_processed no longer are;
///                     reqs_to_send expire then, unless they are no longer expected (with
///                     run-ahead all readers may have been faster).
///     get_finished    First the notices, as they came. A heartbeat: what is expected and expires
///                     later than never expires at now + deadline * 2 / 3 (rounded down) at the
///                     earliest. Else: an expected request is *done* when each consumer's rank that
///                     reads from this one has said so; said again it counts once (upstream counts
///                     notices). Notices of others are passed over: they came twice, or late. Then
///                     every request that expires now or did before is done as well, at any
///                     place (upstream stops at the first that does not, vllm#58222).
///                     Done: no longer expected, closed in the transport (upstream can still be
///                     read then, from blocks that belong to others), finished_sending.
/// consumer
/// --------
///     start_load_kv   For each of reqs_to_recv, for each of its producer's ranks: a read; without
///                     local blocks a notice. Then, for each of its producer's ranks, a heartbeat
///                     of what is to be renewed, if anything is.
///     get_finished    The reads that ended. A failed one: the request's local blocks are invalid,
///                     once per report. The last one of a request: finished_recving
///                     (v0.23.0 reports a request at its first failed read, while others still
///                     write, and fails at the last one, vllm#56104, vllm#54518).
///
/// Aggregation over ranks: KVOutputAggregator (contract/connectors/kv_output_aggregator.h), one per
/// engine.
class DisaggregatedWorker : public KVConnectorWorker {
 public:
  /// transport: of the pair; outlives it.
  explicit DisaggregatedWorker(Transport& transport) : transport_(&transport) {}

  bool prefer_cross_layer_blocks() const override { return true; }
  std::shared_ptr<const KVConnectorHandshakeMetadata> get_handshake_metadata() override {
    return std::make_shared<NixlHandshake>(*transport_);
  }

 protected:
  Transport& transport() const { return *transport_; }

 private:
  Transport* transport_;
};

}  // namespace kvfence
