#include "properties/targets/checks.h"
#include "properties/core/checks_of.h"
#include "properties/targets/rooms.h"

namespace kvfence {

const Checks& worker_checks() {
  return checks_of<WorkerTarget, worker::generators, worker::rules, worker::goals>();
}

}  // namespace kvfence
