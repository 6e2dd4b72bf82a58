#pragma once

/// The files of a file tier: one block at a time, from any thread. contract/tiering/file_tier.h
/// says what each operation does in which order; the format and the guarantees are in
/// optimized/file_formats.md.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <set>
#include <span>
#include <string>

#include "contract/core/state_digest.h"
#include "contract/tiering/file_mapper.h"
#include "contract/tiering/file_tier.h"
#include "optimized/files/block_file_header.h"
#include "optimized/files/file_operations.h"
#include "optimized/files/writer_names.h"

namespace kvfence::optimized {

/// Blocks of one size. Every member may be called from several threads; `files` outlives it.
class BlockFiles {
 public:
  /// Makes the folders, writes config.json where it is missing, reclaims what dead writers left,
  /// and becomes a writer. Where that fails, blocks can be loaded and each store tries again.
  /// Requires: check_config(config) finds nothing wrong
  BlockFiles(const FileTierConfig& config, std::size_t block_bytes, FileOperations& files);
  BlockFiles(const BlockFiles&) = delete;
  BlockFiles& operator=(const BlockFiles&) = delete;
  ~BlockFiles() { release(); }

  /// Whether the key's block can be expected to load. One file operation, beside memory lookups.
  bool contains(OffloadKeyView key);

  /// Whether a file has the block now. block has block_bytes bytes.
  bool store(OffloadKeyView key, std::span<const std::byte> block);

  /// Whether the block was loaded as stored; if not, its bytes are undefined.
  bool load(OffloadKeyView key, std::span<std::byte> block);

  /// Stops being a writer: nothing may be stored from now on.
  void release();

  /// The negative errno why this is not a writer, or 0: for the operator.
  int writer_error() const { return writer_error_; }

  /// Leaves out the files. Requires: no call is under way.
  void add_to(StateHash& hash) const {
    hash.add_all(writer_error_.load(), left_temporary_.load(), doubtful_);
  }

 private:
  enum class Reading : std::uint8_t { kWhole, kBad, kFailed };

  int become_writer();
  void make_folders(const std::string& path);
  void write_run_config();
  FileHandle create_temporary(std::string& path);
  bool write_file(FileHandle file, OffloadKeyView key, std::span<const std::byte> block);
  bool publish(const std::string& temporary, const std::string& path);
  void remove_temporary(const std::string& path);
  Reading read_file(FileHandle file, OffloadKeyView key, std::span<std::byte> block);
  bool has_file(const std::string& path);
  bool is_doubtful(OffloadKeyView key);
  void set_doubtful(OffloadKeyView key, bool doubtful);

  const FileMapper mapper_;
  const std::int64_t file_bytes_;
  const bool sync_data_;
  FileOperations& files_;
  const std::string writers_path_;
  WriterNames names_;
  std::mutex claim_mutex_;
  std::atomic<std::uint32_t> num_claims_ = 0;
  std::atomic<int> writer_error_ = 0;
  /// A temporary file could not be removed; its lock file must stay until it is reclaimed.
  std::atomic<bool> left_temporary_ = false;
  std::mutex doubtful_mutex_;
  std::set<OffloadKey, std::less<>> doubtful_;
};

}  // namespace kvfence::optimized
