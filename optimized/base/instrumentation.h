#pragma once

/// What watches, or breaks, the optimized code from inside: a value that the parts of some
/// connectors each hold. Components whose planted bugs are edits (properties/planted/) hold none.
///
/// An instrumentation has the members of NoInstrumentation; production builds use that one,
/// which is empty and whose hooks fold to nothing.

#include <cstddef>
#include <cstdint>

#include "optimized/connectors/multi/planted_multi_connector_bugs.h"

namespace kvfence::optimized {

struct NoInstrumentation {
  /// Whether planted() can be true; guards of structures that only a planted bug can break ask for
  /// it.
  static constexpr bool kPlants = false;
  constexpr bool planted(PlantedMultiConnectorBug) const { return false; }
  /// That many nodes of a linked list were read or written.
  constexpr void on_links(std::uint32_t) const {}
  /// One slot of the hash table was looked at.
  constexpr void on_probe() const {}
  /// That many entries of a block table were read or written.
  constexpr void on_table_entries(std::size_t) const {}
  /// That many requests were looked at.
  constexpr void on_requests(std::uint32_t) const {}
  /// That many words of a place set, or places of a timeline, were read or written.
  constexpr void on_words(std::size_t) const {}
};

/// Counts the work of data structures: the O(1) claim is a test about these numbers.
class CountingInstrumentation {
 public:
  static constexpr bool kPlants = false;
  constexpr bool planted(PlantedMultiConnectorBug) const { return false; }
  void on_links(std::uint32_t num_nodes) const { num_links_ += num_nodes; }
  void on_probe() const { ++num_probes_; }
  void on_table_entries(std::size_t num_entries) const { num_table_entries_ += num_entries; }
  void on_requests(std::uint32_t num_requests) const { num_requests_ += num_requests; }
  void on_words(std::size_t num_words) const { num_words_ += num_words; }

  std::uint64_t num_links() const { return num_links_; }
  std::uint64_t num_probes() const { return num_probes_; }
  std::uint64_t num_table_entries() const { return num_table_entries_; }
  std::uint64_t num_requests() const { return num_requests_; }
  std::uint64_t num_words() const { return num_words_; }

 private:
  // Lookups are const and count too.
  mutable std::uint64_t num_links_ = 0;
  mutable std::uint64_t num_probes_ = 0;
  mutable std::uint64_t num_table_entries_ = 0;
  mutable std::uint64_t num_requests_ = 0;
  mutable std::uint64_t num_words_ = 0;
};

/// Switches one planted bug on; kNone behaves like production.
class PlantedInstrumentation {
 public:
  static constexpr bool kPlants = true;

  PlantedInstrumentation() = default;
  // Implicit, so that half a connector is built from a bug besides.
  PlantedInstrumentation(PlantedMultiConnectorBug bug) : multi_connector_bug_(bug) {}

  bool planted(PlantedMultiConnectorBug bug) const { return bug == multi_connector_bug_; }
  void on_links(std::uint32_t) const {}
  void on_probe() const {}
  void on_table_entries(std::size_t) const {}
  void on_requests(std::uint32_t) const {}
  void on_words(std::size_t) const {}

 private:
  PlantedMultiConnectorBug multi_connector_bug_ = PlantedMultiConnectorBug::kNone;
};

}  // namespace kvfence::optimized
