#include "scenarios/check/references.h"

#include "properties/eviction/driver.h"
#include "properties/kv_cache/driver.h"
#include "properties/offload/driver.h"
#include "properties/pool/driver.h"
#include "properties/tiering/driver.h"
#include "properties/worker/driver.h"
#include "reference/eviction/cache_policy.h"
#include "reference/kv_cache/kv_cache_manager.h"
#include "reference/offload/offloading_manager.h"
#include "reference/pool/block_pool.h"
#include "reference/tiering/file_tier.h"
#include "reference/tiering/tiering_manager.h"
#include "reference/worker/copy_workers.h"

namespace kvfence {
namespace {

constexpr const char* kName = "reference";

}  // namespace

std::unique_ptr<Implementation> make_block_pool_reference() {
  return make_driver<BlockPoolDriver, reference::BlockPool>(kName);
}

std::unique_ptr<Implementation> make_kv_cache_reference() {
  return make_driver<KVCacheDriver, reference::KVCacheManager>(kName);
}

std::unique_ptr<Implementation> make_eviction_reference() {
  return make_driver<EvictionDriver, reference::CachePolicy>(kName);
}

std::unique_ptr<Implementation> make_offload_reference() {
  return make_driver<OffloadDriver, reference::OffloadingManager>(kName);
}

std::unique_ptr<Implementation> make_tiering_reference() {
  return make_tiering_driver<reference::TieringOffloadingManager>(kName,
                                                                  reference::make_tier_files);
}

std::unique_ptr<Implementation> make_worker_reference() {
  return make_worker_driver<reference::CopyWorkers>(kName);
}

}  // namespace kvfence
