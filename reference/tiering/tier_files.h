#pragma once

/// The files of a scripted file tier, without files: contract/tiering/tier_files.h over
/// reference/tiering/file_tier.h.

#include <memory>

#include "contract/tiering/tier_files.h"

namespace kvfence::reference {

std::unique_ptr<TierFiles> make_tier_files(PrimaryKvView primary);

}  // namespace kvfence::reference
