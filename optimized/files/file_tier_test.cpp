#include "optimized/files/file_tier.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <latch>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "contract/offload/offload_key_number.h"
#include "optimized/files/faulty_file_operations.h"
#include "optimized/files/posix_file_operations.h"
#include "optimized/files/test_folder.h"

namespace kvfence::optimized {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBlockBytes = 1'000;

/// A tier over its own folder, with one thread, and slots with the numbers of the keys.
class FileTierTest : public ::testing::Test {
 protected:
  FileTierTest() : folder_("file_tier"), config_(test_config(folder_.path())), files_(posix_) {
    open();
  }

  void open() {
    tier_.reset();
    tier_ = std::make_unique<FileTier>(config_, slots_.view(), files_);
  }

  bool run_job(bool stores, const std::vector<SlotId>& numbers) {
    std::vector<OffloadKey> keys;
    for (SlotId number : numbers) keys.push_back(key_of_number(number));
    const std::vector<OffloadKeyView> views(keys.begin(), keys.end());
    const TierJob job{next_job_++, views, numbers, {"r"}};
    stores ? tier_->submit_store(job) : tier_->submit_load(job);
    tier_->wait_idle();
    std::vector<JobResult> results;
    tier_->get_finished_jobs(results);
    EXPECT_EQ(results.size(), 1u);
    EXPECT_EQ(results[0].job_id, job.job_id);
    return results[0].success;
  }
  bool store(SlotId number) {
    slots_.fill(number, number);
    return run_job(/*stores=*/true, {number});
  }
  /// Whether the block was loaded; checks its bytes.
  bool load(SlotId number) {
    slots_.fill(number, number + 1'000);
    const bool loaded = run_job(/*stores=*/false, {number});
    EXPECT_TRUE(!loaded || slots_.holds(number, number)) << "wrong bytes were served";
    return loaded;
  }
  bool is_hit(SlotId number) {
    return tier_->lookup(key_of_number(number), {"r"}) == LookupResult::kHit;
  }
  std::string path_of(SlotId number) const {
    return FileMapper(config_.files).get_file_name(key_of_number(number));
  }

  TestFolder folder_;
  FileTierConfig config_;
  TestSlots slots_{kBlockBytes, 16};
  PosixFileOperations posix_;
  FaultyFileOperations files_;
  std::unique_ptr<FileTier> tier_;
  TierJobId next_job_ = 0;
};

TEST_F(FileTierTest, StoresAndLoads) {
  EXPECT_EQ(tier_->writer_error(), 0);
  EXPECT_FALSE(is_hit(1));
  EXPECT_TRUE(store(1));
  EXPECT_TRUE(is_hit(1));
  EXPECT_TRUE(load(1));
  EXPECT_EQ(fs::file_size(path_of(1)), kBlockFileHeaderBytes + kBlockBytes);
  open();
  EXPECT_TRUE(load(1)) << "blocks outlive a tier";
}

TEST_F(FileTierTest, WritesDownItsConfiguration) {
  const FileMapper mapper(config_.files);
  std::ifstream file(mapper.get_config_file_path());
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_EQ(text, mapper.get_run_config());
}

TEST_F(FileTierTest, AMissingBlockFailsTheJobAndLeavesTheOthers) {
  EXPECT_TRUE(store(1));
  EXPECT_TRUE(store(3));
  EXPECT_FALSE(run_job(/*stores=*/false, {1, 2, 3}));
  EXPECT_TRUE(is_hit(1));
  EXPECT_FALSE(is_hit(2));
  EXPECT_TRUE(load(3));
}

TEST_F(FileTierTest, AStoreOfAHeldBlockPassesOverIt) {
  EXPECT_TRUE(store(1));
  const auto time = fs::last_write_time(path_of(1));
  files_.begin(FaultPlan({{FileOperation::kCreate, 0, EIO, 0}}));
  EXPECT_TRUE(store(1));
  EXPECT_EQ(fs::last_write_time(path_of(1)), time);
  EXPECT_TRUE(files_.happened().empty());
}

TEST_F(FileTierTest, ABlockOfAnotherSizeIsAMiss) {
  EXPECT_TRUE(store(1));
  tier_.reset();
  TestSlots larger(kBlockBytes + 1, 2);
  FileTier other(config_, larger.view(), files_);
  EXPECT_EQ(other.lookup(key_of_number(1), {"r"}), LookupResult::kMiss);
}

TEST_F(FileTierTest, AFolderOfThatNameIsAMissAndStays) {
  fs::create_directories(path_of(1));
  EXPECT_FALSE(is_hit(1));
  EXPECT_FALSE(load(1));
  EXPECT_FALSE(store(1));
  EXPECT_TRUE(folder_.files(".tmp").empty());
  EXPECT_TRUE(fs::is_directory(path_of(1)));
}

TEST_F(FileTierTest, APipeOfThatNameDoesNotBlock) {
  EXPECT_TRUE(store(1));
  fs::remove(path_of(1));
  ASSERT_EQ(::mkfifo(path_of(1).c_str(), 0600), 0);
  EXPECT_FALSE(is_hit(1));
  EXPECT_FALSE(load(1));
}

TEST_F(FileTierTest, ALostFolderIsMadeAgain) {
  EXPECT_TRUE(store(1));
  fs::remove_all(FileMapper(config_.files).rank_path());
  EXPECT_FALSE(is_hit(1));
  EXPECT_FALSE(load(1));
  EXPECT_TRUE(store(1));
  EXPECT_TRUE(load(1));
  EXPECT_EQ(folder_.files(".lock").size(), 1u);
}

TEST_F(FileTierTest, LeavesNothingButBlocks) {
  EXPECT_TRUE(store(1));
  EXPECT_EQ(folder_.files(".lock").size(), 1u);
  tier_->shutdown();
  EXPECT_EQ(folder_.files(".lock").size(), 0u);
  EXPECT_EQ(folder_.files("").size(), 2u) << "the block and config.json";
}

TEST_F(FileTierTest, AFullQueueFailsTheJobThatDoesNotFit) {
  config_.max_queued_blocks = 2;
  open();
  EXPECT_FALSE(run_job(/*stores=*/true, {1, 2, 3}));
  EXPECT_TRUE(run_job(/*stores=*/true, {1, 2}));
}

TEST_F(FileTierTest, ShutdownReportsEveryJob) {
  std::latch begun(1);
  std::latch opened(1);
  files_.watch([&](FileOperation operation) {
    if (operation != FileOperation::kCreate) return;
    begun.count_down();
    opened.wait();
  });
  const OffloadKey key = key_of_number(1);
  const OffloadKeyView view = key;
  const SlotId slot = 1;
  for (TierJobId job = 0; job < 4; ++job) tier_->submit_store({job, {&view, 1}, {&slot, 1}, {"r"}});
  begun.wait();
  opened.count_down();
  tier_->shutdown();
  std::vector<JobResult> results;
  tier_->get_finished_jobs(results);
  EXPECT_EQ(results.size(), 4u);
  files_.watch(nullptr);
}

// Each operation of opening fails in every way of a file system. The tier still exists, loads what
// is there, and stores or reports that it cannot, and the next tier finds nothing wrong.
TEST_F(FileTierTest, OpensWhateverFails) {
  EXPECT_TRUE(store(1));
  tier_.reset();
  int num_opened = 0;
  int num_writers = 0;
  int num_readers = 0;
  for (int error : {EACCES, EROFS, ENOSPC, EMFILE, EINTR, EIO, ENOENT}) {
    for (std::size_t operation = 0; operation < kNumFileOperations; ++operation) {
      bool happened = true;
      for (std::uint32_t call = 0; happened; ++call) {
        std::ofstream(FileMapper(config_.files).rank_path() + "/" + kWritersFolder + "/5.0.tmp");
        std::ofstream(FileMapper(config_.files).rank_path() + "/" + kWritersFolder + "/5.lock");
        files_.begin(FaultPlan({{static_cast<FileOperation>(operation), call, error, 0}}));
        tier_ = std::make_unique<FileTier>(config_, slots_.view(), files_);
        happened = !files_.happened().empty();
        num_opened += happened ? 1 : 0;
        (tier_->writer_error() == 0 ? num_writers : num_readers) += happened ? 1 : 0;
        files_.begin(FaultPlan());
        EXPECT_TRUE(load(1));
        fs::remove(path_of(2));
        EXPECT_TRUE(store(2)) << "a store tries again to become a writer";
        open();
        EXPECT_EQ(tier_->writer_error(), 0);
        EXPECT_TRUE(folder_.files(".tmp").empty());
        EXPECT_EQ(folder_.files(".lock").size(), 1u);
        tier_.reset();
        ASSERT_LT(call, 100u);
      }
    }
  }
  EXPECT_GT(num_opened, 50);
  EXPECT_GT(num_writers, 0);
  EXPECT_GT(num_readers, 0);
}

TEST_F(FileTierTest, AFolderThatCannotBeMadeFailsStoresAndMissesLookups) {
  config_.files.root_dir = folder_.path() + "/a_file";
  std::ofstream(config_.files.root_dir).put('x');
  open();
  EXPECT_EQ(tier_->writer_error(), ENOTDIR);
  EXPECT_FALSE(store(1));
  EXPECT_FALSE(is_hit(1));
  EXPECT_FALSE(load(1));
}

// Not planned: the process has no more handles.
TEST_F(FileTierTest, TooManyOpenFiles) {
  EXPECT_TRUE(store(1));
  rlimit limit = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const int next = ::dup(0);
  ASSERT_GE(next, 0);
  ::close(next);
  const rlimit none = {static_cast<rlim_t>(next), limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const bool loaded = load(1);
  const bool stored = store(2);
  const bool hit = is_hit(1);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_FALSE(loaded);
  EXPECT_FALSE(stored);
  EXPECT_FALSE(hit) << "a block that could not be loaded is not promoted again";
  EXPECT_TRUE(fs::exists(path_of(1)));
  EXPECT_TRUE(store(1));
  EXPECT_TRUE(is_hit(1));
  EXPECT_TRUE(load(1));
}

// Not planned: the file may not grow beyond half of the block. The system writes less than asked,
// and then refuses.
TEST_F(FileTierTest, AFileThatMayNotGrow) {
  rlimit limit = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit half = {kBlockFileHeaderBytes + kBlockBytes / 2, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &half), 0);
  const bool stored = store(1);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_FALSE(stored);
  EXPECT_FALSE(fs::exists(path_of(1)));
  EXPECT_TRUE(folder_.files(".tmp").empty());
  EXPECT_TRUE(store(1));
}

TEST_F(FileTierTest, SaysWhatIsWrongWithAConfiguration) {
  config_.n_read_threads = 0;
  EXPECT_EQ(check_config(config_),
            "n_read_threads and n_write_threads are 0, expected at least one thread");
  config_.files.model_name.clear();
  EXPECT_EQ(check_config(config_), "model_name is empty, expected the name of a model");
}

}  // namespace
}  // namespace kvfence::optimized
