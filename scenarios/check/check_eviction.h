#pragma once

/// Checks a user's eviction policy against the reference.

#include <string>
#include <type_traits>
#include <utility>

#include "contract/eviction/cache_policy.h"
#include "properties/core/run_check.h"
#include "properties/eviction/driver.h"
#include "properties/targets/checks.h"
#include "scenarios/check/references.h"

namespace kvfence {

/// Makes policies that satisfy the concept CachePolicy from their configuration.
template <class Make>
concept MakesCachePolicy = CachePolicy<std::invoke_result_t<Make&, const CachePolicyConfig&>>;

/// The name of make_policy's policies in the report.
template <MakesCachePolicy MakePolicy>
Parsed<Report> check(MakePolicy make_policy, const CheckOptions& options = {},
                     std::string name = "mine") {
  const auto expected = make_eviction_reference();
  const auto actual = make_driver<EvictionDriver>(std::move(name), std::move(make_policy));
  return check(eviction_checks(), *expected, *actual, options);
}

}  // namespace kvfence
