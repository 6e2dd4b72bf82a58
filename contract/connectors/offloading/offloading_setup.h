#pragma once

/// What the two halves of an OffloadingConnector are built from, by its record
/// (contract/connectors/offloading/offloading_facet.h).

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "contract/connectors/kv_connector_stats.h"
#include "contract/connectors/offloading/offloading_connector.h"
#include "contract/connectors/offloading/offloading_facet.h"
#include "contract/core/line.h"
#include "contract/scheduler/scheduler.h"
#include "contract/scripted/scripted_tier.h"
#include "contract/tiering/secondary_tier.h"
#include "contract/tiering/secondary_tier_factory.h"
#include "contract/tiering/tier_files.h"

namespace kvfence {

/// The types of scripted tiers.
inline constexpr const char* kScriptedTier = "scripted";
inline constexpr const char* kScriptedFilesTier = "scripted_files";

/// What both halves of the connector are built from.
struct ConnectorSetup {
  SchedulerConfig scheduler;
  OffloadingSpec spec;              ///< its tiers are of the types of scripted_tier_types
  SecondaryTierFactory tier_types;  ///< what makes them; none until a side has put its own there
  PrimaryKvView primary;            ///< its slots, where they have bytes
  std::uint32_t block_bytes = 0;    ///< what a GPU block counts for in statistics
  OffloadPromMetricsConfig metrics;

  std::uint32_t num_tiers() const {
    return static_cast<std::uint32_t>(spec.secondary_tiers.size());
  }
  bool has_files(std::uint32_t tier) const {
    return tier < num_tiers() && spec.secondary_tiers[tier].type == kScriptedFilesTier;
  }
};

/// The types kScriptedTier, and kScriptedFilesTier for one that keeps files, each with the settings
/// place=0 and request_level=false. All tiers of one factory share the list of calls.
SecondaryTierFactory scripted_tier_types(std::shared_ptr<TierCalls> calls,
                                         MakeTierFiles make_files);

/// Those of the spec, in order. Requires: setup.tier_types has their types.
std::vector<SecondaryTierHandle> make_secondary_tiers(const ConnectorSetup& setup);

/// Bytes of a slot where there is a file tier: tiering::kBlockBytes of each rank.
std::size_t slot_bytes_of(const OffloadingSpec& spec);

/// The key of an offloaded block of a request's prompt, with fence; nothing where the prompt does
/// not fill it. Requires: the spec has that group.
std::optional<OffloadKey> key_of_prompt_block(const OffloadingSpec& spec, const Request& prompt,
                                              GroupId group, std::uint32_t block);

/// Returns what the connector of a record is built from, or what is wrong with it: what was found,
/// and what is expected. Besides check_spec: a windowed group loads at most its window, wherever
/// the others end hits (as upstream asserts).
Parsed<ConnectorSetup> make_connector_setup(const engine::offloading::Record& record,
                                            const SchedulerConfig& scheduler,
                                            std::uint32_t num_ranks);

}  // namespace kvfence
