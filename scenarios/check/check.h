#pragma once

/// Checks a user's component against the reference. `make` makes it from its configuration, whose
/// type it names: that decides the target. `name` is the component's name in the report.

#include <string>
#include <utility>

#include "contract/eviction/cache_policy.h"
#include "contract/kv_cache/kv_cache_manager.h"
#include "contract/offload/offloading_manager.h"
#include "contract/pool/block_pool.h"
#include "properties/core/run_check.h"
#include "properties/eviction/driver.h"
#include "properties/kv_cache/driver.h"
#include "properties/offload/driver.h"
#include "properties/pool/driver.h"
#include "properties/targets/checks.h"
#include "reference/eviction/cache_policy.h"
#include "reference/kv_cache/kv_cache_manager.h"
#include "reference/offload/offloading_manager.h"
#include "reference/pool/block_pool.h"

namespace kvfence {

template <class Make, class Config>
using MadeFrom = std::invoke_result_t<Make&, const Config&>;

/// Make returns, for a configuration, a component that satisfies the concept.
template <class Make>
concept MakesBlockPool = BlockPool<MadeFrom<Make, BlockPoolConfig>>;
template <class Make>
concept MakesKVCacheManager = KVCacheManager<MadeFrom<Make, KVCacheManagerConfig>>;
template <class Make>
concept MakesCachePolicy = CachePolicy<MadeFrom<Make, CachePolicyConfig>>;
template <class Make>
concept MakesOffloadingManager = OffloadingManager<MadeFrom<Make, OffloadingManagerConfig>>;

/// What the overloads of check do, each with its target, driver and reference.
template <template <class> class Driver, class Reference, class Make>
Parsed<Report> check_made(const Checks& checks, Make make, const CheckOptions& options,
                          std::string name) {
  const auto expected = make_driver<Driver, Reference>("reference");
  const auto actual = make_driver<Driver>(std::move(name), std::move(make));
  return check(checks, *expected, *actual, options);
}

template <MakesBlockPool Make>
Parsed<Report> check(Make make, const CheckOptions& options = {}, std::string name = "mine") {
  return check_made<BlockPoolDriver, reference::BlockPool>(block_pool_checks(), std::move(make),
                                                           options, std::move(name));
}

template <MakesKVCacheManager Make>
Parsed<Report> check(Make make, const CheckOptions& options = {}, std::string name = "mine") {
  return check_made<KVCacheDriver, reference::KVCacheManager>(kv_cache_checks(), std::move(make),
                                                              options, std::move(name));
}

template <MakesCachePolicy Make>
Parsed<Report> check(Make make, const CheckOptions& options = {}, std::string name = "mine") {
  return check_made<EvictionDriver, reference::CachePolicy>(eviction_checks(), std::move(make),
                                                            options, std::move(name));
}

template <MakesOffloadingManager Make>
Parsed<Report> check(Make make, const CheckOptions& options = {}, std::string name = "mine") {
  return check_made<OffloadDriver, reference::OffloadingManager>(offload_checks(), std::move(make),
                                                                 options, std::move(name));
}

}  // namespace kvfence
