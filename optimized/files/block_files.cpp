#include "optimized/files/block_files.h"

#include <cerrno>

namespace kvfence::optimized {
namespace {

/// The folder that a path is in; empty if it is in none.
std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash);
}

}  // namespace

BlockFiles::BlockFiles(const FileTierConfig& config, std::size_t block_bytes, FileOperations& files)
    : mapper_(config.files),
      file_bytes_(static_cast<std::int64_t>(kBlockFileHeaderBytes + block_bytes)),
      sync_data_(config.sync_data),
      files_(files),
      writers_path_(mapper_.rank_path() + "/" + kWritersFolder),
      names_(files, writers_path_) {
  if (become_writer() == 0) write_run_config();
}

int BlockFiles::become_writer() {
  make_folders(writers_path_);
  const int error = names_.claim();
  writer_error_ = error;
  ++num_claims_;
  return error;
}

/// Makes a folder and its parents. A failure shows when the folder is used.
void BlockFiles::make_folders(const std::string& path) {
  if (path.empty() || files_.make_folder(path) != -ENOENT) return;
  make_folders(folder_of(path));
  files_.make_folder(path);
}

/// For people; the tier does not read it.
void BlockFiles::write_run_config() {
  const std::string path = mapper_.get_config_file_path();
  if (files_.size_of(path) >= 0) return;
  make_folders(mapper_.base_path());
  const std::string temporary = names_.next();
  const FileHandle file = create_file(files_, temporary);
  if (file < 0) return;
  const std::string& text = mapper_.get_run_config();
  bool done = write_all(files_, file, std::as_bytes(std::span(text.data(), text.size())));
  done = files_.close(file) == 0 && done;
  if (!done || files_.rename(temporary, path) < 0) remove_temporary(temporary);
}

bool BlockFiles::contains(OffloadKeyView key) {
  return !is_doubtful(key) && has_file(mapper_.get_file_name(key));
}

bool BlockFiles::store(OffloadKeyView key, std::span<const std::byte> block) {
  const std::string path = mapper_.get_file_name(key);
  if (!is_doubtful(key) && has_file(path)) return true;

  std::string temporary;
  const FileHandle file = create_temporary(temporary);
  if (file < 0) return false;
  bool done = write_file(file, key, block);
  done = files_.close(file) == 0 && done;
  done = done && publish(temporary, path);
  if (!done) {
    remove_temporary(temporary);
    return false;
  }
  set_doubtful(key, false);
  return true;
}

/// A new file that this writer may write. Where the folder is lost or this is not a writer, the
/// first thread that finds it so tries once to become a writer, which makes the folders.
FileHandle BlockFiles::create_temporary(std::string& path) {
  for (bool may_claim = true;; may_claim = false) {
    const std::uint32_t num_claims = num_claims_;
    FileHandle file = -ENOENT;
    path = names_.next();
    if (!path.empty()) file = create_file(files_, path);
    if (file != -ENOENT || !may_claim) return file;
    const std::lock_guard guard(claim_mutex_);
    if (num_claims_ == num_claims) become_writer();
  }
}

bool BlockFiles::write_file(FileHandle file, OffloadKeyView key, std::span<const std::byte> block) {
  const BlockFileHeader header = block_file_header(key, block);
  return write_all(files_, file, header) && write_all(files_, file, block) &&
         (!sync_data_ || files_.sync_data(file) == 0);
}

bool BlockFiles::publish(const std::string& temporary, const std::string& path) {
  const int error = files_.rename(temporary, path);
  if (error != -ENOENT) return error == 0;
  const std::string folder = folder_of(path);
  files_.make_folder(folder_of(folder));
  files_.make_folder(folder);
  return files_.rename(temporary, path) == 0;
}

void BlockFiles::remove_temporary(const std::string& path) {
  if (files_.remove(path) < 0) left_temporary_ = true;
}

bool BlockFiles::load(OffloadKeyView key, std::span<std::byte> block) {
  const std::string path = mapper_.get_file_name(key);
  const FileHandle file = open_file(files_, path);
  if (file < 0) {
    set_doubtful(key, file != -ENOENT);
    return false;
  }
  const Reading reading = read_file(file, key, block);
  files_.close(file);
  bool doubtful = reading != Reading::kWhole;
  if (reading == Reading::kBad) {
    const int error = files_.remove(path);
    doubtful = error < 0 && error != -ENOENT;
  }
  set_doubtful(key, doubtful);
  return reading == Reading::kWhole;
}

BlockFiles::Reading BlockFiles::read_file(FileHandle file, OffloadKeyView key,
                                          std::span<std::byte> block) {
  const std::int64_t size = files_.size(file);
  if (size < 0 && size != -EINVAL) return Reading::kFailed;
  if (size != file_bytes_) return Reading::kBad;

  BlockFileHeader header = {};
  const std::int64_t header_read = read_all(files_, file, header);
  if (header_read < 0) return Reading::kFailed;
  if (header_read < static_cast<std::int64_t>(header.size())) return Reading::kBad;
  if (!is_header_of(header, key, block.size())) return Reading::kBad;
  const std::int64_t block_read = read_all(files_, file, block);
  if (block_read < 0) return Reading::kFailed;
  if (block_read < static_cast<std::int64_t>(block.size())) return Reading::kBad;
  if (!has_block(header, block)) return Reading::kBad;
  return Reading::kWhole;
}

bool BlockFiles::has_file(const std::string& path) { return files_.size_of(path) == file_bytes_; }

bool BlockFiles::is_doubtful(OffloadKeyView key) {
  const std::lock_guard guard(doubtful_mutex_);
  return !doubtful_.empty() && doubtful_.contains(key);
}

void BlockFiles::set_doubtful(OffloadKeyView key, bool doubtful) {
  const std::lock_guard guard(doubtful_mutex_);
  if (doubtful) {
    doubtful_.emplace(key);
  } else if (!doubtful_.empty()) {
    doubtful_.erase(OffloadKey(key));
  }
}

void BlockFiles::release() { names_.release(/*keep_lock=*/left_temporary_); }

}  // namespace kvfence::optimized
