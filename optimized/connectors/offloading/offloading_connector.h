#pragma once

/// The two halves of an offloading connector, as the rules of a spec ask for them.

#include <memory>
#include <vector>

#include "contract/connectors/kv_connector_worker.h"
#include "contract/connectors/offloading/offloading_connector.h"

namespace kvfence::optimized {

/// Requires: check_spec(spec) finds nothing; tiers only if spec.has_tiers.
/// Cost: O(slots + GPU blocks). What is allocated later are the metadata, lists as long as the
/// longest call, and what the known requests and the transfers under way take.
std::unique_ptr<OffloadingConnectorScheduler> make_offloading_connector_scheduler(
    const OffloadingSpec& spec, std::vector<SecondaryTierHandle> tiers = {});
/// The two that it chooses from: with the rule offload_fences_reuse, and without it.
std::unique_ptr<OffloadingConnectorScheduler> make_fencing_connector_scheduler(
    const OffloadingSpec& spec, std::vector<SecondaryTierHandle> tiers);
std::unique_ptr<OffloadingConnectorScheduler> make_holding_connector_scheduler(
    const OffloadingSpec& spec);
std::unique_ptr<KVConnectorWorker> make_offloading_connector_worker(const OffloadingSpec& spec);

}  // namespace kvfence::optimized
