// Goal: every planted bug of the scheduler is alive, and only when it is asked for. Method: the
// same pseudo-random life of requests goes to a plain scheduler and to a planted one, in several
// configurations; the two part company in one of them exactly when a bug is planted.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/scripted/scripted_connector.h"
#include "optimized/base/planted_bugs_table.h"
#include "optimized/pool/planted_bugs.h"
#include "optimized/scheduler/scheduler.h"

namespace kvfence::optimized {
namespace {

constexpr std::uint32_t kBlockSize = 4;
constexpr std::uint32_t kMaxModelLen = 40;
constexpr std::uint32_t kNumRequestsMax = 8;
constexpr TokenId kEosTokenId = 6;
constexpr TokenId kStopTokenId = 7;
constexpr TokenId kVocabularySize = 10;
constexpr int kNumSteps = 4'000;

struct World {
  SchedulerConfig config;
  bool has_connector = false;
};

World world_of(Profile profile, SchedulingPolicy policy, std::uint32_t num_speculative_tokens,
               bool is_async, std::uint32_t max_concurrent_batches, bool has_connector) {
  SchedulerConfig config;
  config.kv_cache.pool.num_gpu_blocks = 15;
  config.kv_cache.pool.enable_kv_cache_events = true;
  config.kv_cache.pool.hash.hash_block_size = kBlockSize;
  config.kv_cache.pool.hash.algorithm = HashAlgorithm::kXxhashCbor;
  config.kv_cache.pool.max_block_size = kBlockSize;
  config.kv_cache.pool.profile = profile;
  config.kv_cache.pool.rules = rules_of(profile);
  config.kv_cache.groups = {{.block_size = kBlockSize}};
  config.kv_cache.max_model_len = kMaxModelLen;
  config.kv_cache.max_num_batched_tokens = 18;
  config.policy = policy;
  config.max_num_seqs = 5;
  config.num_speculative_tokens = num_speculative_tokens;
  config.async_scheduling = is_async;
  config.max_concurrent_batches = max_concurrent_batches;
  config.kv_load_failure_policy =
      is_async ? KVLoadFailurePolicy::kRecompute : KVLoadFailurePolicy::kFail;
  return {config, has_connector};
}

std::vector<World> worlds() {
  constexpr SchedulingPolicy kFCFS = SchedulingPolicy::kFCFS;
  constexpr SchedulingPolicy kPriority = SchedulingPolicy::kPriority;
  std::vector<World> all;
  all.push_back(world_of(Profile::kV019, kFCFS, 0, false, 1, false));
  all.back().config.long_prefill_token_threshold = 7;
  all.back().config.kv_cache.pool.num_gpu_blocks = 8;
  all.push_back(world_of(Profile::kV019, kFCFS, 2, false, 1, true));
  all.back().config.kv_cache.use_eagle = true;
  all.push_back(world_of(Profile::kV019, kPriority, 0, true, 2, true));
  all.back().config.kv_cache.pool.num_gpu_blocks = 10;
  all.push_back(world_of(Profile::kV023, kFCFS, 2, true, 2, true));
  all.push_back(world_of(Profile::kV023, kPriority, 2, true, 2, false));
  all.back().config.kv_cache.pool.num_gpu_blocks = 11;
  all.push_back(world_of(Profile::kV023, kPriority, 0, false, 2, true));
  all.back().config.long_prefill_token_threshold = 5;
  all.back().config.scheduler_reserve_full_isl = false;
  all.back().config.kv_cache.pool.num_gpu_blocks = 11;
  all.push_back(world_of(Profile::kV023, kFCFS, 2, false, 1, true));
  all.back().config.kv_cache.groups.push_back(
      {.kind = KVCacheSpecKind::kSlidingWindow, .block_size = kBlockSize, .sliding_window = 6});
  all.back().config.kv_cache.pool.num_gpu_blocks = 25;
  return all;
}

KVConnectorHandle connector_of(const World& world) {
  if (!world.has_connector) return {};
  return KVConnectorHandle(std::make_unique<ScriptedConnector>());
}

/// A request, as it looks from outside.
struct Seen {
  std::string id;
  RequestStatus status = RequestStatus::kWaiting;
  std::uint32_t num_computed_tokens = 0;
  std::uint32_t num_output_placeholders = 0;
  std::uint32_t num_preemptions = 0;
  std::vector<TokenId> spec_token_ids;
  std::vector<TokenId> token_ids;
  BlocksByGroup blocks;
  friend bool operator==(const Seen&, const Seen&) = default;
};

/// What one step answered and left behind.
struct Observation {
  ErrorCode code = ErrorCode::kNone;
  bool flag = false;
  std::optional<SchedulerOutput> planned;
  std::vector<EngineCoreOutputs::Output> outputs;
  FlatLists<TokenId> new_token_ids;
  std::vector<KVCacheEvent> events;
  PrefixCacheStats prefix_cache_stats;
  PrefixCacheStats connector_prefix_cache_stats;
  SpecDecodingStats spec_decoding_stats;
  std::vector<Seen> requests;
  std::vector<RequestIndex> running;
  std::vector<RequestIndex> waiting;
  std::vector<RequestIndex> skipped_waiting;
  std::uint32_t num_unfinished_requests = 0;
  bool has_finished_requests = false;
  std::vector<std::string> block_keys;
  std::vector<ConnectorCall> calls;
  friend bool operator==(const Observation&, const Observation&) = default;
};

/// Clients, workers and a connector around a scheduler. Two lives with the same seed give their
/// schedulers the same commands for as long as the answers are the same.
template <class S>
class Life {
 public:
  Life(const World& world, S scheduler, std::uint32_t seed)
      : world_(world), scheduler_(std::move(scheduler)), random_(seed) {}

  Observation step() {
    Observation seen;
    switch (below(16)) {
      case 0:
      case 1:
      case 2:
        add(seen);
        break;
      case 3:
        draft(seen);
        break;
      case 4:
        interfere(seen);
        break;
      default:
        if (steps_.empty() || (steps_.size() < world_.config.max_concurrent_batches && flip())) {
          plan(seen);
        } else {
          update(seen);
        }
    }
    observe(seen);
    return seen;
  }

 private:
  std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>(random_() % bound); }
  bool flip() { return below(2) == 0; }

  std::vector<RequestIndex> requests() const {
    std::vector<RequestIndex> indices;
    scheduler_.requests(indices);
    return indices;
  }
  std::optional<RequestIndex> any_request() {
    const std::vector<RequestIndex> indices = requests();
    if (indices.empty()) return std::nullopt;
    return indices[below(static_cast<std::uint32_t>(indices.size()))];
  }
  ScriptedConnector* connector() { return static_cast<ScriptedConnector*>(scheduler_.connector()); }

  void add(Observation& seen) {
    if (requests().size() >= kNumRequestsMax) return;
    NewRequest request;
    request.id = std::to_string(below(2 * kNumRequestsMax));
    const std::uint32_t num_tokens = below(8) == 0 ? 1 + below(kMaxModelLen) : 2 + below(11);
    const TokenId first = 100 * below(3);
    const std::uint32_t num_common = flip() ? num_tokens : below(num_tokens);
    for (TokenId token = 0; token < num_tokens; ++token) {
      request.spec.tokens.push_back(first + (token < num_common ? token : 1'000 + token));
    }
    request.max_tokens = 1 + below(12);
    request.min_tokens = below(3) == 0 ? below(4) : 0;
    if (flip()) request.eos_token_id = kEosTokenId;
    if (flip()) request.stop_token_ids = {kStopTokenId};
    request.priority = below(3);
    request.arrival_time = below(3);
    request.skip_reading_prefix_cache = below(8) == 0;
    request.needs_grammar = below(8) == 0;
    if (connector() && flip()) {
      connector()->set_script(request.id, {.num_external_tokens = below(24),
                                           .load_async = below(3) != 0,
                                           .ask_again = below(4) == 0 ? 1 + below(2) : 0,
                                           .hold_blocks = below(3) == 0});
    }
    RequestIndex index = 0;
    seen.code = scheduler_.add_request(request, index);
  }

  void draft(Observation& seen) {
    const std::optional<RequestIndex> index = any_request();
    if (!index) return;
    const std::uint32_t num_drafts = below(world_.config.num_speculative_tokens + 1);
    const std::vector<TokenId> drafts(num_drafts, below(kVocabularySize));
    seen.code = scheduler_.update_draft_token_ids(*index, drafts);
  }

  void interfere(Observation& seen) {
    const std::optional<RequestIndex> index = any_request();
    switch (below(8)) {
      case 0:
        scheduler_.set_pause_state(flip() ? PauseState::kPausedNew : PauseState::kPausedAll);
        break;
      case 1:
      case 2:
        scheduler_.set_pause_state(PauseState::kUnpaused);
        break;
      case 3: {
        if (connector()) connector()->set_reset_fails(below(4) == 0);
        const bool reset_connector = flip();
        const bool reset_running_requests = flip();
        seen.flag = scheduler_.reset_prefix_cache(reset_running_requests, reset_connector);
        break;
      }
      case 4:
        if (index) scheduler_.finish_requests({&*index, 1}, RequestStatus::kFinishedAborted);
        break;
      default:
        for (RequestIndex request : requests()) {
          if (below(3) != 0) scheduler_.grammar_compiled(request);
        }
    }
  }

  void plan(Observation& seen) {
    if (scheduler_.pause_state() != PauseState::kUnpaused && below(4) == 0) {
      scheduler_.set_pause_state(PauseState::kUnpaused);
    }
    seen.planned.emplace();
    seen.code = scheduler_.schedule(*seen.planned);
    steps_.push_back(*seen.planned);
  }

  void update(Observation& seen) {
    const SchedulerOutput& step = steps_.front();
    ModelRunnerOutput runner;
    for (const SchedulerOutput::Scheduled& scheduled : step.scheduled) {
      if (scheduled.samples) {
        const std::uint32_t num_sampled = 1 + below(scheduled.num_spec_tokens + 1);
        for (std::uint32_t i = 0; i < num_sampled; ++i) {
          runner.sampled_token_ids.push_back(below(kVocabularySize));
        }
      }
      runner.sampled_token_ids.end_list();
    }
    const KVConnectorOutput reports = report();
    if (world_.has_connector) runner.kv_connector_output = &reports;
    EngineCoreOutputs outputs;
    seen.code = scheduler_.update_from_output(step, runner, outputs);
    if (seen.code != ErrorCode::kNone) {
      runner.kv_connector_output = nullptr;
      seen.flag = scheduler_.update_from_output(step, runner, outputs) == ErrorCode::kNone;
    }
    steps_.erase(steps_.begin());
    seen.outputs = outputs.outputs;
    seen.new_token_ids = outputs.new_token_ids;
    seen.events = outputs.events;
    seen.prefix_cache_stats = outputs.prefix_cache_stats;
    seen.connector_prefix_cache_stats = outputs.connector_prefix_cache_stats;
    seen.spec_decoding_stats = outputs.spec_decoding_stats;
    if (world_.config.async_scheduling) return;
    for (RequestIndex request : requests()) {
      const std::vector<TokenId> drafts(below(world_.config.num_speculative_tokens + 1), 1);
      scheduler_.update_draft_token_ids(request, drafts);
    }
  }

  /// What the workers could report.
  KVConnectorOutput report() {
    KVConnectorOutput output;
    if (!world_.has_connector) return output;
    for (RequestIndex index : requests()) {
      const RequestView view = scheduler_.view(index);
      const std::string id(view.id);
      const bool is_loading = view.status == RequestStatus::kWaitingForRemoteKVs;
      if (!is_loading) reported_.erase(id);
      if (below(3) != 0) continue;
      if (is_loading && reported_.insert(id).second) output.finished_recving.push_back(index);
      if (!is_finished(view.status)) continue;
      (flip() ? output.finished_recving : output.finished_sending).push_back(index);
    }
    const std::optional<RequestIndex> index = any_request();
    if (!index || world_.config.kv_cache.groups.size() > 1 || below(6) != 0) return output;
    BlocksByGroup blocks;
    scheduler_.kv_cache_manager().get_block_ids(*index, blocks);
    if (blocks.front().empty()) return output;
    const auto num_blocks = static_cast<std::uint32_t>(blocks.front().size());
    output.invalid_block_ids.push_back(blocks.front()[below(num_blocks)]);
    const BlockId last = blocks.front().back();
    if (flip() && last != output.invalid_block_ids.front())
      output.invalid_block_ids.push_back(last);
    return output;
  }

  void observe(Observation& seen) {
    for (RequestIndex index : requests()) {
      const RequestView view = scheduler_.view(index);
      seen.requests.push_back(
          {.id = std::string(view.id),
           .status = view.status,
           .num_computed_tokens = view.num_computed_tokens,
           .num_output_placeholders = view.num_output_placeholders,
           .num_preemptions = view.num_preemptions,
           .spec_token_ids = {view.spec_token_ids.begin(), view.spec_token_ids.end()},
           .token_ids = view.request.all_token_ids(),
           .blocks = {}});
      scheduler_.kv_cache_manager().get_block_ids(index, seen.requests.back().blocks);
    }
    scheduler_.running(seen.running);
    scheduler_.waiting(seen.waiting);
    scheduler_.skipped_waiting(seen.skipped_waiting);
    seen.num_unfinished_requests = scheduler_.get_num_unfinished_requests();
    seen.has_finished_requests = scheduler_.has_finished_requests();
    const auto& pool = scheduler_.kv_cache_manager().block_pool();
    for (BlockId block = 0; block < world_.config.kv_cache.pool.num_gpu_blocks; ++block) {
      seen.block_keys.emplace_back(pool.block_key(block));
    }
    if (connector()) connector()->take_calls(seen.calls);
  }

  World world_;
  S scheduler_;
  std::mt19937 random_;
  std::vector<SchedulerOutput> steps_;  ///< in flight
  std::set<std::string> reported_;      ///< loads
};

/// Whether a planted scheduler differs from the plain one within the steps, in some configuration.
bool diverges(PlantedSchedulerBug bug) {
  std::uint32_t seed = 0;
  for (const World& world : worlds()) {
    ++seed;
    Life expected(world, Scheduler(world.config, connector_of(world)), seed);
    Life actual(world, PlantedScheduler(world.config, connector_of(world), bug), seed);
    for (int step = 0; step < kNumSteps; ++step) {
      if (expected.step() != actual.step()) return true;
    }
  }
  return false;
}

class PlantedSchedulerBugs : public testing::TestWithParam<PlantedSchedulerBugInfo> {};

TEST_P(PlantedSchedulerBugs, PartsFromTheSoundScheduler) { EXPECT_TRUE(diverges(GetParam().bug)); }

// A broken scheduler still has to answer, without a crash or an endless loop.
TEST_P(PlantedSchedulerBugs, KeepsAnsweringOnceBroken) {
  std::uint32_t seed = 0;
  std::size_t num_answers = 0;
  for (const World& world : worlds()) {
    Life life(world, PlantedScheduler(world.config, connector_of(world), GetParam().bug), ++seed);
    for (int step = 0; step < kNumSteps; ++step) {
      num_answers += life.step().block_keys.empty() ? 0 : 1;
    }
  }
  EXPECT_EQ(num_answers, worlds().size() * kNumSteps);
}

INSTANTIATE_TEST_SUITE_P(All, PlantedSchedulerBugs, testing::ValuesIn(kPlantedSchedulerBugs),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(PlantedSchedulerBugTable, NoBugIsTheSoundScheduler) {
  EXPECT_FALSE(diverges(PlantedSchedulerBug::kNone));
}

TEST(PlantedSchedulerBugTable, IsInTheOrderOfTheEnumerationWithNamesOfItsOwn) {
  std::set<std::string_view> names;
  for (const PlantedBugInfo& info : kPlantedBugs) names.insert(info.name);
  for (const PlantedKVCacheBugInfo& info : kPlantedKVCacheBugs) names.insert(info.name);
  EXPECT_EQ(misplaced_bugs(kPlantedSchedulerBugs, planted_scheduler_bug_from_name, names),
            std::vector<std::string_view>{});
}

}  // namespace
}  // namespace kvfence::optimized
