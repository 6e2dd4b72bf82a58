#pragma once

/// The implementations of each target that live in this process. The one place where reference and
/// optimized meet.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/implementation.h"
#include "contract/core/line.h"

namespace kvfence {

struct ConnectorTarget;

/// A deliberate mistake that an implementation can be built with.
struct PlantedBugInfo {
  std::string_view name;
  std::string_view doc;
  std::string_view thread;  ///< the public thread of a bug of this shape, or "ours"
};

/// Makes the implementations of a target: scenarios/<target>_implementations.cpp.
template <class Target>
struct Implementations {
  static std::unique_ptr<Implementation<Target>> make_reference();
  static std::unique_ptr<Implementation<Target>> make_optimized();

  /// Null for a name that planted_bugs() does not have.
  static std::unique_ptr<Implementation<Target>> make_planted(std::string_view bug_name);

  static std::vector<PlantedBugInfo> planted_bugs();
};

/// The optimized scheduler with the connector of a shared library
/// (contract/connectors/kv_connector_registry.h) in the place of every built-in one.
/// Errors: no such library, no such symbol.
Parsed<std::unique_ptr<Implementation<ConnectorTarget>>> make_connector_from_library(
    const std::string& path);

}  // namespace kvfence
