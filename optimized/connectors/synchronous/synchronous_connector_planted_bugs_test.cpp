// Goal: every planted bug of the synchronous connectors is alive, and only when it is asked for.
// Method: the same pseudo-random life of requests, files and faults goes to an engine with sound
// parts of a connector and to one with planted ones; the two part company in some configuration
// exactly when a bug is planted.

#include "optimized/connectors/synchronous/planted_synchronous_connector_bugs.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "optimized/connectors/synchronous/synchronous_connector.h"
#include "optimized/scheduler/scheduler.h"

namespace kvfence::optimized {
namespace {

constexpr std::uint32_t kBlockSize = 4;
constexpr std::uint32_t kNumRequestsMax = 6;
constexpr std::uint32_t kNumWorlds = 24;
constexpr std::uint32_t kNumWorldsBroken = 6;
constexpr int kNumSteps = 1'000;
constexpr int kNumStepsBroken = 150;

struct World {
  SchedulerConfig scheduler;
  SynchronousConnectorSpec spec;
};

/// Of a number: pools that are short of blocks, chunks, steps in flight, ranks, layers, groups.
World world_of(SynchronousConnectorKind kind, std::uint32_t number) {
  std::mt19937 random(number);
  const auto below = [&](std::uint32_t bound) {
    return static_cast<std::uint32_t>(random() % bound);
  };
  World world;
  const Profile profile = number % 2 == 0 ? Profile::kV019 : Profile::kV023;
  KVCacheManagerConfig& kv_cache = world.scheduler.kv_cache;
  kv_cache.pool.num_gpu_blocks = 11 + below(6);
  kv_cache.pool.enable_caching = below(4) != 0;
  kv_cache.pool.hash.hash_block_size = kBlockSize;
  kv_cache.pool.hash.algorithm = HashAlgorithm::kXxhashCbor;
  kv_cache.pool.max_block_size = kBlockSize;
  kv_cache.pool.profile = profile;
  kv_cache.pool.rules = rules_of(profile);
  kv_cache.groups = {{.block_size = kBlockSize}};
  const KVCacheSpec window = {
      .kind = KVCacheSpecKind::kSlidingWindow, .block_size = kBlockSize, .sliding_window = 6};
  if (kind == SynchronousConnectorKind::kDecodeBench && below(3) == 0) {
    kv_cache.groups = {window};
  } else if (kind == SynchronousConnectorKind::kDecodeBench && profile == Profile::kV023 &&
             below(2) == 0) {
    kv_cache.groups.push_back(window);
    kv_cache.pool.num_gpu_blocks += 12;
  }
  kv_cache.max_model_len = 36;
  kv_cache.max_num_batched_tokens = below(2) == 0 ? 64 : 8 + below(16);
  world.scheduler.max_num_seqs = 2 + below(3);
  world.scheduler.long_prefill_token_threshold = below(3) == 0 ? 3 + below(6) : 0;
  world.scheduler.max_concurrent_batches = 1 + below(2);
  world.spec.kv_cache = kv_cache;
  world.spec.kind = kind;
  world.spec.num_workers = 1 + below(2);
  world.spec.num_layers = 1 + below(3);
  return world;
}

/// What one command answered and left behind.
struct Observation {
  ErrorCode code = ErrorCode::kNone;
  std::vector<SchedulerOutput::Scheduled> scheduled;
  std::vector<SynchronousConnectorMetadata::Transfer> transfers;
  std::vector<SynchronousConnectorMetadata::Fill> fills;
  SynchronousWorkerReport report;
  std::vector<RequestIndex> requests;
  std::vector<RequestIndex> running;
  std::vector<RequestIndex> filled;
  std::uint32_t num_gpu_blocks_free = 0;
  std::vector<std::string> folders;
  std::vector<StoredFile> files;
  std::vector<KVSymbol> symbols;

  friend bool operator==(const Observation& a, const Observation& b) {
    return a.code == b.code && a.scheduled == b.scheduled && a.transfers == b.transfers &&
           a.fills == b.fills && a.report.loaded == b.report.loaded &&
           a.report.saved == b.report.saved && a.report.filled == b.report.filled &&
           a.report.failed == b.report.failed && a.requests == b.requests &&
           a.running == b.running && a.filled == b.filled &&
           a.num_gpu_blocks_free == b.num_gpu_blocks_free && a.folders == b.folders &&
           a.files == b.files && a.symbols == b.symbols;
  }
};

struct SoundSide {
  auto make_storage() const { return make_shared_storage(); }
  auto make_scheduler(const World& world, SharedStorage& storage) const {
    return Scheduler(world.scheduler,
                     KVConnectorHandle(make_synchronous_connector_scheduler(world.spec, storage)));
  }
  auto make_worker(const World& world, SharedStorage& storage) const {
    return make_synchronous_connector_worker(world.spec, storage);
  }
};

/// The scheduler has no bug, but bears what a broken connector does to it.
struct PlantedSide {
  auto make_storage() const { return make_planted_shared_storage(bug); }
  auto make_scheduler(const World& world, SharedStorage& storage) const {
    return PlantedScheduler(
        world.scheduler,
        KVConnectorHandle(make_planted_synchronous_connector_scheduler(world.spec, storage, bug)),
        PlantedInstrumentation());
  }
  auto make_worker(const World& world, SharedStorage& storage) const {
    return make_planted_synchronous_connector_worker(world.spec, storage, bug);
  }

  PlantedSynchronousConnectorBug bug = PlantedSynchronousConnectorBug::kNone;
};

/// Clients, an engine that a file can end, and those who share its files. Two lives with the same
/// seed give their engines the same commands for as long as the answers are the same.
template <class Side>
class Life {
 public:
  Life(const World& world, const Side& side, std::uint32_t seed)
      : world_(world), side_(side), random_(seed), storage_(side.make_storage()) {
    start_engine();
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
        if (below(3) == 0) finish();
        break;
      case 4:
        if (below(4) == 0) engine_->scheduler.reset_prefix_cache(false, flip());
        break;
      case 5:
      case 6:
        if (world_.spec.kind == SynchronousConnectorKind::kExample) change_files(seen);
        break;
      default:
        if (steps_.empty() || (steps_.size() < world_.scheduler.max_concurrent_batches && flip())) {
          plan(seen);
        } else {
          update(seen);
        }
    }
    observe(seen);
    return seen;
  }

 private:
  using SchedulerType =
      decltype(std::declval<const Side&>().make_scheduler(World(), std::declval<SharedStorage&>()));

  struct Rank {
    std::unique_ptr<SynchronousConnectorWorker> worker;
    ScriptedKVCache kv_cache;
  };
  struct Engine {
    SchedulerType scheduler;
    std::vector<Rank> ranks;
  };
  struct Planned {
    SchedulerOutput output;
    std::vector<std::uint32_t> first_tokens;
    std::vector<std::vector<TokenId>> tokens;
    std::vector<BlocksByGroup> tables;
  };

  std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>(random_() % bound); }
  bool flip() { return below(2) == 0; }
  std::uint32_t num_layers() const { return world_.spec.num_all_layers(); }

  void start_engine() {
    steps_.clear();
    engine_.reset();
    engine_.emplace(Engine{side_.make_scheduler(world_, *storage_), {}});
    for (std::uint32_t rank = 0; rank < world_.spec.num_workers; ++rank) {
      engine_->ranks.push_back(
          {side_.make_worker(world_, *storage_),
           ScriptedKVCache(rank * world_.spec.num_layers, world_.spec.num_layers,
                           world_.spec.kv_cache.pool.num_gpu_blocks, kBlockSize)});
    }
  }

  /// Few prompts, of which many are each other's start.
  std::vector<TokenId> prompt(std::uint32_t num_tokens) {
    const TokenId first = 100 * below(2);
    const std::uint32_t num_common = below(4) != 0 ? num_tokens : below(num_tokens + 1);
    std::vector<TokenId> tokens;
    for (TokenId token = 0; token < num_tokens; ++token) {
      tokens.push_back(first + (token < num_common ? token : 1'000 + token));
    }
    return tokens;
  }

  void add(Observation& seen) {
    engine_->scheduler.requests(seen.requests);
    if (seen.requests.size() >= kNumRequestsMax) return;
    NewRequest request;
    request.id = std::to_string(num_added_++);
    request.spec.tokens = prompt(1 + below(22));
    request.max_tokens = 1 + below(14);
    // With several groups a hit of one may be taken for another's load.
    request.skip_reading_prefix_cache = below(3) == 0 || world_.spec.kv_cache.groups.size() > 1;
    RequestIndex index = 0;
    seen.code = engine_->scheduler.add_request(request, index);
  }

  void finish() {
    std::vector<RequestIndex> requests;
    engine_->scheduler.requests(requests);
    if (requests.empty()) return;
    const RequestIndex request = requests[below(static_cast<std::uint32_t>(requests.size()))];
    engine_->scheduler.finish_requests(std::span(&request, 1), RequestStatus::kFinishedAborted);
  }

  void change_files(Observation& seen) {
    const std::vector<TokenId> tokens = prompt(kBlockSize * below(6));
    const std::string folder = folder_name(tokens);
    const std::uint32_t layer = below(num_layers());
    switch (below(6)) {
      case 0:
      case 1:
        storage_->make_folder(folder);
        for (std::uint32_t k = 0; k < num_layers(); ++k) {
          std::vector<KVSymbol> symbols;
          for (std::size_t end = 1; end <= tokens.size(); ++end) {
            symbols.push_back(symbol_of(k, std::span(tokens).first(end)));
          }
          storage_->put_file(folder, k, symbols);
        }
        break;
      case 2:
        seen.code = storage_->remove_folder(folder) ? ErrorCode::kNone : ErrorCode::kUnknownKey;
        break;
      case 3:
        storage_->remove_file(folder, layer);
        break;
      case 4:
        storage_->truncate_file(folder, layer);
        break;
      default:
        storage_->fail_next(layer, kStorageOperations[below(kStorageOperations.size())]);
    }
    files_changed_ = true;
  }

  void plan(Observation& seen) {
    Planned& planned = steps_.emplace_back();
    seen.code = engine_->scheduler.schedule(planned.output);
    if (seen.code != ErrorCode::kNone) {
      steps_.pop_back();
      return;
    }
    for (const SchedulerOutput::Scheduled& entry : planned.output.scheduled) {
      std::uint32_t first_token = 0;
      for (const auto& data : planned.output.scheduled_new_reqs) {
        if (data.request == entry.request) first_token = data.num_computed_tokens;
      }
      for (const auto& data : planned.output.scheduled_cached_reqs) {
        if (data.request == entry.request) first_token = data.num_computed_tokens;
      }
      const RequestView view = engine_->scheduler.view(entry.request);
      const std::span<const TokenId> all = view.request.all_token_ids();
      const auto own = all.subspan(first_token, entry.num_tokens);
      planned.first_tokens.push_back(first_token);
      planned.tokens.emplace_back(own.begin(), own.end());
      engine_->scheduler.kv_cache_manager().get_block_ids(entry.request,
                                                          planned.tables.emplace_back());
    }
    const auto& metadata =
        static_cast<const SynchronousConnectorMetadata&>(*planned.output.kv_connector_metadata);
    seen.scheduled = planned.output.scheduled;
    seen.transfers = metadata.transfers;
    seen.fills = metadata.fills;
  }

  void update(Observation& seen) {
    const Planned planned = std::move(steps_.front());
    steps_.pop_front();
    run_on_ranks(planned, seen.report);
    files_changed_ = files_changed_ || !seen.report.saved.empty() || !seen.report.loaded.empty() ||
                     seen.report.failed.has_value();
    if (seen.report.failed) return start_engine();
    ModelRunnerOutput runner_output;
    for (const SchedulerOutput::Scheduled& entry : planned.output.scheduled) {
      if (entry.samples) runner_output.sampled_token_ids.push_back(1 + below(3));
      runner_output.sampled_token_ids.end_list();
    }
    EngineCoreOutputs out;
    seen.code = engine_->scheduler.update_from_output(planned.output, runner_output, out);
  }

  void run_on_ranks(const Planned& planned, SynchronousWorkerReport& report) {
    const auto& metadata =
        static_cast<const SynchronousConnectorMetadata&>(*planned.output.kv_connector_metadata);
    for (Rank& rank : engine_->ranks) {
      rank.worker->start_load_kv(metadata, rank.kv_cache, report);
      if (report.failed) return;
      if (planned.output.total_num_scheduled_tokens == 0) continue;
      for (std::uint32_t i = 0; i < rank.kv_cache.num_layers(); ++i) {
        const std::uint32_t layer = rank.kv_cache.first_layer() + i;
        for (std::size_t k = 0; k < planned.tokens.size(); ++k) {
          for (const std::vector<BlockId>& table : planned.tables[k]) {
            rank.kv_cache.compute(layer, table, planned.first_tokens[k], planned.tokens[k]);
          }
        }
        rank.worker->save_kv_layer(metadata, layer, rank.kv_cache, report);
        if (report.failed) return;
      }
    }
  }

  void observe(Observation& seen) {
    const SchedulerType& scheduler = engine_->scheduler;
    scheduler.requests(seen.requests);
    scheduler.running(seen.running);
    seen.num_gpu_blocks_free = scheduler.kv_cache_manager().block_pool().get_num_free_blocks();
    static_cast<const SynchronousConnectorScheduler&>(*engine_->scheduler.connector())
        .filled_requests(seen.filled);
    for (const Rank& rank : engine_->ranks) {
      for (std::uint32_t i = 0; i < rank.kv_cache.num_layers(); ++i) {
        const std::span<const KVSymbol> held = rank.kv_cache.layer(rank.kv_cache.first_layer() + i);
        seen.symbols.insert(seen.symbols.end(), held.begin(), held.end());
      }
    }
    if (!files_changed_) return;
    files_changed_ = false;
    storage_->folders(seen.folders);
    storage_->files(seen.files);
  }

  const World& world_;
  const Side side_;
  std::mt19937 random_;
  std::unique_ptr<SharedStorage> storage_;  ///< outlives every engine
  std::optional<Engine> engine_;
  std::deque<Planned> steps_;
  std::uint32_t num_added_ = 0;
  bool files_changed_ = true;
};

std::vector<SynchronousConnectorKind> kinds_of(PlantedSynchronousConnectorBug bug) {
  using enum SynchronousConnectorKind;
  if (bug == PlantedSynchronousConnectorBug::kNone) return {kExample, kDecodeBench};
  return {planted_bug_info(bug).doc.starts_with("Example: ") ? kExample : kDecodeBench};
}

bool diverges(PlantedSynchronousConnectorBug bug) {
  for (const SynchronousConnectorKind kind : kinds_of(bug)) {
    for (std::uint32_t number = 0; number < kNumWorlds; ++number) {
      const World world = world_of(kind, number);
      Life<SoundSide> expected(world, SoundSide(), number);
      Life<PlantedSide> actual(world, PlantedSide{bug}, number);
      for (int i = 0; i < kNumSteps; ++i) {
        if (!(expected.step() == actual.step())) return true;
      }
    }
  }
  return false;
}

class PlantedSynchronousConnectorBugs
    : public testing::TestWithParam<PlantedSynchronousConnectorBugInfo> {};

TEST_P(PlantedSynchronousConnectorBugs, PartsFromTheSoundConnector) {
  EXPECT_TRUE(diverges(GetParam().bug));
}

TEST_P(PlantedSynchronousConnectorBugs, KeepsAnsweringOnceBroken) {
  for (const SynchronousConnectorKind kind : kinds_of(GetParam().bug)) {
    for (std::uint32_t number = 0; number < kNumWorldsBroken; ++number) {
      const World world = world_of(kind, number);
      Life<PlantedSide> life(world, PlantedSide{GetParam().bug}, number);
      for (int i = 0; i < kNumStepsBroken; ++i) {
        ASSERT_LT(life.step().num_gpu_blocks_free, world.spec.kv_cache.pool.num_gpu_blocks);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, PlantedSynchronousConnectorBugs,
                         testing::ValuesIn(kPlantedSynchronousConnectorBugs),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(PlantedSynchronousConnectorBugTable, NoBugIsTheSoundConnector) {
  EXPECT_FALSE(diverges(PlantedSynchronousConnectorBug::kNone));
}

// A sound connector's life is a life.
TEST(PlantedSynchronousConnectorBugTable, TheSoundConnectorsDoTheirWork) {
  std::size_t num_loaded = 0;
  std::size_t num_saved = 0;
  std::size_t num_filled = 0;
  std::size_t num_failed = 0;
  for (const SynchronousConnectorKind kind : kinds_of(PlantedSynchronousConnectorBug::kNone)) {
    for (std::uint32_t number = 0; number < kNumWorldsBroken; ++number) {
      SCOPED_TRACE(number);
      const World world = world_of(kind, number);
      ASSERT_EQ(check_spec(world.spec), std::nullopt);
      Life<SoundSide> life(world, SoundSide(), number);
      for (int i = 0; i < kNumSteps; ++i) {
        const Observation seen = life.step();
        num_loaded += seen.report.loaded.size();
        num_saved += seen.report.saved.size();
        num_filled += seen.report.filled.size();
        num_failed += seen.report.failed ? 1 : 0;
      }
    }
  }
  EXPECT_GT(num_loaded, 100U);
  EXPECT_GT(num_saved, 100U);
  EXPECT_GT(num_filled, 500U);
  EXPECT_GT(num_failed, 20U);
}

TEST(PlantedSynchronousConnectorBugTable, IsInTheOrderOfTheEnumerationWithNamesOfItsOwn) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < kPlantedSynchronousConnectorBugs.size(); ++i) {
    const PlantedSynchronousConnectorBugInfo& info = kPlantedSynchronousConnectorBugs[i];
    SCOPED_TRACE(info.name);
    EXPECT_EQ(static_cast<std::size_t>(info.bug), i + 1);
    EXPECT_EQ(planted_synchronous_connector_bug_from_name(info.name), info.bug);
    EXPECT_EQ(&planted_bug_info(info.bug), &info);
    EXPECT_TRUE(names.insert(info.name).second);
  }
  EXPECT_EQ(planted_synchronous_connector_bug_from_name("no_such_bug"), std::nullopt);
}

}  // namespace
}  // namespace kvfence::optimized
