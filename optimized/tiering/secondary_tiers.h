#pragma once

/// The kinds of secondary tiers that a spec can list without registering its own.
/// Source: vLLM v0.23.0 v1/kv_offload/tiering/{factory,fs/manager,example/manager}.py.

#include "contract/tiering/secondary_tier_factory.h"

namespace kvfence::optimized {

/// With the settings that there are, and an error for any other one:
///
///   example   none: blocks in memory
///   fs        root_dir           where the files go; required
///             n_read_threads     16; 0 to 1024, of both at least one thread
///             n_write_threads    16
///             max_queued_blocks  65536; ours
///             sync_data          false; ours
///             model_name, dtype  what names the folder of the files, "model" and "auto"; upstream
///                                takes them from the model's configuration
///
/// The folder depends on the spec's groups, hash block size, block size factor and ranks, as
/// upstream's does on its configuration. An fs tier cannot be copied; its slots have bytes.
SecondaryTierFactory built_in_secondary_tiers();

}  // namespace kvfence::optimized
