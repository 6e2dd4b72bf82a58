// Goal: every built-in connector is made by its name, and a MultiConnector over some of them is a
// connector like another: reference and optimized agree, and each child gets what is its own.
// Method: names; one life by hand; random commands to both, below a scheduler.

#include "scenarios/targets/built_in_connectors.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "contract/connectors/offloading/connector_target.h"
#include "contract/connectors/simple/simple_cpu_offload.h"
#include "contract/core/sanitized.h"
#include "optimized/connectors/kv_output_aggregator.h"
#include "optimized/scheduler/scheduler.h"
#include "properties/connectors/offloading/checks.h"
#include "properties/connectors/offloading/copying_connector_driver.h"
#include "properties/connectors/offloading/generator.h"
#include "properties/core/choices.h"
#include "reference/connectors/kv_output_aggregator.h"
#include "reference/scheduler/scheduler.h"
#include "scenarios/targets/engine_side.h"
#include "scenarios/targets/multi_kv_connector.h"

namespace kvfence {
namespace {

using connector::Config;
using Names = std::vector<std::string>;

template <class Scheduler, class Aggregator>
class NamedSide : public EngineSide<Scheduler, Aggregator> {
 public:
  explicit NamedSide(KVConnectorClass connector) : connector_(std::move(connector)) {}

  auto make_connector(const ConnectorSetup& setup) { return connector_.make_scheduler(setup); }
  auto make_worker(const ConnectorSetup& setup, std::uint32_t rank) {
    return connector_.make_worker(setup, rank);
  }

 private:
  KVConnectorClass connector_;
};

using ReferenceSide = NamedSide<reference::Scheduler, reference::KVOutputAggregator>;
using OptimizedSide = NamedSide<optimized::Scheduler, optimized::KVOutputAggregator>;

/// Shows what the children plan, what the engines do, and what the workers report.
template <class Side>
class NamedDriver final
    : public CopyingConnectorDriver<NamedDriver<Side>, ConnectorTarget, Side, ConnectorSetup,
                                    KVConnector, KVConnectorMetadata> {
  using Base = typename NamedDriver::CopyingConnectorDriver;
  friend Base;

 public:
  using Base::Base;

 private:
  using Base::observation;
  using Base::ranks;
  using Base::run;
  using World = connector::World;

  static constexpr std::string_view kConnectorName = "connector";

  static ConnectorSetup make_setup(const Config&, const ConnectorSetup& setup) { return setup; }

  ErrorCode run(const connector::AdvanceTransfer& command, const World&) {
    const bool has_ended = command.progress == TransferProgress::kFinished;
    if (command.progress != TransferProgress::kPart && !has_ended) return ErrorCode::kBadRange;
    if (command.rank >= ranks().size()) return ErrorCode::kNotInConfig;
    const bool advanced =
        ranks()[command.rank].engine.advance(command.job, command.progress, command.microseconds);
    return advanced ? ErrorCode::kNone : ErrorCode::kUnknownJob;
  }
  ErrorCode run(const connector::ReportTransferAgain& command, const World&) {
    if (command.rank >= ranks().size()) return ErrorCode::kNotInConfig;
    return ranks()[command.rank].engine.report_again(command.job) ? ErrorCode::kNone
                                                                  : ErrorCode::kUnknownJob;
  }
  // No configuration here has tiers.
  ErrorCode run(const connector::TierFinish&, const World&) { return ErrorCode::kNotInConfig; }
  ErrorCode run(const connector::TierAskAgain&, const World&) { return ErrorCode::kNotInConfig; }
  ErrorCode run(const connector::TierAdd&, const World&) { return ErrorCode::kNotInConfig; }
  ErrorCode run(const connector::TierDrop&, const World&) { return ErrorCode::kNotInConfig; }
  ErrorCode run(const connector::TierFaults&, const World&) { return ErrorCode::kNotInConfig; }
  ErrorCode run(const connector::TierDamage&, const World&) { return ErrorCode::kNotInConfig; }

  void forget_connector_answer() {
    observation().loads.reset();
    observation().stores.reset();
    observation().requests_to_flush.reset();
    observation().jobs_to_flush.reset();
    observation().finished_recving.reset();
    observation().finished_sending.reset();
    observation().completed_jobs.reset();
    observation().transfer_stats.reset();
  }
  void forget_connector_state() { observation().transfers.reset(); }

  void observe_metadata(const KVConnectorMetadata& metadata) {
    observation().loads.emplace().clear();
    observation().stores.emplace().clear();
    observation().requests_to_flush.emplace().clear();
    observation().jobs_to_flush.emplace().clear();
    add(metadata);
  }

  /// Child after child.
  void add(const KVConnectorMetadata& metadata) {
    if (const auto* multi = dynamic_cast<const MultiKVConnectorMetadata*>(&metadata)) {
      for (const auto& told : multi->told.metadata) add(*told);
    } else if (const auto* simple = dynamic_cast<const SimpleCPUOffloadMetadata*>(&metadata)) {
      add_copy(observation().loads.emplace(), simple->load_gpu_blocks, simple->load_cpu_blocks);
      add_copy(observation().stores.emplace(), simple->store_gpu_blocks, simple->store_cpu_blocks);
    } else {
      const auto& offloading = dynamic_cast<const OffloadingConnectorMetadata&>(metadata);
      for (const TransferJob& job : offloading.loads) add_job(observation().loads.emplace(), job);
      for (const TransferJob& job : offloading.stores) add_job(observation().stores.emplace(), job);
      auto& requests = observation().requests_to_flush.emplace();
      requests.insert(requests.end(), offloading.requests_to_flush.begin(),
                      offloading.requests_to_flush.end());
      auto& jobs = observation().jobs_to_flush.emplace();
      jobs.insert(jobs.end(), offloading.jobs_to_flush.begin(), offloading.jobs_to_flush.end());
    }
  }
  static void add_job(std::vector<connector::Transfer>& transfers, const TransferJob& job) {
    add_copy(transfers, job.spec.gpu_blocks, job.spec.slots);
    transfers.back().job = job.job;
    transfers.back().request = job.request;
  }
  static void add_copy(std::vector<connector::Transfer>& transfers,
                       const std::vector<BlockId>& gpu_blocks,
                       const std::vector<std::uint32_t>& slots) {
    transfers.emplace_back();
    transfers.back().gpu_blocks = gpu_blocks;
    transfers.back().slots = slots;
  }

  void observe_report(const AggregatedOutput& report) {
    observation().finished_recving.emplace() = report.finished_recving;
    observation().finished_sending.emplace() = report.finished_sending;
    std::vector<connector::Completed>& completed = observation().completed_jobs.emplace();
    completed.clear();
    for (const CompletedJob& job : report.completed_jobs) {
      completed.push_back({job.job, job.num_workers, job.num_failed});
    }
    observation().transfer_stats.emplace().clear();
    add_stats("", report.stats);
    for (const TransferOperationsOfClass& child : report.stats_of_children) {
      add_stats(child.connector_class + ": ", child.stats);
    }
  }

  void add_stats(const std::string& whose, const std::vector<TransferOperations>& added) {
    std::vector<connector::Operation>& stats = observation().transfer_stats.emplace();
    for (const TransferOperations& operations : added) {
      for (const OffloadingOperationMetrics& operation : operations.ops) {
        stats.push_back(
            {whose + operations.transfer_type, static_cast<std::uint32_t>(operation.op_size), 0});
      }
    }
  }

  void observe_connector_numbers() {}
  void observe_connector_state() {
    std::vector<connector::EngineTransfer>& transfers = observation().transfers.emplace();
    transfers.clear();
    for (std::uint32_t rank = 0; rank < ranks().size(); ++rank) {
      for (const ScriptedTransferEngine::Transfer& each : ranks()[rank].engine.transfers()) {
        transfers.push_back(
            {rank, each.job.job, each.job.request, each.job.spec.is_store, each.progress});
      }
    }
  }
};

std::unique_ptr<Implementation> reference_of(const std::string& name) {
  return std::make_unique<NamedDriver<ReferenceSide>>(
      name, ReferenceSide(*built_in_connectors_reference().get(name)));
}

std::unique_ptr<Implementation> optimized_of(const std::string& name) {
  return std::make_unique<NamedDriver<OptimizedSide>>(
      name, OptimizedSide(*built_in_connectors_optimized().get(name)));
}

Observation answer(Implementation& implementation, const Command& command, const World& world) {
  Observation observation;
  EXPECT_FALSE(implementation.apply(command, world, Observe::kState, observation));
  return observation;
}

/// Whether every built-in connector can be built from it, and none has tiers.
bool fits(const Config& config) {
  const Parsed<ConnectorSetup> setup = ConnectorTarget::prepare(config, {}, {});
  if (!setup || setup->spec.has_tiers) return false;
  SimpleCPUOffloadSpec spec;
  spec.kv_cache = setup->spec.kv_cache;
  spec.num_cpu_blocks = config.num_cpu_blocks;
  spec.num_workers = config.world_size;
  const Rules& rules = spec.kv_cache.pool.rules;
  return !check_spec(spec) && (rules.multi_connector_hma || config.groups.size() == 1);
}

TEST(BuiltInConnectors, HaveTheSameNamesOnBothSides) {
  const Names names = {"multi_connector", "offloading", "simple_cpu_offload",
                       "simple_cpu_offload_lazy"};
  EXPECT_EQ(built_in_connectors_reference().names(), names);
  EXPECT_EQ(built_in_connectors_optimized().names(), names);
}

TEST(BuiltInConnectors, ANameMakesBothHalvesWhichCanBeCopied) {
  const ConnectorSetup setup = *make_connector_setup(Config());
  for (KVConnectorRegistry registry :
       {built_in_connectors_reference(), built_in_connectors_optimized()}) {
    for (const char* name :
         {"offloading", "simple_cpu_offload", "simple_cpu_offload_lazy",
          "multi_connector(offloading)", "multi_connector(offloading simple_cpu_offload)",
          "multi_connector(simple_cpu_offload multi_connector(offloading))"}) {
      const auto connector = registry.get(name);
      ASSERT_TRUE(connector) << connector.error().to_text();
      EXPECT_TRUE(connector->make_scheduler(setup)->clone()) << name;
      EXPECT_TRUE(connector->make_worker(setup, 0)->clone()) << name;
    }
  }
}

/// An engine with blocks of 4 tokens whose commands are all taken.
class Engine {
 public:
  Engine(const std::string& connector, const std::string& profile, std::uint32_t world_size = 1,
         bool optimized = false)
      : setup_(prepared(ConnectorTarget::description(),
                        kvfence::Config(config_of(profile, world_size)))),
        world_(setup_.target().make_world(setup_)),
        engine_(optimized ? optimized_of(connector) : reference_of(connector)) {
    EXPECT_FALSE(engine_->reset(setup_));
  }

  connector::Observation run(connector::Command typed) {
    const Command command(std::move(typed));
    world_->apply(command);
    const Observation observation = answer(*engine_, command, *world_);
    EXPECT_EQ(observation.error, ErrorCode::kNone);
    return observation.numbers.as<connector::Observation>();
  }

  void add(std::string id, std::vector<TokenId> tokens, std::uint32_t max_tokens) {
    connector::AddRequest added;
    added.id = std::move(id);
    added.tokens = std::move(tokens);
    added.max_tokens = max_tokens;
    run(added);
  }

  /// Plans a step, which comes back.
  connector::Observation step() {
    run(connector::Schedule{});
    return run(connector::Update{});
  }

  void finish(JobId job, std::uint32_t rank = 0) {
    connector::AdvanceTransfer command;
    command.rank = rank;
    command.job = job;
    command.microseconds = 1;
    run(command);
  }

 private:
  static Config config_of(const std::string& profile, std::uint32_t world_size) {
    Config config;
    config.world_size = world_size;
    config.profile = profile;
    config.num_gpu_blocks = 4;
    return config;
  }

  Setup setup_;
  std::unique_ptr<World> world_;
  std::unique_ptr<Implementation> engine_;
};

using Jobs = std::vector<JobId>;

/// In the copy engine.
Jobs under_way(const connector::Observation& observation) {
  Jobs jobs;
  for (const connector::EngineTransfer& each : *observation.transfers) jobs.push_back(each.job);
  return jobs;
}

Jobs completed(const connector::Observation& observation) {
  Jobs jobs;
  for (const connector::Completed& each : *observation.completed_jobs) jobs.push_back(each.job);
  return jobs;
}

/// Both children store a block, and the first one loads it.
TEST(BuiltInConnectors, JobsOfAMultiConnectorHaveNumbersOfItsOwn) {
  Engine engine("multi_connector(offloading simple_cpu_offload)", "v0.23");
  engine.add("A", {1, 2, 3, 4}, /*max_tokens=*/4);
  engine.step();
  // Job 0 of the first child, and store event 0 of the second, which is its transfer 1.
  const JobId of_first = multi_connector_job({0, 0}, 2);
  const JobId of_second = multi_connector_job({1, transfer_number(0, /*is_store=*/true)}, 2);
  EXPECT_EQ(under_way(engine.step()), (Jobs{of_first, of_second}));

  engine.finish(of_second);
  const connector::Observation second_is_done = engine.step();
  EXPECT_EQ(completed(second_is_done), Jobs{multi_connector_job({1, 0}, 2)});
  EXPECT_EQ(under_way(second_is_done), Jobs{of_first});
  engine.finish(of_first);
  const connector::Observation first_is_done = engine.step();
  EXPECT_EQ(completed(first_is_done), Jobs{of_first});
  EXPECT_EQ(under_way(first_is_done), Jobs{});

  engine.run(connector::ResetPrefixCache{});
  engine.add("B", {1, 2, 3, 4, 5}, /*max_tokens=*/1);
  const connector::Observation loading = engine.step();
  const JobId load = multi_connector_job({0, 1}, 2);
  EXPECT_EQ(under_way(loading), Jobs{load});
  EXPECT_EQ(*loading.skipped_waiting, Names{"B"});
  engine.finish(load);
  EXPECT_EQ(*engine.step().finished_recving, Names{"B"});
  EXPECT_EQ(engine.run(connector::Schedule{}).scheduled->front().num_tokens, 1U);
}

/// No request is left: the step waits for the job, which is the second child's.
TEST(BuiltInConnectors, AChildOfAMultiConnectorWaitsForItsOwnJobs) {
  Engine engine("multi_connector(simple_cpu_offload offloading)", "v0.23");
  engine.add("A", {1, 2, 3, 4}, /*max_tokens=*/1);
  engine.step();
  EXPECT_EQ(*engine.run(connector::Schedule{}).jobs_to_flush, Jobs{0});
  const connector::Observation flushed = engine.run(connector::Update{});
  EXPECT_EQ(completed(flushed), Jobs{multi_connector_job({1, 0}, 2)});
  EXPECT_EQ(under_way(flushed), Jobs{});
}

/// Two children hold the blocks of a request: the scheduler hears of the last one alone.
TEST(BuiltInConnectors, AMultiConnectorSendsARequestWhenAllChildrenHave) {
  Engine engine("multi_connector(offloading offloading)", "v0.19");
  engine.add("A", {1, 2, 3, 4}, /*max_tokens=*/1);
  engine.step();
  EXPECT_EQ(under_way(engine.step()), (Jobs{0, 1}));
  engine.finish(1);
  EXPECT_EQ(*engine.step().finished_sending, Names{});
  engine.finish(0);
  const connector::Observation sent = engine.step();
  EXPECT_EQ(*sent.finished_sending, Names{"A"});
  EXPECT_EQ(sent.requests->size(), 0U);
}

/// What a step's statistics say, with whose they are.
Names measured(const connector::Observation& observation) {
  Names operations;
  for (const connector::Operation& each : *observation.transfer_stats) {
    operations.push_back(each.type + " " + std::to_string(each.bytes));
  }
  return operations;
}

/// Of one class all children and all ranks count together.
TEST(BuiltInConnectors, StatisticsOfAMultiConnectorSayWhose) {
  for (const bool optimized : {false, true}) {
    Engine engine("multi_connector(offloading multi_connector(offloading) offloading)", "v0.23",
                  /*world_size=*/2, optimized);
    engine.add("A", {1, 2, 3, 4}, /*max_tokens=*/9);
    engine.step();
    const Jobs jobs = under_way(engine.step());
    ASSERT_EQ(jobs.size(), 6U);
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      engine.finish(jobs[0], rank);
      engine.finish(jobs[2], rank);
    }
    engine.finish(jobs[1], 1);
    EXPECT_EQ(measured(engine.step()),
              (Names{"offloading: GPU_to_CPU 4096", "offloading: GPU_to_CPU 4096",
                     "offloading: GPU_to_CPU 4096", "offloading: GPU_to_CPU 4096",
                     "multi_connector/offloading: GPU_to_CPU 4096"}));
    engine.finish(jobs[1], 0);
    EXPECT_EQ(measured(engine.step()), Names{"multi_connector/offloading: GPU_to_CPU 4096"});
    EXPECT_EQ(measured(engine.step()), Names{});
  }
}

/// How many transfers of which child there were; loads, then stores.
using Transfers = std::vector<std::array<std::uint64_t, 2>>;

Transfers agree(const std::string& name, std::uint32_t num_children, const std::string& profile) {
  constexpr std::uint64_t kEpisodes = kIsSanitized ? 60 : 200;
  constexpr int kCommands = 150;
  Transfers counted(num_children);
  const auto reference = reference_of(name);
  const auto optimized = optimized_of(name);
  for (std::uint64_t episode = 0; episode < kEpisodes; ++episode) {
    Choices choices = Choices::from_seed(episode);
    Config config = connector::Generator::draw_config(choices);
    config.profile = profile;
    config.enable_caching = true;
    config.transfers_may_fail = false;
    if (!fits(config)) continue;
    const Setup setup = prepared(ConnectorTarget::description(), kvfence::Config(config));
    const auto world = setup.target().make_world(setup);
    const auto generator = connector_checks().make_generator(setup, choices);
    EXPECT_FALSE(reference->reset(setup));
    EXPECT_FALSE(optimized->reset(setup));
    Observation now;
    now.numbers.emplace<connector::Observation>();
    for (int number = 0; number < kCommands; ++number) {
      const Command command = generator->next(choices, now, *world);
      world->apply(command);
      now = answer(*reference, command, *world);
      EXPECT_TRUE(answer(*optimized, command, *world) == now)
          << name << ", " << profile << ", episode " << episode << ", command " << number;
      if (::testing::Test::HasFailure()) return counted;
      const auto& numbers = now.numbers.as<connector::Observation>();
      if (!numbers.completed_jobs.has_value()) continue;
      for (const connector::EngineTransfer& each : *numbers.transfers) {
        ++counted[child_job(each.job, num_children).child][each.store ? 1 : 0];
      }
    }
  }
  return counted;
}

class MultiConnectorOf : public ::testing::TestWithParam<std::string> {};

TEST_P(MultiConnectorOf, OffloadingAndAnotherAgreesWithTheReference) {
  const std::string name = "multi_connector(offloading " + GetParam() + ")";
  for (const char* profile : {"v0.19", "v0.23"}) {
    const Transfers counted = agree(name, 2, profile);
    for (const std::array<std::uint64_t, 2>& child : counted) {
      EXPECT_GT(child[1], 0U) << "a child stored nothing, " << profile;
    }
    EXPECT_GT(counted[0][0], 0U) << profile;
  }
}

TEST_P(MultiConnectorOf, AnotherAndOffloadingAgreesWithTheReference) {
  const std::string name = "multi_connector(" + GetParam() + " offloading)";
  for (const char* profile : {"v0.19", "v0.23"}) {
    const Transfers counted = agree(name, 2, profile);
    for (const std::array<std::uint64_t, 2>& child : counted) {
      EXPECT_GT(child[1], 0U) << "a child stored nothing, " << profile;
    }
    EXPECT_GT(counted[0][0], 0U) << profile;
  }
}

INSTANTIATE_TEST_SUITE_P(Names, MultiConnectorOf,
                         ::testing::Values("offloading", "simple_cpu_offload",
                                           "simple_cpu_offload_lazy",
                                           "multi_connector(simple_cpu_offload offloading)"));

}  // namespace
}  // namespace kvfence
