#pragma once

/// Both halves of a simple CPU offload connector.

#include <memory>

#include "contract/connectors/kv_connector_worker.h"
#include "contract/connectors/simple/simple_cpu_offload.h"

namespace kvfence::optimized {

/// Requires, here and below: check_spec(spec) finds nothing.
std::unique_ptr<SimpleCPUOffloadScheduler> make_simple_cpu_offload_scheduler(
    const SimpleCPUOffloadSpec& spec);

std::unique_ptr<KVConnectorWorker> make_simple_cpu_offload_worker(const SimpleCPUOffloadSpec& spec);

}  // namespace kvfence::optimized
