#pragma once

/// Checks a user's KV-cache manager against the reference.

#include <string>
#include <type_traits>
#include <utility>

#include "contract/kv_cache/kv_cache_manager.h"
#include "properties/core/run_check.h"
#include "properties/kv_cache/driver.h"
#include "properties/targets/checks.h"
#include "scenarios/check/references.h"

namespace kvfence {

/// Makes managers that satisfy the concept KVCacheManager from their configuration.
template <class Make>
concept MakesKVCacheManager =
    KVCacheManager<std::invoke_result_t<Make&, const KVCacheManagerConfig&>>;

/// The name of make_manager's managers in the report.
template <MakesKVCacheManager MakeManager>
Parsed<Report> check(MakeManager make_manager, const CheckOptions& options = {},
                     std::string name = "mine") {
  const auto expected = make_kv_cache_reference();
  const auto actual = make_driver<KVCacheDriver>(std::move(name), std::move(make_manager));
  return check(kv_cache_checks(), *expected, *actual, options);
}

}  // namespace kvfence
