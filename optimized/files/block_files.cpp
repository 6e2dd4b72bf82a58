#include "optimized/files/block_files.h"

#include <cerrno>

namespace kvfence::optimized {
namespace {

template <class Bugs>
WriterNames::Reclaim reclaim_of(const Bugs& bugs) {
  if (bugs.planted(PlantedFileTierBug::kLeftoversNotReclaimed)) {
    return WriterNames::Reclaim::kNothing;
  }
  if (bugs.planted(PlantedFileTierBug::kLeftoversOfTheLivingReclaimed)) {
    return WriterNames::Reclaim::kAll;
  }
  return WriterNames::Reclaim::kDead;
}

/// The folder that a path is in; empty if it is in none.
std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash);
}

}  // namespace

template <class Bugs>
BasicBlockFiles<Bugs>::BasicBlockFiles(const FileTierConfig& config, std::size_t block_bytes,
                                       FileOperations& files, Bugs bugs)
    : mapper_(config.files),
      file_bytes_(static_cast<std::int64_t>(kBlockFileHeaderBytes + block_bytes)),
      sync_data_(config.sync_data),
      files_(files),
      bugs_(bugs),
      writers_path_(mapper_.rank_path() + "/" + kWritersFolder),
      names_(files, writers_path_, reclaim_of(bugs)) {
  if (become_writer() == 0) write_run_config();
}

template <class Bugs>
int BasicBlockFiles<Bugs>::become_writer() {
  make_folders(writers_path_);
  const int error = names_.claim();
  writer_error_ = error;
  ++num_claims_;
  return error;
}

/// A folder and those that it is in. Whether it worked shows when it is used.
template <class Bugs>
void BasicBlockFiles<Bugs>::make_folders(const std::string& path) {
  if (path.empty() || files_.make_folder(path) != -ENOENT) return;
  make_folders(folder_of(path));
  files_.make_folder(path);
}

/// For people; nothing here reads it.
template <class Bugs>
void BasicBlockFiles<Bugs>::write_run_config() {
  const std::string path = mapper_.get_config_file_path();
  if (files_.size_of(path) >= 0) return;
  make_folders(mapper_.base_path());
  const std::string temporary = names_.next();
  const FileHandle file = files_.create(temporary);
  if (file < 0) return;
  const std::string& text = mapper_.get_run_config();
  bool done = write_all(file, std::as_bytes(std::span<const char>(text.data(), text.size())));
  done = files_.close(file) == 0 && done;
  if (!done || files_.rename(temporary, path) < 0) remove_temporary(temporary);
}

template <class Bugs>
bool BasicBlockFiles<Bugs>::contains(OffloadKeyView key) {
  return !is_doubtful(key) && has_file(mapper_.get_file_name(key));
}

template <class Bugs>
bool BasicBlockFiles<Bugs>::store(OffloadKeyView key, std::span<const std::byte> block) {
  const std::string path = mapper_.get_file_name(key);
  const bool rewrites = !planted(PlantedFileTierBug::kDoubtfulNotRewritten) && is_doubtful(key);
  if (!rewrites && has_file(path)) return true;

  std::string temporary;
  FileHandle file = -1;
  if (planted(PlantedFileTierBug::kWrittenInPlace)) {
    temporary = path;
    make_folders(folder_of(path));
    file = files_.create(path);
  } else {
    file = create_temporary(temporary);
  }
  if (file < 0) return false;
  bool done = true;
  if (planted(PlantedFileTierBug::kPublishedBeforeWritten)) done = publish(temporary, path);
  done = done && write_file(file, key, block);
  const bool closed = files_.close(file) == 0;
  done = done && (closed || planted(PlantedFileTierBug::kCloseErrorIgnored));
  if (!planted(PlantedFileTierBug::kPublishedBeforeWritten) &&
      !planted(PlantedFileTierBug::kWrittenInPlace)) {
    done = done && publish(temporary, path);
  }
  if (!done) {
    if (!planted(PlantedFileTierBug::kTemporaryKept)) remove_temporary(temporary);
    return planted(PlantedFileTierBug::kFailedStoreIsSuccess);
  }
  set_doubtful(key, false);
  return true;
}

/// A new file that this writer may write. A lost folder is made again, once, and whoever is no
/// writer tries to become one: by the first thread that finds it so.
template <class Bugs>
FileHandle BasicBlockFiles<Bugs>::create_temporary(std::string& path) {
  for (bool may_claim = true;; may_claim = false) {
    const std::uint32_t num_claims = num_claims_;
    FileHandle file = -ENOENT;
    path = names_.next();
    if (!path.empty()) {
      do {
        file = files_.create(path);
      } while (file == -EINTR && !planted(PlantedFileTierBug::kInterruptedIsFailure));
    }
    if (file != -ENOENT || !may_claim) return file;
    const std::lock_guard guard(claim_mutex_);
    if (num_claims_ == num_claims) become_writer();
  }
}

template <class Bugs>
bool BasicBlockFiles<Bugs>::write_file(FileHandle file, OffloadKeyView key,
                                       std::span<const std::byte> block) {
  const BlockFileHeader header = block_file_header(key, block);
  return write_all(file, header) && write_all(file, block) &&
         (!sync_data_ || files_.sync_data(file) == 0);
}

template <class Bugs>
bool BasicBlockFiles<Bugs>::write_all(FileHandle file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::int64_t num_written = files_.write(file, bytes);
    if (num_written == -EINTR && !planted(PlantedFileTierBug::kInterruptedIsFailure)) continue;
    if (num_written <= 0) return false;
    if (planted(PlantedFileTierBug::kShortWritePublished)) return true;
    bytes = bytes.subspan(static_cast<std::size_t>(num_written));
  }
  return true;
}

template <class Bugs>
bool BasicBlockFiles<Bugs>::publish(const std::string& temporary, const std::string& path) {
  const int error = files_.rename(temporary, path);
  if (error != -ENOENT || planted(PlantedFileTierBug::kFolderNotMade)) return error == 0;
  const std::string folder = folder_of(path);
  files_.make_folder(folder_of(folder));
  files_.make_folder(folder);
  return files_.rename(temporary, path) == 0;
}

template <class Bugs>
void BasicBlockFiles<Bugs>::remove_temporary(const std::string& path) {
  if (files_.remove(path) < 0) left_temporary_ = true;
}

template <class Bugs>
bool BasicBlockFiles<Bugs>::load(OffloadKeyView key, std::span<std::byte> block) {
  const std::string path = mapper_.get_file_name(key);
  FileHandle file = -1;
  do {
    file = files_.open(path);
  } while (file == -EINTR && !planted(PlantedFileTierBug::kInterruptedIsFailure));
  const bool failed_is_success = planted(PlantedFileTierBug::kFailedLoadIsSuccess);
  if (file < 0) {
    set_doubtful(key, file != -ENOENT);
    return failed_is_success;
  }
  Reading reading = read_file(file, key, block);
  files_.close(file);
  if (reading == Reading::kFailed && planted(PlantedFileTierBug::kTransientErrorRemovesFile)) {
    reading = Reading::kBad;
  }
  bool doubtful = reading != Reading::kWhole;
  if (reading == Reading::kBad) {
    if (planted(PlantedFileTierBug::kBadFileKept)) return failed_is_success;
    const int error = files_.remove(path);
    doubtful = error < 0 && error != -ENOENT;
  }
  set_doubtful(key, doubtful);
  return reading == Reading::kWhole || failed_is_success;
}

template <class Bugs>
typename BasicBlockFiles<Bugs>::Reading BasicBlockFiles<Bugs>::read_file(
    FileHandle file, OffloadKeyView key, std::span<std::byte> block) {
  const std::int64_t size = files_.size(file);
  if (size < 0 && size != -EINVAL) return Reading::kFailed;
  if (size != file_bytes_) return Reading::kBad;

  BlockFileHeader header = {};
  const std::int64_t header_read = read_all(file, header);
  if (header_read < 0) return Reading::kFailed;
  if (header_read < static_cast<std::int64_t>(header.size())) return Reading::kBad;
  if (!planted(PlantedFileTierBug::kHeaderNotChecked) &&
      check_header(header, key, block.size()) != BlockFileFlaw::kNone) {
    return Reading::kBad;
  }
  const std::int64_t block_read = read_all(file, block);
  if (block_read < 0) return Reading::kFailed;
  if (block_read < static_cast<std::int64_t>(block.size())) {
    return planted(PlantedFileTierBug::kShortReadServed) ? Reading::kWhole : Reading::kBad;
  }
  if (!planted(PlantedFileTierBug::kBlockDigestNotChecked) &&
      check_block(header, block) != BlockFileFlaw::kNone) {
    return Reading::kBad;
  }
  return Reading::kWhole;
}

template <class Bugs>
std::int64_t BasicBlockFiles<Bugs>::read_all(FileHandle file, std::span<std::byte> bytes) {
  std::int64_t total = 0;
  while (!bytes.empty()) {
    const std::int64_t num_read = files_.read(file, bytes);
    if (num_read == -EINTR && !planted(PlantedFileTierBug::kInterruptedIsFailure)) continue;
    if (num_read < 0) return num_read;
    if (num_read == 0) break;
    total += num_read;
    if (planted(PlantedFileTierBug::kShortReadServed)) break;
    bytes = bytes.subspan(static_cast<std::size_t>(num_read));
  }
  return total;
}

template <class Bugs>
bool BasicBlockFiles<Bugs>::has_file(const std::string& path) {
  const std::int64_t size = files_.size_of(path);
  return planted(PlantedFileTierBug::kTornFileTakenForStored) ? size >= 0 : size == file_bytes_;
}

template <class Bugs>
bool BasicBlockFiles<Bugs>::is_doubtful(OffloadKeyView key) {
  const std::lock_guard guard(doubtful_mutex_);
  return !doubtful_.empty() && doubtful_.contains(OffloadKey(key));
}

template <class Bugs>
void BasicBlockFiles<Bugs>::set_doubtful(OffloadKeyView key, bool doubtful) {
  if (planted(PlantedFileTierBug::kFailedLoadStaysHit)) return;
  const std::lock_guard guard(doubtful_mutex_);
  if (doubtful) {
    doubtful_.emplace(key);
  } else if (!doubtful_.empty()) {
    doubtful_.erase(OffloadKey(key));
  }
}

template <class Bugs>
void BasicBlockFiles<Bugs>::release() {
  names_.release(/*keep_lock=*/left_temporary_);
}

template class BasicBlockFiles<NoFileTierBugs>;
template class BasicBlockFiles<PlantedFileTierBugs>;

}  // namespace kvfence::optimized
