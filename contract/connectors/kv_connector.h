#pragma once

/// The scheduler's half of a KV connector, which loads KV from elsewhere and stores it there: the
/// calls that a scheduler makes, and their order.
/// Source: vLLM v0.19.0 distributed/kv_transfer/kv_connector/v1/base.py.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/check.h"
#include "contract/core/cloned.h"
#include "contract/core/declare.h"
#include "contract/core/state_digest.h"
#include "contract/kv_cache/kv_cache_manager.h"
#include "contract/pool/kv_events.h"
#include "contract/pool/request.h"

namespace kvfence {

struct SchedulerOutput;
enum class RequestStatus : std::uint8_t;  ///< contract/scheduler/scheduler.h

/// What a client asks of the connectors for one request.
/// Source: vLLM v0.23.0 kv_transfer_params.
struct KVTransferParams {
  std::optional<std::uint32_t> max_offload_tokens;  ///< leading tokens that may be stored
  bool do_remote_decode = false;   ///< another engine will read the blocks of the prompt
  bool do_remote_prefill = false;  ///< another engine computed the prompt, as the rest says
  std::string remote_engine_id{};
  std::string remote_request_id{};
  BlocksByGroup remote_block_ids{};  ///< all of the remote request's, by group
  friend bool operator==(const KVTransferParams&, const KVTransferParams&) = default;
};

/// A request as a connector sees it, during the call.
struct ConnectorRequest {
  RequestIndex index = 0;
  std::string_view id;
  const Request& request;  ///< prompt and output tokens, hashes
  std::uint32_t num_prompt_tokens = 0;
  std::uint32_t num_computed_tokens = 0;  ///< this step's excluded
  const KVTransferParams& params;
  RequestStatus status{};
};

/// The operations of the GPU's block pool that a connector may use, if it holds blocks itself.
/// contract/pool/block_pool.h states the rules of touch and free_blocks.
/// Source: vLLM v0.19.0 v1/core/sched/scheduler.py Scheduler.__init__, bind_gpu_block_pool.
class GpuBlockPool {
 public:
  /// The packed key of a block; empty for none. The view holds until the next operation.
  virtual std::string_view block_key(BlockId block) const = 0;

  /// Requires: known blocks, none of them null.
  virtual void touch(std::span<const BlockId> blocks) = 0;

  /// To the tail of the free queue. Requires: what the caller touched, each block once.
  virtual void free_blocks(std::span<const BlockId> blocks) = 0;

  /// Whether the block is in the free queue.
  virtual bool is_free(BlockId block) const = 0;

  /// The block after a free one in the free queue, or the queue's head; nothing at its end.
  virtual std::optional<BlockId> next_free_block(std::optional<BlockId> block) const = 0;

 protected:
  ~GpuBlockPool() = default;
};

/// What a connector may ask of the engine around it, during the call.
class ConnectorHost {
 public:
  /// Requires: the request is there. A finished one still is during request_finished.
  virtual ConnectorRequest request(RequestIndex index) const = 0;

  /// Whether the block carries a key, so that a lookup can find it.
  virtual bool is_cached(BlockId block) const = 0;

  /// How many of the request's computed tokens are planned outputs that have not arrived.
  virtual std::uint32_t num_output_placeholders(RequestIndex /*index*/) const { return 0; }

  /// Null where the connector may not use it.
  virtual GpuBlockPool* gpu_block_pool() { return nullptr; }

 protected:
  ~ConnectorHost() = default;
};

/// What the scheduler's half sends to the workers for one step. Each connector has its own type.
struct KVConnectorMetadata {
  virtual ~KVConnectorMetadata() = default;
  virtual void add_to(StateHash& hash) const { hash.add_unknown(); }
  /// The part of a child, under a connector over several others; null where there is none.
  virtual const KVConnectorMetadata* child(std::size_t /*place*/) const { return nullptr; }
};

/// Requires: the metadata is of the connector that has this kind.
template <class Metadata>
const Metadata& metadata_of(const KVConnectorMetadata& metadata) {
  const auto* const own = dynamic_cast<const Metadata*>(&metadata);
  KVFENCE_CHECK(own != nullptr, "metadata of another connector");
  return *own;
}

/// Workers that finished a transfer.
struct CompletedJob {
  static constexpr std::string_view kWord = "completed";
  JobId job = 0;
  std::uint32_t num_workers = 0;  ///< that report it now
  std::uint32_t num_failed = 0;   ///< of them, those whose transfer failed
  static void declare(auto& fields) {
    using S = CompletedJob;
    fields.add("job", &S::job, "which");
    fields.add("num_workers", &S::num_workers, "that report it now");
    fields.optional("num_failed", &S::num_failed, "of them");
  }
};

/// What a lookup found.
struct MatchedTokens {
  std::optional<std::uint32_t> num_tokens;  ///< beyond the local hit; nothing: ask again later
  bool load_async = false;                  ///< only with num_tokens > 0
};

/// What the workers report with a step's output. Each list names a request or block once.
struct KVConnectorOutput {
  std::vector<RequestIndex> finished_recving;  ///< loads that are over, well or badly
  std::vector<RequestIndex> finished_sending;  ///< held blocks that are no longer needed
  std::vector<BlockId> invalid_block_ids;      ///< blocks whose load failed
  std::vector<CompletedJob> completed_jobs;    ///< upstream's worker metadata, each job once

  bool empty() const {
    return finished_recving.empty() && finished_sending.empty() && invalid_block_ids.empty() &&
           completed_jobs.empty();
  }
};

/// What the worker's half of one rank sends to its scheduler's half, and through that to other
/// engines, before the first request. Each connector has its own type.
struct KVConnectorHandshakeMetadata {
  virtual ~KVConnectorHandshakeMetadata() = default;
};

/// By rank; null: that one has none.
using HandshakesByRank = std::vector<std::shared_ptr<const KVConnectorHandshakeMetadata>>;

/// An engine and its scheduler call the members in the order of declaration. A connector is a
/// polymorphic value: copying a scheduler copies its connector with clone().
class KVConnector {
 public:
  virtual ~KVConnector() = default;
  virtual std::unique_ptr<KVConnector> clone() const = 0;

  /// Once, before any request, with what the workers' halves answered get_handshake_metadata.
  virtual void set_xfer_handshake_metadata(const HandshakesByRank&) {}

  /// A request was added (Rules::connector_learns_new_requests).
  virtual void on_new_request(const ConnectorRequest&) {}

  /// How many tokens after the local hit can be loaded. Called at each attempt to admit a request
  /// without computed tokens, so perhaps more than once per request. The answer is at most
  /// num_tokens - num_local_tokens, and one less if the load is not asynchronous or the request has
  /// one token, since one token has to be computed.
  virtual MatchedTokens get_num_new_matched_tokens(const ConnectorRequest& request,
                                                   std::uint32_t num_local_tokens) = 0;

  /// Blocks were allocated: all of the request's, by group. Called at every admission, with 0
  /// external tokens too, and a second time with 0 when a loaded request is scheduled.
  virtual void update_state_after_alloc(ConnectorHost& host, const ConnectorRequest& request,
                                        const BlocksByGroup& blocks,
                                        std::uint32_t num_external_tokens) = 0;

  /// A step is planned; the requests' computed tokens do not count it yet. The answer goes to the
  /// workers with the step; null: nothing to send.
  virtual std::shared_ptr<const KVConnectorMetadata> build_connector_meta(
      ConnectorHost& host, const SchedulerOutput& output) = 0;

  /// The workers reported. The scheduler has acted on nothing but the invalid blocks yet.
  virtual void update_connector_output(ConnectorHost&, const KVConnectorOutput&) {}

  /// A request is finished and still has these blocks. True: its blocks stay until finished_sending
  /// or finished_recving names it. Its index may name another request once its blocks are gone.
  virtual bool request_finished(ConnectorHost& host, const ConnectorRequest& request,
                                const BlocksByGroup& blocks) = 0;

  /// The client's parameters of the request that finished last; upstream returns them from
  /// request_finished.
  virtual std::optional<std::string> take_client_params() { return std::nullopt; }

  /// Appends events since the last call, oldest first.
  virtual void take_events(std::vector<KVCacheEvent>& /*out*/) {}

  /// False if it failed. Upstream takes a connector without a cache for a success.
  /// Source: vLLM v0.19.0 kv_connector/v1/base.py reset_cache, v1/core/sched/scheduler.py
  /// reset_connector_cache.
  virtual bool reset_cache() { return true; }

  /// Whether the last reset_cache returned a result; upstream's may return nothing.
  virtual bool says_how_reset_went() const { return true; }

  /// Whether request_finished takes the blocks of several groups (upstream: SupportsHMA).
  virtual bool supports_hma() const { return true; }

  /// The last call, after those of the workers' halves. False if it failed; the connector is shut
  /// down even then.
  virtual bool shutdown() { return true; }

  /// For an observer: a child of a connector over several others; null where there is none.
  virtual KVConnector* child(std::size_t /*place*/) { return nullptr; }
  /// For an observer: the whole state (contract/core/state_digest.h). One that has none cannot be
  /// explored.
  virtual void add_to(StateHash& hash) const { hash.add_unknown(); }
};

using KVConnectorHandle = Cloned<KVConnector>;  ///< or none

}  // namespace kvfence
