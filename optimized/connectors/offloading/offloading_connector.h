#pragma once

/// The two halves of an offloading connector, chosen by the rules of a spec.

#include <memory>
#include <vector>

#include "contract/connectors/kv_connector_worker.h"
#include "contract/connectors/offloading/offloading_connector.h"

namespace kvfence::optimized {

/// Requires: check_spec(spec) finds nothing; tiers only if spec.has_tiers.
/// Cost: O(slots + GPU blocks). Later allocations: the metadata, lists as long as the longest call,
/// and storage for the known requests and the transfers under way.
std::unique_ptr<OffloadingConnectorScheduler> make_offloading_connector_scheduler(
    const OffloadingSpec& spec, std::vector<SecondaryTierHandle> tiers = {});
/// The two choices: with the rule offload_fences_reuse, and without it.
std::unique_ptr<OffloadingConnectorScheduler> make_fencing_connector_scheduler(
    const OffloadingSpec& spec, std::vector<SecondaryTierHandle> tiers);
std::unique_ptr<OffloadingConnectorScheduler> make_holding_connector_scheduler(
    const OffloadingSpec& spec);
std::unique_ptr<KVConnectorWorker> make_offloading_connector_worker(const OffloadingSpec& spec);

}  // namespace kvfence::optimized
