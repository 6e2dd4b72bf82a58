#include "reference/tiering/file_tier.h"

#include <algorithm>
#include <cerrno>

#include "contract/core/check.h"

namespace kvfence::reference {
namespace {

std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

}  // namespace

/// Source: fs/manager.py lookup.
LookupResult FileTier::lookup(OffloadKeyView key) {
  if (is_doubtful(key)) return LookupResult::kMiss;
  if (fails(FileOperation::kSize) != 0) return LookupResult::kMiss;
  return has_right_sized_file(key) ? LookupResult::kHit : LookupResult::kMiss;
}

/// All of its blocks, whichever fail.
/// Source: fs/manager.py submit_store, submit_load; fs/thread_pool.py JobState.
bool FileTier::run(const TierJob& job, bool (FileTier::*do_block)(OffloadKeyView, SlotId)) {
  const bool fits = job.keys.size() <= config_.max_queued_blocks;
  bool success = fits;
  for (std::size_t i = 0; fits && i < job.keys.size(); ++i) {
    success = (this->*do_block)(job.keys[i], job.slots[i]) && success;
  }
  return success;
}

void FileTier::restart(bool overtaken) {
  end();
  if (overtaken) act_as_writer(0, WriterAct::kClaims);
  open();
}

/// Source: ours.
void FileTier::end() {
  if (!number_) return;
  if (!has_temporary_left_ && fails(FileOperation::kRemove) == 0) lock_files_.erase(*number_);
  fails(FileOperation::kClose);
  number_.reset();
}

void FileTier::open() {
  doubtful_.clear();
  has_temporary_left_ = false;
  become_writer();
  if (number_) write_run_config();
}

/// Source: ours.
void FileTier::become_writer() {
  fails(FileOperation::kMakeFolder);
  if (number_) fails(FileOperation::kClose);
  number_.reset();
  if (fails(FileOperation::kList) != 0) return;
  std::set<std::uint32_t> numbers = lock_files_;
  numbers.insert(temporary_files_.begin(), temporary_files_.end());
  std::set<std::uint32_t> taken;
  for (std::uint32_t number : numbers) {
    if (number < kWritersMax && !(take_lock(number) == 0 && reclaim(number))) taken.insert(number);
  }
  std::uint32_t free = 0;
  while (taken.contains(free)) ++free;
  if (take_lock(free) == 0) number_ = free;
}

/// EWOULDBLOCK: another writer has it.
int FileTier::take_lock(std::uint32_t number) {
  if (const int error = fails(FileOperation::kLock); error != 0) return error;
  lock_files_.insert(number);
  int error = fails(FileOperation::kLock);
  if (error == 0 && others_.contains(number)) error = EWOULDBLOCK;
  if (error == 0) error = fails(FileOperation::kLock);
  if (error != 0) fails(FileOperation::kClose);
  return error;
}

/// Whether it is free now.
bool FileTier::reclaim(std::uint32_t number) {
  const bool is_listed = fails(FileOperation::kList) == 0;
  for (std::size_t left = is_listed ? temporary_files_.count(number) : 0; left > 0; --left) {
    if (fails(FileOperation::kRemove) == 0) temporary_files_.erase(temporary_files_.find(number));
  }
  if (fails(FileOperation::kRemove) == 0) lock_files_.erase(number);
  fails(FileOperation::kClose);
  return is_listed && !temporary_files_.contains(number);
}

void FileTier::write_run_config() {
  if (fails(FileOperation::kSize) == 0 && has_run_config_) return;
  fails(FileOperation::kMakeFolder);
  if (fails_unless_interrupted(FileOperation::kCreate) != 0) return;
  bool failed = write_fails(mapper_.get_run_config().size());
  failed = fails(FileOperation::kClose) != 0 || failed;
  failed = failed || fails(FileOperation::kRename) != 0;
  if (failed) {
    remove_temporary_file();
  } else {
    has_run_config_ = true;
  }
}

/// Whether the tier, which is a writer or becomes one, cannot create a temporary file.
bool FileTier::create_fails() {
  const auto attempt = [this] {
    return number_ ? fails_unless_interrupted(FileOperation::kCreate) : ENOENT;
  };
  int error = attempt();
  if (error != ENOENT) return error != 0;
  become_writer();
  return attempt() != 0;
}

/// Its own, after a failure.
void FileTier::remove_temporary_file() {
  if (fails(FileOperation::kRemove) == 0) return;
  temporary_files_.insert(*number_);
  has_temporary_left_ = true;
}

void FileTier::act_as_writer(std::uint32_t number, WriterAct act) {
  if (act == WriterAct::kWrites) temporary_files_.insert(number);
  if (act == WriterAct::kStrays) strays_.insert(number);
  if (act == WriterAct::kDies) others_.erase(number);
  if (act == WriterAct::kClaims && number_ != number) {
    others_.insert(number);
    lock_files_.insert(number);
  }
}

const std::vector<std::string>& FileTier::writers() {
  writers_.clear();
  for (std::uint32_t number : lock_files_) writers_.push_back(std::to_string(number) + ".lock");
  for (std::uint32_t number : temporary_files_) writers_.push_back(std::to_string(number) + ".tmp");
  for (std::uint32_t number : strays_) writers_.push_back(std::to_string(number) + "x.tmp");
  std::sort(writers_.begin(), writers_.end());
  return writers_;
}

void FileTier::add(OffloadKeyView key, std::span<const std::byte> block) {
  const auto is_dead = [this](std::uint32_t number) {
    return number < kWritersMax && number != number_ && !others_.contains(number);
  };
  std::erase_if(lock_files_, is_dead);
  std::erase_if(temporary_files_, is_dead);
  has_run_config_ = true;
  if (has_right_sized_file(key)) return;
  add_folders_of(key);
  write_whole_file(key, block);
}

void FileTier::flip_bit(OffloadKeyView key, std::uint64_t bit) {
  if (!has_file(key) || file_bytes(key) == 0) return;
  File& file = files_.at(OffloadKey(key));
  bit %= 8 * file.num_bytes;
  if (file.flipped_bits.erase(bit) == 0) file.flipped_bits.insert(bit);
}

void FileTier::resize_file(OffloadKeyView key, std::uint64_t bytes) {
  if (!has_file(key)) return;
  KVFENCE_CHECK(bytes != right_size(), "what a resized file holds is not modelled");
  files_.at(OffloadKey(key)).num_bytes = bytes;
}

void FileTier::copy_file(OffloadKeyView from, OffloadKeyView to) {
  if (!has_file(from)) return;
  const File copy = files_.at(OffloadKey(from));
  add_folders_of(to);
  files_[OffloadKey(to)] = copy;
}

std::vector<OffloadKey> FileTier::keys_with_file() {
  std::vector<OffloadKey> keys;
  for (const auto& [key, file] : files_) keys.push_back(key);
  return keys;
}

bool FileTier::has_right_sized_file(OffloadKeyView key) const {
  return has_file(key) && file_bytes(key) == right_size();
}

bool FileTier::header_is_good(OffloadKeyView key) const {
  const File& file = files_.at(OffloadKey(key));
  const bool changed = std::ranges::any_of(
      file.flipped_bits, [](std::uint64_t bit) { return bit / 8 < kBlockFileHeaderBytes; });
  return file.written_for == key && !changed;
}

bool FileTier::block_is_good(OffloadKeyView key) const {
  return files_.at(OffloadKey(key)).flipped_bits.empty();
}

/// The errno with which the plan lets the operation fail; 0: it is carried out.
int FileTier::fails(FileOperation operation) {
  const FileFault* const fault = plan_.next(operation);
  return fault != nullptr ? fault->error : 0;
}

int FileTier::fails_unless_interrupted(FileOperation operation) {
  int error = EINTR;
  while (error == EINTR) error = fails(operation);
  return error;
}

/// Reads or writes that many bytes, in as many calls as it takes.
FileTier::Moving FileTier::move(FileOperation operation, std::uint64_t num_bytes) {
  while (num_bytes > 0) {
    const FileFault* const fault = plan_.next(operation);
    if (fault == nullptr) return Moving::kDone;
    if (fault->error == EINTR) continue;
    if (fault->error != 0) return Moving::kFails;
    if (fault->num_bytes == 0) return Moving::kBad;
    num_bytes -= std::min(fault->num_bytes, num_bytes);
  }
  return Moving::kDone;
}

bool FileTier::write_fails(std::uint64_t num_bytes) {
  return move(FileOperation::kWrite, num_bytes) != Moving::kDone;
}

/// The folder may be missing.
int FileTier::rename_fails(OffloadKeyView key) {
  const int error = fails(FileOperation::kRename);
  if (error != 0) return error;
  return folders_.contains(folder_of(mapper_.get_file_name(key))) ? 0 : ENOENT;
}

/// Whether the temporary file, which is there, cannot be written in whole and renamed.
bool FileTier::file_fails(OffloadKeyView key) {
  bool failed = write_fails(kBlockFileHeaderBytes) || write_fails(primary_.slot_bytes) ||
                (config_.sync_data && fails(FileOperation::kSync) != 0);
  failed = fails(FileOperation::kClose) != 0 || failed;
  if (failed) return true;
  const int error = rename_fails(key);
  if (error != ENOENT) return error != 0;
  const std::string inner = folder_of(mapper_.get_file_name(key));
  const std::string outer = folder_of(inner);
  for (const std::string& folder : {outer, inner}) {
    const bool has_parent = folder == outer || folders_.contains(outer);
    if (fails(FileOperation::kMakeFolder) == 0 && has_parent) folders_.insert(folder);
  }
  return rename_fails(key) != 0;
}

/// Source: fs/io.py store_block.
bool FileTier::store_block(OffloadKeyView key, SlotId slot) {
  if (!is_doubtful(key) && fails(FileOperation::kSize) == 0 && has_right_sized_file(key)) {
    return true;
  }
  if (create_fails()) return false;
  if (file_fails(key)) {
    remove_temporary_file();
    return false;
  }
  write_whole_file(key, primary_.slot(slot));
  doubtful_.erase(OffloadKey(key));
  return true;
}

void FileTier::add_folders_of(OffloadKeyView key) {
  const std::string inner = folder_of(mapper_.get_file_name(key));
  folders_.insert({folder_of(inner), inner});
}

void FileTier::write_whole_file(OffloadKeyView key, std::span<const std::byte> block) {
  File file;
  file.written_for = key;
  file.block.assign(block.begin(), block.end());
  file.num_bytes = right_size();
  files_[OffloadKey(key)] = file;
}

/// Source: fs/io.py load_block, which removes the file after any failure.
bool FileTier::load_block(OffloadKeyView key, SlotId slot) {
  int error = fails_unless_interrupted(FileOperation::kOpen);
  if (error == 0 && !has_file(key)) error = ENOENT;
  if (error == ENOENT) doubtful_.erase(OffloadKey(key));
  if (error != 0 && error != ENOENT) doubtful_.insert(OffloadKey(key));
  if (error != 0) return false;

  const Moving reading = read_file(key);
  fails(FileOperation::kClose);
  if (reading == Moving::kDone) {
    const File& file = files_.at(OffloadKey(key));
    std::copy(file.block.begin(), file.block.end(), primary_.slot(slot).begin());
    doubtful_.erase(OffloadKey(key));
    return true;
  }
  doubtful_.insert(OffloadKey(key));
  if (reading == Moving::kBad) {
    const int removal_error = fails(FileOperation::kRemove);
    if (removal_error == 0) files_.erase(OffloadKey(key));
    if (removal_error == 0 || removal_error == ENOENT) doubtful_.erase(OffloadKey(key));
  }
  return false;
}

/// Whether the bytes of the file are, all of them, as they were written for the key.
FileTier::Moving FileTier::read_file(OffloadKeyView key) {
  if (fails(FileOperation::kSize) != 0) return Moving::kFails;
  if (!has_right_sized_file(key)) return Moving::kBad;
  const Moving header = move(FileOperation::kRead, kBlockFileHeaderBytes);
  if (header != Moving::kDone) return header;
  if (!header_is_good(key)) return Moving::kBad;
  const Moving block = move(FileOperation::kRead, primary_.slot_bytes);
  if (block != Moving::kDone) return block;
  return block_is_good(key) ? Moving::kDone : Moving::kBad;
}

std::unique_ptr<TierFiles> make_tier_files(PrimaryKvView primary) {
  return std::make_unique<FileTier>(tier_files_config("/modelled"), primary);
}

}  // namespace kvfence::reference
