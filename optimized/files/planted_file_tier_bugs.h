#pragma once

/// The deliberate mistakes that BasicFileTier<PlantedFileTierBugs> can make, one at a time. What
/// planted_bugs.h says of them holds here.

#include <array>
#include <cstdint>
#include <string_view>

namespace kvfence::optimized {

enum class PlantedFileTierBug : std::uint8_t {
  kNone,
  kPublishedBeforeWritten,
  kWrittenInPlace,
  kShortWritePublished,
  kShortReadServed,
  kBlockDigestNotChecked,
  kHeaderNotChecked,
  kFailedStoreIsSuccess,
  kFailedLoadIsSuccess,
  kCloseErrorIgnored,
  kInterruptedIsFailure,
  kTemporaryKept,
  kBadFileKept,
  kFailedLoadStaysHit,
  kDoubtfulNotRewritten,
  kTornFileTakenForStored,
  kTransientErrorRemovesFile,
  kLeftoversNotReclaimed,
  kLeftoversOfTheLivingReclaimed,
  kFolderNotMade,
};

struct PlantedFileTierBugInfo {
  PlantedFileTierBug bug;
  std::string_view name;    ///< snake_case, says what it breaks
  std::string_view doc;     ///< one sentence
  std::string_view thread;  ///< the public thread of a bug of this shape, or "ours"
};

inline constexpr std::array<PlantedFileTierBugInfo, 19> kPlantedFileTierBugs = {{
    {PlantedFileTierBug::kPublishedBeforeWritten, "published_before_written",
     "A file gets its name before the block is in it.", "ours"},
    {PlantedFileTierBug::kWrittenInPlace, "written_in_place",
     "A block is written under its own name, without a temporary file.", "ours"},
    {PlantedFileTierBug::kShortWritePublished, "short_write_published",
     "A write that moved less than it was asked to counts as done.", "ours"},
    {PlantedFileTierBug::kShortReadServed, "short_read_served",
     "A read that moved less than it was asked to counts as done, and its bytes as checked.",
     "ours"},
    {PlantedFileTierBug::kBlockDigestNotChecked, "block_digest_not_checked",
     "Changed bytes of the right size are served.", "vllm#54363"},
    {PlantedFileTierBug::kHeaderNotChecked, "header_not_checked",
     "A file is served whatever its header says: of another key, too.", "ours"},
    {PlantedFileTierBug::kFailedStoreIsSuccess, "failed_store_is_success",
     "A store that failed is reported as a success.", "vllm#39732"},
    {PlantedFileTierBug::kFailedLoadIsSuccess, "failed_load_is_success",
     "A load that failed is reported as a success.", "vllm#39732"},
    {PlantedFileTierBug::kCloseErrorIgnored, "close_error_ignored",
     "A file whose close failed is published.", "ours"},
    {PlantedFileTierBug::kInterruptedIsFailure, "interrupted_is_failure",
     "A call that a signal interrupted counts as failed.", "ours"},
    {PlantedFileTierBug::kTemporaryKept, "temporary_kept",
     "A failed store leaves its temporary file.", "ours"},
    {PlantedFileTierBug::kBadFileKept, "bad_file_kept",
     "A file that cannot be served stays, and its key stays a hit.", "ours"},
    {PlantedFileTierBug::kFailedLoadStaysHit, "failed_load_stays_hit",
     "A key whose load failed stays a hit: it is promoted for ever.", "vllm#54327"},
    {PlantedFileTierBug::kDoubtfulNotRewritten, "doubtful_not_rewritten",
     "A store passes over a file that could not be loaded.", "ours"},
    {PlantedFileTierBug::kTornFileTakenForStored, "torn_file_taken_for_stored",
     "Any file of the name counts as stored, whatever its size.", "ours"},
    {PlantedFileTierBug::kTransientErrorRemovesFile, "transient_error_removes_file",
     "A file is removed because a call failed, as upstream does.", "ours"},
    {PlantedFileTierBug::kLeftoversNotReclaimed, "leftovers_not_reclaimed",
     "Temporary files of dead writers stay for ever.", "ours"},
    {PlantedFileTierBug::kLeftoversOfTheLivingReclaimed, "leftovers_of_the_living_reclaimed",
     "Temporary files are taken for leftovers while their writer is alive.", "ours"},
    {PlantedFileTierBug::kFolderNotMade, "folder_not_made",
     "A store fails if the folder of its file is missing.", "ours"},
}};

/// What a production tier holds: nothing, and every question folds to false.
struct NoFileTierBugs {
  constexpr bool planted(PlantedFileTierBug) const { return false; }
};

/// At most one of them.
struct PlantedFileTierBugs {
  PlantedFileTierBug bug = PlantedFileTierBug::kNone;
  constexpr bool planted(PlantedFileTierBug question) const { return bug == question; }
};

}  // namespace kvfence::optimized
