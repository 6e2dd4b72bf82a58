#pragma once

/// The reference of each component, through the interface that a lockstep drives.

#include <memory>

#include "contract/core/implementation.h"

namespace kvfence {

std::unique_ptr<Implementation> make_block_pool_reference();
std::unique_ptr<Implementation> make_kv_cache_reference();
std::unique_ptr<Implementation> make_eviction_reference();
std::unique_ptr<Implementation> make_offload_reference();
std::unique_ptr<Implementation> make_tiering_reference();
std::unique_ptr<Implementation> make_worker_reference();

}  // namespace kvfence
