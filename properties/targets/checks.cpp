#include "properties/targets/checks.h"

#include "contract/eviction/eviction_target.h"
#include "contract/kv_cache/kv_cache_target.h"
#include "contract/offload/offload_target.h"
#include "contract/pool/block_pool_target.h"
#include "contract/tiering/tiering_target.h"
#include "contract/worker/worker_target.h"
#include "properties/core/typed_checks.h"
#include "properties/eviction/generator.h"
#include "properties/eviction/goals.h"
#include "properties/eviction/rules.h"
#include "properties/kv_cache/generator.h"
#include "properties/kv_cache/goals.h"
#include "properties/kv_cache/rules.h"
#include "properties/offload/generator.h"
#include "properties/offload/goals.h"
#include "properties/offload/rules.h"
#include "properties/pool/generator.h"
#include "properties/pool/goals.h"
#include "properties/pool/rules.h"
#include "properties/tiering/generator.h"
#include "properties/tiering/goals.h"
#include "properties/tiering/rules.h"
#include "properties/worker/generator.h"
#include "properties/worker/goals.h"
#include "properties/worker/rules.h"

namespace kvfence {

const Checks& block_pool_checks() {
  static const Checks kChecks =
      checks_of<BlockPoolTarget, block_pool::Generator, block_pool::Invariants>(
          block_pool::goals());
  return kChecks;
}

const Checks& kv_cache_checks() {
  static const Checks kChecks =
      checks_of<KVCacheTarget, kv_cache::Generator, kv_cache::Invariants>(kv_cache::goals());
  return kChecks;
}

const Checks& eviction_checks() {
  static const Checks kChecks =
      checks_of<EvictionTarget, eviction::Generator, eviction::Invariants>(eviction::goals());
  return kChecks;
}

const Checks& offload_checks() {
  static const Checks kChecks =
      checks_of<OffloadTarget, offload::Generator, offload::Invariants>(offload::goals());
  return kChecks;
}

const Checks& tiering_checks() {
  static const Checks kChecks =
      checks_of<TieringTarget, tiering::Generator, tiering::Invariants>(tiering::goals());
  return kChecks;
}

const Checks& worker_checks() {
  static const Checks kChecks =
      checks_of<WorkerTarget, worker::Generator, worker::Invariants>(worker::goals());
  return kChecks;
}

}  // namespace kvfence
