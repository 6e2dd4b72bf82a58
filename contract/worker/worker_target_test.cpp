// A worker's configuration line: what is built from it, and what is wrong with others.
#include "contract/worker/worker_target.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace kvfence {
namespace {

using worker::Config;

/// What is found and what is expected in its place; empty for nothing.
std::string error_of(const Config& config) {
  const auto options = make_worker_options(config);
  return options ? "" : options.error().to_text();
}

TEST(WorkerOptions, AreTheConfiguration) {
  Config config;
  config.layout = worker::Layout::kKVFirst;
  config.num_gpu_blocks = 64;
  config.num_cpu_blocks = 1;
  config.block_size_factor = 8;
  config.batch_entries_max = 1;
  const auto options = make_worker_options(config);
  ASSERT_TRUE(options);
  EXPECT_EQ(*options, config);
}

TEST(WorkerOptions, SayWhatIsWrong) {
  const auto wrong = [](auto spoil) {
    Config config;
    spoil(config);
    return error_of(config);
  };
  EXPECT_EQ(wrong([](Config& c) { c.num_gpu_blocks = 0; }),
            "found num_gpu_blocks=0, expected 1 to 64");
  EXPECT_EQ(wrong([](Config& c) { c.num_gpu_blocks = 65; }),
            "found num_gpu_blocks=65, expected 1 to 64");
  EXPECT_EQ(wrong([](Config& c) { c.num_cpu_blocks = 0; }),
            "found num_cpu_blocks=0, expected 1 to 64");
  EXPECT_EQ(wrong([](Config& c) { c.num_cpu_blocks = 65; }),
            "found num_cpu_blocks=65, expected 1 to 64");
  EXPECT_EQ(wrong([](Config& c) { c.block_size_factor = 0; }),
            "found block_size_factor=0, expected 1 to 8");
  EXPECT_EQ(wrong([](Config& c) { c.block_size_factor = 9; }),
            "found block_size_factor=9, expected 1 to 8");
  EXPECT_EQ(wrong([](Config& c) { c.batch_entries_max = 0; }),
            "found batch_entries_max=0, expected at least one entry");
}

TEST(WorkerOptions, NameThePlace) {
  Config config;
  config.num_ranks = 5;

  const auto setup = WorkerTarget::prepare(config, "a.kvs", {2, 8});

  ASSERT_FALSE(setup);
  EXPECT_EQ(setup.error().to_text(), "a.kvs:2:8: found num_ranks=5, expected 1 to 4");
}

TEST(WorkerWords, ReadAsWhatTheyStandFor) {
  EXPECT_EQ(from_text<worker::Layout>("kv_first"), worker::Layout::kKVFirst);
  EXPECT_EQ(from_text<worker::Path>("strided"), worker::Path::kStrided);
  EXPECT_EQ(from_text<worker::Schedule>("random"), worker::Schedule::kRandom);
  EXPECT_EQ(from_text<worker::Direction>("load"), worker::Direction::kLoad);
  EXPECT_EQ(from_text<worker::Stream>("compute"), worker::Stream::kCompute);
  EXPECT_EQ(from_text<worker::Fault>("late"), worker::Fault::kLate);
  for (const std::string_view other : {"", "Load", "loads"}) {
    EXPECT_FALSE(from_text<worker::Direction>(other));
    EXPECT_FALSE(from_text<worker::Stream>(other));
    EXPECT_FALSE(from_text<worker::Layout>(other));
    EXPECT_FALSE(from_text<worker::Path>(other));
    EXPECT_FALSE(from_text<worker::Fault>(other));
  }
}

TEST(WorkerTransfer, HasPagesAfterThoseOfEarlierBlocks) {
  worker::Transfer transfer{.gpu_blocks = {7, 8, 9}, .cpu_blocks = {4, 1}, .block_index = 3};
  EXPECT_TRUE(worker::counts_fit(transfer, 2));
  EXPECT_EQ(worker::cpu_pages_of(transfer, 2), (std::vector<std::uint32_t>{9, 2, 3}));
  EXPECT_FALSE(worker::counts_fit(transfer, 3));
  transfer.block_index = 2;
  EXPECT_TRUE(worker::counts_fit(transfer, 2));
  transfer.cpu_blocks = {4};
  EXPECT_FALSE(worker::counts_fit(transfer, 2));
  transfer.gpu_blocks = {};
  transfer.cpu_blocks = {};
  EXPECT_TRUE(worker::counts_fit(transfer, 2));
}

}  // namespace
}  // namespace kvfence
