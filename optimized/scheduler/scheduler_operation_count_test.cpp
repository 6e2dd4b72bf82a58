// Goal: a step costs the requests that it schedules, admits, preempts and ends, however many wait.
// Method: count the requests looked at, and the work of the KV cache.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "planted/optimized/scheduler/scheduler.h"
#include "properties/planted/switches.h"

namespace kvfence::planted::optimized {
namespace {

constexpr std::uint32_t kBlockSize = 16;
constexpr std::uint32_t kNumRunning = 32;
/// Looks at a request per step: to plan it, to advance it, and to take its output.
constexpr std::uint32_t kLooksAStep = 3;

SchedulerConfig config_of(SchedulingPolicy policy = SchedulingPolicy::kFCFS) {
  SchedulerConfig config;
  config.kv_cache.pool.num_gpu_blocks = 1 << 15;
  config.kv_cache.pool.hash.algorithm = HashAlgorithm::kXxhashCbor;
  config.kv_cache.pool.hash.hash_block_size = kBlockSize;
  config.kv_cache.pool.max_block_size = kBlockSize;
  config.kv_cache.groups = {{.block_size = kBlockSize}};
  config.kv_cache.max_model_len = 1024;
  config.kv_cache.max_num_batched_tokens = 1 << 15;
  config.max_num_seqs = 1 << 15;
  config.policy = policy;
  return config;
}

/// Links of the free queue, probes of the hash table, entries of block tables.
std::uint64_t num_kv_cache_steps() {
  return operation_counts.links + operation_counts.probes + operation_counts.table_entries;
}

/// A scheduler and a worker that samples token 1.
class Bench {
 public:
  explicit Bench(const SchedulerConfig& config) : scheduler(config, KVConnectorHandle()) {}

  RequestIndex add(std::uint32_t number, bool needs_grammar = false) {
    NewRequest request;
    request.id = std::to_string(number);
    request.spec.tokens = {number, number + 1};
    request.max_tokens = 512;
    request.priority = number % 7;
    request.needs_grammar = needs_grammar;
    RequestIndex index = 0;
    EXPECT_EQ(scheduler.add_request(request, index), ErrorCode::kNone);
    return index;
  }

  std::size_t step() {
    EXPECT_EQ(scheduler.schedule(output_), ErrorCode::kNone);
    runner_.sampled_token_ids.clear();
    for (const SchedulerOutput::Scheduled& scheduled : output_.scheduled) {
      if (scheduled.samples) runner_.sampled_token_ids.push_back(1);
      runner_.sampled_token_ids.end_list();
    }
    EXPECT_EQ(scheduler.update_from_output(output_, runner_, outputs_), ErrorCode::kNone);
    return output_.scheduled.size();
  }

  Scheduler scheduler;

 private:
  SchedulerOutput output_;
  ModelRunnerOutput runner_;
  EngineCoreOutputs outputs_;
};

TEST(SchedulerOperationCount, RequestsThatWaitAreNotLookedAt) {
  for (const SchedulingPolicy policy : {SchedulingPolicy::kFCFS, SchedulingPolicy::kPriority}) {
    for (const std::uint32_t num_waiting : {100U, 10'000U}) {
      SCOPED_TRACE(num_waiting);
      SchedulerConfig config = config_of(policy);
      config.max_num_seqs = kNumRunning;
      Bench bench(config);
      for (std::uint32_t i = 0; i < num_waiting; ++i) bench.add(i, /*needs_grammar=*/true);
      for (std::uint32_t i = 0; i < kNumRunning; ++i) bench.add(num_waiting + i);
      for (std::uint32_t i = 0; i < num_waiting; ++i) bench.add(2 * num_waiting + kNumRunning + i);
      ASSERT_EQ(bench.step(), kNumRunning);
      const std::uint64_t before = operation_counts.requests;
      ASSERT_EQ(bench.step(), kNumRunning);
      EXPECT_EQ(operation_counts.requests - before, kLooksAStep * kNumRunning);
    }
  }
}

// Ids that form one chain under the constant that kvfence uses, but not under another secret.
TEST(SchedulerOperationCount, NamesThatAreChosenAreFoundAtOnce) {
  constexpr std::uint32_t kNumRequests = 2048;
  constexpr std::uint64_t kProbesPerRequestMax = 6;  // the table grows on the way
  const auto probes_under = [](const TableSecret& secret) {
    SchedulerConfig config = config_of();
    config.kv_cache.pool.table_secret = secret;
    Bench bench(config);
    const std::uint64_t before = operation_counts.probes;
    for (std::uint32_t i = 0; i < kNumRequests; ++i) {
      NewRequest request;
      request.id = std::string(24, 'r');
      const TableSecret known;
      std::memcpy(&request.id[8], &known.first, sizeof(known.first));
      std::memcpy(&request.id[16], &i, sizeof(i));
      request.spec.tokens = {i};
      request.max_tokens = 1;
      RequestIndex index = 0;
      EXPECT_EQ(bench.scheduler.add_request(request, index), ErrorCode::kNone);
    }
    return operation_counts.probes - before;
  };
  EXPECT_LE(probes_under({1, 2}), kProbesPerRequestMax * kNumRequests);
  EXPECT_GE(probes_under(TableSecret()), kNumRequests * kNumRequests / 2);
}

TEST(SchedulerOperationCount, ATokenInsideABlockDoesNotReachTheKVCache) {
  Bench bench(config_of());
  for (std::uint32_t i = 0; i < kNumRunning; ++i) bench.add(2 * i);
  bench.step();
  std::uint64_t before = num_kv_cache_steps();
  // Two prompt tokens and 13 outputs computed; the 16th token completes the block.
  for (std::uint32_t i = 0; i < kBlockSize - 3; ++i) ASSERT_EQ(bench.step(), kNumRunning);
  EXPECT_EQ(num_kv_cache_steps(), before);
  before = num_kv_cache_steps();
  bench.step();
  bench.step();
  EXPECT_GE(num_kv_cache_steps() - before, kNumRunning);
}

TEST(SchedulerOperationCount, LeavingIsConstantUnderFCFSAndLogarithmicUnderPriority) {
  constexpr std::uint32_t kNumRequests = 4096;
  constexpr std::uint32_t kHeapLevels = 12;
  for (const SchedulingPolicy policy : {SchedulingPolicy::kFCFS, SchedulingPolicy::kPriority}) {
    const bool is_priority = policy == SchedulingPolicy::kPriority;
    // A level costs one comparison upwards, or two downwards, of two requests each.
    const std::uint64_t num_looks_max = is_priority ? 1 + 2 * (3 * kHeapLevels) : 1;
    for (const bool are_running : {false, true}) {
      SCOPED_TRACE(std::string(to_text(policy)) + (are_running ? " running" : " waiting"));
      Bench bench(config_of(policy));
      std::vector<RequestIndex> indices;
      for (std::uint32_t i = 0; i < kNumRequests; ++i) indices.push_back(bench.add(2 * i));
      ASSERT_EQ(are_running ? bench.step() : kNumRequests, kNumRequests);
      const std::uint64_t before = operation_counts.requests;
      bench.scheduler.finish_requests({&indices[kNumRequests / 3], 1},
                                      RequestStatus::kFinishedAborted);
      EXPECT_LE(operation_counts.requests - before, num_looks_max);
      EXPECT_GE(operation_counts.requests - before, 1U);
    }
  }
}

TEST(SchedulerOperationCount, AVictimIsFoundWithoutLookingAtTheOthers) {
  constexpr std::uint32_t kNumRequests = 1024;
  constexpr std::uint32_t kHeapLevels = 10;
  SchedulerConfig config = config_of(SchedulingPolicy::kPriority);
  config.kv_cache.pool.num_gpu_blocks = kNumRequests + 1;  // one per request
  config.scheduler_reserve_full_isl = false;
  Bench bench(config);
  for (std::uint32_t i = 0; i < kNumRequests; ++i) bench.add(2 * i);
  for (std::uint32_t i = 0; i < kBlockSize - 1; ++i) ASSERT_EQ(bench.step(), kNumRequests);
  const std::uint64_t before = operation_counts.requests;
  const std::size_t num_scheduled = bench.step();  // each needs a second block: half of them go
  ASSERT_LE(num_scheduled, kNumRequests / 2);
  // Each victim leaves one heap and enters another.
  EXPECT_LE(operation_counts.requests - before,
            kLooksAStep * kNumRequests + kNumRequests * (2 * 4 * kHeapLevels));
}

}  // namespace
}  // namespace kvfence::planted::optimized
