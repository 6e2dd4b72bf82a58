#include "properties/targets/checks.h"
#include "properties/core/checks_of.h"
#include "properties/targets/rooms.h"

namespace kvfence {

const Checks& tiering_checks() {
  return checks_of<TieringTarget, tiering::generators, tiering::rules, tiering::goals>();
}

}  // namespace kvfence
