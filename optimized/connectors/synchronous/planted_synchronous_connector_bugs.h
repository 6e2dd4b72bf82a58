#pragma once

/// The deliberate mistakes that the halves of a synchronous connector and its storage can make with
/// PlantedInstrumentation, one at a time. What planted_bugs.h says of them holds here.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace kvfence::optimized {

/// A bug of one connector does nothing in the other.
enum class PlantedSynchronousConnectorBug : std::uint8_t {
  kNone,
  kLookupUnderStoreKey,
  kStoreUnderLookupKey,
  kLoadUnderLookupKey,
  kStoreNotAligned,
  kHitNotAligned,
  kLocalHitNotSubtracted,
  kNegativeHitNotClamped,
  kMatchNotLookedFor,
  kMatchRemembered,
  kLoadWithoutHit,
  kNeedLoadKept,
  kResumedNotLoaded,
  kResumedOutputsNotLoaded,
  kResumedStepNotCounted,
  kStoreNotComputedYet,
  kStepTokensNotCounted,
  kStoredAgain,
  kBlocksOfTableEnd,
  kFirstRankLoadsAlone,
  kLayersSwapped,
  kSlotsReversed,
  kLastBlockNotLoaded,
  kLoadFailureNotReported,
  kSaveFailureNotReported,
  kFirstLayerSavedForAll,
  kSavedBeforeComputed,
  kHalfFileAccepted,
  kFailedWriteIsSuccess,
  kFailedCreateKeepsFile,
  kLoadMakesNoFolder,
  kFilledAgain,
  kFilledOutlivesRequest,
  kOutputsNotFilled,
  kFillRoundedToBlocks,
  kPartBlockNotFilled,
  kFillOfTableEnd,
  kGroupsDropped,
  kLastFillToldAgain,
  kAllGroupsFilled,
  kNullBlockSpared,
  kOneLayerFilled,
};

struct PlantedSynchronousConnectorBugInfo {
  PlantedSynchronousConnectorBug bug;
  std::string_view name;    ///< snake_case, says what it breaks
  std::string_view doc;     ///< one sentence
  std::string_view thread;  ///< the public thread of a bug of this shape, or "ours"
};

inline constexpr std::array<PlantedSynchronousConnectorBugInfo, 41>
    kPlantedSynchronousConnectorBugs = {{
        {PlantedSynchronousConnectorBug::kLookupUnderStoreKey, "lookup_under_store_key",
         "Example: A lookup asks for the folder that its own prompt is kept in.", "ours"},
        {PlantedSynchronousConnectorBug::kStoreUnderLookupKey, "store_under_lookup_key",
         "Example: A prompt is kept under the name that a lookup of it asks for.", "ours"},
        {PlantedSynchronousConnectorBug::kLoadUnderLookupKey, "load_under_lookup_key",
         "Example: A new request loads what its lookup found, not what its prompt would be kept "
         "as.",
         "ours"},
        {PlantedSynchronousConnectorBug::kStoreNotAligned, "store_not_aligned",
         "Example: Of a prompt of whole blocks the last one is kept, too.", "ours"},
        {PlantedSynchronousConnectorBug::kHitNotAligned, "hit_not_aligned",
         "Example: A hit covers all tokens but the last.", "vllm#11186"},
        {PlantedSynchronousConnectorBug::kLocalHitNotSubtracted, "local_hit_not_subtracted",
         "Example: A hit counts what the local cache has as well.", "ours"},
        {PlantedSynchronousConnectorBug::kNegativeHitNotClamped, "negative_hit_not_clamped",
         "Example: A match that ends before the local hit counts with its distance from there.",
         "vllm#53495"},
        {PlantedSynchronousConnectorBug::kMatchNotLookedFor, "match_not_looked_for",
         "Example: Each prompt is taken for a match.", "ours"},
        {PlantedSynchronousConnectorBug::kMatchRemembered, "match_remembered",
         "Example: A match that was found is not looked for again, nor is that of the next one of "
         "its index.",
         "vllm#49820"},
        {PlantedSynchronousConnectorBug::kLoadWithoutHit, "load_without_hit",
         "Example: A request with blocks needs a load, whatever was found.", "ours"},
        {PlantedSynchronousConnectorBug::kNeedLoadKept, "need_load_kept",
         "Example: A request that needed a load needs one for ever, and so does the next one of "
         "its index.",
         "ours"},
        {PlantedSynchronousConnectorBug::kResumedNotLoaded, "resumed_not_loaded",
         "Example: A resumed request that needs a load gets none.", "vllm#31583"},
        {PlantedSynchronousConnectorBug::kResumedOutputsNotLoaded, "resumed_outputs_not_loaded",
         "Example: The load of a resumed request ends with its prompt.", "ours"},
        {PlantedSynchronousConnectorBug::kResumedStepNotCounted, "resumed_step_not_counted",
         "Example: The load of a resumed request leaves out what this step computes.", "ours"},
        {PlantedSynchronousConnectorBug::kStoreNotComputedYet, "store_not_computed_yet",
         "Example: A prompt is stored with the first step of its request, as upstream does it.",
         "vllm#34526"},
        {PlantedSynchronousConnectorBug::kStepTokensNotCounted, "step_tokens_not_counted",
         "Example: A prompt that this step computes to its end is not stored.", "ours"},
        {PlantedSynchronousConnectorBug::kStoredAgain, "stored_again",
         "Example: A prompt whose match is found is stored all the same.", "ours"},
        {PlantedSynchronousConnectorBug::kBlocksOfTableEnd, "blocks_of_table_end",
         "Example: The blocks of a transfer are the last ones of the table.", "ours"},
        {PlantedSynchronousConnectorBug::kFirstRankLoadsAlone, "first_rank_loads_alone",
         "Example: Ranks other than the first load nothing.", "ours"},
        {PlantedSynchronousConnectorBug::kLayersSwapped, "layers_swapped",
         "Example: A layer is loaded from the file of the next one of its rank.", "ours"},
        {PlantedSynchronousConnectorBug::kSlotsReversed, "slots_reversed",
         "Example: What is loaded goes into the blocks from the last one on.", "ours"},
        {PlantedSynchronousConnectorBug::kLastBlockNotLoaded, "last_block_not_loaded",
         "Example: The last block of a load keeps what it had.", "ours"},
        {PlantedSynchronousConnectorBug::kLoadFailureNotReported, "load_failure_not_reported",
         "Example: A worker goes on after a load that failed.", "vllm#39732"},
        {PlantedSynchronousConnectorBug::kSaveFailureNotReported, "save_failure_not_reported",
         "Example: A worker goes on after a save that failed.", "vllm#39732"},
        {PlantedSynchronousConnectorBug::kFirstLayerSavedForAll, "first_layer_saved_for_all",
         "Example: The files of all layers get what the rank's first layer holds.", "ours"},
        {PlantedSynchronousConnectorBug::kSavedBeforeComputed, "saved_before_computed",
         "Example: What a step computes is saved before it is computed.", "vllm#45704"},
        {PlantedSynchronousConnectorBug::kHalfFileAccepted, "half_file_accepted",
         "Example: A file that is not whole is loaded as far as it goes.", "ours"},
        {PlantedSynchronousConnectorBug::kFailedWriteIsSuccess, "failed_write_is_success",
         "Example: A file that could not be written to its end counts as written.", "vllm#39732"},
        {PlantedSynchronousConnectorBug::kFailedCreateKeepsFile, "failed_create_keeps_file",
         "Example: A file that cannot be made anew stays what it was.", "ours"},
        {PlantedSynchronousConnectorBug::kLoadMakesNoFolder, "load_makes_no_folder",
         "Example: Looking for a file does not make its folder.", "ours"},
        {PlantedSynchronousConnectorBug::kFilledAgain, "filled_again",
         "DecodeBench: A request that was filled is filled again when it is resumed.", "ours"},
        {PlantedSynchronousConnectorBug::kFilledOutlivesRequest, "filled_outlives_request",
         "DecodeBench: A finished request stays filled, and so is the next one of its index.",
         "ours"},
        {PlantedSynchronousConnectorBug::kOutputsNotFilled, "outputs_not_filled",
         "DecodeBench: Outputs do not count as tokens to fill.", "ours"},
        {PlantedSynchronousConnectorBug::kFillRoundedToBlocks, "fill_rounded_to_blocks",
         "DecodeBench: Whole blocks are found, not all tokens but the last.", "ours"},
        {PlantedSynchronousConnectorBug::kPartBlockNotFilled, "part_block_not_filled",
         "DecodeBench: The block that ends within a fill is left out.", "ours"},
        {PlantedSynchronousConnectorBug::kFillOfTableEnd, "fill_of_table_end",
         "DecodeBench: A fill takes the last blocks of the table, where its tokens are.", "ours"},
        {PlantedSynchronousConnectorBug::kGroupsDropped, "groups_dropped",
         "DecodeBench: A fill names the blocks of the first group alone.", "ours"},
        {PlantedSynchronousConnectorBug::kLastFillToldAgain, "last_fill_told_again",
         "DecodeBench: The last fill is told by each step until its request finishes or another "
         "comes.",
         "ours"},
        {PlantedSynchronousConnectorBug::kAllGroupsFilled, "all_groups_filled",
         "DecodeBench: A worker fills the blocks of all groups.", "vllm#54733"},
        {PlantedSynchronousConnectorBug::kNullBlockSpared, "null_block_spared",
         "DecodeBench: A worker does not fill the null block.", "ours"},
        {PlantedSynchronousConnectorBug::kOneLayerFilled, "one_layer_filled",
         "DecodeBench: A worker fills the first layer of its rank alone.", "ours"},
    }};

/// The entry of a bug. Requires: bug is not kNone.
constexpr const PlantedSynchronousConnectorBugInfo& planted_bug_info(
    PlantedSynchronousConnectorBug bug) {
  return kPlantedSynchronousConnectorBugs[static_cast<std::size_t>(bug) - 1];
}

/// The bug of that name; nothing for an unknown name.
constexpr std::optional<PlantedSynchronousConnectorBug> planted_synchronous_connector_bug_from_name(
    std::string_view name) {
  for (const PlantedSynchronousConnectorBugInfo& info : kPlantedSynchronousConnectorBugs) {
    if (info.name == name) return info.bug;
  }
  return std::nullopt;
}

}  // namespace kvfence::optimized
