#pragma once

/// Storage that engines share, without files: a map of maps. The rules stand in
/// contract/connectors/synchronous/shared_storage.h.

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/connectors/synchronous/shared_storage.h"
#include "contract/core/state_digest.h"

namespace kvfence::reference {

std::unique_ptr<StorageWorld> make_shared_storage();

}  // namespace kvfence::reference
