// Compiled once a target, with its class in KVFENCE_TARGET.

#include "properties/compiled_once.h"

#include "properties/all_checks.h"

namespace kvfence {

KVFENCE_INSTANTIATE(template, KVFENCE_TARGET)

}  // namespace kvfence
