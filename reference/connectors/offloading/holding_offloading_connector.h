#pragma once

/// The scheduler's half that holds the blocks of a finished request until its stores are done. The
/// rules of each function stand in contract/connectors/offloading/offloading_connector.h under
/// "hold".
/// Source: vLLM v0.19.0 distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py
/// OffloadingConnectorScheduler.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "contract/core/state_digest.h"
#include "reference/connectors/offloading/offloading_connector.h"

namespace kvfence::reference {

class HoldingOffloadingConnector final : public OffloadingConnectorBase {
 public:
  using OffloadingConnectorBase::OffloadingConnectorBase;

  std::unique_ptr<KVConnector> clone() const override;
  void on_new_request(const ConnectorRequest& request) override;
  MatchedTokens get_num_new_matched_tokens(const ConnectorRequest& request,
                                           std::uint32_t num_local_tokens) override;
  void update_state_after_alloc(ConnectorHost& host, const ConnectorRequest& request,
                                const BlocksByGroup& blocks,
                                std::uint32_t num_external_tokens) override;
  std::shared_ptr<const KVConnectorMetadata> build_connector_meta(
      ConnectorHost& host, const SchedulerOutput& output) override;
  void update_connector_output(ConnectorHost& host, const KVConnectorOutput& output) override;
  bool request_finished(ConnectorHost& host, const ConnectorRequest& request,
                        const BlocksByGroup& blocks) override;
  bool reset_cache() override;
  void add_to(StateHash& hash) const override {
    OffloadingConnectorBase::add_to(hash);
    hash.add_all(requests_, being_loaded_, being_stored_, loads_);
  }

 private:
  struct RequestState {
    std::vector<BlockId> block_ids;       ///< as the steps told them
    std::uint32_t next_stored_block = 0;  ///< the cursor, in offloaded blocks
    void add_to(StateHash& hash) const { hash.add_all(block_ids, next_stored_block); }
  };

  bool is_being_loaded(OffloadKeyView key) const;
  void plan_store(const RequestData& data, const SchedulerOutput& output,
                  std::vector<TransferJob>& stores);
  void complete_stores(std::vector<OffloadKey>& keys);

  // By request id.
  std::map<std::string, RequestState> requests_;  ///< from the first allocation to the finish
  std::map<std::string, std::vector<OffloadKey>> being_loaded_;
  /// Pending stores; a request that ever had one stays, with no key, until finished_sending.
  std::map<std::string, std::vector<OffloadKey>> being_stored_;

  std::vector<TransferJob> loads_;  ///< for the next metadata
};

}  // namespace kvfence::reference
