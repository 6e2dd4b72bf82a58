#pragma once

/// The files of a scripted file tier: implements contract/tiering/tier_files.h with
/// optimized/files/file_tier.h, on real files in its own temporary folder.

#include <memory>

#include "contract/tiering/tier_files.h"

namespace kvfence::optimized {

/// Throws as TemporaryFolder, and std::system_error if the system has no more threads.
std::unique_ptr<TierFiles> make_tier_files(PrimaryKvView primary);

}  // namespace kvfence::optimized
