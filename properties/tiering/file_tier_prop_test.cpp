// Compares the file tier on real files with the model in memory, byte by byte, under the same
// faults and the same interference from outside. Each planted bug has to be found.

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "contract/offload/offload_key_number.h"
#include "contract/tiering/file_fault.h"
#include "contract/tiering/file_tier.h"
#include "optimized/files/faulty_file_operations.h"
#include "optimized/files/file_tier.h"
#include "optimized/files/posix_file_operations.h"
#include "optimized/files/test_folder.h"
#include "optimized/files/writer_names.h"
#include "planted/optimized/files/faulty_file_operations.h"
#include "planted/optimized/files/file_tier.h"
#include "planted/optimized/files/posix_file_operations.h"
#include "properties/core/rapid_property_test_support.h"
#include "properties/draws/choices.h"
#include "properties/planted/bugs.h"
#include "properties/planted/switches.h"
#include "reference/tiering/file_tier.h"

namespace kvfence {
namespace {

using optimized::PosixFileOperations;
using optimized::TestFolder;
using optimized::TestSlots;
using optimized::WriterNames;

struct Product {
  using Tier = optimized::FileTier;
  using Posix = optimized::PosixFileOperations;
  using Faulty = optimized::FaultyFileOperations;
};

/// The copy in which a bug can be planted.
struct Copy {
  using Tier = planted::optimized::FileTier;
  using Posix = planted::optimized::PosixFileOperations;
  using Faulty = planted::optimized::FaultyFileOperations;
};

constexpr std::uint32_t kNumKeys = 6;
constexpr std::uint32_t kNumSlots = 8;
constexpr std::array<std::size_t, 4> kBlockBytes = {1, 17, 256, 5'000};

/// How often each goal was reached, over all runs.
using Goals = std::map<std::string, int>;

/// Both sides on one folder, with one thread, so that both count calls in the same order.
template <class Layer>
class Episode {
 public:
  Episode(Choices& choices, const TestFolder& folder, Goals& goals)
      : choices_(choices),
        goals_(goals),
        config_(draw_config(choices, folder)),
        mapper_(config_.files),
        block_bytes_(kBlockBytes[choices.below(kBlockBytes.size())]),
        folder_(folder),
        expected_slots_(block_bytes_, kNumSlots),
        actual_slots_(block_bytes_, kNumSlots),
        expected_(config_, expected_slots_.view()),
        files_(posix_),
        neighbour_(neighbour_files_, mapper_.rank_path() + "/" + kWritersFolder) {
    open();
    if (neighbour_.claim() == 0) neighbour_file_ = neighbour_.next();
    touch_file(neighbour_file_);
    expected_.act_as_writer(1, WriterAct::kClaims);
    expected_.act_as_writer(1, WriterAct::kWrites);
  }

  /// Runs one random command. Returns what differs after it, or nothing.
  std::optional<std::string> step() {
    switch (choices_.below(12)) {
      case 0:
      case 1:
      case 2:
        return run_job(/*stores=*/true);
      case 3:
      case 4:
      case 5:
        return run_job(/*stores=*/false);
      case 6:
      case 7:
        begin_plan();
        break;
      case 8:
        return look_up();
      case 9:
        reopen();
        break;
      default:
        interfere();
    }
    return compare_folders();
  }

  /// Looks up and loads every key, without further faults.
  std::optional<std::string> finish() {
    expected_.begin(FaultPlan());
    files_.begin(FaultPlan());
    if (auto wrong = look_up()) return wrong;
    for (std::uint32_t key = 0; key < kNumKeys; ++key) {
      if (auto wrong = run_job(/*stores=*/false, {key})) return wrong;
    }
    return look_up();
  }

 private:
  void open() {
    tier_.reset();
    tier_ = std::make_unique<typename Layer::Tier>(config_, actual_slots_.view(), files_);
  }

  static FileTierConfig draw_config(Choices& choices, const TestFolder& folder) {
    FileTierConfig config = optimized::test_config(folder.path());
    config.sync_data = choices.once_in(2);
    if (choices.once_in(2)) config.max_queued_blocks = 1 + choices.below(2);
    return config;
  }

  std::vector<std::uint32_t> draw_keys() {
    std::vector<std::uint32_t> keys = {choices_.below(kNumKeys)};
    while (keys.size() < 3 && choices_.once_in(3)) {
      const std::uint32_t key = choices_.below(kNumKeys);
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
    }
    return keys;
  }

  /// New bytes, the same on both sides. Stale bytes of an earlier load would hide a missing load.
  void refill_slots() {
    ++fill_;
    for (SlotId slot = 0; slot < kNumSlots; ++slot) {
      expected_slots_.fill(slot, fill_ * kNumSlots + slot);
      actual_slots_.fill(slot, fill_ * kNumSlots + slot);
    }
  }

  std::optional<std::string> run_job(bool stores, std::vector<std::uint32_t> numbers = {}) {
    if (numbers.empty()) numbers = draw_keys();
    std::vector<OffloadKey> keys;
    for (std::uint32_t number : numbers) keys.push_back(key_of_number(number));
    const std::vector<OffloadKeyView> views(keys.begin(), keys.end());
    std::vector<SlotId> slots;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      slots.push_back(static_cast<SlotId>((i + choices_.below(2)) % kNumSlots));
      if (i > 0 && slots[i] <= slots[i - 1]) slots[i] = slots[i - 1] + 1;
    }
    refill_slots();

    const TierJob job{next_job_++, views, slots, {"r"}};
    const std::size_t num_faults_before = files_.happened().size();
    const std::vector<OffloadKey> files_before = expected_.keys_with_file();
    const bool success = stores ? expected_.store(job) : expected_.load(job);
    stores ? tier_->submit_store(job) : tier_->submit_load(job);
    tier_->wait_idle();
    std::vector<JobResult> actual_results;
    tier_->get_finished_jobs(actual_results);
    const std::string name = stores ? "store" : "load";
    if (actual_results != std::vector<JobResult>{{job.job_id, success}}) {
      return "a " + name + " should have " + (success ? "succeeded" : "failed");
    }
    if (success && actual_slots_.bytes() != expected_slots_.bytes()) {
      return "a " + name + " left other bytes in the slots";
    }
    count(name, success, num_faults_before, files_before.size(), keys.size());
    return compare_folders();
  }

  void count(const std::string& name, bool success, std::size_t num_faults_before,
             std::size_t num_files_before, std::size_t num_blocks) {
    ++goals_[name + (success ? " succeeded" : " failed")];
    if (num_blocks > config_.max_queued_blocks) ++goals_[name + " of more than the queue takes"];
    if (num_blocks == config_.max_queued_blocks && success) ++goals_[name + " of a full queue"];
    const std::vector<FileFault> happened = files_.happened();
    for (std::size_t i = num_faults_before; i < happened.size(); ++i) {
      const FileFault& fault = happened[i];
      if (fault.error == 0) {
        ++goals_["short " + std::string(to_text(fault.operation)) +
                 (success ? " went on" : " and failed")];
        continue;
      }
      ++goals_[name + " with a failing " + std::string(to_text(fault.operation))];
      if (fault.error == ENOSPC) ++goals_["disk full"];
      if (fault.error == EACCES) ++goals_["permission denied"];
      if (fault.error == EROFS) ++goals_["read-only"];
      if (fault.error == EMFILE) ++goals_["too many open files"];
      if (fault.error == EINTR && success) ++goals_["interrupted and went on"];
    }
    if (name == "load" && expected_.keys_with_file().size() < num_files_before) {
      ++goals_["bad file removed"];
    }
  }

  std::optional<std::string> look_up() {
    for (std::uint32_t number = 0; number < kNumKeys; ++number) {
      const OffloadKey key = key_of_number(number);
      const LookupResult expected = expected_.lookup(key);
      const LookupResult actual = tier_->lookup(key, {"r"});
      if (actual != expected) {
        return "lookup should have answered " + std::string(to_text(expected)) + ", found " +
               std::string(to_text(actual));
      }
      ++goals_["lookup " + std::string(to_text(expected))];
      if (expected == LookupResult::kMiss && has_file(key) &&
          expected_.file_bytes(key) == kBlockFileHeaderBytes + block_bytes_) {
        ++goals_["doubtful key missed"];
      }
    }
    return std::nullopt;
  }

  void begin_plan() {
    constexpr std::array<int, 7> kErrors = {ENOSPC, EACCES, EROFS, EMFILE, EINTR, EIO, ENOENT};
    constexpr std::array<FileOperation, kNumFileOperations> kOperations = {
        FileOperation::kWrite,      FileOperation::kRead,   FileOperation::kRemove,
        FileOperation::kRename,     FileOperation::kClose,  FileOperation::kSync,
        FileOperation::kOpen,       FileOperation::kCreate, FileOperation::kSize,
        FileOperation::kMakeFolder, FileOperation::kList,   FileOperation::kLock};
    std::vector<FileFault> faults(1 + choices_.below(3));
    for (FileFault& fault : faults) {
      fault.operation = kOperations[choices_.below(kOperations.size())];
      fault.call = choices_.below(4);
      const bool moves =
          fault.operation == FileOperation::kRead || fault.operation == FileOperation::kWrite;
      if (moves && choices_.once_in(2)) {
        fault.num_bytes = choices_.below(100);
        continue;
      }
      fault.error = kErrors[choices_.below(kErrors.size())];
      // A test of its own covers lost folders, which are made again.
      const bool is_made = fault.operation == FileOperation::kMakeFolder;
      if (is_made && fault.error == ENOENT) fault.error = ENOSPC;
    }
    expected_.begin(FaultPlan(faults));
    files_.begin(FaultPlan(faults));
  }

  void reopen() {
    if (expected_.writers().size() > 3) ++goals_["reopened with temporary files"];
    ++goals_["reopened"];
    expected_.restart(/*overtaken=*/false);
    open();
  }

  bool has_file(const OffloadKey& key) {
    const std::vector<OffloadKey> keys = expected_.keys_with_file();
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  }

  /// What other processes do to the folder.
  void interfere() {
    if (choices_.once_in(8)) {
      // A writer that exited: its lock is free.
      const std::string writers = mapper_.rank_path() + "/" + kWritersFolder + "/";
      touch_file(writers + "77.lock");
      touch_file(writers + "77." + std::to_string(num_left_++) + ".tmp");
      expected_.act_as_writer(77, WriterAct::kClaims);
      expected_.act_as_writer(77, WriterAct::kWrites);
      expected_.act_as_writer(77, WriterAct::kDies);
      ++goals_["a writer exited"];
      return;
    }
    const std::vector<OffloadKey> keys = expected_.keys_with_file();
    if (keys.empty()) return;
    const OffloadKey& key = keys[choices_.below(static_cast<std::uint32_t>(keys.size()))];
    const std::string path = mapper_.get_file_name(key);
    const std::uint64_t num_bytes = expected_.file_bytes(key);
    switch (choices_.below(5)) {
      case 0:
        expected_.delete_file(key);
        std::filesystem::remove(path);
        ++goals_["file deleted"];
        break;
      case 1: {
        const std::uint64_t right_size = kBlockFileHeaderBytes + block_bytes_;
        const std::uint64_t resized = choices_.once_in(3)
                                          ? right_size + 1 + choices_.below(100)
                                          : choices_.below(static_cast<std::uint32_t>(right_size));
        expected_.resize_file(key, resized);
        std::filesystem::resize_file(path, resized);
        ++goals_[resized > right_size ? "file grown" : "file truncated"];
        break;
      }
      case 2: {
        const OffloadKey& from = keys[choices_.below(static_cast<std::uint32_t>(keys.size()))];
        if (from == key) break;
        expected_.copy_file(from, key);
        std::filesystem::copy_file(mapper_.get_file_name(from), path,
                                   std::filesystem::copy_options::overwrite_existing);
        ++goals_["file of another key"];
        break;
      }
      default: {
        if (num_bytes == 0) break;
        const bool in_header = choices_.once_in(2) || num_bytes <= kBlockFileHeaderBytes;
        const std::uint64_t from = in_header ? 0 : kBlockFileHeaderBytes;
        const std::uint64_t to =
            in_header ? std::min<std::uint64_t>(num_bytes, kBlockFileHeaderBytes) : num_bytes;
        const std::uint64_t bit =
            8 * from + choices_.below(static_cast<std::uint32_t>(8 * (to - from)));
        expected_.flip_bit(key, bit);
        flip_bit(path, bit);
        ++goals_[in_header ? "header changed" : "block changed"];
      }
    }
  }

  static void touch_file(const std::string& path) { std::ofstream(path).put('x'); }

  static void flip_bit(const std::string& path, std::uint64_t bit) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(bit / 8));
    const int byte = file.get();
    file.seekp(static_cast<std::streamoff>(bit / 8));
    file.put(static_cast<char>(byte ^ (1 << (bit % 8))));
  }

  std::optional<std::string> compare_folders() {
    std::map<std::string, std::uint64_t> expected;
    for (const OffloadKey& key : expected_.keys_with_file()) {
      expected[mapper_.get_file_name(key)] = expected_.file_bytes(key);
    }
    std::map<std::string, std::uint64_t> actual;
    for (const std::filesystem::path& path : folder_.files(".bin")) {
      actual[path.string()] = std::filesystem::file_size(path);
    }
    if (actual != expected) {
      return "there should be " + std::to_string(expected.size()) + " block files, found " +
             std::to_string(actual.size()) + ", or of other sizes";
    }
    if (!std::filesystem::exists(neighbour_file_)) return "a file of a living writer is gone";
    const std::size_t num_names = folder_.files(".tmp").size() + folder_.files(".lock").size();
    if (num_names != expected_.writers().size()) {
      return "there should be " + std::to_string(expected_.writers().size()) +
             " files of writers, found " + std::to_string(num_names);
    }
    return std::nullopt;
  }

  Choices& choices_;
  Goals& goals_;
  FileTierConfig config_;
  const FileMapper mapper_;
  const std::size_t block_bytes_;
  const TestFolder& folder_;
  TestSlots expected_slots_;
  TestSlots actual_slots_;
  reference::FileTier expected_;
  typename Layer::Posix posix_;
  typename Layer::Faulty files_;
  PosixFileOperations neighbour_files_;
  WriterNames neighbour_;
  std::string neighbour_file_;
  std::unique_ptr<typename Layer::Tier> tier_;
  TierJobId next_job_ = 0;
  std::uint32_t fill_ = 0;
  int num_left_ = 0;
};

template <class Layer>
std::optional<std::string> run_episode(Choices choices, int num_steps, Goals& goals) {
  const TestFolder folder("file_tier_prop");
  Episode<Layer> episode(choices, folder, goals);
  for (int i = 0; i < num_steps && !choices.exhausted(); ++i) {
    if (auto wrong = episode.step()) return wrong;
  }
  return episode.finish();
}

TEST(FileTierProp, OptimizedEqualsReference) {
  Goals goals;
  EXPECT_TRUE(holds("every job has the same answer, and leaves the same bytes and files", [&] {
    const std::vector<std::uint8_t> bytes = draw_episode_bytes(600);
    const auto wrong = run_episode<Product>(Choices::from_bytes(bytes), 1'000, goals);
    if (wrong) RC_FAIL(*wrong);
  }));
  for (const char* goal : {"store succeeded",
                           "store failed",
                           "store of more than the queue takes",
                           "store of a full queue",
                           "load succeeded",
                           "load failed",
                           "load of more than the queue takes",
                           "load of a full queue",
                           "lookup hit",
                           "lookup miss",
                           "doubtful key missed",
                           "short write went on",
                           "short read went on",
                           "short write and failed",
                           "short read and failed",
                           "store with a failing create",
                           "store with a failing write",
                           "store with a failing sync",
                           "store with a failing close",
                           "store with a failing rename",
                           "store with a failing make_folder",
                           "store with a failing remove",
                           "load with a failing open",
                           "load with a failing size",
                           "load with a failing read",
                           "load with a failing remove",
                           "disk full",
                           "permission denied",
                           "read-only",
                           "too many open files",
                           "interrupted and went on",
                           "bad file removed",
                           "file deleted",
                           "file truncated",
                           "file grown",
                           "file of another key",
                           "header changed",
                           "block changed",
                           "a writer exited",
                           "reopened",
                           "reopened with temporary files"}) {
    EXPECT_GT(goals[goal], 0) << goal << ": never came about";
  }
  for (const auto& [goal, times] : goals) std::printf("%7d  %s\n", times, goal.c_str());
}

// Threads, without planned faults: the order of calls varies, the results do not.
TEST(FileTierProp, ThreadsAnswerAsTheModel) {
  constexpr std::uint32_t kBlocks = 24;
  Goals goals;
  EXPECT_TRUE(holds("overlapping jobs have the same answers", [&] {
    const std::vector<std::uint8_t> bytes = draw_episode_bytes(200);
    Choices choices = Choices::from_bytes(bytes);
    const TestFolder folder("file_tier_threads");
    FileTierConfig config = optimized::test_config(folder.path());
    config.n_read_threads = 2;
    config.n_write_threads = 2;
    TestSlots expected_slots(300, kBlocks);
    TestSlots actual_slots(300, kBlocks);
    PosixFileOperations files;
    reference::FileTier expected(config, expected_slots.view());
    optimized::FileTier actual(config, actual_slots.view(), files);
    TierJobId job_id = 0;
    while (!choices.exhausted()) {
      // Each key and each slot is in at most one job of the batch.
      for (SlotId slot = 0; slot < kBlocks; ++slot) {
        expected_slots.fill(slot, slot + 100);
        actual_slots.fill(slot, slot + 100);
      }
      std::vector<JobResult> expected_results;
      std::vector<JobResult> actual_results;
      std::vector<SlotId> failed_slots;
      for (std::uint32_t next = 0; next < kBlocks;) {
        std::vector<OffloadKey> keys;
        std::vector<SlotId> slots;
        for (std::uint32_t left = 1 + choices.below(5); left > 0 && next < kBlocks; --left) {
          keys.push_back(key_of_number(next));
          slots.push_back(next++);
        }
        const std::vector<OffloadKeyView> views(keys.begin(), keys.end());
        const TierJob job{job_id++, views, slots, {"r"}};
        const bool stores = choices.once_in(3);
        const bool success = stores ? expected.store(job) : expected.load(job);
        stores ? actual.submit_store(job) : actual.submit_load(job);
        expected_results.push_back({job.job_id, success});
        ++goals[std::string(stores ? "store" : "load") + (success ? " succeeded" : " failed")];
        if (!success) {
          failed_slots.insert(failed_slots.end(), slots.begin(), slots.end());
        }
        if (choices.once_in(4)) actual.get_finished_jobs(actual_results);
      }
      actual.wait_idle();
      actual.get_finished_jobs(actual_results);
      std::sort(actual_results.begin(), actual_results.end(),
                [](const JobResult& a, const JobResult& b) { return a.job_id < b.job_id; });
      RC_ASSERT(actual_results == expected_results);
      for (SlotId slot : failed_slots) {
        expected_slots.fill(slot, 0);
        actual_slots.fill(slot, 0);
      }
      RC_ASSERT(actual_slots.bytes() == expected_slots.bytes());
    }
  }));
  for (const char* goal : {"store succeeded", "load succeeded", "load failed"}) {
    EXPECT_GT(goals[goal], 0) << goal << ": never came about";
  }
}

/// A planted bug is found within so many episodes of so many commands.
constexpr int kHistoriesMax = 200;
constexpr int kStepsMax = 80;

TEST(FileTierProp, FindsEveryPlantedBug) {
  Goals goals;
  for (const planted::Bug& bug : planted::bugs_of("files")) {
    planted::plant(bug.number);
    std::optional<std::string> found;
    int episode = 0;
    while (!found && episode < kHistoriesMax) {
      ++episode;
      found = run_episode<Copy>(Choices::from_seed(static_cast<std::uint64_t>(episode)), kStepsMax,
                                goals);
    }
    EXPECT_TRUE(found) << bug.name << " was not found in " << kHistoriesMax << " episodes";
    if (found) {
      std::printf("%-36.*s episode %3d  %s\n", static_cast<int>(bug.name.size()), bug.name.data(),
                  episode, found->c_str());
    }
  }
  planted::plant(planted::kSound);
  for (int episode = 1; episode <= 20; ++episode) {
    EXPECT_EQ(run_episode<Copy>(Choices::from_seed(static_cast<std::uint64_t>(episode)), kStepsMax,
                                goals),
              std::nullopt)
        << "nothing is planted";
  }
}

}  // namespace
}  // namespace kvfence
