#pragma once

/// Every target with its checks and the implementations of this process. The only place that uses
/// both reference and optimized.

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/implementation.h"
#include "contract/core/line.h"
#include "contract/core/target.h"
#include "properties/core/checks.h"

namespace kvfence {

/// A deliberate mistake that an implementation can be built with.
struct PlantedBugInfo {
  std::string_view name;
  std::string_view doc;
  std::string_view thread;  ///< the public report of a similar bug, or "ours"
  /// Of target engine: the assembly to look for it in. Another assembly may use the name for another
  /// bug.
  std::string_view assembly = {};
};

struct TargetSides {
  const Checks* checks;
  std::function<std::unique_ptr<Implementation>()> make_reference;
  std::function<std::unique_ptr<Implementation>()> make_optimized;
  /// Null for an unknown name. For the empty name the instrumented copy without a bug, if any.
  std::function<std::unique_ptr<Implementation>(std::string_view bug_name)> make_planted;
  std::vector<PlantedBugInfo> planted_bugs;

  const Target& target() const { return *checks->target; }
};

const TargetSides& block_pool_sides();
const TargetSides& kv_cache_sides();
const TargetSides& eviction_sides();
const TargetSides& offload_sides();
const TargetSides& tiering_sides();
const TargetSides& worker_sides();
const TargetSides& engine_sides();

/// In the order in which the documentation lists them.
const std::vector<const TargetSides*>& all_targets();

/// A part that is checked separately: a target, or one assembly of target engine.
struct CheckedPart {
  std::string_view name;  ///< "block_pool", "engine.offloading"
  const TargetSides* sides;
  const Checks* checks;  ///< the target's, or those of the assembly
  std::vector<PlantedBugInfo> planted_bugs;
};

const std::vector<CheckedPart>& all_parts();

/// The part of that name, or null.
const CheckedPart* find_part(std::string_view name);

/// The optimized engine with the connectors of a shared library
/// (contract/connectors/kv_connector_registry.h) instead of kvfence's of these kinds. Its reset()
/// fails as kUnsupported if they do not fit the configuration.
///
/// Errors: no such library, no such symbol; no connector, or half a one.
Parsed<std::unique_ptr<Implementation>> make_engine_with_library(const std::string& path);

}  // namespace kvfence
