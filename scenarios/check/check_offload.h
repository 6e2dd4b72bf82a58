#pragma once

/// Checks a user's offloading manager against the reference.

#include <string>
#include <type_traits>
#include <utility>

#include "contract/offload/offloading_manager.h"
#include "properties/core/run_check.h"
#include "properties/offload/driver.h"
#include "properties/targets/checks.h"
#include "scenarios/check/references.h"

namespace kvfence {

/// Makes managers that satisfy the concept OffloadingManager from their configuration.
template <class Make>
concept MakesOffloadingManager =
    OffloadingManager<std::invoke_result_t<Make&, const OffloadingManagerConfig&>>;

/// The name of make_manager's managers in the report.
template <MakesOffloadingManager MakeManager>
Parsed<Report> check(MakeManager make_manager, const CheckOptions& options = {},
                     std::string name = "mine") {
  const auto expected = make_offload_reference();
  const auto actual = make_driver<OffloadDriver>(std::move(name), std::move(make_manager));
  return check(offload_checks(), *expected, *actual, options);
}

}  // namespace kvfence
