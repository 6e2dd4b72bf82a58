#pragma once

/// Checks a user's block pool against the reference.

#include <string>
#include <type_traits>
#include <utility>

#include "contract/pool/block_pool.h"
#include "properties/core/run_check.h"
#include "properties/pool/driver.h"
#include "properties/targets/checks.h"
#include "scenarios/check/references.h"

namespace kvfence {

/// Makes pools that satisfy the concept BlockPool from their configuration.
template <class Make>
concept MakesBlockPool = BlockPool<std::invoke_result_t<Make&, const BlockPoolConfig&>>;

/// The name of make_pool's pools in the report.
template <MakesBlockPool MakePool>
Parsed<Report> check(MakePool make_pool, const CheckOptions& options = {},
                     std::string name = "mine") {
  const auto expected = make_block_pool_reference();
  const auto actual = make_driver<BlockPoolDriver>(std::move(name), std::move(make_pool));
  return check(block_pool_checks(), *expected, *actual, options);
}

}  // namespace kvfence
