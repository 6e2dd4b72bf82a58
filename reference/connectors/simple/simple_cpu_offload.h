#pragma once

/// Both halves of the simple CPU offload connector: the executable specification. The rules of each
/// function are in contract/connectors/simple/simple_cpu_offload.h.

#include <memory>

#include "contract/connectors/simple/simple_cpu_offload.h"

namespace kvfence::reference {

/// Requires: check_spec(spec) finds nothing wrong
std::unique_ptr<SimpleCPUOffloadScheduler> make_simple_cpu_offload_scheduler(
    const SimpleCPUOffloadSpec& spec);
std::unique_ptr<KVConnectorWorker> make_simple_cpu_offload_worker(const SimpleCPUOffloadSpec& spec);

}  // namespace kvfence::reference
