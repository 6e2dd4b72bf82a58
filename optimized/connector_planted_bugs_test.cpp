// Goal: every planted bug of the connector is alive, and only when it is asked for. Method: the
// same pseudo-random life of requests and transfers goes to a scheduler with sound halves of a
// connector and to one with planted ones; the two part company in some configuration exactly when a
// bug is planted.

#include "optimized/planted_connector_bugs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/scripted_transfer_engine.h"
#include "optimized/kv_output_aggregator.h"
#include "optimized/offloading_connector.h"
#include "optimized/planted_bugs_table.h"
#include "optimized/scheduler.h"

namespace kvfence::optimized {
namespace {

constexpr std::uint32_t kBlockSize = 4;
constexpr std::uint32_t kMaxModelLen = 48;
constexpr std::uint32_t kNumRequestsMax = 6;
constexpr int kNumSteps = 6'000;
constexpr int kNumStepsBroken = 1'500;

struct World {
  SchedulerConfig scheduler;
  OffloadingSpec spec;
};

World world_of(Profile profile) {
  World world;
  KVCacheManagerConfig& kv_cache = world.scheduler.kv_cache;
  kv_cache.pool.num_gpu_blocks = 16;
  kv_cache.pool.hash.hash_block_size = kBlockSize;
  kv_cache.pool.hash.algorithm = HashAlgorithm::kXxhashCbor;
  kv_cache.pool.max_block_size = kBlockSize;
  kv_cache.pool.profile = profile;
  kv_cache.pool.rules = rules_of(profile);
  kv_cache.groups = {{.block_size = kBlockSize}};
  kv_cache.max_model_len = kMaxModelLen;
  kv_cache.max_num_batched_tokens = 18;
  world.scheduler.max_num_seqs = 4;
  world.scheduler.kv_load_failure_policy = KVLoadFailurePolicy::kRecompute;
  world.spec.manager.cache.capacity = 10;
  world.spec.manager.enable_events = true;
  world.spec.manager.rules = rules_of(profile);
  return world;
}

void set_async(World& world) {
  world.scheduler.async_scheduling = true;
  world.scheduler.max_concurrent_batches = 2;
}

void add_window(World& world, std::uint32_t block_size, std::uint32_t sliding_window) {
  world.scheduler.kv_cache.groups.push_back({.kind = KVCacheSpecKind::kSlidingWindow,
                                             .block_size = block_size,
                                             .sliding_window = sliding_window});
}

std::vector<World> worlds() {
  std::vector<World> all;
  for (Profile profile : {Profile::kV019, Profile::kV023}) {
    all.push_back(world_of(profile));
    all.back().spec.offload_prompt_only = false;
    all.push_back(world_of(profile));
    all.back().spec.num_workers = 3;
    all.back().spec.block_size_factor = 2;
    all.back().spec.manager.cache.policy = EvictionPolicy::kARC;
    all.push_back(world_of(profile));
    set_async(all.back());
    all.back().spec.num_workers = 2;
    all.back().spec.offload_prompt_only = false;
    all.back().scheduler.kv_cache.pool.num_gpu_blocks = 12;
    all.push_back(world_of(profile));
    all.back().scheduler.long_prefill_token_threshold = 5;
    all.back().spec.manager.cache.capacity = 4;
    all.back().spec.request_level_policy = true;
  }
  all.push_back(world_of(Profile::kV023));
  add_window(all.back(), kBlockSize, 11);
  all.back().scheduler.kv_cache.pool.num_gpu_blocks = 28;
  all.back().spec.manager.cache.capacity = 30;
  all.push_back(world_of(Profile::kV023));
  add_window(all.back(), kBlockSize, 6);
  all.back().scheduler.kv_cache.pool.num_gpu_blocks = 20;
  all.back().spec.manager.cache.capacity = 9;
  all.back().spec.offload_prompt_only = false;
  set_async(all.back());
  all.push_back(world_of(Profile::kV023));
  all.back().scheduler.kv_cache.groups.front().block_size = 3 * kBlockSize;
  all.back().scheduler.kv_cache.pool.max_block_size = 3 * kBlockSize;
  add_window(all.back(), kBlockSize, 5);
  add_window(all.back(), kBlockSize, 9);
  all.back().scheduler.kv_cache.pool.num_gpu_blocks = 36;
  all.back().spec.manager.cache.capacity = 20;
  all.back().spec.offload_prompt_only = false;
  all.push_back(world_of(Profile::kV023));
  all.back().scheduler.kv_cache.pool.max_block_size = 2 * kBlockSize;
  add_window(all.back(), kBlockSize, 9);
  add_window(all.back(), 2 * kBlockSize, 5);
  all.back().scheduler.kv_cache.pool.num_gpu_blocks = 36;
  all.back().spec.manager.cache.capacity = 20;
  all.push_back(world_of(Profile::kV023));
  all.back().scheduler.kv_cache.groups.push_back(
      {.kind = KVCacheSpecKind::kMamba, .block_size = kBlockSize});
  all.back().scheduler.kv_cache.pool.num_gpu_blocks = 28;
  all.back().spec.num_workers = 2;
  all.push_back(world_of(Profile::kV023));
  add_window(all.back(), kBlockSize, 6);
  all.back().scheduler.kv_cache.pool.num_gpu_blocks = 24;
  all.back().spec.manager.cache.capacity = 5;
  all.back().spec.block_size_factor = 2;
  all.back().spec.offload_prompt_only = false;
  for (World& world : all) world.spec.kv_cache = world.scheduler.kv_cache;
  return all;
}

/// What one step answered and left behind.
struct Observation {
  ErrorCode code = ErrorCode::kNone;
  bool flag = false;
  std::vector<SchedulerOutput::Scheduled> scheduled;
  std::vector<TransferJob> loads;
  std::vector<TransferJob> stores;
  std::vector<std::string> requests_to_flush;
  std::vector<JobId> jobs_to_flush;
  AggregatedOutput report;
  std::vector<EngineCoreOutputs::Output> outputs;
  std::vector<KVCacheEvent> events;
  std::vector<RequestIndex> requests;
  std::vector<RequestIndex> running;
  std::vector<std::vector<ScriptedTransferEngine::Transfer>> transfers;
  PolicyLists lists;
  std::uint32_t num_free_slots = 0;
  friend bool operator==(const Observation&, const Observation&) = default;
};

/// The halves of a connector with one instrumentation.
struct SoundSide {
  using Aggregator = KVOutputAggregator;
  auto make_scheduler(const OffloadingSpec& spec) const {
    return make_offloading_connector_scheduler(spec);
  }
  auto make_worker(const OffloadingSpec& spec) const {
    return make_offloading_connector_worker(spec);
  }
  Aggregator make_aggregator(std::uint32_t num_workers) const { return {num_workers}; }
};

struct PlantedSide {
  using Aggregator = PlantedKVOutputAggregator;
  auto make_scheduler(const OffloadingSpec& spec) const {
    return make_planted_offloading_connector_scheduler(spec, bug);
  }
  auto make_worker(const OffloadingSpec& spec) const {
    return make_planted_offloading_connector_worker(spec, bug);
  }
  Aggregator make_aggregator(std::uint32_t num_workers) const { return {num_workers, bug}; }

  PlantedConnectorBug bug = PlantedConnectorBug::kNone;
};

/// Clients, a scheduler, workers and copy engines. Two lives with the same seed give their
/// connectors the same commands for as long as the answers are the same.
template <class Side>
class Life {
 public:
  Life(const World& world, const Side& side, std::uint32_t seed)
      : world_(world),
        scheduler_(world.scheduler, KVConnectorHandle(side.make_scheduler(world.spec))),
        aggregator_(side.make_aggregator(world.spec.num_workers)),
        random_(seed) {
    for (std::uint32_t rank = 0; rank < world.spec.num_workers; ++rank) {
      workers_.emplace_back(side.make_worker(world.spec));
      engines_.emplace_back();
    }
  }

  Observation step() {
    Observation seen;
    switch (below(20)) {
      case 0:
      case 1:
      case 2:
        add(seen);
        break;
      case 3:
        if (below(4) == 0) finish();
        break;
      case 4:
        if (below(8) == 0) seen.flag = scheduler_.reset_prefix_cache(false, /*connector=*/flip());
        break;
      case 5:
      case 6:
      case 7:
      case 8:
        move_a_transfer();
        break;
      default:
        if (steps_.empty() || (steps_.size() < max_steps() && flip())) {
          plan(seen);
        } else {
          update(seen);
        }
    }
    observe(seen);
    return seen;
  }

 private:
  struct Planned {
    SchedulerOutput output;
    std::vector<std::string> finished;
  };

  std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>(random_() % bound); }
  bool flip() { return below(2) == 0; }
  std::size_t max_steps() const { return world_.scheduler.max_concurrent_batches; }
  OffloadingConnectorScheduler& connector() {
    return static_cast<OffloadingConnectorScheduler&>(*scheduler_.connector());
  }
  bool fences() const { return world_.spec.manager.rules.offload_fences_reuse; }

  void add(Observation& seen) {
    scheduler_.requests(seen.requests);
    if (seen.requests.size() >= kNumRequestsMax) return;
    NewRequest request;
    request.id = std::to_string(names_.size());
    const std::uint32_t num_tokens = 2 + below(30);
    const TokenId first = 100 * below(3);
    const std::uint32_t num_common = below(4) != 0 ? num_tokens : below(num_tokens);
    for (TokenId token = 0; token < num_tokens; ++token) {
      request.spec.tokens.push_back(first + (token < num_common ? token : 1'000 + token));
    }
    request.max_tokens = 1 + below(16);
    request.skip_reading_prefix_cache = below(6) == 0;
    if (below(4) == 0) request.kv_transfer_params.max_offload_tokens = below(24);
    RequestIndex index = 0;
    seen.code = scheduler_.add_request(request, index);
    if (seen.code != ErrorCode::kNone) return;
    names_.push_back(request.id);
    if (index >= name_of_.size()) name_of_.resize(index + 1);
    name_of_[index] = request.id;
  }

  void finish() {
    std::vector<RequestIndex> requests;
    scheduler_.requests(requests);
    if (requests.empty()) return;
    const RequestIndex request = requests[below(static_cast<std::uint32_t>(requests.size()))];
    scheduler_.finish_requests(std::span(&request, 1), RequestStatus::kFinishedAborted);
  }

  void move_a_transfer() {
    ScriptedTransferEngine& engine = engines_[below(static_cast<std::uint32_t>(engines_.size()))];
    const std::uint32_t draw = below(64);
    if (draw < 8 && next_job_ > 0) {
      engine.report_again(below(next_job_));
      return;
    }
    if (engine.transfers().empty()) return;
    const TransferJob& job =
        engine.transfers()[draw % static_cast<std::uint32_t>(engine.transfers().size())].job;
    // Failed loads are for one group only.
    const bool may_fail =
        job.spec.is_store ? fences() : world_.scheduler.kv_cache.groups.size() == 1;
    next_job_ = std::max(next_job_, job.job + 1);
    engine.advance(
        job.job,
        may_fail && draw % 8 == 0 ? TransferProgress::kFailed : TransferProgress::kFinished,
        /*microseconds=*/draw % 3);
  }

  void plan(Observation& seen) {
    Planned& planned = steps_.emplace_back();
    seen.code = scheduler_.schedule(planned.output);
    if (seen.code != ErrorCode::kNone) {
      steps_.pop_back();
      return;
    }
    for (RequestIndex index : planned.output.finished) planned.finished.push_back(name_of_[index]);
    const auto& metadata =
        static_cast<const OffloadingConnectorMetadata&>(*planned.output.kv_connector_metadata);
    seen.scheduled = planned.output.scheduled;
    seen.loads = metadata.loads;
    seen.stores = metadata.stores;
    seen.requests_to_flush = metadata.requests_to_flush;
    seen.jobs_to_flush = metadata.jobs_to_flush;
  }

  void update(Observation& seen) {
    const Planned planned = std::move(steps_.front());
    steps_.pop_front();
    const KVConnectorMetadata& metadata = *planned.output.kv_connector_metadata;
    std::vector<KVConnectorWorkerOutput> outputs(workers_.size());
    for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
      KVConnectorWorkerHandle& worker = workers_[rank];
      worker->handle_preemptions(metadata, engines_[rank]);
      worker->start_load_kv(metadata, engines_[rank]);
      if (planned.output.total_num_scheduled_tokens > 0) {
        worker->wait_for_save(metadata, engines_[rank]);
      }
      worker->get_finished(metadata, planned.finished, engines_[rank], outputs[rank]);
    }
    aggregator_.aggregate(outputs, seen.report);
    KVConnectorOutput report;
    indices_of(seen.report.finished_recving, report.finished_recving);
    indices_of(seen.report.finished_sending, report.finished_sending);
    report.invalid_block_ids = seen.report.invalid_block_ids;
    report.completed_jobs = seen.report.completed_jobs;
    ModelRunnerOutput runner_output;
    for (const SchedulerOutput::Scheduled& entry : planned.output.scheduled) {
      if (entry.samples) runner_output.sampled_token_ids.push_back(1 + below(3));
      runner_output.sampled_token_ids.end_list();
    }
    runner_output.kv_connector_output = report.empty() ? nullptr : &report;
    EngineCoreOutputs out;
    seen.code = scheduler_.update_from_output(planned.output, runner_output, out);
    if (seen.code != ErrorCode::kNone) {
      // What a broken connector reports may be refused; the step comes back all the same.
      runner_output.kv_connector_output = nullptr;
      ASSERT_EQ(scheduler_.update_from_output(planned.output, runner_output, out),
                ErrorCode::kNone);
    }
    seen.outputs = out.outputs;
    seen.events = out.events;
  }

  void indices_of(const std::vector<std::string>& names, std::vector<RequestIndex>& out) const {
    for (const std::string& name : names) {
      if (const auto index = scheduler_.find_request(name)) out.push_back(*index);
    }
  }

  void observe(Observation& seen) {
    scheduler_.requests(seen.requests);
    scheduler_.running(seen.running);
    for (const ScriptedTransferEngine& engine : engines_) {
      seen.transfers.push_back(engine.transfers());
    }
    connector().policy_lists(seen.lists);
    seen.num_free_slots = connector().num_free_slots();
  }

  const World& world_;
  Scheduler scheduler_;
  std::vector<KVConnectorWorkerHandle> workers_;
  std::vector<ScriptedTransferEngine> engines_;
  typename Side::Aggregator aggregator_;
  std::mt19937 random_;
  std::deque<Planned> steps_;
  std::vector<std::string> names_;
  std::vector<std::string> name_of_;  ///< by index, the last that had it
  JobId next_job_ = 0;
};

bool diverges(PlantedConnectorBug bug) {
  std::uint32_t seed = 0;
  for (const World& world : worlds()) {
    Life<SoundSide> expected(world, SoundSide(), ++seed);
    Life<PlantedSide> actual(world, PlantedSide{bug}, seed);
    for (int i = 0; i < kNumSteps; ++i) {
      if (expected.step() != actual.step()) return true;
    }
  }
  return false;
}

class PlantedConnectorBugs : public testing::TestWithParam<PlantedConnectorBugInfo> {};

TEST_P(PlantedConnectorBugs, PartsFromTheSoundConnector) { EXPECT_TRUE(diverges(GetParam().bug)); }

TEST_P(PlantedConnectorBugs, KeepsAnsweringOnceBroken) {
  std::uint32_t seed = 0;
  std::size_t num_answers = 0;
  const std::vector<World> all = worlds();
  for (const World& world : all) {
    Life<PlantedSide> life(world, PlantedSide{GetParam().bug}, ++seed);
    for (int i = 0; i < kNumStepsBroken; ++i) {
      EXPECT_LE(life.step().num_free_slots, world.spec.manager.cache.capacity);
      ++num_answers;
    }
  }
  EXPECT_EQ(num_answers, all.size() * kNumStepsBroken);
}

INSTANTIATE_TEST_SUITE_P(All, PlantedConnectorBugs, testing::ValuesIn(kPlantedConnectorBugs),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(PlantedConnectorBugTable, NoBugIsTheSoundConnector) {
  EXPECT_FALSE(diverges(PlantedConnectorBug::kNone));
}

// A sound connector's reports are never refused, and its life is a life.
TEST(PlantedConnectorBugTable, TheSoundConnectorLoadsStoresAndFlushes) {
  std::uint32_t seed = 0;
  for (const World& world : worlds()) {
    SCOPED_TRACE(seed);
    Life<SoundSide> life(world, SoundSide(), ++seed);
    std::size_t num_loads = 0;
    std::size_t num_stores = 0;
    std::size_t num_flushes = 0;
    for (int i = 0; i < kNumSteps; ++i) {
      const Observation seen = life.step();
      ASSERT_EQ(seen.code, ErrorCode::kNone);
      num_loads += seen.loads.size();
      num_stores += seen.stores.size();
      num_flushes += seen.jobs_to_flush.size() + seen.requests_to_flush.size();
    }
    EXPECT_GT(num_loads, 20U);
    EXPECT_GT(num_stores, 20U);
    EXPECT_GT(num_flushes, 5U);
  }
}

TEST(PlantedConnectorBugTable, IsInTheOrderOfTheEnumerationWithNamesOfItsOwn) {
  EXPECT_EQ(misplaced_bugs(kPlantedConnectorBugs, planted_connector_bug_from_name),
            std::vector<std::string_view>{});
}

}  // namespace
}  // namespace kvfence::optimized
