#pragma once

/// The files of a scripted file tier: contract/tiering/tier_files.h over
/// optimized/files/file_tier.h, on real files in a temporary folder of their own.

#include <memory>

#include "contract/tiering/tier_files.h"

namespace kvfence::optimized {

/// Throws as TemporaryFolder does, and std::system_error if the system has no more threads.
std::unique_ptr<TierFiles> make_tier_files(PrimaryKvView primary);

}  // namespace kvfence::optimized
