// Each rule and each refusal of the scheduler. Blocks have 4 tokens, a step has a budget of 16; all
// sequences share no prefix unless a test says so.
#include "reference/scheduler/scheduler.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "contract/scripted/scripted_connector.h"

namespace kvfence::reference {
namespace {

using Ids = std::vector<BlockId>;
using Names = std::vector<std::string>;
using Tokens = std::vector<TokenId>;

constexpr std::uint32_t kBlockSize = 4;

SchedulerConfig config_of(std::uint32_t num_gpu_blocks = 33, Profile profile = Profile::kV019) {
  SchedulerConfig config;
  config.kv_cache.pool.num_gpu_blocks = num_gpu_blocks;
  config.kv_cache.pool.enable_kv_cache_events = true;
  config.kv_cache.pool.hash.hash_block_size = kBlockSize;
  config.kv_cache.pool.max_block_size = kBlockSize;
  config.kv_cache.pool.profile = profile;
  config.kv_cache.pool.rules = rules_of(profile);
  config.kv_cache.groups = {{.block_size = kBlockSize}};
  config.kv_cache.max_model_len = 64;
  config.kv_cache.max_num_batched_tokens = 16;
  config.max_num_seqs = 4;
  return config;
}

SchedulerConfig async_config(std::uint32_t num_gpu_blocks = 33) {
  SchedulerConfig config = config_of(num_gpu_blocks);
  config.async_scheduling = true;
  config.max_concurrent_batches = 2;
  return config;
}

SchedulerConfig with_policy(SchedulerConfig config, SchedulingPolicy policy) {
  config.policy = policy;
  return config;
}

SchedulerConfig recomputing(SchedulerConfig config) {
  config.kv_load_failure_policy = KVLoadFailurePolicy::kRecompute;
  return config;
}

struct Add {
  std::uint32_t max_tokens = 16;
  std::uint32_t min_tokens = 0;
  std::optional<TokenId> eos_token_id = std::nullopt;
  Tokens stop_token_ids = {};
  std::uint32_t priority = 0;
  std::uint32_t arrival_time = 0;
  bool needs_grammar = false;
};

/// What one update brings back besides tokens.
struct Report {
  Names finished_recving = {};
  Names finished_sending = {};
  Ids invalid_block_ids = {};
};

/// A scheduler whose requests go by name.
class World {
 public:
  explicit World(const SchedulerConfig& config, bool has_connector = false)
      : scheduler(config, has_connector ? KVConnectorHandle(std::make_unique<ScriptedConnector>())
                                        : KVConnectorHandle()) {}

  ScriptedConnector& connector() {
    return dynamic_cast<ScriptedConnector&>(*scheduler.connector());
  }
  void script(const std::string& id, const ScriptedConnector::Script& script) {
    connector().set_script(id, script);
  }

  ErrorCode try_add(const std::string& id, const Tokens& tokens, const Add& add = {}) {
    NewRequest request;
    request.id = id;
    request.spec.tokens = tokens;
    request.max_tokens = add.max_tokens;
    request.min_tokens = add.min_tokens;
    request.eos_token_id = add.eos_token_id;
    request.stop_token_ids = add.stop_token_ids;
    request.priority = add.priority;
    request.arrival_time = add.arrival_time;
    request.needs_grammar = add.needs_grammar;
    RequestIndex index = 0;
    const ErrorCode error = scheduler.add_request(request, index);
    if (error == ErrorCode::kNone) indices_[id] = index;
    return error;
  }

  /// Tokens that no other name has.
  void add(const std::string& id, std::uint32_t num_tokens, const Add& add = {}) {
    ASSERT_EQ(try_add(id, Tokens(num_tokens, static_cast<TokenId>(id[0])), add), ErrorCode::kNone);
  }

  /// Who got how many tokens, "A:4"; drafts among them, "A:4+2"; no sample to come, "A:4.".
  Names schedule() {
    SchedulerOutput step;
    EXPECT_EQ(scheduler.schedule(step), ErrorCode::kNone);
    steps.push_back(step);
    Names names;
    for (const SchedulerOutput::Scheduled& entry : step.scheduled) {
      std::string text = name(entry.request) + ":" + std::to_string(entry.num_tokens);
      if (entry.num_spec_tokens > 0) text += "+" + std::to_string(entry.num_spec_tokens);
      if (!entry.samples) text += ".";
      names.push_back(text);
    }
    return names;
  }

  /// The oldest step comes back: `tokens` of each request that samples, or as many of them as fit.
  ErrorCode try_update(const Tokens& tokens, const std::optional<Report>& report = std::nullopt) {
    const SchedulerOutput step = steps.empty() ? SchedulerOutput{} : steps.front();
    ModelRunnerOutput result;
    for (const SchedulerOutput::Scheduled& entry : step.scheduled) {
      for (std::size_t i = 0; i < tokens.size() && entry.samples; ++i) {
        if (i <= entry.num_spec_tokens) result.sampled_token_ids.push_back(tokens[i]);
      }
      result.sampled_token_ids.end_list();
    }
    KVConnectorOutput connector_output;
    if (report) {
      connector_output = {indices(report->finished_recving),
                          indices(report->finished_sending),
                          report->invalid_block_ids,
                          {}};
      result.kv_connector_output = &connector_output;
    }
    const ErrorCode error = scheduler.update_from_output(step, result, outputs);
    if (error == ErrorCode::kNone) steps.erase(steps.begin());
    return error;
  }

  /// What clients are told: "A:7 8", and "A:7 finished_stopped" where it ended.
  Names update(const Tokens& tokens = {7}, const std::optional<Report>& report = std::nullopt) {
    EXPECT_EQ(try_update(tokens, report), ErrorCode::kNone);
    Names names;
    for (std::size_t k = 0; k < outputs.outputs.size(); ++k) {
      std::string text = name(outputs.outputs[k].request) + ":";
      for (const TokenId token : outputs.new_token_ids[k]) text += std::to_string(token) + " ";
      if (is_finished(outputs.outputs[k].status)) text += to_text(outputs.outputs[k].status);
      if (text.back() == ' ') text.pop_back();
      names.push_back(text);
    }
    return names;
  }

  /// schedule, update.
  Names step(TokenId token = 7) {
    Names names = schedule();
    update({token});
    return names;
  }

  RequestIndex index(const std::string& id) const { return indices_.at(id); }
  std::vector<RequestIndex> indices(const Names& ids) const {
    std::vector<RequestIndex> all;
    for (const std::string& id : ids) all.push_back(index(id));
    return all;
  }
  std::string name(RequestIndex index) const {
    for (const auto& [id, candidate] : indices_) {
      if (candidate == index) return id;
    }
    return "?";
  }
  Names names(const std::vector<RequestIndex>& requests) const {
    Names all;
    for (const RequestIndex request : requests) all.push_back(name(request));
    return all;
  }
  Names running() const {
    std::vector<RequestIndex> out;
    scheduler.running(out);
    return names(out);
  }
  Names waiting() const {
    std::vector<RequestIndex> out;
    scheduler.waiting(out);
    return names(out);
  }
  Names skipped_waiting() const {
    std::vector<RequestIndex> out;
    scheduler.skipped_waiting(out);
    return names(out);
  }
  Names there() const {
    std::vector<RequestIndex> out;
    scheduler.requests(out);
    return names(out);
  }
  RequestView view(const std::string& id) const { return scheduler.view(index(id)); }
  RequestStatus status(const std::string& id) const { return view(id).status; }
  std::uint32_t num_computed(const std::string& id) const { return view(id).num_computed_tokens; }
  std::uint32_t num_tokens(const std::string& id) const {
    return static_cast<std::uint32_t>(view(id).request.all_token_ids().size());
  }
  Ids blocks(const std::string& id) const {
    BlocksByGroup out;
    scheduler.kv_cache_manager().get_block_ids(index(id), out);
    return out.front();
  }
  std::uint32_t num_free() const {
    return scheduler.kv_cache_manager().block_pool().get_num_free_blocks();
  }
  void finish(const Names& ids) {
    scheduler.finish_requests(indices(ids), RequestStatus::kFinishedAborted);
  }
  ErrorCode draft(const std::string& id, const Tokens& tokens) {
    return scheduler.update_draft_token_ids(index(id), tokens);
  }

  /// Methods with request and answer, "request_finished A free".
  Names calls() {
    std::vector<ConnectorCall> taken;
    connector().take_calls(taken);
    Names all;
    for (const ConnectorCall& call : taken) {
      std::string text = call.method;
      if (!call.request.empty()) text += " " + call.request;
      if (!call.answer.empty()) text += " " + call.answer;
      all.push_back(text);
    }
    return all;
  }

  Scheduler scheduler;
  std::vector<SchedulerOutput> steps;  ///< in flight, oldest first
  EngineCoreOutputs outputs;

 private:
  std::map<std::string, RequestIndex> indices_;
};

// Queues.

SchedulerRequest request_of(RequestIndex index, std::uint32_t priority) {
  NewRequest added;
  added.id = std::to_string(index);
  added.priority = priority;
  return {index, added, HashConfig{}};
}

TEST(RequestQueue, FcfsPrependsOneByOneAndSoTurnsAQueueAround) {
  RequestQueue queue(SchedulingPolicy::kFCFS);
  queue.add_request(request_of(0, 0));
  RequestQueue others(SchedulingPolicy::kFCFS);
  others.add_request(request_of(1, 0));
  others.add_request(request_of(2, 0));

  queue.prepend_requests(others);

  EXPECT_EQ(queue.requests(), std::vector<RequestIndex>({2, 1, 0}));
}

TEST(RequestQueue, PriorityKnowsNoFront) {
  RequestQueue queue(SchedulingPolicy::kPriority);
  queue.add_request(request_of(0, 2));
  queue.add_request(request_of(1, 1));
  queue.prepend_request(request_of(2, 3));

  EXPECT_EQ(queue.requests(), std::vector<RequestIndex>({1, 0, 2}));
  queue.remove_request(0);
  queue.pop_request();
  EXPECT_EQ(queue.peek_request(), 2);
}

// add_request

TEST(Scheduler, AddRefuses) {
  World world(config_of());
  world.add("A", 4);

  EXPECT_EQ(world.try_add("A", {}), ErrorCode::kAlreadyDeclared);
  EXPECT_EQ(world.try_add("B", {}), ErrorCode::kNoTokens);
  EXPECT_EQ(world.try_add("B", {1}, {.max_tokens = 0, .min_tokens = 1}), ErrorCode::kNoTokens);
  EXPECT_EQ(world.try_add("B", Tokens(64), {.max_tokens = 1, .min_tokens = 2}),
            ErrorCode::kBadRange);
  EXPECT_EQ(world.try_add("B", Tokens(64)), ErrorCode::kBeyondModelLength);
  EXPECT_EQ(world.try_add("B", Tokens(60), {.max_tokens = 5, .min_tokens = 5}),
            ErrorCode::kBeyondModelLength);
  EXPECT_EQ(world.there(), Names({"A"}));
  EXPECT_EQ(world.waiting(), Names({"A"}));
}

TEST(Scheduler, AnIndexIsReusedOnceNoStepNamesIt) {
  World world(config_of());
  world.add("A", 4);
  world.schedule();
  world.finish({"A"});
  world.add("B", 4);
  EXPECT_NE(world.index("B"), world.index("A"));
  world.update();
  world.add("C", 4);
  EXPECT_NE(world.index("C"), world.index("A"));  // still to be reported as finished

  world.step();
  world.add("D", 4);
  EXPECT_EQ(world.index("D"), world.index("A"));
}

// schedule: running requests

TEST(Scheduler, APromptIsComputedInChunksOfTheBudget) {
  World world(config_of());
  world.add("A", 20);
  world.add("B", 4);

  EXPECT_EQ(world.step(), Names({"A:16."}));
  EXPECT_EQ(world.step(), Names({"A:4", "B:4"}));
  EXPECT_EQ(world.step(), Names({"A:1", "B:1"}));
  EXPECT_EQ(world.num_tokens("A"), 22);
}

TEST(Scheduler, TheThresholdBoundsAPrefill) {
  SchedulerConfig config = config_of();
  config.long_prefill_token_threshold = 6;
  World world(config);
  world.add("A", 13);

  EXPECT_EQ(world.step(), Names({"A:6."}));
  EXPECT_EQ(world.step(), Names({"A:6."}));
  EXPECT_EQ(world.step(), Names({"A:1"}));
}

TEST(Scheduler, WithoutChunksALongPromptWaitsAndHoldsUpTheRest) {
  SchedulerConfig config = config_of();
  config.enable_chunked_prefill = false;
  World world(config);
  world.add("A", 10);
  world.add("B", 10);
  world.add("C", 1);

  EXPECT_EQ(world.step(), Names({"A:10"}));
  EXPECT_EQ(world.step(), Names({"A:1", "B:10", "C:1"}));
}

TEST(Scheduler, FcfsPreemptsTheLastAndAdmitsNobody) {
  World world(config_of(5));
  world.add("A", 8);
  world.add("B", 8);
  world.step();
  world.add("C", 1);

  EXPECT_EQ(world.schedule(), Names({"A:1"}));
  EXPECT_EQ(world.names(world.steps.back().preempted), Names({"B"}));
  EXPECT_EQ(world.waiting(), Names({"B", "C"}));
  EXPECT_EQ(world.status("B"), RequestStatus::kPreempted);
  EXPECT_EQ(world.num_computed("B"), 0);
  EXPECT_EQ(world.view("B").num_preemptions, 1);
}

TEST(Scheduler, ARequestThatPreemptsItselfEndsThePhase) {
  World world(config_of(5));
  world.add("A", 5);
  world.add("B", 8);
  world.step();
  ASSERT_EQ(world.num_free(), 0);

  // A has a slot left, B has none.
  EXPECT_EQ(world.schedule(), Names({"A:1"}));
  EXPECT_EQ(world.names(world.steps.back().preempted), Names({"B"}));
}

TEST(Scheduler, APreemptedRequestResumesWithAllItsBlocksAndTokens) {
  World world(config_of(6));
  world.add("A", 8, {.max_tokens = 2});
  world.add("B", 8);
  world.step();
  world.step();  // B is preempted; A ends
  ASSERT_EQ(world.status("B"), RequestStatus::kPreempted);

  EXPECT_EQ(world.schedule(), Names({"B:1"}));
  const SchedulerOutput& step = world.steps.back();
  ASSERT_EQ(step.scheduled_cached_reqs.size(), 1);
  EXPECT_TRUE(step.scheduled_cached_reqs[0].resumed);
  EXPECT_TRUE(step.scheduled_cached_reqs[0].sends_all_token_ids);
  EXPECT_EQ(step.scheduled_cached_reqs[0].num_computed_tokens, 8);
  EXPECT_EQ(step.block_lists[step.scheduled_cached_reqs[0].first_list].size(), 3);
  EXPECT_EQ(world.names(step.finished), Names({"A"}));
}

TEST(Scheduler, APriorityVictimGivesItsTokensBack) {
  SchedulerConfig config = with_policy(config_of(5), SchedulingPolicy::kPriority);
  World world(config);
  world.add("A", 5, {.priority = 9, .arrival_time = 1});
  world.add("B", 8, {.priority = 9});
  world.step();
  ASSERT_EQ(world.running(), Names({"B", "A"}));
  world.add("C", 1, {.priority = 1});

  // B wants a block: A, which arrived later, loses its own.
  EXPECT_EQ(world.schedule(), Names({"B:1"}));
  EXPECT_EQ(world.names(world.steps.back().preempted), Names({"A"}));
  EXPECT_EQ(world.waiting(), Names({"C", "A"}));
}

TEST(Scheduler, AScheduledPriorityVictimLeavesTheStep) {
  SchedulerConfig config = with_policy(config_of(5), SchedulingPolicy::kPriority);
  World world(config);
  world.add("A", 5, {.priority = 9});
  world.step();
  world.add("B", 8, {.priority = 1});
  world.step();
  ASSERT_EQ(world.running(), Names({"A", "B"}));

  EXPECT_EQ(world.schedule(), Names({"B:1"}));
  EXPECT_EQ(world.names(world.steps.back().preempted), Names({"A"}));
  EXPECT_EQ(world.steps.back().total_num_scheduled_tokens, 1);
}

// vllm#49097: A waits for its output and is the victim of B, so C moves up and is passed over.
TEST(Scheduler, APriorityVictimThatWasNotScheduledHidesTheNextRequest) {
  for (const bool shifts_loop : {true, false}) {
    SchedulerConfig config = with_policy(config_of(5), SchedulingPolicy::kPriority);
    config.kv_cache.pool.rules.priority_victim_shifts_loop = shifts_loop;
    config.max_concurrent_batches = 2;
    config.long_prefill_token_threshold = 4;
    config.scheduler_reserve_full_isl = false;
    World world(config);
    world.add("A", 5, {.priority = 9});
    world.step();
    world.step();
    world.add("B", 12, {.priority = 1});
    world.add("C", 12, {.priority = 2});
    ASSERT_EQ(world.schedule(), Names({"A:1", "B:4.", "C:4."}));
    ASSERT_EQ(world.num_free(), 0);

    EXPECT_EQ(world.schedule(), shifts_loop ? Names({"B:4."}) : Names({"B:4.", "C:4."}));
    EXPECT_EQ(world.names(world.steps.back().preempted), Names({"A"}));
  }
}

TEST(Scheduler, NothingIsScheduledWhilePaused) {
  World world(config_of());
  world.add("A", 4);
  world.step();
  world.add("B", 4);

  world.scheduler.set_pause_state(PauseState::kPausedNew);
  EXPECT_EQ(world.scheduler.get_num_unfinished_requests(), 1);
  EXPECT_EQ(world.step(), Names({"A:1"}));
  world.scheduler.set_pause_state(PauseState::kPausedAll);
  EXPECT_EQ(world.scheduler.get_num_unfinished_requests(), 0);
  EXPECT_EQ(world.step(), Names());
  world.scheduler.set_pause_state(PauseState::kUnpaused);
  EXPECT_EQ(world.scheduler.get_num_unfinished_requests(), 2);
  EXPECT_EQ(world.step(), Names({"A:1", "B:4"}));
}

TEST(Scheduler, AsManyStepsAsMayAreInFlight) {
  World world(config_of());
  world.add("A", 4);
  world.schedule();
  SchedulerOutput step;
  step.step = 77;

  EXPECT_EQ(world.scheduler.schedule(step), ErrorCode::kStepsInFlight);
  EXPECT_EQ(step.step, 77);
}

// schedule: waiting requests

TEST(Scheduler, AdmissionStopsAtMaxNumSeqs) {
  SchedulerConfig config = config_of();
  config.max_num_seqs = 2;
  World world(config);
  for (const std::string id : {"A", "B", "C"}) world.add(id, 2, {.max_tokens = 1});

  EXPECT_EQ(world.step(), Names({"A:2", "B:2"}));
  EXPECT_EQ(world.step(), Names({"C:2"}));
}

TEST(Scheduler, ANewRequestIsSentWithItsHit) {
  World world(config_of());
  world.add("A", 9, {.max_tokens = 1});
  world.step();
  ASSERT_EQ(world.try_add("B", Tokens(9, 'A')), ErrorCode::kNone);

  EXPECT_EQ(world.schedule(), Names({"B:1"}));
  const SchedulerOutput& step = world.steps.back();
  ASSERT_EQ(step.scheduled_new_reqs.size(), 1);
  EXPECT_EQ(step.scheduled_new_reqs[0].num_computed_tokens, 8);
  EXPECT_EQ(step.block_lists[step.scheduled_new_reqs[0].first_list].size(), 3);
  EXPECT_EQ(step.num_common_prefix_blocks, std::vector<std::uint32_t>({3}));
}

TEST(Scheduler, TheGateAdmitsOnlyWhatFitsWithItsFullLength) {
  for (const Profile profile : kProfiles) {
    for (const bool reserves : {true, false}) {
      SchedulerConfig config = config_of(8, profile);
      config.scheduler_reserve_full_isl = reserves;
      World world(config);
      world.add("A", 8);
      world.add("B", 24);
      EXPECT_EQ(world.step(), reserves ? Names({"A:8"}) : Names({"A:8", "B:8."}));
    }
  }
}

TEST(Scheduler, LookaheadAtAdmissionDependsOnTheRelease) {
  for (const Profile profile : kProfiles) {
    SchedulerConfig config = config_of(33, profile);
    config.num_speculative_tokens = 3;
    config.draft_model = true;
    World world(config);
    world.add("A", 4);
    world.step();
    EXPECT_EQ(world.blocks("A").size(), profile == Profile::kV019 ? 1 : 2);
  }
}

TEST(Scheduler, AGrammarIsWaitedFor) {
  World world(config_of());
  world.add("A", 4, {.needs_grammar = true});
  world.add("B", 4);
  EXPECT_EQ(world.skipped_waiting(), Names({"A"}));
  EXPECT_EQ(world.step(), Names({"B:4"}));

  world.scheduler.grammar_compiled(world.index("A"));
  EXPECT_EQ(world.step(), Names({"B:1", "A:4"}));
}

TEST(Scheduler, SkippedRequestsKeepTheirOrderBeforeThoseNotLookedAt) {
  SchedulerConfig config = config_of();
  config.max_num_seqs = 1;
  World world(config);
  world.add("A", 4, {.needs_grammar = true});
  world.add("B", 4, {.needs_grammar = true});
  world.add("C", 4, {.needs_grammar = true});
  world.add("D", 4, {.needs_grammar = true});
  world.scheduler.grammar_compiled(world.index("C"));

  EXPECT_EQ(world.step(), Names({"C:4"}));
  EXPECT_EQ(world.skipped_waiting(), Names({"A", "B", "D"}));
}

TEST(Scheduler, PriorityTakesTheLesserHead) {
  SchedulerConfig config = with_policy(config_of(), SchedulingPolicy::kPriority);
  config.max_num_seqs = 1;
  World world(config);
  world.add("A", 4, {.priority = 5, .needs_grammar = true});
  world.add("B", 4, {.priority = 4});
  world.scheduler.grammar_compiled(world.index("A"));

  EXPECT_EQ(world.step(), Names({"B:4"}));
}

TEST(Scheduler, WhatNeverFitsIsFinished) {
  World world(config_of(3), /*has_connector=*/true);
  world.add("A", 9);
  world.add("B", 4);

  EXPECT_EQ(world.schedule(), Names());
  ASSERT_TRUE(world.steps.back().never_fits);
  EXPECT_EQ(world.name(*world.steps.back().never_fits), "A");
  EXPECT_EQ(world.there(), Names({"B"}));
  EXPECT_EQ(world.calls(), Names({"get_num_new_matched_tokens A 0", "build_connector_meta",
                                  "request_finished A free"}));
  world.update();
  EXPECT_EQ(world.schedule(), Names({"B:4"}));
  EXPECT_EQ(world.names(world.steps.back().finished), Names({"A"}));
}

TEST(Scheduler, MambaAlignCutsPrefillAtBlocks) {
  SchedulerConfig config = config_of();
  config.kv_cache.groups = {
      {.block_size = kBlockSize},
      {.kind = KVCacheSpecKind::kMamba, .block_size = kBlockSize, .mamba_align = true}};
  config.max_num_scheduled_tokens = 6;
  World world(config);
  world.add("A", 11);

  EXPECT_EQ(world.step(), Names({"A:4."}));
  EXPECT_EQ(world.step(), Names({"A:4."}));
  EXPECT_EQ(world.step(), Names({"A:3"}));
  EXPECT_EQ(world.step(), Names({"A:1"}));
}

// update_from_output

TEST(Scheduler, NothingStopsBeforeMinTokens) {
  World world(config_of());
  world.add("A", 4, {.min_tokens = 2, .eos_token_id = 7});
  world.schedule();
  EXPECT_EQ(world.update({7}), Names({"A:7"}));
  world.schedule();
  EXPECT_EQ(world.update({7}), Names({"A:7 finished_stopped"}));
}

TEST(Scheduler, AStopTokenIsTheReasonUnlessItEndsTheSequence) {
  World world(config_of());
  const Add add = {.max_tokens = 1, .eos_token_id = 7, .stop_token_ids = {7, 8}};
  world.add("A", 4, add);
  world.schedule();
  EXPECT_EQ(world.update({7}), Names({"A:7 finished_stopped"}));
  EXPECT_EQ(world.outputs.outputs[0].stop_reason, std::nullopt);

  world.add("B", 4, add);
  world.schedule();
  EXPECT_EQ(world.update({8}), Names({"B:8 finished_stopped"}));
  EXPECT_EQ(world.outputs.outputs[0].stop_reason, 8);
}

TEST(Scheduler, MaxTokensStop) {
  World world(config_of());
  world.add("A", 4, {.max_tokens = 2});
  world.step();
  world.schedule();
  EXPECT_EQ(world.update(), Names({"A:7 finished_length_capped"}));
  EXPECT_EQ(world.there(), Names());
  EXPECT_EQ(world.running(), Names());
}

TEST(Scheduler, TheModelLengthStops) {
  World world(config_of());
  world.add("A", 63);
  for (int i = 0; i < 3; ++i) world.step();
  world.schedule();

  EXPECT_EQ(world.update({1}), Names({"A:1 finished_length_capped"}));
  EXPECT_EQ(world.num_free(), 32);
}

TEST(Scheduler, RejectedDraftsAreTakenBack) {
  SchedulerConfig config = config_of();
  config.num_speculative_tokens = 3;
  World world(config);
  world.add("A", 4);
  world.step();
  ASSERT_EQ(world.draft("A", {1, 2, 3}), ErrorCode::kNone);
  EXPECT_EQ(world.schedule(), Names({"A:4+3"}));
  EXPECT_EQ(world.num_computed("A"), 8);

  EXPECT_EQ(world.update({1, 9}), Names({"A:1 9"}));
  EXPECT_EQ(world.num_computed("A"), 6);
  EXPECT_EQ(world.num_tokens("A"), 7);
  const SpecDecodingStats stats = {.num_drafts = 1,
                                   .num_draft_tokens = 3,
                                   .num_accepted_tokens = 1,
                                   .num_accepted_tokens_per_pos = {1, 0, 0}};
  EXPECT_EQ(world.outputs.spec_decoding_stats, stats);
}

TEST(Scheduler, TokensBehindAStopAreDropped) {
  SchedulerConfig config = config_of();
  config.num_speculative_tokens = 3;
  World world(config);
  world.add("A", 4, {.eos_token_id = 2});
  world.step(1);
  ASSERT_EQ(world.draft("A", {1, 2, 3}), ErrorCode::kNone);
  world.schedule();

  EXPECT_EQ(world.update({1, 2, 3, 4}), Names({"A:1 2 finished_stopped"}));
}

TEST(Scheduler, DraftsOfAChunkAreDropped) {
  SchedulerConfig config = config_of();
  config.num_speculative_tokens = 3;
  World world(config);
  world.add("A", 20);
  world.step();
  ASSERT_EQ(world.draft("A", {1}), ErrorCode::kNone);

  EXPECT_TRUE(world.view("A").spec_token_ids.empty());
  EXPECT_EQ(world.draft("A", {1, 2, 3, 4}), ErrorCode::kNotInConfig);
}

TEST(Scheduler, WhatWasAbortedInFlightIsPassedOver) {
  World world(config_of());
  world.add("A", 4);
  world.add("B", 4);
  world.schedule();
  world.finish({"A", "A"});

  EXPECT_EQ(world.update(), Names({"B:7"}));
  EXPECT_TRUE(world.scheduler.has_finished_requests());
  world.schedule();
  EXPECT_EQ(world.names(world.steps.back().finished), Names({"A"}));
  EXPECT_FALSE(world.scheduler.has_finished_requests());
}

TEST(Scheduler, UpdateRefuses) {
  World world(config_of());
  EXPECT_EQ(world.try_update({7}), ErrorCode::kNoStepInFlight);
  world.add("A", 4);
  world.schedule();
  EXPECT_EQ(world.try_update({}, Report{}), ErrorCode::kWrongTokenCount);
  EXPECT_EQ(world.try_update({7}, Report{}), ErrorCode::kNotInConfig);
  ++world.steps.front().step;
  EXPECT_EQ(world.try_update({7}), ErrorCode::kNoStepInFlight);
  EXPECT_EQ(world.num_tokens("A"), 4);
}

TEST(Scheduler, UpdateRefusesAWrongReport) {
  World world(config_of(), /*has_connector=*/true);
  world.script("A", {.num_external_tokens = 4, .load_async = true});
  world.add("A", 8);
  world.add("B", 8);
  world.schedule();
  const Ids blocks = world.blocks("A");

  EXPECT_EQ(world.try_update({7}, Report{.invalid_block_ids = {1, 33, 1}}),
            ErrorCode::kUnknownBlock);
  EXPECT_EQ(world.try_update({7}, Report{.invalid_block_ids = {kNullBlockId}}),
            ErrorCode::kUnknownBlock);
  EXPECT_EQ(world.try_update({7}, Report{.invalid_block_ids = {1, 1}}), ErrorCode::kListedTwice);
  EXPECT_EQ(world.try_update({7}, Report{.finished_recving = {"A"}, .finished_sending = {"A"}}),
            ErrorCode::kListedTwice);
  EXPECT_EQ(world.try_update({7}, Report{.finished_recving = {"B"}}), ErrorCode::kNotLoading);
  EXPECT_EQ(world.try_update({7}, Report{.finished_sending = {"A"}}), ErrorCode::kNotFinished);
  EXPECT_EQ(world.num_tokens("B"), 8);
  EXPECT_EQ(world.blocks("A"), blocks);
}

// Connector

TEST(Scheduler, ASynchronousLoadCountsAsComputed) {
  World world(config_of(), /*has_connector=*/true);
  world.script("A", {.num_external_tokens = 8});
  world.add("A", 10);

  EXPECT_EQ(world.schedule(), Names({"A:2"}));
  EXPECT_EQ(world.calls(), Names({"get_num_new_matched_tokens A 8", "update_state_after_alloc A",
                                  "build_connector_meta"}));
  world.update();
  EXPECT_EQ(world.outputs.connector_prefix_cache_stats.queries, 10);
  EXPECT_EQ(world.outputs.connector_prefix_cache_stats.hits, 8);
}

TEST(Scheduler, AskAgainSkips) {
  World world(config_of(), /*has_connector=*/true);
  world.script("A", {.ask_again = 1});
  world.add("A", 4);
  world.add("B", 4);

  EXPECT_EQ(world.step(), Names({"B:4"}));
  EXPECT_EQ(world.skipped_waiting(), Names({"A"}));
  EXPECT_EQ(world.step(), Names({"B:1", "A:4"}));
}

TEST(Scheduler, AnAsynchronousLoadWaitsUntilItIsReported) {
  World world(config_of(), /*has_connector=*/true);
  world.script("A", {.num_external_tokens = 8, .load_async = true});
  world.add("A", 8);
  EXPECT_EQ(world.step(), Names());
  EXPECT_EQ(world.status("A"), RequestStatus::kWaitingForRemoteKVs);
  EXPECT_EQ(world.num_computed("A"), 8);
  EXPECT_EQ(world.step(), Names());

  world.schedule();
  world.update({7}, Report{.finished_recving = {"A"}});
  world.calls();
  EXPECT_EQ(world.schedule(), Names({"A:1"}));  // the last token is computed anew
  EXPECT_EQ(world.calls(), Names({"update_state_after_alloc A", "build_connector_meta"}));
  EXPECT_EQ(world.try_update({7}, Report{.finished_recving = {"A"}}), ErrorCode::kNotLoading);
}

TEST(Scheduler, AFailedLoadKeepsWhatIsValid) {
  World world(recomputing(config_of()), /*has_connector=*/true);
  world.script("A", {.num_external_tokens = 12, .load_async = true});
  world.add("A", 12);
  world.schedule();
  const Ids blocks = world.blocks("A");
  world.update({}, Report{.finished_recving = {"A"}, .invalid_block_ids = {blocks[1]}});
  EXPECT_EQ(world.num_computed("A"), 4);

  EXPECT_EQ(world.schedule(), Names({"A:8"}));
  EXPECT_EQ(world.blocks("A"), blocks);
}

TEST(Scheduler, AFailedLoadWithoutValidBlocksIsLookedUpAgain) {
  World world(recomputing(config_of()), /*has_connector=*/true);
  world.script("A", {.num_external_tokens = 8, .load_async = true});
  world.add("A", 8);
  world.schedule();
  world.update({}, Report{.finished_recving = {"A"}, .invalid_block_ids = {world.blocks("A")[0]}});
  world.script("A", {});
  world.calls();

  EXPECT_EQ(world.schedule(), Names({"A:8"}));
  EXPECT_EQ(world.calls().front(), "get_num_new_matched_tokens A 0");
}

TEST(Scheduler, AFailedLoadEndsTheRequest) {
  World world(config_of(), /*has_connector=*/true);
  world.script("A", {.num_external_tokens = 8, .load_async = true});
  world.add("A", 8);
  world.schedule();
  const Ids blocks = world.blocks("A");

  EXPECT_EQ(world.update({}, Report{.invalid_block_ids = {blocks[0]}}),
            Names({"A:finished_error"}));
  EXPECT_EQ(world.blocks("A"), blocks);  // the load is still under way
  world.schedule();
  world.update({}, Report{.finished_recving = {"A"}});
  EXPECT_EQ(world.there(), Names());
  EXPECT_EQ(world.num_free(), 32);
}

TEST(Scheduler, InvalidBlocksOfRunningRequestsAreEvictedWithWhatFollows) {
  World world(config_of(), /*has_connector=*/true);
  world.script("A", {.num_external_tokens = 8});
  world.add("A", 12);
  world.schedule();
  const Ids blocks = world.blocks("A");

  EXPECT_EQ(world.update({7}, Report{.invalid_block_ids = {blocks[1]}}),
            Names({"A:finished_error"}));
  const BlockPool& pool = world.scheduler.kv_cache_manager().block_pool();
  EXPECT_FALSE(pool.block_key(blocks[0]).empty());
  EXPECT_TRUE(pool.block_key(blocks[1]).empty());
  EXPECT_TRUE(pool.block_key(blocks[2]).empty());
}

TEST(Scheduler, AnInvalidBlockIsComputedAnewByTheFirstThatHasIt) {
  World world(recomputing(config_of()), /*has_connector=*/true);
  world.script("A", {.num_external_tokens = 8});
  world.add("A", 12);
  ASSERT_EQ(world.try_add("B", Tokens(12, 'A')), ErrorCode::kNone);
  ASSERT_EQ(world.schedule(), Names({"A:4", "B:4"}));
  const Ids blocks = world.blocks("A");
  ASSERT_EQ(world.blocks("B")[1], blocks[1]);

  EXPECT_EQ(world.update({7}, Report{.invalid_block_ids = {blocks[1]}}), Names());
  EXPECT_EQ(world.num_computed("A"), 4);
  EXPECT_EQ(world.num_computed("B"), 8);
  EXPECT_EQ(world.schedule(), Names({"A:8", "B:4"}));
}

TEST(Scheduler, DraftsStayWhereARequestIsCutBack) {
  SchedulerConfig config = recomputing(config_of());
  config.num_speculative_tokens = 2;
  World world(config, /*has_connector=*/true);
  world.script("A", {.num_external_tokens = 4});
  world.add("A", 6);
  ASSERT_EQ(world.draft("A", {1, 2}), ErrorCode::kNone);
  world.schedule();
  world.update({7}, Report{.invalid_block_ids = {world.blocks("A")[0]}});

  EXPECT_EQ(world.schedule(), Names({"A:8+2"}));
}

TEST(Scheduler, StepsInFlightAreStaleForWhatWasCutBack) {
  SchedulerConfig config = recomputing(async_config());
  World world(config, /*has_connector=*/true);
  world.script("A", {.num_external_tokens = 4});
  world.add("A", 6);
  world.schedule();
  world.schedule();
  world.update({7}, Report{.invalid_block_ids = {world.blocks("A")[0]}});
  EXPECT_EQ(world.num_computed("A"), 0);
  EXPECT_EQ(world.view("A").num_output_placeholders, 0);

  EXPECT_EQ(world.schedule(), Names({"A:6"}));
  EXPECT_EQ(world.update({8}), Names());
  EXPECT_EQ(world.update({9}), Names({"A:9"}));
}

TEST(Scheduler, HeldBlocksStayUntilTheyAreSent) {
  for (const Profile profile : kProfiles) {
    World world(config_of(33, profile), /*has_connector=*/true);
    world.script("A", {.hold_blocks = true});
    world.add("A", 4, {.max_tokens = 1});
    world.step();
    world.step();
    EXPECT_EQ(world.there(), Names({"A"}));
    EXPECT_EQ(world.num_free(), 31);
    EXPECT_EQ(world.scheduler.has_finished_requests(), profile == Profile::kV023);

    world.schedule();
    world.update({}, Report{.finished_sending = {"A"}});
    EXPECT_EQ(world.there(), Names());
    EXPECT_EQ(world.num_free(), 32);
  }
}

TEST(Scheduler, AnAbortedLoadHoldsItsBlocksUntilItIsOver) {
  World world(config_of(), /*has_connector=*/true);
  world.script("A", {.num_external_tokens = 4, .load_async = true});
  world.script("B", {.num_external_tokens = 4, .load_async = true});
  world.add("A", 8);
  world.add("B", 8);
  world.schedule();
  world.update({}, Report{.finished_recving = {"B"}});

  world.finish({"A", "B"});
  EXPECT_EQ(world.there(), Names({"A"}));  // B's load was over
  world.schedule();
  world.update({}, Report{.finished_recving = {"A"}});
  EXPECT_EQ(world.there(), Names());
}

TEST(Scheduler, AnAsynchronousLoadLeavesRoomForPrefillsUnderWay) {
  for (const Profile profile : kProfiles) {
    SchedulerConfig config = config_of(10, profile);
    config.long_prefill_token_threshold = 8;
    config.scheduler_reserve_full_isl = false;
    World world(config, /*has_connector=*/true);
    world.script("B", {.num_external_tokens = 12, .load_async = true});
    world.add("A", 28);
    world.add("C", 1);
    world.step();
    world.finish({"C"});
    world.add("B", 16);

    // A has 4 of 9 blocks and needs 3 more; B needs 3.
    EXPECT_EQ(world.step(), Names({"A:8."}));
    const bool reserves = profile == Profile::kV023;
    EXPECT_EQ(world.status("B"),
              reserves ? RequestStatus::kWaiting : RequestStatus::kWaitingForRemoteKVs);
  }
}

TEST(Scheduler, TheConnectorLearnsOfNewRequests) {
  for (const Profile profile : kProfiles) {
    World world(config_of(33, profile), /*has_connector=*/true);
    world.add("A", 4);
    EXPECT_EQ(world.calls(), profile == Profile::kV023 ? Names({"on_new_request A"}) : Names());
  }
}

// Asynchronous scheduling

TEST(Scheduler, StepsArePlannedWithOutputsThatAreNotThere) {
  World world(async_config());
  world.add("A", 4, {.max_tokens = 2});

  EXPECT_EQ(world.schedule(), Names({"A:4"}));
  EXPECT_EQ(world.view("A").num_output_placeholders, 1);
  EXPECT_EQ(world.schedule(), Names({"A:1"}));
  EXPECT_EQ(world.steps.back().scheduled_cached_reqs[0].num_output_tokens, 1);
  EXPECT_EQ(world.update(), Names({"A:7"}));
  EXPECT_EQ(world.schedule(), Names());  // its limit is planned
  EXPECT_EQ(world.update(), Names({"A:7 finished_length_capped"}));
}

TEST(Scheduler, PlaceholderDraftsArePlanned) {
  SchedulerConfig config = async_config();
  config.num_speculative_tokens = 2;
  World world(config);
  world.add("A", 4);
  world.schedule();
  EXPECT_EQ(world.schedule(), Names({"A:3+2"}));
  EXPECT_EQ(world.steps.back().spec_token_ids[0][0], kPlaceholderTokenId);
  world.update();
  EXPECT_EQ(world.view("A").num_output_placeholders, 3);

  EXPECT_EQ(world.update({8, 9}), Names({"A:8 9"}));
  EXPECT_EQ(world.view("A").num_output_placeholders, 0);
  EXPECT_EQ(world.num_computed("A"), 6);
  EXPECT_EQ(world.draft("A", {}), ErrorCode::kNotInConfig);
}

TEST(Scheduler, APreemptedRequestTakesItsTokensToo) {
  SchedulerConfig config = async_config(5);
  World world(config);
  world.add("A", 8);
  world.add("B", 8, {.max_tokens = 1});
  world.schedule();
  EXPECT_EQ(world.schedule(), Names({"A:1"}));
  ASSERT_EQ(world.waiting(), Names({"B"}));

  EXPECT_EQ(world.update(), Names({"A:7", "B:7 finished_length_capped"}));
  EXPECT_EQ(world.waiting(), Names());
  EXPECT_EQ(world.there(), Names({"A"}));
}

// reset_prefix_cache

TEST(Scheduler, ResetFailsWhileBlocksAreHeld) {
  World world(config_of());
  world.add("A", 4);
  world.step();

  EXPECT_FALSE(world.scheduler.reset_prefix_cache(false, false));
  EXPECT_TRUE(world.scheduler.reset_prefix_cache(true, false));
  EXPECT_EQ(world.waiting(), Names({"A"}));
}

TEST(Scheduler, AForcedPreemptionKeepsTheOrderAndMakesStepsStale) {
  World world(async_config());
  world.add("A", 4);
  world.add("B", 4);
  world.schedule();

  EXPECT_TRUE(world.scheduler.reset_prefix_cache(true, false));
  EXPECT_EQ(world.waiting(), Names({"A", "B"}));
  EXPECT_EQ(world.schedule(), Names({"A:4", "B:4"}));
  EXPECT_TRUE(world.steps.back().scheduled_cached_reqs[0].sends_all_token_ids);
  EXPECT_EQ(world.update({8}), Names());
  EXPECT_EQ(world.update({9}), Names({"A:9", "B:9"}));
}

TEST(Scheduler, WithoutAsynchronousSchedulingAForcedPreemptionTakesTheToken) {
  World world(config_of());
  world.add("A", 4);
  world.schedule();
  EXPECT_TRUE(world.scheduler.reset_prefix_cache(true, false));

  EXPECT_EQ(world.update({8}), Names({"A:8"}));
  EXPECT_EQ(world.schedule(), Names({"A:5"}));
}

TEST(Scheduler, ATokenIsDroppedOnceItsRequestHasMovedOn) {
  SchedulerConfig config = config_of();
  config.max_concurrent_batches = 2;
  World world(config);
  world.add("A", 4);
  world.schedule();
  EXPECT_TRUE(world.scheduler.reset_prefix_cache(true, false));
  EXPECT_EQ(world.schedule(), Names({"A:4"}));

  EXPECT_EQ(world.update({8}), Names());
  EXPECT_EQ(world.update({9}), Names({"A:9"}));
}

TEST(Scheduler, TheConnectorIsResetUnlessThePoolFailedForGood) {
  World world(config_of(), /*has_connector=*/true);
  world.script("A", {.num_external_tokens = 4, .load_async = true});
  world.add("A", 8);
  world.step();
  world.calls();

  EXPECT_FALSE(world.scheduler.reset_prefix_cache(true, true));
  EXPECT_EQ(world.calls(), Names());
  EXPECT_FALSE(world.scheduler.reset_prefix_cache(false, true));
  EXPECT_EQ(world.calls(), Names({"reset_cache done"}));
}

TEST(Scheduler, ResettingNoConnectorDependsOnTheRelease) {
  for (const Profile profile : kProfiles) {
    World world(config_of(33, profile));
    EXPECT_EQ(world.scheduler.reset_prefix_cache(false, true), profile == Profile::kV023);
  }
}

TEST(Scheduler, ACopyGoesItsOwnWay) {
  World world(config_of(), /*has_connector=*/true);
  world.add("A", 4);
  World copy = world;
  copy.step();

  EXPECT_EQ(world.waiting(), Names({"A"}));
  EXPECT_EQ(world.calls(), Names());
  EXPECT_EQ(world.step(), Names({"A:4"}));
}

}  // namespace
}  // namespace kvfence::reference
