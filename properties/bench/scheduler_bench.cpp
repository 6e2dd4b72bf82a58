// Times a step of both schedulers: BM_<Operation><Implementation>/<running requests>/.
//
// The steps are those of scenarios/adapters/bench_vllm_scheduler.py, whose docstring defines them,
// so that the figures of the implementations are comparable: every request decodes one token per
// step. An iteration is one pass of many steps, on a new scheduler that is made before it, off the
// clock. Step is timed as a whole; Schedule and UpdateFromOutput call by call, with a reading of
// the clock in each figure, as in Python.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "contract/core/check.h"
#include "contract/scheduler/scheduler.h"
#include "optimized/scheduler/scheduler.h"
#include "properties/bench/timed_passes.h"
#include "reference/scheduler/scheduler.h"

namespace kvfence {
namespace {

constexpr std::uint32_t kBlockSize = 16;
constexpr std::uint32_t kPromptTokens = 128;
constexpr std::uint32_t kMaxSteps = 256;
constexpr std::uint32_t kMaxTokens = kPromptTokens + kBlockSize + kMaxSteps;
constexpr std::uint32_t kTokensAPass = 16'384;

SchedulerConfig config_of(std::uint32_t num_requests) {
  SchedulerConfig config;
  config.kv_cache.pool.num_gpu_blocks = 1 + num_requests * (kMaxTokens / kBlockSize);
  config.kv_cache.pool.hash.hash_block_size = kBlockSize;
  config.kv_cache.pool.max_block_size = kBlockSize;
  config.kv_cache.groups.push_back(
      {.kind = KVCacheSpecKind::kFullAttention, .block_size = kBlockSize});
  config.kv_cache.max_model_len = kMaxTokens + 1;
  config.kv_cache.max_num_batched_tokens = num_requests * (kPromptTokens + kBlockSize);
  config.max_num_seqs = num_requests;
  return config;
}

NewRequest request_of(std::uint32_t number) {
  NewRequest request;
  request.id = std::to_string(number);
  request.spec.tokens.resize(kPromptTokens + number % kBlockSize);
  std::iota(request.spec.tokens.begin(), request.spec.tokens.end(), number * kMaxTokens);
  request.max_tokens = kMaxTokens;
  return request;
}

/// A scheduler and the calls that are timed; a refused one is an error.
template <class SchedulerType>
class Calls {
 public:
  explicit Calls(const SchedulerConfig& config) : scheduler_(config, KVConnectorHandle()) {}

  void add(const NewRequest& request) {
    RequestIndex index = 0;
    check(scheduler_.add_request(request, index));
  }
  void schedule() { check(scheduler_.schedule(step_)); }
  void update(const ModelRunnerOutput& result) {
    check(scheduler_.update_from_output(step_, result, outputs_));
  }

  const SchedulerOutput& step() const { return step_; }
  const EngineCoreOutputs& outputs() const { return outputs_; }

 private:
  static void check(ErrorCode code) {
    KVFENCE_CHECK(code == ErrorCode::kNone, "the scheduler refused what is timed");
  }

  SchedulerType scheduler_;
  SchedulerOutput step_;
  EngineCoreOutputs outputs_;
};

/// `token` for each of num_requests.
ModelRunnerOutput result_of(std::uint32_t num_requests, TokenId token) {
  ModelRunnerOutput result;
  for (std::uint32_t number = 0; number < num_requests; ++number) {
    result.sampled_token_ids.push_back(token);
    result.sampled_token_ids.end_list();
  }
  return result;
}

/// Requests that decode, and the steps of a pass.
template <class SchedulerType>
class SteadyDecode {
 public:
  explicit SteadyDecode(std::uint32_t num_requests)
      : num_requests_(num_requests),
        num_steps_(kBlockSize *
                   std::max(1U, std::min(kMaxSteps, kTokensAPass / num_requests) / kBlockSize)) {
    for (std::uint32_t number = 0; number < num_requests; ++number) {
      requests_.push_back(request_of(number));
    }
    for (TokenId token = 0; token <= num_steps_; ++token) {
      results_.push_back(result_of(num_requests, token));
    }
  }

  /// All prompts are computed, and each request has its first output.
  void restore() {
    calls_.emplace(config_of(num_requests_));
    for (const NewRequest& request : requests_) calls_->add(request);
    calls_->schedule();
    calls_->update(results_.front());
    num_tokens_ = 0;
  }

  /// run(calls, result) makes the step that `result` is for.
  template <class Run>
  void pass(Run run) {
    for (std::uint32_t step = 1; step <= num_steps_; ++step) {
      run(*calls_, results_[step]);
      num_tokens_ += calls_->step().total_num_scheduled_tokens;
    }
  }

  bool holds() const {
    return num_tokens_ == std::uint64_t{num_requests_} * num_steps_ &&
           calls_->outputs().outputs.size() == num_requests_;
  }
  std::uint32_t num_steps() const { return num_steps_; }

 private:
  std::uint32_t num_requests_;
  std::uint32_t num_steps_;
  std::vector<NewRequest> requests_;
  std::vector<ModelRunnerOutput> results_;  ///< [num_steps + 1]
  std::optional<Calls<SchedulerType>> calls_;
  std::uint64_t num_tokens_ = 0;
};

template <class SchedulerType>
void time_step(benchmark::State& state) {
  SteadyDecode<SchedulerType> decode(static_cast<std::uint32_t>(state.range(0)));
  time_passes(
      state, "step", decode.num_steps(), [&] { decode.restore(); },
      [&] {
        decode.pass([](auto& calls, const ModelRunnerOutput& result) {
          calls.schedule();
          calls.update(result);
        });
      },
      [&] { return decode.holds(); });
}

/// timed(calls, result) returns the seconds of what is measured.
template <class SchedulerType, class Timed>
void time_calls(benchmark::State& state, Timed timed) {
  SteadyDecode<SchedulerType> decode(static_cast<std::uint32_t>(state.range(0)));
  report_passes(
      state, "step", decode.num_steps(), [&] { decode.restore(); },
      [&] {
        double seconds = 0;
        decode.pass(
            [&](auto& calls, const ModelRunnerOutput& result) { seconds += timed(calls, result); });
        return seconds;
      },
      [&] { return decode.holds(); });
}

template <class SchedulerType>
void time_schedule(benchmark::State& state) {
  time_calls<SchedulerType>(state, [](auto& calls, const ModelRunnerOutput& result) {
    const double seconds = seconds_of([&] { calls.schedule(); });
    calls.update(result);
    return seconds;
  });
}

template <class SchedulerType>
void time_update_from_output(benchmark::State& state) {
  time_calls<SchedulerType>(state, [](auto& calls, const ModelRunnerOutput& result) {
    calls.schedule();
    return seconds_of([&] { calls.update(result); });
  });
}

template <class SchedulerType>
void register_benchmarks(const std::string& implementation, std::uint32_t max_requests) {
  const auto add = [&](const char* operation, void (*time)(benchmark::State&)) {
    for (const std::uint32_t num_requests : {1U, 64U, 256U, 1024U, 16'384U}) {
      if (num_requests <= max_requests) {
        add_benchmark(operation + implementation, benchmark::kMicrosecond, time)->Arg(num_requests);
      }
    }
  };
  add("Schedule", time_schedule<SchedulerType>);
  add("UpdateFromOutput", time_update_from_output<SchedulerType>);
  add("Step", time_step<SchedulerType>);
}

}  // namespace
}  // namespace kvfence

int main(int argc, char** argv) {
  // The reference scans the pool's lists: with a pool for 16384 requests a pass would take minutes.
  kvfence::register_benchmarks<kvfence::reference::Scheduler>("Reference", 1024);
  kvfence::register_benchmarks<kvfence::optimized::Scheduler>("Optimized", 16'384);
  return kvfence::run_benchmarks("scheduler_bench", argc, argv);
}
