#include "optimized/tiering/tier_files.h"
#include "contract/core/state_digest.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "contract/core/check.h"
#include "contract/tiering/file_mapper.h"
#include "optimized/files/faulty_file_operations.h"
#include "optimized/files/file_tier.h"
#include "optimized/files/posix_file_operations.h"
#include "optimized/files/temporary_folder.h"

namespace kvfence::optimized {
namespace {

class RealTierFiles final : public TierFiles {
 public:
  explicit RealTierFiles(PrimaryKvView primary)
      : folder_("tier"),
        config_(tier_files_config(folder_.path())),
        mapper_(config_.files),
        writers_path_(mapper_.rank_path() + "/" + kWritersFolder),
        primary_(primary),
        faulty_(posix_),
        tier_(std::make_unique<FileTier>(config_, primary_, faulty_)),
        other_block_(primary.slot_bytes) {}

  ~RealTierFiles() override {
    for (const auto& [number, lock] : others_) posix_.close(lock);
  }

  LookupResult lookup(OffloadKeyView key) override { return tier_->lookup(key, {"any"}); }

  bool store(const TierJob& job) override {
    for (OffloadKeyView key : job.keys) path_of(key);
    tier_->submit_store(job);
    return result_of(job);
  }

  bool load(const TierJob& job) override {
    tier_->submit_load(job);
    return result_of(job);
  }

  void begin(FaultPlan plan) override { faulty_.begin(std::move(plan)); }

  void restart(bool overtaken) override {
    is_listed_ = false;
    // The former engine has shut its tier down, but may keep it for longer.
    tier_->shutdown();
    if (overtaken) act_as_writer(0, WriterAct::kClaims);
    tier_ = std::make_unique<FileTier>(config_, primary_, faulty_);
  }

  /// Stores through a separate tier without faults.
  void add(OffloadKeyView key, std::span<const std::byte> block) override {
    path_of(key);
    is_listed_ = false;
    std::copy(block.begin(), block.end(), other_block_.begin());
    FileTier other(config_, {other_block_.data(), other_block_.size(), 1}, posix_);
    const SlotId slot = 0;
    other.submit_store({0, {&key, 1}, {&slot, 1}, {"another engine"}});
    other.wait_idle();
    std::vector<JobResult> results;
    other.get_finished_jobs(results);
    KVFENCE_CHECK(results.size() == 1 && results.front().success, "no room for another file");
  }

  void delete_file(OffloadKeyView key) override {
    is_listed_ = false;
    std::filesystem::remove(path_of(key));
  }

  void flip_bit(OffloadKeyView key, std::uint64_t bit) override {
    const std::string path = path_of(key);
    if (!std::filesystem::exists(path)) return;
    const std::uint64_t num_bits = 8 * std::filesystem::file_size(path);
    if (num_bits == 0) return;
    bit %= num_bits;
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(bit / 8));
    const int byte = file.get();
    file.seekp(static_cast<std::streamoff>(bit / 8));
    file.put(static_cast<char>(byte ^ (1 << (bit % 8))));
  }

  void resize_file(OffloadKeyView key, std::uint64_t bytes) override {
    const std::string path = path_of(key);
    if (std::filesystem::exists(path)) std::filesystem::resize_file(path, bytes);
  }

  void copy_file(OffloadKeyView from, OffloadKeyView to) override {
    is_listed_ = false;
    const std::string source = path_of(from);
    const std::filesystem::path target = path_of(to);
    if (!std::filesystem::exists(source)) return;
    std::filesystem::create_directories(target.parent_path());
    std::filesystem::copy_file(source, target, std::filesystem::copy_options::overwrite_existing);
  }

  /// A separate handle keeps a lock from the tier as another process does.
  void act_as_writer(std::uint32_t number, WriterAct act) override {
    is_listed_ = false;
    const std::string name = writers_path_ + "/" + std::to_string(number);
    const auto other = others_.find(number);
    if (act == WriterAct::kWrites) {
      std::ofstream(name + ".other" + std::to_string(num_written_++) + ".tmp").put('x');
    } else if (act == WriterAct::kStrays) {
      std::ofstream(name + "x.tmp").put('x');
    } else if (act == WriterAct::kDies && other != others_.end()) {
      posix_.close(other->second);
      others_.erase(other);
    } else if (act == WriterAct::kClaims && other == others_.end()) {
      const FileHandle lock = posix_.open_lock(name + ".lock");
      KVFENCE_CHECK(lock >= 0, "no room for another lock");
      if (posix_.try_lock(lock) < 0) {
        posix_.close(lock);
      } else {
        others_[number] = lock;
      }
    }
  }

  std::vector<OffloadKey> keys_with_file() override {
    list();
    return keys_;
  }

  const std::vector<std::string>& writers() override {
    list();
    return writers_;
  }

  void add_to(StateHash& hash) const override {
    StateHash all;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path())) {
      if (!entry.is_regular_file()) continue;
      const std::string path = entry.path().string();
      std::ifstream file(path, std::ios::binary);
      const std::string bytes(std::istreambuf_iterator<char>(file), {});
      StateHash one;
      // Only the writer's part of a temporary file's name has a meaning.
      one.add(path.ends_with(".tmp") ? writer_of(entry.path().filename().string())
                                     : path.substr(folder_.path().size()));
      one.add(bytes);
      all.add_unordered(one);
    }
    hash.add_kept(all, faulty_);
    hash.add(*tier_);
    for (const auto& [number, lock] : others_) hash.add(number);
  }

 private:
  /// The writer's part of a temporary file's name.
  static std::string writer_of(const std::string& name) { return name.substr(0, name.find('.')); }

  /// The path of the key's file. Remembers the key of the path.
  const std::string& path_of(OffloadKeyView key) {
    std::string path = mapper_.get_file_name(key);
    return keys_by_path_.try_emplace(std::move(path), key).first->first;
  }

  bool result_of(const TierJob& job) {
    is_listed_ = false;
    tier_->wait_idle();
    std::vector<JobResult> results;
    tier_->get_finished_jobs(results);
    return results == std::vector<JobResult>{{job.job_id, true}};
  }

  /// Reads the folder, unless nothing happened in it.
  void list() {
    if (is_listed_) return;
    is_listed_ = true;
    keys_.clear();
    writers_.clear();
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path())) {
      if (!entry.is_regular_file()) continue;
      const std::string path = entry.path().string();
      const bool is_temporary = path.ends_with(".tmp");
      if (is_temporary || path.ends_with(".lock")) {
        const std::string name = entry.path().filename().string();
        writers_.push_back(is_temporary ? writer_of(name) + ".tmp" : name);
      }
      if (!path.ends_with(".bin")) continue;
      const auto known = keys_by_path_.find(path);
      keys_.push_back(known != keys_by_path_.end() ? known->second : OffloadKey(path));
    }
    std::sort(keys_.begin(), keys_.end());
    std::sort(writers_.begin(), writers_.end());
  }

  const TemporaryFolder folder_;
  const FileTierConfig config_;
  const FileMapper mapper_;
  const std::string writers_path_;
  const PrimaryKvView primary_;
  PosixFileOperations posix_;
  FaultyFileOperations faulty_;
  std::unique_ptr<FileTier> tier_;
  std::map<std::uint32_t, FileHandle> others_;  ///< the locks of other writers that live
  std::uint32_t num_written_ = 0;               ///< temporary files, by others
  std::vector<std::byte> other_block_;
  std::map<std::string, OffloadKey> keys_by_path_;

  bool is_listed_ = false;
  std::vector<OffloadKey> keys_;
  std::vector<std::string> writers_;
};

}  // namespace

std::unique_ptr<TierFiles> make_tier_files(PrimaryKvView primary) {
  return std::make_unique<RealTierFiles>(primary);
}

}  // namespace kvfence::optimized
