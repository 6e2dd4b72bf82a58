#pragma once

/// Storage that engines share, without files: a map of maps. The rules are in
/// contract/connectors/synchronous/shared_storage.h.

#include <memory>

#include "contract/connectors/synchronous/shared_storage.h"

namespace kvfence::reference {

std::unique_ptr<StorageWorld> make_shared_storage();

}  // namespace kvfence::reference
