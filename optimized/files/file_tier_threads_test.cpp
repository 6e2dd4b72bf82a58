// Goal: with many threads, another tier over the same folders, and a process that removes the
// folders, a file tier still loads only what was stored, and ends each job once. The thread
// sanitizer runs this test too (ci/README.md), since tests of one thread show it nothing.

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "contract/offload/offload_key_number.h"
#include "optimized/files/file_tier.h"
#include "optimized/files/posix_file_operations.h"
#include "optimized/files/test_folder.h"

namespace kvfence::optimized {
namespace {

constexpr std::uint32_t kNumKeys = 64;
constexpr TierJobId kNumJobs = 90;
constexpr std::size_t kBlockBytes = 1'000;
/// Blocks of a job: more than there are threads, so that they move at once.
constexpr std::uint32_t kJobBlocks = 12;

/// Every seventh read of a thread fails, so that keys become doubtful. It orders no threads: a lock
/// in here would hide from the thread sanitizer that one is missing elsewhere.
class UnreliableFileOperations : public PosixFileOperations {
 public:
  std::int64_t read(FileHandle file, std::span<std::byte> bytes) override {
    thread_local std::uint32_t num_reads = 0;
    if (++num_reads % 7 == 0 && fails_.load(std::memory_order_relaxed)) return -EIO;
    return PosixFileOperations::read(file, bytes);
  }
  void recover() { fails_.store(false, std::memory_order_relaxed); }

 private:
  std::atomic<bool> fails_ = true;
};

FileTierConfig threaded_config(const std::string& root_dir) {
  FileTierConfig config = test_config(root_dir);
  config.n_read_threads = 3;
  config.n_write_threads = 3;
  return config;
}

/// Stores and loads in turn, with slots for each job of loads, so that no two jobs share one. Then
/// loads all keys, which can fail only with `disturbs`.
void use_tier(const FileTierConfig& config, std::uint32_t first_key, bool disturbs) {
  TestSlots slots(kBlockBytes, kNumKeys + kNumJobs * kJobBlocks);
  for (std::uint32_t key = 0; key < kNumKeys; ++key) slots.fill(key, key);
  UnreliableFileOperations files;
  FileTier tier(config, slots.view(), files);
  std::vector<OffloadKey> keys;
  for (std::uint32_t key = 0; key < kNumKeys; ++key) keys.push_back(key_of_number(key));
  std::map<TierJobId, std::uint32_t> loads;  // to their first key
  std::vector<JobResult> results;
  for (TierJobId job = 0; job < kNumJobs; ++job) {
    const bool stores = job % 3 == 0;
    const auto first = static_cast<std::uint32_t>(first_key + job * 5) % kNumKeys;
    std::vector<OffloadKeyView> job_keys;
    std::vector<SlotId> job_slots;
    for (std::uint32_t index = 0; index < kJobBlocks; ++index) {
      const std::uint32_t key = (first + index) % kNumKeys;
      job_keys.push_back(keys[key]);
      const auto own = static_cast<std::uint32_t>(kNumKeys + job * kJobBlocks + index);
      job_slots.push_back(stores ? key : own);
    }
    const TierJob tier_job{job, job_keys, job_slots, {"r"}};
    stores ? tier.submit_store(tier_job) : tier.submit_load(tier_job);
    if (!stores) loads[job] = first;
    // Meanwhile, as a scheduler does.
    static_cast<void>(tier.lookup(keys[first], {"r"}));
    static_cast<void>(tier.writer_error());
    if (job % 8 == 0) tier.get_finished_jobs(results);
  }
  tier.wait_idle();
  tier.get_finished_jobs(results);

  ASSERT_EQ(results.size(), kNumJobs);
  std::vector<TierJobId> ended;
  for (const JobResult& result : results) {
    ended.push_back(result.job_id);
    if (!result.success || !loads.contains(result.job_id)) continue;
    for (std::uint32_t index = 0; index < kJobBlocks; ++index) {
      const auto slot = static_cast<SlotId>(kNumKeys + result.job_id * kJobBlocks + index);
      EXPECT_TRUE(slots.holds(slot, (loads[result.job_id] + index) % kNumKeys))
          << "wrong bytes were served by job " << result.job_id;
    }
  }
  std::sort(ended.begin(), ended.end());
  EXPECT_EQ(std::adjacent_find(ended.begin(), ended.end()), ended.end()) << "a job ended twice";
  for (std::uint32_t key = 0; key < kNumKeys; ++key) EXPECT_TRUE(slots.holds(key, key));

  // Over the sources, which hold something else meanwhile.
  const std::vector<OffloadKeyView> all(keys.begin(), keys.end());
  std::vector<SlotId> all_slots;
  for (std::uint32_t key = 0; key < kNumKeys; ++key) {
    all_slots.push_back(key);
    slots.fill(key, kNumKeys);
  }
  files.recover();
  tier.submit_load({kNumJobs, all, all_slots, {"r"}});
  tier.wait_idle();
  results.clear();
  tier.get_finished_jobs(results);
  ASSERT_EQ(results.size(), 1U);
  if (disturbs) return;
  EXPECT_TRUE(results[0].success);
  for (std::uint32_t key = 0; key < kNumKeys; ++key) EXPECT_TRUE(slots.holds(key, key));
}

TEST(FileTierThreads, ServeWhatWasStored) {
  const TestFolder folder("file_tier_threads");
  use_tier(threaded_config(folder.path()), 0, false);
  EXPECT_TRUE(folder.files(".tmp").empty());
  EXPECT_TRUE(folder.files(".lock").empty());
}

TEST(FileTierThreads, OfTwoTiersOverOneFolderDoSoToo) {
  const TestFolder folder("file_tier_threads");
  const FileTierConfig config = threaded_config(folder.path());
  std::thread other([&config] { use_tier(config, 3, false); });
  use_tier(config, 0, false);
  other.join();
  EXPECT_TRUE(folder.files(".tmp").empty());
}

TEST(FileTierThreads, FindTheirFoldersAgain) {
  const TestFolder folder("file_tier_threads");
  const FileTierConfig config = threaded_config(folder.path());
  const FileMapper mapper(config.files);
  std::atomic<bool> is_over = false;
  std::size_t num_taken = 0;
  // The folder of temporary files, and with it the lock of the writer; then the blocks.
  std::thread taker([&] {
    while (!is_over) {
      std::error_code ignored;
      std::filesystem::remove_all(mapper.rank_path() + "/" + kWritersFolder, ignored);
      for (std::uint32_t key = 0; key < kNumKeys; ++key) {
        std::filesystem::remove(mapper.get_file_name(key_of_number(key)), ignored);
      }
      ++num_taken;
      std::this_thread::yield();
    }
  });
  use_tier(config, 0, true);
  is_over = true;
  taker.join();
  EXPECT_GT(num_taken, 0U);

  // Without further disturbance the folders are made again, and blocks are served.
  use_tier(config, 0, false);
}

}  // namespace
}  // namespace kvfence::optimized
