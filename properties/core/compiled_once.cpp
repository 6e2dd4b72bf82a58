// Compiled once a target, with its class in KVFENCE_TARGET.

#include "properties/core/compiled_once.h"

#include KVFENCE_TARGET_CHECKS

namespace kvfence {

KVFENCE_INSTANTIATE_RUN(template, KVFENCE_TARGET)

}  // namespace kvfence
