#pragma once

/// What a MultiConnector and its children owe beside each other. All else that real children owe
/// is claimed by their own assemblies, and of the scheduler by the core rules. The rules of NIXL's
/// room are claimed here as well, as far as they go beside others (properties/engine/nixl/rules.h);
/// not beside scripted children, which report what they do not have.

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "contract/engine/engine_target.h"
#include "properties/core/divergence.h"
#include "properties/engine/nixl/rules.h"

namespace kvfence::engine::multi {

/// Every invariant: what the command line and the documentation list.
inline constexpr std::array<Invariant, 8> kInvariants = {{
    {"multi.1", "slots_add_up", "slots of the CPU cache are free, or hold one block of its lists"},
    {"multi.2", "cpu_blocks_add_up",
     "empty, cached and referenced CPU blocks are all blocks of the simple connector's pool"},
    {"multi.3", "every_child_is_told",
     "apart from lookups and the search for a handshake, what one scripted child is told, all are, "
     "with the same arguments"},
    {"multi.4", "children_are_asked_in_order",
     "a lookup asks the children in order, up to one that wants to be asked again"},
    {"multi.5", "one_child_loads",
     "one child at most gets a request's tokens; the others get a list without a block per group"},
    {"multi.6", "metadata_reach_their_child", "a child's workers get what that child built"},
    {"multi.7", "nothing_is_kept_of_what_is_over",
     "only an unfinished request has a chosen child; a step takes all extra saves to the workers"},
    {"multi.8", "extra_saves_leave_one",
     "of the notices that a request is sent, one fewer than the children at most are swallowed"},
}};

/// Watches one implementation. A value: copyable.
class Invariants {
 public:
  static constexpr auto kRules = [] {
    std::array<Invariant, kInvariants.size() + nixl::kInvariants.size()> all{};
    std::copy(nixl::kInvariants.begin(), nixl::kInvariants.end(),
              std::copy(kInvariants.begin(), kInvariants.end(), all.begin()));
    return all;
  }();

  explicit Invariants(const EngineSetup& setup);

  /// Holds one observation against every invariant; the first that is broken, or nothing.
  std::optional<Divergence> check(const Command& command, const Observation* before,
                                  const Observation& observation, const World& world,
                                  std::size_t step);

 private:
  using Found = std::optional<Divergence>;

  Found check_engine(EngineRole role, const Command& command, const Observation& observation) const;
  Found check_sums(EngineRole role, const EngineObservation& shown) const;
  Found check_told(std::span<const ConnectorCallRecord> calls) const;
  Found check_lookups(const std::vector<ConnectorCallRecord>& calls) const;
  Found check_loads(const std::vector<ConnectorCallRecord>& calls) const;
  Found check_metadata(const std::vector<ConnectorCallRecord>& calls) const;
  Found check_kept(const EngineObservation& shown, bool is_step) const;

  EngineSetup setup_;
  std::optional<nixl::Invariants> nixl_;
};

}  // namespace kvfence::engine::multi
