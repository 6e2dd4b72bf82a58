// Goal: the driver runs the connector as its comment says, behind either scheduler. Method: one
// small life of a request and its twin, in text; and random commands, after each of which both
// schedulers, each with the reference's connector, show the same, and the holds on both pools are
// those that the answers explain.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "optimized/scheduler/scheduler.h"
#include "properties/core/typed_test_support.h"
#include "properties/engine/driver.h"
#include "properties/engine/engine_parts.h"
#include "reference/connectors/kv_output_aggregator.h"
#include "reference/connectors/simple/simple_cpu_offload.h"
#include "reference/connectors/simple/simple_cpu_offload_worker.h"
#include "reference/scheduler/scheduler.h"

namespace kvfence::engine::simple {
namespace {

EngineParts reference_parts() {
  EngineParts parts;
  parts.make_simple = [](const SimpleCPUOffloadSpec& spec) {
    return reference::make_simple_cpu_offload_scheduler(spec);
  };
  parts.make_simple_worker = [](const SimpleCPUOffloadSpec& spec) {
    return reference::make_simple_cpu_offload_worker(spec);
  };
  parts.make_aggregate = [](const EngineSetup&, std::uint32_t num_ranks) {
    return aggregate_with(reference::KVOutputAggregator(num_ranks));
  };
  return parts;
}

Config config_of(std::string profile) {
  Config config;
  make_assembly(Assembly::kSimple, config);
  config.profile = std::move(profile);
  config.num_gpu_blocks = 9;
  config.enable_caching = true;
  config.hash_block_size = 4;
  KVCacheSpec group;
  group.block_size = 4;
  config.groups = {group};
  config.max_model_len = 64;
  config.max_num_batched_tokens = 16;
  config.max_num_seqs = 4;
  config.edit_connector<Record>().num_cpu_blocks = 6;
  return config;
}

/// A driver and its world.
template <class SchedulerType>
class Engine : public TypedRun<EngineTarget> {
 public:
  explicit Engine(const Config& config)
      : TypedRun(std::make_unique<EngineDriver<SchedulerType>>(
                     "simple",
                     [](const SchedulerConfig& scheduler, KVConnectorHandle connector) {
                       return SchedulerType(scheduler, std::move(connector));
                     },
                     reference_parts()),
                 config) {}
};

AddRequest request(std::string id, TokenId first, std::uint32_t num_tokens,
                   std::uint32_t max_tokens = 2) {
  AddRequest added;
  added.id = std::move(id);
  for (TokenId token = 0; token < num_tokens; ++token) added.tokens.push_back(first + token);
  added.max_tokens = max_tokens;
  return added;
}

AdvanceCopy copy_of(std::uint32_t rank, bool store) {
  AdvanceCopy advance;
  advance.rank = rank;
  advance.store = store;
  return advance;
}

using Blocks = std::vector<BlockId>;

TEST(SimpleOffloadDriver, WhatIsStoredIsLoadedAgain) {
  Config config = config_of("v0.23");
  config.ranks = 2;
  Engine<reference::Scheduler> engine(config);
  engine.run(request("A", 1, 9));
  EXPECT_FALSE(engine.run(Schedule{}).store_event.has_value()) << "nothing is computed yet";
  engine.run(Update{});
  const Observation& planned = engine.run(Schedule{});
  ASSERT_TRUE(planned.store_event.has_value());
  EXPECT_EQ(*planned.store_event, 0u);
  EXPECT_EQ(*planned.store_gpu_blocks, Blocks({1, 2}));
  EXPECT_EQ(*planned.store_cpu_blocks, Blocks({1, 2}));
  EXPECT_EQ(*planned.num_referenced_cpu_blocks, 3u);
  engine.run(Update{});
  EXPECT_EQ(engine.seen().num_referenced_blocks, 3u) << "A is over, its stores hold two blocks";

  EXPECT_EQ(engine.run(copy_of(0, true)).error, ErrorCode::kNone);
  EXPECT_EQ(engine.run(copy_of(0, true)).error, ErrorCode::kUnknownJob);
  EXPECT_EQ(engine.run(copy_of(1, false)).error, ErrorCode::kUnknownJob);
  EXPECT_EQ(engine.run(copy_of(2, true)).error, ErrorCode::kNotInConfig);
  AdvanceCopy failed = copy_of(1, true);
  failed.progress = TransferProgress::kFailed;
  EXPECT_EQ(engine.run(failed).error, ErrorCode::kBadRange);
  engine.run(Schedule{});
  engine.run(Update{});
  EXPECT_TRUE(*engine.seen().has_pending_stores) << "one of two ranks";
  engine.run(copy_of(1, true));
  engine.run(Schedule{});
  engine.run(Update{});
  EXPECT_FALSE(*engine.seen().has_pending_stores);
  EXPECT_EQ(*engine.seen().num_cached_cpu_blocks, 2u);
  EXPECT_EQ(engine.seen().num_referenced_blocks, 1u);
  EXPECT_TRUE(*engine.run(ResetPrefixCache{}).success);

  engine.run(request("B", 1, 9));
  const Observation& loading = engine.run(Schedule{});
  ASSERT_TRUE(loading.load_event.has_value());
  EXPECT_EQ(*loading.load_cpu_blocks, Blocks({1, 2}));
  EXPECT_EQ(*loading.load_requests, std::vector<std::string>({"B"}));
  engine.run(Update{});
  engine.run(copy_of(0, false));
  engine.run(copy_of(1, false));
  engine.run(Schedule{});
  engine.run(Update{});
  EXPECT_EQ(*engine.seen().finished_recving, std::vector<std::string>({"B"}));
  EXPECT_EQ(engine.run(Schedule{}).scheduled->size(), 1u);
  EXPECT_EQ((*engine.seen().new_reqs)[0].num_computed_tokens, 8u);
}

/// What the answers say of the events under way.
struct Ledger {
  struct Event {
    Blocks gpu_blocks;
    Blocks cpu_blocks;
    std::vector<std::string> requests;
    std::uint32_t num_workers = 0;
  };
  std::map<JobId, Event> loads;
  std::map<JobId, Event> stores;

  void take(const Observation& seen, std::uint32_t num_ranks) {
    if (seen.load_event.has_value()) {
      loads[*seen.load_event] = {*seen.load_gpu_blocks, *seen.load_cpu_blocks, *seen.load_requests};
    }
    if (seen.store_event.has_value()) {
      stores[*seen.store_event] = {*seen.store_gpu_blocks, *seen.store_cpu_blocks, {}};
    }
    if (seen.completed_jobs.has_value()) {
      for (const Completed& each : *seen.completed_jobs) {
        ASSERT_TRUE(stores.contains(each.job));
        stores[each.job].num_workers += each.num_workers;
        if (stores[each.job].num_workers == num_ranks) stores.erase(each.job);
      }
    }
    if (seen.finished_recving.has_value()) {
      for (const std::string& name : *seen.finished_recving) {
        for (auto& [event, load] : loads) std::erase(load.requests, name);
      }
      std::erase_if(loads, [](const auto& load) { return load.second.requests.empty(); });
    }
  }
};

void check_holds(const Observation& seen, const Ledger& ledger) {
  std::vector<std::uint32_t> gpu(seen.ref_cnts->size(), 0);
  std::vector<std::uint32_t> cpu(seen.cpu_ref_cnts->size(), 0);
  const auto add = [](const Blocks& blocks, std::vector<std::uint32_t>& counts) {
    for (const BlockId block : blocks) ++counts[block];
  };
  for (const auto& table : *seen.tables) {
    for (const Blocks& blocks : table.blocks) add(blocks, gpu);
  }
  for (const auto& [event, store] : ledger.stores) {
    add(store.gpu_blocks, gpu);
    add(store.cpu_blocks, cpu);
    for (const BlockId block : store.cpu_blocks) EXPECT_EQ((*seen.cpu_keys)[block], "");
  }
  for (const Pin& pin : *seen.pins) add(pin.cpu_blocks, cpu);
  gpu[kNullBlockId] = 0;
  // Requests of one load event may have one CPU block in common, and are over one by one.
  bool loads_are_whole = true;
  for (const auto& [event, load] : ledger.loads) {
    loads_are_whole = loads_are_whole && load.requests.size() == 1;
    add(load.gpu_blocks, gpu);
    add(load.cpu_blocks, cpu);
  }
  if (!loads_are_whole) return;
  EXPECT_EQ(*seen.ref_cnts, gpu);
  EXPECT_EQ(*seen.cpu_ref_cnts, cpu);
}

/// Returns how many loads and stores there were.
std::pair<int, int> random_run(const Config& config, std::uint32_t seed, bool several_groups) {
  std::mt19937 random(seed);
  const auto below = [&](std::uint32_t bound) {
    return static_cast<std::uint32_t>(random() % bound);
  };
  Engine<reference::Scheduler> engine(config);
  Engine<optimized::Scheduler> twin(config);
  Ledger ledger;
  std::pair<int, int> counts{0, 0};
  std::uint32_t num_requests = 0;
  for (int i = 0; i < 400; ++i) {
    Command command = Schedule{};
    switch (below(9)) {
      case 0: {
        AddRequest added = request("r" + std::to_string(num_requests++), 1 + 100 * below(3),
                                   3 + below(22), 1 + below(8));
        added.skip_reading_prefix_cache = several_groups || below(4) == 0;
        command = added;
        break;
      }
      case 1:
      case 2:
      case 3:
        command = Update{};
        break;
      case 4:
      case 5:
        command = copy_of(below(config.ranks), below(2) == 0);
        break;
      case 6:
        if (num_requests > 0 && below(4) == 0) {
          FinishRequests finish;
          finish.requests = {"r" + std::to_string(below(num_requests))};
          command = finish;
        }
        break;
      case 7:
        if (below(6) == 0) command = ResetPrefixCache{};
        break;
      default:
        break;
    }
    const Observation& seen = engine.run(command);
    EXPECT_EQ(seen, twin.run(command));
    ledger.take(seen, config.ranks);
    counts.first += seen.load_event.has_value() ? 1 : 0;
    counts.second += seen.store_event.has_value() ? 1 : 0;
    check_holds(seen, ledger);
    if (testing::Test::HasFailure()) {
      ADD_FAILURE() << "seed " << seed << ", command " << i;
      break;
    }
  }
  return counts;
}

TEST(SimpleOffloadDriver, EveryHoldIsThatOfATableACopyOrAPin) {
  for (const bool several_groups : {false, true}) {
    for (const char* profile : {"v0.19", "v0.23"}) {
      for (const bool lazy : {false, true}) {
        std::pair<int, int> sum{0, 0};
        for (std::uint32_t seed = 0; seed < 30; ++seed) {
          Config config = config_of(profile);
          config.edit_connector<Record>().lazy_offload = lazy;
          config.ranks = 1 + seed % 2;
          config.async_scheduling = seed % 3 == 0;
          config.max_concurrent_batches = config.async_scheduling ? 2 : 1;
          if (several_groups) {
            KVCacheSpec window = config.groups.front();
            window.kind = KVCacheSpecKind::kSlidingWindow;
            window.sliding_window = 6;
            config.groups.push_back(window);
            config.num_gpu_blocks = 16;
          }
          const auto [num_loads, num_stores] = random_run(config, seed, several_groups);
          sum.first += num_loads;
          sum.second += num_stores;
          if (HasFailure()) return;
        }
        EXPECT_GT(sum.first, 10) << profile << " lazy " << lazy << " groups " << several_groups;
        EXPECT_GT(sum.second, 50) << profile << " lazy " << lazy << " groups " << several_groups;
      }
    }
  }
}

}  // namespace
}  // namespace kvfence::engine::simple
