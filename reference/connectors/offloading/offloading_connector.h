#pragma once

/// The scheduler's half of the offloading connector: what both of its forms share. The rules are
/// in contract/connectors/offloading/offloading_connector.h; the forms are in
/// holding_offloading_connector.cpp (v0.19.0) and fencing_offloading_connector.cpp (v0.23.0), the
/// worker's half in offloading_connector_worker.cpp.
///
/// A request is known by its id, since its index may name another one before its transfers are
/// done. Keys are made from the request's hashes wherever they are needed.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "contract/connectors/offloading/offloading_connector.h"
#include "contract/core/state_digest.h"
#include "contract/scheduler/scheduler.h"
#include "reference/tiering/spec_offloading_manager.h"

namespace kvfence::reference {

/// Keys `begin` to `end` of a list, as far as it has them.
std::span<const OffloadKey> key_range(std::span<const OffloadKey> keys, std::size_t begin,
                                      std::size_t end);

std::vector<OffloadKeyView> views(std::span<const OffloadKey> keys);

/// A request that a step schedules, with what the step says of its blocks.
struct RequestData {
  ConnectorRequest request;
  bool resumed = false;
  BlocksByGroup new_blocks;  ///< one list per group
};

/// New requests first, then cached ones.
/// Source: vLLM v0.19.0 distributed/kv_transfer/kv_connector/utils.py yield_req_data.
std::vector<RequestData> request_data(const ConnectorHost& host, const SchedulerOutput& output,
                                      std::size_t num_groups);

/// Tokens of the request that are there after the step: with asynchronous scheduling fewer than it
/// plans.
std::uint32_t num_tokens_after_step(const ConnectorRequest& request, const SchedulerOutput& output);

class OffloadingConnectorBase : public OffloadingConnectorScheduler {
 public:
  /// Requires: check_spec(spec) finds nothing wrong; tiers only if spec.has_tiers
  explicit OffloadingConnectorBase(const OffloadingSpec& spec,
                                   std::vector<SecondaryTierHandle> tiers = {});

  void take_events(std::vector<KVCacheEvent>& out) final;
  void policy_lists(PolicyLists& out) const final;
  std::uint32_t num_free_slots() const final;
  TieringView* tiering() final { return manager_.tiering(); }
  void add_to(StateHash& hash) const override { hash.add(manager_); }

 protected:
  std::size_t num_groups() const { return spec_.kv_cache.groups.size(); }
  std::uint32_t gpu_block_size(std::size_t group) const;        ///< tokens
  std::uint32_t offloaded_block_size(std::size_t group) const;  ///< tokens

  /// The keys of all full offloaded blocks of the request in that group.
  std::vector<OffloadKey> offload_keys(const ConnectorRequest& request, std::size_t group) const;

  /// Slots to read the keys from, which are held until they are completed. Requires: each is held
  /// and ready.
  std::vector<SlotId> prepare_load(std::span<const OffloadKey> keys);

  OffloadingSpec spec_;
  SpecOffloadingManager manager_;
};

/// Each form. Both require: check_spec(spec) finds nothing wrong; tiers only if spec.has_tiers
std::unique_ptr<OffloadingConnectorScheduler> make_holding_connector(const OffloadingSpec& spec);
std::unique_ptr<OffloadingConnectorScheduler> make_fencing_connector(
    const OffloadingSpec& spec, std::vector<SecondaryTierHandle> tiers);

/// Both choose by Rules::offload_fences_reuse. Requires: check_spec(spec) finds nothing wrong;
/// tiers only if spec.has_tiers
std::unique_ptr<OffloadingConnectorScheduler> make_offloading_connector_scheduler(
    const OffloadingSpec& spec, std::vector<SecondaryTierHandle> tiers = {});
std::unique_ptr<KVConnectorWorker> make_offloading_connector_worker(const OffloadingSpec& spec);

}  // namespace kvfence::reference
