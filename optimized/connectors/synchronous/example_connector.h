#pragma once

/// Both halves of the ExampleConnector. The rules stand in
/// contract/connectors/synchronous/synchronous_connector.h.
///
/// The scheduler's half costs a step its new requests, those that are resumed to load, and the
/// blocks that it tells; nothing of those that decode. A prompt's folder is hashed once a request,
/// however often it is asked for. What is allocated is the metadata of steps that have transfers,
/// and the names of requests that are asked for the first time.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/connectors/synchronous/synchronous_connector.h"
#include "contract/core/state_digest.h"
#include "contract/scheduler/scheduler.h"

namespace kvfence::optimized {

class ExampleConnectorScheduler final : public SynchronousConnectorScheduler {
 public:
  /// Requires: check_spec(spec) finds nothing; storage outlives this and its clones.
  ExampleConnectorScheduler(const SynchronousConnectorSpec& spec, const SharedStorage& storage);

  std::unique_ptr<KVConnector> clone() const override {
    return std::make_unique<ExampleConnectorScheduler>(*this);
  }
  void on_new_request(const ConnectorRequest&) override {}
  MatchedTokens get_num_new_matched_tokens(const ConnectorRequest& request,
                                           std::uint32_t num_local_tokens) override;
  void update_state_after_alloc(ConnectorHost& host, const ConnectorRequest& request,
                                const BlocksByGroup& blocks,
                                std::uint32_t num_external_tokens) override;
  std::shared_ptr<const KVConnectorMetadata> build_connector_meta(
      ConnectorHost& host, const SchedulerOutput& output) override;
  void update_connector_output(ConnectorHost&, const KVConnectorOutput&) override {}
  bool request_finished(ConnectorHost& host, const ConnectorRequest& request,
                        const BlocksByGroup& blocks) override;
  void take_events(std::vector<KVCacheEvent>&) override {}
  bool reset_cache() override { return true; }

  void filled_requests(std::vector<RequestIndex>& out) const override { out.clear(); }
  void add_to(StateHash& hash) const override { hash.add(tracked_); }

 private:
  using Transfer = SynchronousConnectorMetadata::Transfer;
  using FolderName = std::array<char, 32>;

  /// What is kept of a request, in a place that the next one of its index takes over.
  struct Tracked {
    FolderName match{};  ///< with has_match
    bool has_match = false;
    bool needs_load = false;

    void add_to(StateHash& hash) const {
      hash.add_all(has_match, needs_load);
      if (has_match) hash.add(match);
    }
  };

  Tracked& track(RequestIndex request);

  // Tokens, of a prompt of n
  std::uint32_t num_match_tokens(std::uint32_t n) const;
  std::uint32_t num_stored_tokens(std::uint32_t n) const;

  std::string_view match_of(const ConnectorRequest& request);
  bool is_found(const ConnectorRequest& request);
  std::string folder_of(const ConnectorRequest& request, std::uint32_t num_tokens);

  void plan_new(const ConnectorRequest& request, const SchedulerOutput::New& data,
                const SchedulerOutput& output);
  void plan_resumed(const ConnectorRequest& request, const SchedulerOutput::Cached& data,
                    const SchedulerOutput& output);
  void plan(const ConnectorRequest& request, bool is_store, std::uint32_t num_tokens,
            std::span<const BlockId> blocks);

  /// Of the step. Those that join running requests are the last of it, in the order in which they
  /// are asked for: all of them together cost no more than they are many.
  std::uint32_t num_step_tokens(const SchedulerOutput& output, RequestIndex request);

  std::uint32_t block_size_;
  const SharedStorage* storage_;

  std::vector<Tracked> tracked_;  ///< by RequestIndex
  std::uint32_t num_needing_load_ = 0;

  // Of the step under way.
  std::vector<Transfer> transfers_;
  std::size_t place_ = 0;  ///< in output.scheduled: where num_step_tokens looks next
  std::shared_ptr<const SynchronousConnectorMetadata> nothing_to_tell_;
};

/// The worker's half of one rank. A call costs the symbols of its files.
class ExampleConnectorWorker final : public SynchronousConnectorWorker {
 public:
  /// Requires: check_spec(spec) finds nothing; storage outlives this.
  explicit ExampleConnectorWorker(SharedStorage& storage) : storage_(storage) {}

  void start_load_kv(const SynchronousConnectorMetadata& metadata, ScriptedKVCache& kv_cache,
                     SynchronousWorkerReport& report) override;
  void save_kv_layer(const SynchronousConnectorMetadata& metadata, std::uint32_t layer,
                     const ScriptedKVCache& kv_cache, SynchronousWorkerReport& report) override;

 private:
  using Transfer = SynchronousConnectorMetadata::Transfer;

  /// False: it failed, and report says so.
  bool load(const Transfer& transfer, std::uint32_t layer, ScriptedKVCache& kv_cache,
            SynchronousWorkerReport& report);
  bool save(const Transfer& transfer, std::uint32_t layer, const ScriptedKVCache& kv_cache,
            SynchronousWorkerReport& report);

  SharedStorage& storage_;
};

}  // namespace kvfence::optimized
