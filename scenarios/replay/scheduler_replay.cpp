#include "scenarios/replay/scheduler_replay.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "contract/core/check.h"
#include "scenarios/replay/ratio.h"

namespace kvfence {
namespace {

using Clock = std::chrono::steady_clock;

/// Bit 31 keeps generated tokens apart from a prompt's counting ones.
constexpr TokenId kGenerated = 0x8000'0000;

constexpr std::size_t kStepsInFlightMax = 2;
constexpr std::uint64_t kMicrosecondsAMillisecond = 1000;
constexpr std::uint64_t kSamplesByDefault = 200;
constexpr std::uint64_t kShortestIntervalMs = 100;

/// The mean of a number, weighted with how long it had each value.
class RangeUnderWay {
 public:
  void add(std::uint32_t value, std::uint64_t duration_us) {
    range_.min = std::min(range_.min, value);
    range_.max = std::max(range_.max, value);
    weighted_sum_ += static_cast<double>(value) * static_cast<double>(duration_us);
    weight_ += static_cast<double>(duration_us);
  }
  NumberRange finish() const {
    if (range_.min > range_.max) return {0, 0, 0};
    NumberRange range = range_;
    range.mean = weight_ > 0 ? weighted_sum_ / weight_ : range.max;
    return range;
  }

 private:
  NumberRange range_;
  double weighted_sum_ = 0;
  double weight_ = 0;
};

/// Cuts simulated time into intervals.
class TimeSeries {
 public:
  explicit TimeSeries(std::uint64_t interval_ms) : interval_ms_(interval_ms) {
    row_.end_ms = interval_ms;
  }

  /// What is added from now on happened at this time or later.
  void advance_to(std::uint64_t time_us) {
    while (row_.end_ms * kMicrosecondsAMillisecond < time_us) finish_row();
  }
  void set(const SchedulerNumbers& numbers) {
    row_.running = numbers.num_running;
    row_.waiting = numbers.num_unfinished - numbers.num_running;
    row_.counts = numbers.counts;
  }
  /// Its sums are added to.
  SchedulerSample& row() { return row_; }

  std::vector<SchedulerSample> finish() {
    finish_row();
    return std::move(rows_);
  }

 private:
  void finish_row() {
    rows_.push_back(row_);
    row_.end_ms += interval_ms_;
    row_.steps = 0;
    row_.tokens = 0;
    row_.preemptions = 0;
    row_.admitted_tokens = 0;
    row_.found_tokens = 0;
    row_.queries = 0;
    row_.hits = 0;
  }

  std::uint64_t interval_ms_;
  SchedulerSample row_;
  std::vector<SchedulerSample> rows_;
};

class Replay {
 public:
  Replay(std::span<const MooncakeRequest> requests, const SchedulerReplayOptions& options,
         const SchedulerConfig& config, SchedulerSide& side, const ReplayProgress& progress)
      : requests_(requests.first(std::min(requests.size(), options.requests_max))),
        options_(options),
        config_(config),
        side_(side),
        progress_(progress),
        series_(interval_ms()) {
    progress_of_.resize(requests_.size());
    drafts_.assign(options.num_speculative_tokens, kGenerated);
    take_numbers();
  }

  SchedulerReplayResult run() {
    while (!is_over()) {
      add_arrivals();
      if (can_plan()) {
        plan();
        // A second step is planned before the first one is waited for.
        if (is_over() || can_plan()) continue;
      }
      if (num_in_flight_ > 0) {
        finish_oldest_step();
      } else if (next_ < requests_.size()) {
        pass_time_until(arrival_us(next_));
      } else {
        break;
      }
    }
    if (!is_over()) check_end();
    return finish();
  }

 private:
  /// How far a request is.
  struct RequestProgress {
    std::uint64_t arrival_us = 0;
    std::uint64_t first_token_us = 0;
    std::uint32_t num_outputs = 0;
  };

  struct StepInFlight {
    SchedulerOutput output;
    std::uint64_t end_us = 0;
    std::uint64_t num_updates_before = 0;
  };

  std::uint64_t interval_ms() const {
    if (options_.interval_ms > 0) return options_.interval_ms;
    return std::max(totals_of(requests_).span_ms / kSamplesByDefault, kShortestIntervalMs);
  }

  bool is_over() const { return result_.divergence.has_value(); }

  void diverge(std::string field, std::string expected, std::string actual, std::string message) {
    if (is_over()) return;
    result_.divergence = traffic_divergence(num_planned_, std::move(field), std::move(expected),
                                            std::move(actual), std::move(message));
  }

  /// False ends the replay: two sides parted, or the operation was refused.
  bool holds(std::string_view operation, ErrorCode code) {
    if (side_.divergence()) {
      result_.divergence = side_.divergence();
    } else if (code != ErrorCode::kNone) {
      diverge("error", "none", std::string(to_text(code)),
              std::string(operation) + ": the traffic asks only for what is to be granted");
    }
    return !is_over();
  }

  /// Microseconds since the first arrival. A trace is in order of arrival: a time that lies before
  /// an earlier request's counts as that one's.
  std::uint64_t arrival_us(std::size_t number) const {
    const std::uint64_t ms =
        std::max(requests_[number].timestamp_ms, requests_.front().timestamp_ms) -
        requests_.front().timestamp_ms;
    return std::max(ms * kMicrosecondsAMillisecond, latest_arrival_us_);
  }

  void add_arrivals() {
    while (next_ < requests_.size() && arrival_us(next_) <= now_us_ && !is_over()) {
      add_request(next_++);
    }
  }

  void add_request(std::size_t number) {
    const MooncakeRequest& traced = requests_[number];
    latest_arrival_us_ = arrival_us(number);
    progress_of_[number].arrival_us = latest_arrival_us_;
    ++result_.requests;
    NewRequest request;
    request.id = "r" + std::to_string(number);
    request.spec.tokens = prompt_of(traced, options_.block_tokens);
    request.max_tokens = traced.output_length;
    request.priority = static_cast<std::uint32_t>(number % options_.num_priorities);
    request.arrival_time = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(latest_arrival_us_ / kMicrosecondsAMillisecond, UINT32_MAX));
    RequestIndex index = 0;
    const ErrorCode code = side_.add_request(request, index);
    const bool is_refused = code == ErrorCode::kBeyondModelLength || code == ErrorCode::kNoTokens;
    if (!holds("add_request", is_refused ? ErrorCode::kNone : code)) return;
    if (is_refused) {
      ++result_.refused;
      return;
    }
    result_.prompt_tokens += traced.input_length;
    if (index >= number_of_.size()) number_of_.resize(std::size_t{index} + 1);
    number_of_[index] = number;
    take_numbers();
  }

  /// A step behind one without tokens would be without tokens as well.
  bool can_plan() const {
    if (is_over() || num_in_flight_ == config_.max_concurrent_batches) return false;
    if (num_in_flight_ > 0 && steps_[oldest_].output.total_num_scheduled_tokens == 0) return false;
    return numbers_.num_unfinished > 0 || numbers_.has_finished;
  }

  void plan() {
    StepInFlight& step = steps_[(oldest_ + num_in_flight_++) % steps_.size()];
    step.num_updates_before = num_updates_;
    ++num_planned_;
    const Clock::time_point begin = Clock::now();
    const ErrorCode code = side_.schedule(step.output);
    result_.scheduler_seconds += std::chrono::duration<double>(Clock::now() - begin).count();
    if (!holds("schedule", code)) return;
    take_numbers();
    check_plan(step.output);

    const std::uint32_t num_tokens = step.output.total_num_scheduled_tokens;
    std::uint64_t duration_us = 0;
    if (num_tokens > 0) {
      duration_us = options_.step_us + std::uint64_t{num_tokens} * options_.token_ns / 1000;
      ++result_.steps;
      result_.tokens += num_tokens;
      result_.busy_us += duration_us;
      note_numbers(duration_us);
    } else {
      ++result_.idle_steps;
    }
    worker_free_us_ = std::max(worker_free_us_, now_us_) + duration_us;
    step.end_us = worker_free_us_;
    result_.preemptions += step.output.preempted.size();
    series_.row().preemptions += static_cast<std::uint32_t>(step.output.preempted.size());
    for (const SchedulerOutput::New& scheduled : step.output.scheduled_new_reqs) {
      const std::size_t number = number_of_[scheduled.request];
      queueing_us_.push_back(now_us_ - progress_of_[number].arrival_us);
      series_.row().admitted_tokens += requests_[number].input_length;
      series_.row().found_tokens += scheduled.num_computed_tokens;
      result_.admitted_tokens += requests_[number].input_length;
      result_.found_tokens += scheduled.num_computed_tokens;
    }
    if (step.output.never_fits) {
      ++result_.never_fit;
      ++num_ended_;
    }
  }

  void finish_oldest_step() {
    const StepInFlight& step = steps_[oldest_];
    pass_time_until(step.end_us);
    sample(step.output);
    const Clock::time_point begin = Clock::now();
    const ErrorCode code = side_.update_from_output(step.output, runner_output_, outputs_);
    result_.scheduler_seconds += std::chrono::duration<double>(Clock::now() - begin).count();
    if (!holds("update_from_output", code)) return;
    ++num_updates_;
    --num_in_flight_;
    oldest_ = (oldest_ + 1) % steps_.size();
    take_outputs(step.output);
    if (!is_over()) propose_drafts(step.output);
    take_numbers();
    if (progress_) progress_(num_ended_ + result_.refused, requests_.size());

    const bool has_changed_nothing = step.output.total_num_scheduled_tokens == 0 &&
                                     step.output.preempted.empty() &&
                                     step.output.finished.empty() && !step.output.never_fits &&
                                     step.num_updates_before + 1 == num_updates_;
    if (!has_changed_nothing) return;
    if (next_ < requests_.size()) {
      pass_time_until(arrival_us(next_));
    } else {
      diverge("total_num_scheduled_tokens", "more than 0", "0",
              std::to_string(numbers_.num_unfinished) +
                  " requests are unfinished and no step schedules any of them");
    }
  }

  /// What the workers make of a step: a token for each request that samples, and the drafts that
  /// are accepted.
  void sample(const SchedulerOutput& step) {
    FlatLists<TokenId>& sampled = runner_output_.sampled_token_ids;
    sampled.clear();
    for (const SchedulerOutput::Scheduled& scheduled : step.scheduled) {
      if (scheduled.samples) {
        const TokenId token = kGenerated + static_cast<TokenId>(number_of_[scheduled.request]);
        const std::uint32_t num_tokens = 1 + num_accepted_of(scheduled.num_spec_tokens);
        for (std::uint32_t k = 0; k < num_tokens; ++k) sampled.push_back(token);
      }
      sampled.end_list();
    }
  }

  std::uint32_t num_accepted_of(std::uint32_t num_drafts) {
    if (num_drafts == 0 || options_.accepted.empty()) return num_drafts;
    const std::size_t turn = num_lists_of_drafts_++ % options_.accepted.size();
    return std::min(num_drafts, options_.accepted[turn]);
  }

  void take_outputs(const SchedulerOutput& step) {
    for (std::size_t k = 0; k < outputs_.outputs.size() && !is_over(); ++k) {
      const EngineCoreOutputs::Output& output = outputs_.outputs[k];
      RequestProgress& request = of(output.request);
      const std::size_t num_tokens = outputs_.new_token_ids[k].size();
      if (request.num_outputs == 0 && num_tokens > 0) {
        request.first_token_us = now_us_;
        first_token_us_.push_back(now_us_ - request.arrival_us);
      }
      request.num_outputs += static_cast<std::uint32_t>(num_tokens);
      result_.output_tokens += num_tokens;
      if (is_finished(output.status)) end_request(output.request);
    }
    const PrefixCacheStats& stats = outputs_.prefix_cache_stats;
    PrefixCacheStats& sums = result_.prefix_cache;
    sums.requests += stats.requests;
    sums.queries += stats.queries;
    sums.hits += stats.hits;
    sums.preempted_requests += stats.preempted_requests;
    sums.preempted_queries += stats.preempted_queries;
    sums.preempted_hits += stats.preempted_hits;
    result_.draft_tokens += outputs_.spec_decoding_stats.num_draft_tokens;
    result_.accepted_draft_tokens += outputs_.spec_decoding_stats.num_accepted_tokens;
    SchedulerSample& row = series_.row();
    row.steps += step.total_num_scheduled_tokens > 0 ? 1 : 0;
    row.tokens += step.total_num_scheduled_tokens;
    row.queries += stats.queries;
    row.hits += stats.hits;
  }

  void end_request(RequestIndex index) {
    const std::size_t number = number_of_[index];
    const RequestProgress& request = progress_of_[number];
    const MooncakeRequest& traced = requests_[number];
    ++num_ended_;
    if (request.num_outputs == traced.output_length) {
      ++result_.completed;
    } else if (request.num_outputs < traced.output_length &&
               traced.input_length + request.num_outputs == config_.kv_cache.max_model_len) {
      ++result_.cut_short;
    } else {
      diverge("outputs", std::to_string(traced.output_length) + " tokens",
              std::to_string(request.num_outputs) + " tokens",
              "r" + std::to_string(number) + " ended with another number of tokens");
      return;
    }
    completion_us_.push_back(now_us_ - request.arrival_us);
    if (request.num_outputs > 1) {
      time_per_output_us_.push_back((now_us_ - request.first_token_us) / (request.num_outputs - 1));
    }
  }

  /// With asynchronous scheduling the worker keeps its drafts to itself.
  void propose_drafts(const SchedulerOutput& step) {
    if (drafts_.empty() || config_.async_scheduling) return;
    for (const SchedulerOutput::Scheduled& scheduled : step.scheduled) {
      if (!scheduled.samples || has_ended(scheduled.request)) continue;
      if (!holds("update_draft_token_ids",
                 side_.update_draft_token_ids(scheduled.request, drafts_))) {
        return;
      }
    }
  }

  bool has_ended(RequestIndex index) const {
    const std::size_t number = number_of_[index];
    const RequestProgress& request = progress_of_[number];
    return request.num_outputs >= requests_[number].output_length ||
           requests_[number].input_length + request.num_outputs >= config_.kv_cache.max_model_len;
  }

  RequestProgress& of(RequestIndex index) { return progress_of_[number_of_[index]]; }

  void pass_time_until(std::uint64_t time_us) {
    now_us_ = std::max(now_us_, time_us);
    series_.advance_to(now_us_);
  }

  void take_numbers() {
    numbers_ = side_.numbers();
    series_.set(numbers_);
  }

  void note_numbers(std::uint64_t duration_us) {
    running_.add(numbers_.num_running, duration_us);
    waiting_.add(numbers_.num_unfinished - numbers_.num_running, duration_us);
    empty_.add(numbers_.counts.empty, duration_us);
    cached_.add(numbers_.counts.cached, duration_us);
    referenced_.add(numbers_.counts.referenced, duration_us);
  }

  void check_plan(const SchedulerOutput& output) {
    const auto at_most = [&](std::string_view field, std::uint64_t limit, std::uint64_t number) {
      if (number <= limit) return;
      diverge(std::string(field), "at most " + std::to_string(limit), std::to_string(number),
              std::string(field) + " is beyond its limit");
    };
    std::uint64_t num_tokens = 0;
    for (const SchedulerOutput::Scheduled& entry : output.scheduled) num_tokens += entry.num_tokens;
    if (num_tokens != output.total_num_scheduled_tokens) {
      diverge("total_num_scheduled_tokens", std::to_string(num_tokens),
              std::to_string(output.total_num_scheduled_tokens),
              "the total is the sum over the scheduled requests");
    }
    at_most("total_num_scheduled_tokens", config_.token_budget(), num_tokens);
    at_most("running", config_.max_num_seqs, numbers_.num_running);
    check_blocks();
  }

  void check_blocks() {
    const BlockCounts& counts = numbers_.counts;
    const std::uint64_t sum = std::uint64_t{counts.empty} + counts.cached + counts.referenced;
    if (sum == options_.gpu_blocks) return;
    diverge("empty + cached + referenced", std::to_string(options_.gpu_blocks), std::to_string(sum),
            "every block is empty, cached or referenced");
  }

  void check_end() {
    check_blocks();
    if (numbers_.counts.referenced != 1) {
      diverge("referenced", "1", std::to_string(numbers_.counts.referenced),
              "behind the last request the null block alone is referenced");
    }
    const std::size_t num_accounted = num_ended_ + result_.refused;
    if (num_accounted != requests_.size()) {
      diverge("requests", std::to_string(requests_.size()), std::to_string(num_accounted),
              "every request ends");
    }
  }

  SchedulerReplayResult finish() {
    result_.end_us = now_us_;
    result_.queueing = distribution_of(std::move(queueing_us_));
    result_.first_token = distribution_of(std::move(first_token_us_));
    result_.completion = distribution_of(std::move(completion_us_));
    result_.time_per_output = distribution_of(std::move(time_per_output_us_));
    result_.running = running_.finish();
    result_.waiting = waiting_.finish();
    result_.empty = empty_.finish();
    result_.cached = cached_.finish();
    result_.referenced = referenced_.finish();
    result_.samples = series_.finish();
    return std::move(result_);
  }

  std::span<const MooncakeRequest> requests_;
  const SchedulerReplayOptions& options_;
  const SchedulerConfig& config_;
  SchedulerSide& side_;
  const ReplayProgress& progress_;

  std::size_t next_ = 0;  ///< to arrive
  std::vector<RequestProgress> progress_of_;
  std::vector<std::size_t> number_of_;  ///< in the trace, by index
  std::size_t num_ended_ = 0;
  // In flight, as a ring, so that a step is planned into the memory of an earlier one.
  std::array<StepInFlight, kStepsInFlightMax> steps_;
  std::size_t oldest_ = 0;
  std::size_t num_in_flight_ = 0;
  std::uint64_t num_planned_ = 0;
  std::uint64_t num_updates_ = 0;
  std::uint64_t now_us_ = 0;
  std::uint64_t worker_free_us_ = 0;
  std::uint64_t latest_arrival_us_ = 0;
  SchedulerNumbers numbers_;  ///< after the last operation
  ModelRunnerOutput runner_output_;
  EngineCoreOutputs outputs_;
  std::vector<TokenId> drafts_;
  std::size_t num_lists_of_drafts_ = 0;

  TimeSeries series_;
  std::vector<std::uint64_t> queueing_us_;
  std::vector<std::uint64_t> first_token_us_;
  std::vector<std::uint64_t> completion_us_;
  std::vector<std::uint64_t> time_per_output_us_;
  RangeUnderWay running_;
  RangeUnderWay waiting_;
  RangeUnderWay empty_;
  RangeUnderWay cached_;
  RangeUnderWay referenced_;
  SchedulerReplayResult result_;
};

/// Tokens of the longest request, prompt and output.
std::uint32_t longest_of(std::span<const MooncakeRequest> requests) {
  std::uint64_t longest = 2;
  for (const MooncakeRequest& request : requests) {
    longest = std::max(longest, std::uint64_t{request.input_length} + request.output_length);
  }
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(longest, UINT32_MAX));
}

}  // namespace

Parsed<SchedulerConfig> config_of(const SchedulerReplayOptions& options,
                                  std::span<const MooncakeRequest> requests) {
  const auto setup = EngineTarget::prepare(target_config_of(options, requests), {}, {});
  if (!setup) return setup.error();
  return setup->scheduler();
}

engine::Config target_config_of(const SchedulerReplayOptions& options,
                                std::span<const MooncakeRequest> requests) {
  engine::Config config;
  make_assembly(engine::Assembly::kScheduler, config);
  config.num_gpu_blocks = options.gpu_blocks;
  config.enable_kv_cache_events = options.enable_kv_cache_events;
  config.hash_block_size = options.block_size;
  config.hash_algorithm = options.hash_algorithm;
  config.profile = options.profile;
  config.groups.clear();
  config.groups.push_back(
      {.kind = KVCacheSpecKind::kFullAttention, .block_size = options.block_size});
  config.max_model_len = options.max_model_len > 0 ? options.max_model_len : longest_of(requests);
  config.max_num_batched_tokens = options.max_num_batched_tokens;
  config.max_num_seqs = options.max_num_seqs;
  config.long_prefill_token_threshold = options.long_prefill_token_threshold;
  config.policy = to_text(options.policy);
  config.num_speculative_tokens = options.num_speculative_tokens;
  config.draft_model = options.num_speculative_tokens > 0;
  config.async_scheduling = options.async_scheduling;
  config.max_concurrent_batches = options.async_scheduling ? 2 : 1;
  return config;
}

std::optional<InputError> validate(const SchedulerReplayOptions& options) {
  if (options.num_priorities == 0) return option_error("num_priorities=0", "at least 1");
  if (options.block_tokens == 0) return option_error("block_tokens=0", "at least 1");
  if (options.step_us == 0 && options.token_ns == 0) {
    return option_error("step_us=0 token_ns=0", "a step that takes time");
  }
  return std::nullopt;
}

std::vector<TokenId> prompt_of(const MooncakeRequest& request, std::uint32_t block_tokens) {
  KVFENCE_CHECK(std::uint64_t{block_tokens} * request.hash_ids.size() >= request.input_length,
                "hash ids for the whole prompt");
  std::vector<TokenId> tokens(request.input_length);
  for (std::size_t k = 0; k < tokens.size(); ++k) {
    const std::size_t offset = k % block_tokens;
    tokens[k] = offset == 0 ? request.hash_ids[k / block_tokens] : static_cast<TokenId>(offset);
  }
  return tokens;
}

Distribution distribution_of(std::vector<std::uint64_t> values) {
  Distribution distribution;
  if (values.empty()) return distribution;
  std::sort(values.begin(), values.end());
  const auto percentile = [&](std::size_t percent) {
    return values[(values.size() * percent + 99) / 100 - 1];
  };
  double sum = 0;
  for (const std::uint64_t value : values) sum += static_cast<double>(value);
  distribution.num = values.size();
  distribution.mean = sum / static_cast<double>(values.size());
  distribution.p50 = percentile(50);
  distribution.p99 = percentile(99);
  distribution.max = values.back();
  return distribution;
}

double SchedulerSample::hit_rate() const { return ratio(found_tokens, admitted_tokens); }

double SchedulerReplayResult::hit_rate() const { return ratio(found_tokens, admitted_tokens); }

double SchedulerReplayResult::lookup_hit_rate() const {
  return ratio(prefix_cache.hits, prefix_cache.queries);
}

SchedulerReplayResult replay_traffic(std::span<const MooncakeRequest> requests,
                                     const SchedulerReplayOptions& options,
                                     const SchedulerConfig& config, SchedulerSide& side,
                                     const ReplayProgress& progress) {
  KVFENCE_CHECK(!validate(options), "a replay with options that were not validated");
  return Replay(requests, options, config, side, progress).run();
}

}  // namespace kvfence
