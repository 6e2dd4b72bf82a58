#pragma once

/// The file tier: a secondary tier that keeps each block in a file of its own. This file states its
/// rules once, down to the order of file operations, which decides the state after a failed
/// operation; `reference/` (in memory) and `optimized/` (on files) implement them independently.
/// optimized/file_formats.md describes the format of the files, and what the tier guarantees when a
/// process is killed.
///
/// Source: vLLM v0.23.0 v1/kv_offload/tiering/fs/{manager,io,thread_pool}.py. Beyond upstream:
/// headers and digests (a changed byte is found, vllm#54363), the bound of the queue, doubt (a
/// block that failed to load is not promoted for ever, as upstream's later mark_miss), reclaiming
/// what earlier writers left, and short transfers and EINTR, which upstream takes for errors.
///
/// A block file is *right-sized* if it is a regular file of the header's and the block's bytes. A
/// key is *doubtful* if a load of it failed and its file may still be there.
///
/// A *writer* has a number below kWritersMax: it always holds a lock on N.lock in the folder of
/// writers, and its temporary files are N.<any>.tmp there. Each lock is tried with three kLock:
/// open the file, which is made where it is missing; lock it; see that it still has its name. After
/// a failure of the last two, kClose.
///
/// opening a tier
///     kMakeFolder of the folder of writers (ENOENT: the one that it is in, then once more), and
///     the tier becomes a writer: kClose of the lock that it still has; kList; of each number in a
///     name, ascending, the lock is tried. The holder reclaims: kList, kRemove of each temporary
///     file, kRemove of the lock file, kClose; whichever of these fails. A number is not free if
///     its lock was not had, or a temporary file may be left. The lock of the smallest free number
///     is tried: it is the tier's. Where that fails, or the first kList does, the tier is no
///     writer. A new writer writes config.json where it is missing (kSize): kMakeFolder, kCreate
///     (once), kWrite, kClose, kRename; after a failure from kWrite on, kRemove.
///
/// ending a tier
///     kRemove of its lock file, unless it has a temporary file left; kClose.
///
/// lookup(key)
///     kHit if the key is not doubtful and its file is right-sized (kSize); else kMiss.
///
/// storing a block
///     Done, if the key is not doubtful and its file is right-sized (kSize).
///     Else kCreate of a temporary file; kWrite of the header; kWrite of the block; with sync_data
///     kSync; kClose, also after a failure; kRename to its name. If the folder is missing (ENOENT),
///     kMakeFolder twice, for it and the folder that it is in, whatever comes of it, and kRename
///     once more. After a failure, kRemove of the temporary file. Success ends the doubt.
///     Where the folder of writers is missing (kCreate: ENOENT), or the tier is no writer, it
///     becomes one as opening a tier does, and goes on from kCreate, once.
///
/// loading a block
///     kOpen: if the file is missing (ENOENT), the load fails and the doubt ends. kSize, kRead of
///     the header, kRead of the block, kClose. The file is *bad* if it is not right-sized, ends too
///     early, or header or digest are not as they were written for this key: then kRemove (after
///     kClose), and the load fails, with the key doubtful if the file could not be removed. The
///     load fails too if an operation does; then the key is doubtful, and the file stays. Success
///     ends the doubt. The result of kClose does not matter.
///
/// kCreate, kOpen, kRead and kWrite are tried again after EINTR; reads and writes that moved less
/// go on where they stopped. A write that moves nothing is a failure; a read that moves nothing is
/// the end of the file.
///
/// A job that does not fit into the queue fails at once, in whole.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "contract/tiering/file_mapper.h"
#include "contract/tiering/secondary_tier.h"

namespace kvfence {

struct FileTierConfig {
  FileMapperConfig files;
  std::uint32_t n_read_threads = 16;           ///< take loads first
  std::uint32_t n_write_threads = 16;          ///< take stores first
  std::uint32_t max_queued_blocks = 1u << 16;  ///< not begun yet, of loads and of stores, each
  /// Data reach the disk before their name does. Without, a power failure can leave a name with
  /// other bytes: found when they are read. A block that a power failure loses is a miss.
  bool sync_data = false;
  friend bool operator==(const FileTierConfig&, const FileTierConfig&) = default;
};

/// Returns what is wrong with a configuration, or nothing if a tier can be built from it: the
/// mapper's, and at least one thread.
inline std::optional<std::string> check_config(const FileTierConfig& config) {
  if (std::optional<std::string> wrong = check_config(config.files)) return wrong;
  if (config.n_read_threads == 0 && config.n_write_threads == 0) {
    return "n_read_threads and n_write_threads are 0, expected at least one thread";
  }
  return std::nullopt;
}

/// The bytes of a block file before those of the block.
inline constexpr std::size_t kBlockFileHeaderBytes = 64;

/// The folder of temporary files and writers' locks, below FileMapper::rank_path().
inline constexpr const char* kWritersFolder = "writers";

/// Writers have numbers below this.
inline constexpr std::uint32_t kWritersMax = 65'536;

}  // namespace kvfence
