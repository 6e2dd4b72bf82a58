// Goal: two schedulers in lockstep are told apart by whatever differs, and by nothing else.
// Method: the same steps through two references, one of which lies in one place at a time, or gives
// out other indices; then a planted bug under traffic.

#include "scenarios/replay/scheduler_lockstep.h"

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "optimized/scheduler/scheduler.h"
#include "reference/scheduler/scheduler.h"
#include "scenarios/replay/scheduler_replay.h"

namespace kvfence {
namespace {

using Side = std::unique_ptr<SchedulerSide>;

/// Four requests of four to seven tokens and five outputs, the last two with one block in common.
const std::vector<MooncakeRequest>& traffic() {
  static const std::vector<MooncakeRequest> requests = {
      {0, 4, 5, {1}}, {0, 5, 5, {11, 12}}, {0, 6, 5, {21, 22}}, {9, 7, 5, {21, 23}}};
  return requests;
}

/// Blocks of four tokens, six of them for requests: some are preempted.
SchedulerReplayOptions options() {
  SchedulerReplayOptions options;
  options.gpu_blocks = 7;
  options.block_size = 4;
  options.block_tokens = 4;
  options.max_num_batched_tokens = 16;
  options.num_speculative_tokens = 2;
  options.accepted = {0, 1};
  options.enable_kv_cache_events = true;
  return options;
}

Side reference_side() {
  return std::make_unique<OneScheduler<reference::Scheduler>>(
      reference::Scheduler(*config_of(options(), traffic()), KVConnectorHandle()));
}

/// Passes everything on; lies where it is told to.
class Liar final : public SchedulerSide {
 public:
  explicit Liar(Side side) : side_(std::move(side)) {}

  ErrorCode add_request(const NewRequest& request, RequestIndex& out) override {
    return lie(side_->add_request(request, out), add);
  }
  ErrorCode schedule(SchedulerOutput& out) override {
    const ErrorCode code = side_->schedule(out);
    steps_.push_back(out);
    if (plan) plan(out);
    return code;
  }
  ErrorCode update_from_output(const SchedulerOutput&, const ModelRunnerOutput& result,
                               EngineCoreOutputs& out) override {
    const ErrorCode code = side_->update_from_output(steps_.front(), result, out);
    steps_.pop_front();
    if (update) update(out);
    return code;
  }
  ErrorCode update_draft_token_ids(RequestIndex request, std::span<const TokenId> tokens) override {
    return lie(side_->update_draft_token_ids(request, tokens), draft);
  }
  SchedulerNumbers numbers() override {
    SchedulerNumbers answer = side_->numbers();
    if (count) count(answer);
    return answer;
  }
  void observe_state(SchedulerState& out) override {
    side_->observe_state(out);
    if (observe) observe(out);
  }
  const std::optional<Divergence>& divergence() const override { return side_->divergence(); }

  std::function<void(ErrorCode&)> add;
  std::function<void(SchedulerOutput&)> plan;
  std::function<void(EngineCoreOutputs&)> update;
  std::function<void(ErrorCode&)> draft;
  std::function<void(SchedulerNumbers&)> count;
  std::function<void(SchedulerState&)> observe;

 private:
  static ErrorCode lie(ErrorCode code, const std::function<void(ErrorCode&)>& change) {
    if (change) change(code);
    return code;
  }

  Side side_;
  std::deque<SchedulerOutput> steps_;
};

/// Gives out indices that are larger by some.
class Shifted final : public SchedulerSide {
 public:
  explicit Shifted(Side side) : side_(std::move(side)) {}

  ErrorCode add_request(const NewRequest& request, RequestIndex& out) override {
    const ErrorCode code = side_->add_request(request, out);
    out += kShift;
    return code;
  }
  ErrorCode schedule(SchedulerOutput& out) override {
    const ErrorCode code = side_->schedule(out);
    steps_.push_back(out);
    for (auto& entry : out.scheduled) entry.request += kShift;
    for (auto& entry : out.scheduled_new_reqs) entry.request += kShift;
    for (auto& entry : out.scheduled_cached_reqs) entry.request += kShift;
    for (RequestIndex& index : out.preempted) index += kShift;
    for (RequestIndex& index : out.finished) index += kShift;
    if (out.never_fits) *out.never_fits += kShift;
    return code;
  }
  ErrorCode update_from_output(const SchedulerOutput&, const ModelRunnerOutput& result,
                               EngineCoreOutputs& out) override {
    const ErrorCode code = side_->update_from_output(steps_.front(), result, out);
    steps_.pop_front();
    for (auto& output : out.outputs) output.request += kShift;
    return code;
  }
  ErrorCode update_draft_token_ids(RequestIndex request, std::span<const TokenId> tokens) override {
    return side_->update_draft_token_ids(request - kShift, tokens);
  }
  SchedulerNumbers numbers() override { return side_->numbers(); }
  void observe_state(SchedulerState& out) override { side_->observe_state(out); }
  const std::optional<Divergence>& divergence() const override { return side_->divergence(); }

 private:
  static constexpr RequestIndex kShift = 5;

  Side side_;
  std::deque<SchedulerOutput> steps_;
};

SchedulerReplayResult replay(Side actual) {
  SchedulersInLockstep sides(reference_side(), std::move(actual), 1);
  return replay_traffic(traffic(), options(), *config_of(options(), traffic()), sides);
}

/// The field in which a liar was caught; "none" if it was not.
std::string caught_in(const std::function<void(Liar&)>& teach) {
  auto liar = std::make_unique<Liar>(reference_side());
  teach(*liar);
  const SchedulerReplayResult result = replay(std::move(liar));
  if (!result.divergence) return "none";
  EXPECT_EQ(result.divergence->oracle, "lockstep");
  EXPECT_NE(result.divergence->expected, result.divergence->actual);
  return result.divergence->field;
}

/// Adds one to a member of the first entry of a list, where there is one.
template <class List, class Member>
void raise(List& list, Member member) {
  if (!list.empty()) ++(list.front().*member);
}

TEST(SchedulersInLockstep, AgreeWhereNothingDiffers) {
  EXPECT_EQ(caught_in([](Liar&) {}), "none");
  const SchedulerReplayResult result = replay(reference_side());
  EXPECT_EQ(result.completed, 4U);
  EXPECT_GT(result.preemptions, 0U);
  EXPECT_GT(result.found_tokens, 0U);
}

TEST(SchedulersInLockstep, CompareByName) {
  const SchedulerReplayResult result = replay(std::make_unique<Shifted>(reference_side()));

  EXPECT_FALSE(result.divergence) << result.divergence->message;
  EXPECT_EQ(result.completed, 4U);
}

TEST(SchedulersInLockstep, SeeEveryMemberOfAStep) {
  using Step = SchedulerOutput;
  const auto caught = [](std::function<void(Step&)> lie) {
    return caught_in([&](Liar& liar) { liar.plan = std::move(lie); });
  };
  EXPECT_EQ(caught([](Step& s) { raise(s.scheduled, &Step::Scheduled::request); }), "scheduled[0]");
  EXPECT_EQ(caught([](Step& s) { raise(s.scheduled, &Step::Scheduled::num_tokens); }),
            "scheduled[0]");
  EXPECT_EQ(caught([](Step& s) { raise(s.scheduled, &Step::Scheduled::num_spec_tokens); }),
            "scheduled[0]");
  EXPECT_EQ(caught([](Step& s) {
              if (!s.scheduled.empty()) s.scheduled.back().samples ^= true;
            }),
            "scheduled[2]");
  EXPECT_EQ(caught([](Step& s) {
              FlatLists<TokenId> other;
              for (std::size_t k = 0; k < s.spec_token_ids.size(); ++k) {
                for (TokenId token : s.spec_token_ids[k]) other.push_back(token + 1);
                other.end_list();
              }
              s.spec_token_ids = other;
            }),
            "scheduled[0]");
  EXPECT_EQ(caught([](Step& s) { raise(s.scheduled_new_reqs, &Step::New::num_computed_tokens); }),
            "scheduled_new_reqs[0]");
  EXPECT_EQ(
      caught([](Step& s) { raise(s.scheduled_cached_reqs, &Step::Cached::num_computed_tokens); }),
      "scheduled_cached_reqs[0]");
  EXPECT_EQ(
      caught([](Step& s) { raise(s.scheduled_cached_reqs, &Step::Cached::num_output_tokens); }),
      "scheduled_cached_reqs[0]");
  EXPECT_EQ(caught([](Step& s) {
              for (auto& entry : s.scheduled_cached_reqs) entry.resumed ^= true;
            }),
            "scheduled_cached_reqs[0]");
  EXPECT_EQ(caught([](Step& s) {
              for (auto& entry : s.scheduled_cached_reqs) entry.sends_all_token_ids ^= true;
            }),
            "scheduled_cached_reqs[0]");
  EXPECT_EQ(caught([](Step& s) {
              for (auto& entry : s.scheduled_cached_reqs) entry.first_list = Step::kNoLists;
            }),
            "scheduled_cached_reqs[0]");
  EXPECT_EQ(caught([](Step& s) {
              FlatLists<BlockId> other;
              for (std::size_t k = 0; k < s.block_lists.size(); ++k) {
                for (BlockId block : s.block_lists[k]) other.push_back(block + 1);
                other.end_list();
              }
              s.block_lists = other;
            }),
            "scheduled_new_reqs[0]");
  EXPECT_EQ(caught([](Step& s) { ++s.step; }), "step");
  EXPECT_EQ(caught([](Step& s) { ++s.total_num_scheduled_tokens; }), "total_num_scheduled_tokens");
  EXPECT_EQ(caught([](Step& s) { ++s.num_common_prefix_blocks.front(); }),
            "num_common_prefix_blocks[0]");
  EXPECT_EQ(caught([](Step& s) { s.preempted.clear(); }), "preempted[0]");
  EXPECT_EQ(caught([](Step& s) { s.finished.push_back(0); }), "finished[0]");
  EXPECT_EQ(caught([](Step& s) { s.new_block_ids.push_back(1); }), "new_block_ids[5]");
  EXPECT_EQ(caught([](Step& s) { s.never_fits = 1; }), "never_fits");
}

TEST(SchedulersInLockstep, SeeEveryMemberOfTheOutputs) {
  using Outputs = EngineCoreOutputs;
  const auto caught = [](std::function<void(Outputs&)> lie) {
    return caught_in([&](Liar& liar) { liar.update = std::move(lie); });
  };
  EXPECT_EQ(caught([](Outputs& o) { raise(o.outputs, &Outputs::Output::request); }), "outputs[0]");
  EXPECT_EQ(caught([](Outputs& o) {
              for (auto& output : o.outputs) output.status = RequestStatus::kPreempted;
            }),
            "outputs[0]");
  EXPECT_EQ(caught([](Outputs& o) {
              for (auto& output : o.outputs) output.stop_reason = 1;
            }),
            "outputs[0]");
  EXPECT_EQ(caught([](Outputs& o) {
              FlatLists<TokenId> none;
              for (std::size_t k = 0; k < o.outputs.size(); ++k) none.end_list();
              o.new_token_ids = none;
            }),
            "outputs[0]");
  EXPECT_EQ(caught([](Outputs& o) { o.events.clear(); }), "events[0]");
  EXPECT_EQ(caught([](Outputs& o) { ++o.prefix_cache_stats.hits; }), "prefix_cache_stats");
  EXPECT_EQ(caught([](Outputs& o) { ++o.connector_prefix_cache_stats.queries; }),
            "connector_prefix_cache_stats");
  EXPECT_EQ(caught([](Outputs& o) { ++o.spec_decoding_stats.num_accepted_tokens; }),
            "spec_decoding_stats");
}

TEST(SchedulersInLockstep, SeeNumbersAndRefusals) {
  EXPECT_EQ(caught_in([](Liar& liar) {
              liar.count = [](SchedulerNumbers& numbers) { ++numbers.counts.empty; };
            }),
            "numbers");
  EXPECT_EQ(caught_in([](Liar& liar) {
              liar.add = [](ErrorCode& code) { code = ErrorCode::kNoTokens; };
            }),
            "error");
  EXPECT_EQ(caught_in([](Liar& liar) {
              liar.draft = [](ErrorCode& code) { code = ErrorCode::kNotInConfig; };
            }),
            "error");
}

TEST(SchedulersInLockstep, SeeEveryMemberOfTheState) {
  using State = SchedulerState;
  const auto caught = [](std::function<void(State&)> lie) {
    return caught_in([&](Liar& liar) { liar.observe = std::move(lie); });
  };
  EXPECT_EQ(caught([](State& s) { s.running.pop_back(); }), "running[2]");
  EXPECT_EQ(caught([](State& s) { s.waiting.push_back("r9"); }), "waiting[0]");
  EXPECT_EQ(caught([](State& s) { s.skipped_waiting.push_back("r9"); }), "skipped_waiting[0]");
  EXPECT_EQ(caught([](State& s) { raise(s.requests, &State::OfRequest::num_tokens); }),
            "requests[0]");
  EXPECT_EQ(caught([](State& s) { raise(s.requests, &State::OfRequest::num_computed_tokens); }),
            "requests[0]");
  EXPECT_EQ(caught([](State& s) { raise(s.requests, &State::OfRequest::num_preemptions); }),
            "requests[0]");
  EXPECT_EQ(caught([](State& s) { raise(s.requests, &State::OfRequest::num_output_placeholders); }),
            "requests[0]");
  EXPECT_EQ(caught([](State& s) { s.requests.front().spec_token_ids.push_back(3); }),
            "requests[0]");
  EXPECT_EQ(caught([](State& s) { s.requests.front().blocks.front().push_back(3); }),
            "requests[0]");
  EXPECT_EQ(caught([](State& s) { s.requests.front().status = RequestStatus::kWaiting; }),
            "requests[0]");
  EXPECT_EQ(caught([](State& s) { s.free_queue.push_back(3); }), "free_queue[1]");
  EXPECT_EQ(caught([](State& s) { ++s.ref_cnts[6]; }), "ref_cnts[6]");
  EXPECT_EQ(caught([](State& s) { s.keys[0] = "key"; }), "keys[0]");
}

TEST(SchedulersInLockstep, CompareTheStateAfterEveryNthStep) {
  const auto num_comparisons = [](std::uint32_t state_every) {
    std::size_t count = 0;
    auto liar = std::make_unique<Liar>(reference_side());
    liar->observe = [&](SchedulerState&) { ++count; };
    SchedulersInLockstep sides(reference_side(), std::move(liar), state_every);
    const auto result =
        replay_traffic(traffic(), options(), *config_of(options(), traffic()), sides);
    EXPECT_FALSE(result.divergence);
    return std::pair(count, result.steps + result.idle_steps);
  };
  const auto every = num_comparisons(1);
  const auto every_third = num_comparisons(3);

  EXPECT_EQ(every.first, every.second);
  EXPECT_EQ(every_third.first, every_third.second / 3);
}

TEST(SchedulersInLockstep, FindAPlantedBug) {
  const auto config = config_of(options(), traffic());
  const auto bug = optimized::planted_bug_from_name("free_reverses_list");
  ASSERT_TRUE(bug);
  const SchedulerReplayResult result =
      replay(std::make_unique<OneScheduler<optimized::PlantedScheduler>>(
          optimized::PlantedScheduler(*config, KVConnectorHandle(), *bug)));

  ASSERT_TRUE(result.divergence);
  // A preempted request's blocks are freed and taken again within a step.
  EXPECT_EQ(result.divergence->field, "scheduled_cached_reqs[0]");
}

}  // namespace
}  // namespace kvfence
