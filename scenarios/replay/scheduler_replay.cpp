#include "scenarios/replay/scheduler_replay.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <initializer_list>
#include <utility>

#include "contract/core/check.h"
#include "contract/engine/engine_setup.h"
#include "properties/engine/checks.h"

namespace kvfence {
namespace {

using Clock = std::chrono::steady_clock;

/// Bit 31 keeps generated tokens apart from a prompt's counting ones.
constexpr TokenId kGenerated = 0x8000'0000;

constexpr std::uint64_t kSamplesByDefault = 200;
constexpr std::uint64_t kShortestIntervalMs = 100;

/// Cuts simulated time into intervals.
class TimeSeries {
 public:
  explicit TimeSeries(std::uint64_t interval_ms) : interval_ms_(interval_ms) {
    row_.end_ms = interval_ms;
  }

  /// Later additions belong to this time or a later one.
  void advance_to(std::uint64_t time_us) {
    while (row_.end_ms * kMicrosecondsAMillisecond < time_us) finish_row();
  }
  void set(std::uint32_t running, std::uint32_t waiting, const BlockCounts& counts) {
    row_.running = running;
    row_.waiting = waiting;
    row_.counts = counts;
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
    row_ = {.end_ms = row_.end_ms + interval_ms_,
            .running = row_.running,
            .waiting = row_.waiting,
            .counts = row_.counts};
  }

  std::uint64_t interval_ms_;
  SchedulerSample row_;
  std::vector<SchedulerSample> rows_;
};

class SchedulerReplay {
 public:
  SchedulerReplay(std::span<const MooncakeRequest> requests, const SchedulerReplayOptions& options,
                  ReplaySides& sides, const ReplayProgress& progress, const EventsTap& tap)
      : requests_(requests.first(std::min(requests.size(), options.requests_max))),
        options_(options),
        setup_(prepared(EngineTarget::description(), Config(config_of(options, requests)))),
        config_(setup_.as<EngineTarget::Setup>().scheduler()),
        sides_(sides),
        progress_(progress),
        tap_(tap),
        series_(interval_ms()) {
    progress_of_.resize(requests_.size());
    // Nothing is observed before the first command: only the null block is held.
    series_.set(0, 0, {options.gpu_blocks - 1, 0, 1});
  }

  SchedulerReplayResult run() {
    sides_.start(setup_);
    while (!is_over()) {
      add_arrivals();
      if (can_plan()) {
        plan();
        // A second step is planned before the first one is waited for.
        if (is_over() || can_plan()) continue;
      }
      if (!steps_.empty()) {
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

  /// A request of a step with output.
  struct Sampling {
    std::size_t number = 0;
    std::uint32_t num_drafts = 0;
  };

  struct StepInFlight {
    std::vector<Sampling> sampling;
    std::uint32_t num_tokens = 0;
    bool changes_nothing = false;
    std::uint64_t end_us = 0;
    std::uint64_t num_updates_before = 0;
  };

  std::uint64_t interval_ms() const {
    if (options_.interval_ms > 0) return options_.interval_ms;
    return std::max(totals_of(requests_).span_ms / kSamplesByDefault, kShortestIntervalMs);
  }

  bool is_over() const { return is_tapped_out_ || sides_.is_over(); }

  const engine::Observation& seen() const { return sides_.seen().as<engine::Observation>(); }

  std::uint32_t num_waiting() const { return seen().num_unfinished - seen().num_running; }
  BlockCounts counts() const {
    return {seen().num_empty_blocks, seen().num_cached_blocks, seen().num_referenced_blocks};
  }

  /// As ReplaySides.
  bool send(engine::Command command, std::initializer_list<ErrorCode> may_refuse = {},
            bool want_state = false) {
    if (!sides_.send(Command(std::move(command)), want_state, may_refuse)) return false;
    series_.set(seen().num_running, num_waiting(), counts());
    return true;
  }

  /// The same, with the time that it takes.
  bool send_timed(engine::Command command, bool want_state = false) {
    const Clock::time_point begin = Clock::now();
    const bool is_sent = send(std::move(command), {}, want_state);
    result_.scheduler_seconds += std::chrono::duration<double>(Clock::now() - begin).count();
    return is_sent;
  }

  /// Microseconds since the first arrival. A trace is in order of arrival: a time before that of an
  /// earlier request counts as the earlier request's.
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
    engine::AddRequest command;
    command.id = request_name(number);
    command.tokens = prompt_of(traced, options_.block_tokens);
    command.max_tokens = traced.output_length;
    command.priority = static_cast<std::uint32_t>(number % options_.num_priorities);
    command.arrival_time = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(latest_arrival_us_ / kMicrosecondsAMillisecond, UINT32_MAX));
    if (!send(std::move(command), {ErrorCode::kBeyondModelLength, ErrorCode::kNoTokens})) return;
    if (seen().error != ErrorCode::kNone) {
      ++result_.refused;
    } else {
      result_.prompt_tokens += traced.input_length;
    }
  }

  /// A step after one without tokens would be without tokens as well.
  bool can_plan() const {
    if (is_over() || steps_.size() == config_.max_concurrent_batches) return false;
    if (!steps_.empty() && steps_.front().num_tokens == 0) return false;
    return seen().num_unfinished > 0 || seen().has_finished;
  }

  void plan() {
    StepInFlight& step = steps_.emplace_back();
    step.num_updates_before = num_updates_;
    ++num_planned_;
    if (!send_timed(engine::Schedule{})) return;
    take_plan(seen(), step);

    const std::uint32_t num_tokens = step.num_tokens;
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
  }

  void take_plan(const engine::Observation& plan, StepInFlight& step) {
    for (const engine::ScheduledRequest& entry : *plan.scheduled) {
      step.num_tokens += entry.num_tokens;
      if (!entry.samples) continue;
      step.sampling.push_back(
          {request_number(entry.request), static_cast<std::uint32_t>(entry.spec_tokens.size())});
    }
    const bool has_ended_one = plan.never_fits.has_value() && !plan.never_fits->empty();
    step.changes_nothing =
        step.num_tokens == 0 && plan.preempted->empty() && plan.finished->empty() && !has_ended_one;
    check_plan(step.num_tokens);
    result_.preemptions += plan.preempted->size();
    series_.row().preemptions += static_cast<std::uint32_t>(plan.preempted->size());
    for (const engine::ScheduledNew& entry : *plan.new_reqs) {
      const std::size_t number = request_number(entry.request);
      queueing_us_.push_back(now_us_ - progress_of_[number].arrival_us);
      series_.row().admitted_tokens += requests_[number].input_length;
      series_.row().found_tokens += entry.num_computed_tokens;
      result_.admitted_tokens += requests_[number].input_length;
      result_.found_tokens += entry.num_computed_tokens;
    }
    if (has_ended_one) {
      ++result_.never_fit;
      ++num_ended_;
    }
  }

  void finish_oldest_step() {
    const StepInFlight step = std::move(steps_.front());
    steps_.pop_front();
    pass_time_until(step.end_us);
    if (!send_timed(sampled(step), tap_.wants_keys)) return;
    if (tap_.take && !tap_.take(now_us_, *seen().events, *seen().keys)) is_tapped_out_ = true;
    ++num_updates_;
    take_outputs(step);
    if (!is_over()) propose_drafts(step);
    if (progress_) progress_(num_ended_ + result_.refused, requests_.size());

    if (!step.changes_nothing || step.num_updates_before + 1 != num_updates_) return;
    if (next_ < requests_.size()) {
      pass_time_until(arrival_us(next_));
    } else {
      sides_.diverge("scheduled", "tokens", "none",
                     std::to_string(seen().num_unfinished) +
                         " requests are unfinished and no step schedules any of them");
    }
  }

  /// The workers' output of a step: a token for each request that samples, and the accepted drafts.
  engine::Update sampled(const StepInFlight& step) {
    engine::Update update;
    for (const Sampling& sampling : step.sampling) {
      const TokenId token = kGenerated + static_cast<TokenId>(sampling.number);
      const std::uint32_t num_tokens = 1 + num_accepted_of(sampling.num_drafts);
      update.samples.push_back(
          {request_name(sampling.number), std::vector<TokenId>(num_tokens, token)});
    }
    return update;
  }

  std::uint32_t num_accepted_of(std::uint32_t num_drafts) {
    if (num_drafts == 0 || options_.accepted.empty()) return num_drafts;
    const std::size_t turn = num_lists_of_drafts_++ % options_.accepted.size();
    return std::min(num_drafts, options_.accepted[turn]);
  }

  void take_outputs(const StepInFlight& step) {
    for (const engine::RequestOutput& output : *seen().outputs) {
      const std::size_t number = request_number(output.request);
      RequestProgress& request = progress_of_[number];
      if (request.num_outputs == 0 && !output.tokens.empty()) {
        request.first_token_us = now_us_;
        first_token_us_.push_back(now_us_ - request.arrival_us);
      }
      request.num_outputs += static_cast<std::uint32_t>(output.tokens.size());
      result_.output_tokens += output.tokens.size();
      if (is_finished(output.status)) end_request(number);
      if (is_over()) return;
    }
    // Of the prefix cache: [reset requests queries hits preempted_requests ...].
    const std::vector<std::uint32_t>& stats = *seen().stats;
    PrefixCacheStats& sums = result_.prefix_cache;
    sums.requests += stats[1];
    sums.queries += stats[2];
    sums.hits += stats[3];
    sums.preempted_requests += stats[4];
    sums.preempted_queries += stats[5];
    sums.preempted_hits += stats[6];
    // [drafts draft_tokens accepted ...]
    const std::vector<std::uint32_t>& drafts = *seen().spec_stats;
    result_.draft_tokens += drafts[1];
    result_.accepted_draft_tokens += drafts[2];
    SchedulerSample& row = series_.row();
    row.steps += step.num_tokens > 0 ? 1 : 0;
    row.tokens += step.num_tokens;
    row.queries += stats[2];
    row.hits += stats[3];
  }

  void end_request(std::size_t number) {
    const RequestProgress& request = progress_of_[number];
    const MooncakeRequest& traced = requests_[number];
    ++num_ended_;
    if (request.num_outputs == traced.output_length) {
      ++result_.completed;
    } else if (request.num_outputs < traced.output_length &&
               traced.input_length + request.num_outputs == config_.kv_cache.max_model_len) {
      ++result_.cut_short;
    } else {
      sides_.diverge("outputs", std::to_string(traced.output_length) + " tokens",
                     std::to_string(request.num_outputs) + " tokens",
                     request_name(number) + " ended with another number of tokens");
      return;
    }
    completion_us_.push_back(now_us_ - request.arrival_us);
    if (request.num_outputs > 1) {
      time_per_output_us_.push_back((now_us_ - request.first_token_us) / (request.num_outputs - 1));
    }
  }

  /// With asynchronous scheduling the worker keeps its drafts to itself.
  void propose_drafts(const StepInFlight& step) {
    if (options_.num_speculative_tokens == 0 || config_.async_scheduling) return;
    for (const Sampling& sampling : step.sampling) {
      if (has_ended(sampling.number)) continue;
      engine::UpdateDraftTokenIds drafts;
      drafts.request = request_name(sampling.number);
      drafts.tokens.assign(options_.num_speculative_tokens, kGenerated);
      if (!send(std::move(drafts))) return;
    }
  }

  bool has_ended(std::size_t number) const {
    const RequestProgress& request = progress_of_[number];
    return request.num_outputs >= requests_[number].output_length ||
           requests_[number].input_length + request.num_outputs >= config_.kv_cache.max_model_len;
  }

  void pass_time_until(std::uint64_t time_us) {
    now_us_ = std::max(now_us_, time_us);
    series_.advance_to(now_us_);
  }

  void note_numbers(std::uint64_t duration_us) {
    result_.running.add(seen().num_running, duration_us);
    result_.waiting.add(num_waiting(), duration_us);
    result_.empty.add(counts().empty, duration_us);
    result_.cached.add(counts().cached, duration_us);
    result_.referenced.add(counts().referenced, duration_us);
  }

  void check_plan(std::uint32_t num_tokens) {
    const auto at_most = [&](std::string field, std::uint32_t limit, std::uint32_t number) {
      if (number <= limit) return;
      sides_.diverge(field, "at most " + std::to_string(limit), std::to_string(number),
                     field + " is beyond its limit");
    };
    at_most("scheduled", config_.token_budget(), num_tokens);
    at_most("num_running", config_.max_num_seqs, seen().num_running);
    check_blocks();
  }

  void check_blocks() {
    const auto [empty, cached, referenced] = counts();
    const std::uint64_t sum = std::uint64_t{empty} + cached + referenced;
    if (sum == options_.gpu_blocks) return;
    sides_.diverge("empty + cached + referenced", std::to_string(options_.gpu_blocks),
                   std::to_string(sum), "every block is empty, cached or referenced");
  }

  void check_end() {
    check_blocks();
    if (counts().referenced != 1) {
      sides_.diverge("referenced", "1", std::to_string(counts().referenced),
                     "after the last request the null block alone is referenced");
    }
    const std::size_t num_accounted = num_ended_ + result_.refused;
    if (num_accounted != requests_.size()) {
      sides_.diverge("requests", std::to_string(requests_.size()), std::to_string(num_accounted),
                     "every request ends");
    }
  }

  SchedulerReplayResult finish() {
    static_cast<ReplayEnd&>(result_) = sides_.end();
    result_.commands = result_.steps + result_.idle_steps;
    if (result_.divergence) result_.divergence->step = num_planned_;
    result_.end_us = now_us_;
    result_.queueing = distribution_of(std::move(queueing_us_));
    result_.first_token = distribution_of(std::move(first_token_us_));
    result_.completion = distribution_of(std::move(completion_us_));
    result_.time_per_output = distribution_of(std::move(time_per_output_us_));
    result_.samples = series_.finish();
    return std::move(result_);
  }

  std::span<const MooncakeRequest> requests_;
  const SchedulerReplayOptions& options_;
  Setup setup_;
  SchedulerConfig config_;
  ReplaySides& sides_;
  const ReplayProgress& progress_;
  const EventsTap& tap_;
  bool is_tapped_out_ = false;

  std::size_t next_ = 0;                      ///< to arrive
  std::vector<RequestProgress> progress_of_;  ///< by number of the request
  std::size_t num_ended_ = 0;
  std::deque<StepInFlight> steps_;  ///< in flight, the oldest first
  std::uint64_t num_planned_ = 0;
  std::uint64_t num_updates_ = 0;
  std::uint64_t now_us_ = 0;
  std::uint64_t worker_free_us_ = 0;
  std::uint64_t latest_arrival_us_ = 0;
  std::size_t num_lists_of_drafts_ = 0;

  TimeSeries series_;
  std::vector<std::uint64_t> queueing_us_;
  std::vector<std::uint64_t> first_token_us_;
  std::vector<std::uint64_t> completion_us_;
  std::vector<std::uint64_t> time_per_output_us_;
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

engine::Config config_of(const SchedulerReplayOptions& options,
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
  config.policy = options.policy;
  config.num_speculative_tokens = options.num_speculative_tokens;
  config.draft_model = options.num_speculative_tokens > 0;
  config.async_scheduling = options.async_scheduling;
  config.max_concurrent_batches = options.async_scheduling ? 2 : 1;
  return config;
}

std::optional<InputError> validate(const SchedulerReplayOptions& options,
                                   std::span<const MooncakeRequest> requests) {
  if (options.num_priorities == 0) return option_error("num_priorities=0", "at least 1");
  if (options.block_tokens == 0) return option_error("block_tokens=0", "at least 1");
  if (options.step_us == 0 && options.token_ns == 0) {
    return option_error("step_us=0 token_ns=0", "a step that takes time");
  }
  if (options.state_every == 0) return option_error("state_every=0", "at least 1");
  const auto setup = EngineTarget::prepare(config_of(options, requests), {}, {});
  if (!setup) return setup.error();
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

void NumberRange::add(std::uint32_t value, std::uint64_t duration_us) {
  min = num_++ == 0 ? value : std::min(min, value);
  max = std::max(max, value);
  weighted_sum_ += static_cast<double>(value) * static_cast<double>(duration_us);
  weight_ += static_cast<double>(duration_us);
  mean = weight_ > 0 ? weighted_sum_ / weight_ : max;
}

double SchedulerSample::hit_rate() const { return ratio(found_tokens, admitted_tokens); }

double SchedulerReplayResult::hit_rate() const { return ratio(found_tokens, admitted_tokens); }

double SchedulerReplayResult::lookup_hit_rate() const {
  return ratio(prefix_cache.hits, prefix_cache.queries);
}

SchedulerReplayResult replay_traffic(std::span<const MooncakeRequest> requests,
                                     const SchedulerReplayOptions& options,
                                     Implementation& expected, Implementation* actual,
                                     const ReplayProgress& progress, const EventsTap& tap) {
  KVFENCE_CHECK(!validate(options, requests), "a replay with options that were not validated");
  ReplaySides sides(checks_of(engine::Assembly::kScheduler), expected, actual, options.state_every,
                    kEnginePromise);
  return SchedulerReplay(requests, options, sides, progress, tap).run();
}

}  // namespace kvfence
