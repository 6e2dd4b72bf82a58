// Goal: a scheduler that has seen its largest load allocates nothing, however requests end. Method:
// this program counts every call of operator new while it repeats the same life of requests.
// KV-cache events are off, since taking them allocates their lists.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "optimized/base/counted_allocations.h"
#include "optimized/scheduler/scheduler.h"

namespace kvfence::optimized {
namespace {

constexpr std::uint32_t kBlockSize = 4;
constexpr std::uint32_t kNumPromptTokens = 21;
constexpr std::uint32_t kNumOutputTokens = 13;
constexpr std::uint32_t kNumRequests = 6;

SchedulerConfig config_of(SchedulingPolicy policy, bool is_async) {
  SchedulerConfig config;
  config.kv_cache.pool.num_gpu_blocks = 30;  // three requests at their full length
  config.kv_cache.pool.hash.hash_block_size = kBlockSize;
  config.kv_cache.pool.max_block_size = kBlockSize;
  config.kv_cache.groups = {{.block_size = kBlockSize}};
  config.kv_cache.max_model_len = 64;
  config.kv_cache.max_num_batched_tokens = 64;
  config.policy = policy;
  config.max_num_seqs = kNumRequests;
  config.scheduler_reserve_full_isl = false;
  config.num_speculative_tokens = 2;
  config.async_scheduling = is_async;
  config.max_concurrent_batches = is_async ? 2 : 1;
  return config;
}

std::vector<NewRequest> requests_of() {
  std::vector<NewRequest> requests(kNumRequests);
  for (std::uint32_t i = 0; i < kNumRequests; ++i) {
    requests[i].id = "a request with a name of its own " + std::to_string(i);
    // The first block is common.
    for (TokenId token = 0; token < kNumPromptTokens; ++token) {
      requests[i].spec.tokens.push_back(token < kBlockSize ? token : 100 * i + token);
    }
    requests[i].max_tokens = kNumOutputTokens;
    requests[i].stop_token_ids = {99};
    // The first to run is preempted first: its step takes back the tokens planned for it.
    requests[i].priority = i == 0 ? 9 : i % 3;
  }
  return requests;
}

/// The arguments that the caller reuses.
struct Caller {
  std::vector<SchedulerOutput> steps = std::vector<SchedulerOutput>(2);
  ModelRunnerOutput runner;
  EngineCoreOutputs outputs;
  std::vector<RequestIndex> indices = std::vector<RequestIndex>(kNumRequests);
  std::size_t num_preemptions = 0;
};

void update(Scheduler& scheduler, const SchedulerOutput& step, Caller& caller) {
  caller.runner.sampled_token_ids.clear();
  for (const SchedulerOutput::Scheduled& scheduled : step.scheduled) {
    // Of two drafts one is accepted.
    const std::uint32_t num_sampled = scheduled.samples ? (scheduled.num_spec_tokens + 3) / 2 : 0;
    for (std::uint32_t i = 0; i < num_sampled; ++i) caller.runner.sampled_token_ids.push_back(1);
    caller.runner.sampled_token_ids.end_list();
  }
  ASSERT_EQ(scheduler.update_from_output(step, caller.runner, caller.outputs), ErrorCode::kNone);
}

/// Requests that come, hit, preempt each other, get their tokens and finish; one is aborted. Ends
/// as it began, with an empty cache.
void live(Scheduler& scheduler, const std::vector<NewRequest>& requests, Caller& caller) {
  ASSERT_EQ(scheduler.add_request(requests[0], caller.indices[0]), ErrorCode::kNone);
  const std::uint32_t max_steps = scheduler.config().max_concurrent_batches;
  for (std::uint32_t num_steps = 0;; ++num_steps) {
    SchedulerOutput& step = caller.steps[num_steps % max_steps];
    if (num_steps >= max_steps) update(scheduler, step, caller);
    for (std::size_t i = 1; i < requests.size() && num_steps == 1; ++i) {
      ASSERT_EQ(scheduler.add_request(requests[i], caller.indices[i]), ErrorCode::kNone);
    }
    if (num_steps == 7) {
      scheduler.finish_requests({&caller.indices[1], 1}, RequestStatus::kFinishedAborted);
    }
    ASSERT_EQ(scheduler.schedule(step), ErrorCode::kNone);
    caller.num_preemptions += step.preempted.size();
    if (!scheduler.config().async_scheduling) {
      constexpr TokenId kDrafts[] = {1, 2};
      for (const SchedulerOutput::Scheduled& scheduled : step.scheduled) {
        ASSERT_EQ(scheduler.update_draft_token_ids(scheduled.request, kDrafts), ErrorCode::kNone);
      }
    }
    if (scheduler.get_num_unfinished_requests() > 0 || scheduler.has_finished_requests()) continue;
    for (std::uint32_t i = 1; i <= max_steps; ++i) {
      update(scheduler, caller.steps[(num_steps + i) % max_steps], caller);
    }
    break;
  }
  ASSERT_TRUE(scheduler.reset_prefix_cache(false, false));
}

TEST(SchedulerNoAllocation, OnceTheLoadWasSeen) {
  for (const SchedulingPolicy policy : {SchedulingPolicy::kFCFS, SchedulingPolicy::kPriority}) {
    for (const bool is_async : {false, true}) {
      SCOPED_TRACE(std::string(to_text(policy)) + (is_async ? " async" : ""));
      const std::vector<NewRequest> requests = requests_of();
      Scheduler scheduler(config_of(policy, is_async), KVConnectorHandle());
      Caller caller;
      const std::size_t before_warm_up = num_allocations();
      // Slots change hands: each has seen the largest request after a few lives.
      for (int repeat = 0; repeat < 4; ++repeat) live(scheduler, requests, caller);
      ASSERT_GT(num_allocations(), before_warm_up);  // the counter counts
      ASSERT_GT(caller.num_preemptions, 0U);
      const std::size_t before = num_allocations();

      for (int repeat = 0; repeat < 3; ++repeat) live(scheduler, requests, caller);

      EXPECT_EQ(num_allocations(), before);
    }
  }
}

}  // namespace
}  // namespace kvfence::optimized
