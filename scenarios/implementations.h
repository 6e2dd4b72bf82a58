#pragma once

/// The implementations of each target that live in this process. The one place where reference and
/// optimized meet.

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/block_pool_target.h"
#include "contract/connector_target.h"
#include "contract/disaggregated_target.h"
#include "contract/eviction_target.h"
#include "contract/implementation.h"
#include "contract/kv_cache_target.h"
#include "contract/multi_connector_target.h"
#include "contract/offload_target.h"
#include "contract/scheduler_target.h"
#include "contract/simple_offload_target.h"
#include "contract/tiering_target.h"

namespace kvfence {

/// A deliberate mistake that an implementation can be built with.
struct PlantedBugInfo {
  std::string_view name;
  std::string_view doc;
  std::string_view thread;  ///< the public thread of a bug of this shape, or "ours"
};

/// Makes the implementations of a target. Each target specialises it.
template <class Target>
struct Implementations;

template <>
struct Implementations<BlockPoolTarget> {
  static std::unique_ptr<Implementation<BlockPoolTarget>> make_reference();
  static std::unique_ptr<Implementation<BlockPoolTarget>> make_optimized();

  /// Null for a name that planted_bugs() does not have.
  static std::unique_ptr<Implementation<BlockPoolTarget>> make_planted(std::string_view bug_name);

  static std::vector<PlantedBugInfo> planted_bugs();
};

template <>
struct Implementations<KVCacheTarget> {
  static std::unique_ptr<Implementation<KVCacheTarget>> make_reference();
  static std::unique_ptr<Implementation<KVCacheTarget>> make_optimized();

  /// Null for a name that planted_bugs() does not have.
  static std::unique_ptr<Implementation<KVCacheTarget>> make_planted(std::string_view bug_name);

  static std::vector<PlantedBugInfo> planted_bugs();
};

template <>
struct Implementations<SchedulerTarget> {
  static std::unique_ptr<Implementation<SchedulerTarget>> make_reference();
  static std::unique_ptr<Implementation<SchedulerTarget>> make_optimized();

  /// Null for a name that planted_bugs() does not have.
  static std::unique_ptr<Implementation<SchedulerTarget>> make_planted(std::string_view bug_name);

  static std::vector<PlantedBugInfo> planted_bugs();
};

template <>
struct Implementations<EvictionTarget> {
  static std::unique_ptr<Implementation<EvictionTarget>> make_reference();
  static std::unique_ptr<Implementation<EvictionTarget>> make_optimized();

  /// Null for a name that planted_bugs() does not have.
  static std::unique_ptr<Implementation<EvictionTarget>> make_planted(std::string_view bug_name);

  static std::vector<PlantedBugInfo> planted_bugs();
};

template <>
struct Implementations<OffloadTarget> {
  static std::unique_ptr<Implementation<OffloadTarget>> make_reference();
  static std::unique_ptr<Implementation<OffloadTarget>> make_optimized();

  /// Null for a name that planted_bugs() does not have.
  static std::unique_ptr<Implementation<OffloadTarget>> make_planted(std::string_view bug_name);

  static std::vector<PlantedBugInfo> planted_bugs();
};

template <>
struct Implementations<TieringTarget> {
  static std::unique_ptr<Implementation<TieringTarget>> make_reference();
  static std::unique_ptr<Implementation<TieringTarget>> make_optimized();

  /// Null for a name that planted_bugs() does not have.
  static std::unique_ptr<Implementation<TieringTarget>> make_planted(std::string_view bug_name);

  static std::vector<PlantedBugInfo> planted_bugs();
};

template <>
struct Implementations<ConnectorTarget> {
  static std::unique_ptr<Implementation<ConnectorTarget>> make_reference();
  static std::unique_ptr<Implementation<ConnectorTarget>> make_optimized();

  /// The optimized scheduler with the connector of a shared library
  /// (contract/kv_connector_registry.h) in the place of every built-in one.
  /// Errors: no such library, no such symbol.
  static Parsed<std::unique_ptr<Implementation<ConnectorTarget>>> make_from_library(
      const std::string& path);

  /// Null for a name that planted_bugs() does not have.
  static std::unique_ptr<Implementation<ConnectorTarget>> make_planted(std::string_view bug_name);

  static std::vector<PlantedBugInfo> planted_bugs();
};

template <>
struct Implementations<MultiConnectorTarget> {
  static std::unique_ptr<Implementation<MultiConnectorTarget>> make_reference();
  static std::unique_ptr<Implementation<MultiConnectorTarget>> make_optimized();

  /// Null for a name that planted_bugs() does not have.
  static std::unique_ptr<Implementation<MultiConnectorTarget>> make_planted(
      std::string_view bug_name);

  static std::vector<PlantedBugInfo> planted_bugs();
};

template <>
struct Implementations<DisaggregatedTarget> {
  static std::unique_ptr<Implementation<DisaggregatedTarget>> make_reference();
  static std::unique_ptr<Implementation<DisaggregatedTarget>> make_optimized();

  /// Null for a name that planted_bugs() does not have.
  static std::unique_ptr<Implementation<DisaggregatedTarget>> make_planted(
      std::string_view bug_name);

  static std::vector<PlantedBugInfo> planted_bugs();
};

template <>
struct Implementations<SimpleOffloadTarget> {
  static std::unique_ptr<Implementation<SimpleOffloadTarget>> make_reference();
  static std::unique_ptr<Implementation<SimpleOffloadTarget>> make_optimized();

  /// Null for a name that planted_bugs() does not have.
  static std::unique_ptr<Implementation<SimpleOffloadTarget>> make_planted(
      std::string_view bug_name);

  static std::vector<PlantedBugInfo> planted_bugs();
};

}  // namespace kvfence
