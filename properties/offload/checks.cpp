#include "properties/targets/checks.h"
#include "properties/core/checks_of.h"
#include "properties/targets/rooms.h"

namespace kvfence {

const Checks& offload_checks() {
  return checks_of<OffloadTarget, offload::generators, offload::rules, offload::goals>();
}

}  // namespace kvfence
