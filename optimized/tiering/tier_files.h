#pragma once

/// The files of a scripted file tier: contract/tiering/tier_files.h over
/// optimized/files/file_tier.h, on real files in a temporary folder of their own.

#include <memory>

#include "contract/tiering/tier_files.h"
#include "optimized/files/planted_file_tier_bugs.h"

namespace kvfence::optimized {

/// Throws as TemporaryFolder does, and std::system_error if the system has no more threads.
std::unique_ptr<TierFiles> make_tier_files(PrimaryKvView primary);
std::unique_ptr<TierFiles> make_planted_tier_files(PrimaryKvView primary, PlantedFileTierBug bug);

/// Whether a tier that is opened once, and then used as contract/tiering/tier_files.h can, gets to
/// where the bug is: not if it is about what was there before the tier was opened.
constexpr bool shows_in_tier_files(PlantedFileTierBug bug) {
  return bug != PlantedFileTierBug::kLeftoversNotReclaimed &&
         bug != PlantedFileTierBug::kLeftoversOfTheLivingReclaimed;
}

}  // namespace kvfence::optimized
