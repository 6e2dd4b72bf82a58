// Goal: every built-in connector is made by its name, and a MultiConnector over some of them is a
// connector like another: reference and optimized agree, and each child gets what is its own.
// Method: names; one life by hand; random commands to both, below a scheduler.

#include "scenarios/targets/built_in_connectors.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "contract/connectors/kv_connector_registry.h"
#include "contract/connectors/kv_output_aggregator.h"
#include "contract/connectors/multi/multi_kv_connector.h"
#include "contract/connectors/simple/simple_cpu_offload.h"
#include "contract/core/check.h"
#include "contract/core/sanitized.h"
#include "contract/engine/engine_target.h"
#include "contract/scripted/scripted_transfer_engine.h"
#include "optimized/connectors/kv_output_aggregator.h"
#include "optimized/scheduler/scheduler.h"
#include "properties/core/choices.h"
#include "properties/core/driver.h"
#include "properties/engine/observer.h"
#include "properties/engine/offloading/checks.h"
#include "properties/engine/offloading/generator.h"
#include "reference/connectors/kv_output_aggregator.h"
#include "reference/scheduler/scheduler.h"

namespace kvfence {
namespace {

using engine::Assembly;
using engine::Config;
using Names = std::vector<std::string>;

/// A scheduler over any connector that is made of an offloading connector's setup, with scripted
/// copies. Takes the commands of an engine with an offloading connector. Shows what the children
/// plan, what the copy engines do, and what the workers report.
///
/// `update` runs the oldest step on each rank, in the order of the ranks. If the scheduler refuses
/// it, nothing has run.
template <Scheduler SchedulerType, KVOutputAggregator Aggregator>
class NamedDriver final : public DriverOf<EngineTarget> {
 public:
  NamedDriver(std::string name, KVConnectorClass connector)
      : name_(std::move(name)), connector_(std::move(connector)) {}

  std::string name() const override { return name_; }

  std::optional<ImplementationFailure> start(const Config&, const Setup& setup) override {
    KVFENCE_CHECK(setup.offloading && !setup.device, "copies here are scripted");
    setup_ = *setup.offloading;
    scheduler_.emplace(setup_.scheduler, KVConnectorHandle(connector_.make_scheduler(setup_)));
    const std::uint32_t num_ranks = setup_.spec.num_workers;
    workers_.emplace(Workers{{}, Aggregator(num_ranks)});
    for (std::uint32_t rank = 0; rank < num_ranks; ++rank) {
      workers_->ranks.push_back(
          {KVConnectorWorkerHandle(connector_.make_worker(setup_, rank)), {}});
    }
    observer_.reset();
    in_flight_.clear();
    observation_ = Observation();
    return std::nullopt;
  }

  void submit_typed(const Command& command, const World& world, Observe observe) override {
    Observer::forget_answer(observation_);
    forget_connector_answer();
    observation_.error = std::visit([&](const auto& typed) { return run(typed, world); }, command);
    observer_.observe(*scheduler_, observe, observation_);
    if (observe == Observe::kState) {
      observe_transfers();
    } else {
      observation_.transfers.reset();
    }
  }

  void collect_typed(Observation& observation) override { observation = std::move(observation_); }

 private:
  using Observer = SchedulerObserver<SchedulerType>;

  /// One rank: its half of the connector, and what copies its blocks.
  struct Rank {
    KVConnectorWorkerHandle worker;
    ScriptedTransferEngine copies;
  };

  /// What a refused update leaves as it was: a broken connector's report may be refused, which is
  /// known only when the ranks have run.
  struct Workers {
    std::vector<Rank> ranks;
    Aggregator aggregator;
  };

  /// A planned step. The names of the finished are kept: their indices may come back into use.
  struct PlannedStep {
    SchedulerOutput output;
    std::vector<std::string> finished;
  };

  // ---- Commands ----

  /// A command of another assembly, or of tiers, which no configuration here has.
  template <class Other>
  ErrorCode run(const Other&, const World&) {
    return ErrorCode::kNotInConfig;
  }

  ErrorCode run(const engine::AddRequest& command, const World& world) {
    const World::Entry* const entry = world.find(command.id);
    if (!entry || !entry->is_new) return ErrorCode::kAlreadyDeclared;
    if (setup_.spec.kv_cache.groups.size() > 1 && !command.skip_reading_prefix_cache) {
      return ErrorCode::kNotInConfig;
    }
    NewRequest request;
    request.id = command.id;
    request.spec = {command.tokens, std::nullopt, command.cache_salt, {}};
    request.max_tokens = command.max_tokens;
    request.priority = command.priority;
    request.arrival_time = command.arrival_time;
    request.skip_reading_prefix_cache = command.skip_reading_prefix_cache;
    request.kv_transfer_params.max_offload_tokens = command.max_offload_tokens;
    RequestIndex index = 0;
    const ErrorCode error = scheduler_->add_request(request, index);
    if (error == ErrorCode::kNone) observer_.add(index, command.id);
    return error;
  }

  ErrorCode run(const engine::Schedule&, const World&) {
    PlannedStep& step = in_flight_.emplace_back();
    const ErrorCode error = scheduler_->schedule(step.output);
    if (error != ErrorCode::kNone) {
      in_flight_.pop_back();
      return error;
    }
    observer_.names_of(step.output.finished, step.finished);
    observer_.observe_output(*scheduler_, step.output, observation_);
    observe_metadata(metadata_of(step.output));
    return ErrorCode::kNone;
  }

  ErrorCode run(const engine::Update& command, const World& world) {
    for (const engine::Sample& sample : command.samples) {
      if (!world.find(sample.request)) return ErrorCode::kUnknownRequest;
    }
    if (in_flight_.empty()) return ErrorCode::kNoStepInFlight;
    const PlannedStep& step = in_flight_.front();
    if (!observer_.sample(command.samples, command.token, /*num_accepted=*/0, step.output,
                          runner_output_.sampled_token_ids)) {
      return ErrorCode::kWrongTokenCount;
    }
    Workers before = *workers_;
    run_on_all_ranks(step);
    Observer::sort_by_declaration(aggregated_.finished_recving, world);
    Observer::sort_by_declaration(aggregated_.finished_sending, world);
    const KVConnectorOutput report = Observer::report_of(*scheduler_, world, aggregated_);
    runner_output_.kv_connector_output = report.empty() ? nullptr : &report;
    const ErrorCode error = scheduler_->update_from_output(step.output, runner_output_, outputs_);
    if (error != ErrorCode::kNone) {
      std::swap(*workers_, before);
      return error;
    }
    in_flight_.pop_front();
    observer_.observe_outputs(outputs_, observation_);
    observe_report(aggregated_);
    return ErrorCode::kNone;
  }

  ErrorCode run(const engine::FinishRequests& command, const World& world) {
    if (!Observer::all_known(world, command.requests)) return ErrorCode::kUnknownRequest;
    if (!is_finished(command.status)) return ErrorCode::kBadRange;
    scheduler_->finish_requests(Observer::indices_of(*scheduler_, world, command.requests),
                                command.status);
    return ErrorCode::kNone;
  }

  ErrorCode run(const engine::FinishAllRequests& command, const World&) {
    if (!is_finished(command.status)) return ErrorCode::kBadRange;
    scheduler_->finish_all_requests(command.status);
    return ErrorCode::kNone;
  }

  ErrorCode run(const engine::SetPauseState& command, const World&) {
    scheduler_->set_pause_state(command.state);
    return ErrorCode::kNone;
  }

  ErrorCode run(const engine::ResetPrefixCache& command, const World&) {
    if (command.reset_running_requests || command.connector_fails) return ErrorCode::kNotInConfig;
    observation_.success.emplace() = scheduler_->reset_prefix_cache(
        /*reset_running_requests=*/false, command.reset_connector);
    return ErrorCode::kNone;
  }

  ErrorCode run(const engine::offloading::AdvanceTransfer& command, const World&) {
    const bool has_ended = command.progress == TransferProgress::kFinished;
    if (command.progress != TransferProgress::kPart && !has_ended) return ErrorCode::kBadRange;
    if (command.rank >= workers_->ranks.size()) return ErrorCode::kNotInConfig;
    const bool advanced = workers_->ranks[command.rank].copies.advance(
        command.job, command.progress, command.microseconds);
    return advanced ? ErrorCode::kNone : ErrorCode::kUnknownJob;
  }

  ErrorCode run(const engine::offloading::ReportTransferAgain& command, const World&) {
    if (command.rank >= workers_->ranks.size()) return ErrorCode::kNotInConfig;
    return workers_->ranks[command.rank].copies.report_again(command.job) ? ErrorCode::kNone
                                                                          : ErrorCode::kUnknownJob;
  }

  static const KVConnectorMetadata& metadata_of(const SchedulerOutput& output) {
    KVFENCE_CHECK(output.kv_connector_metadata, "such a connector always has metadata");
    return static_cast<const KVConnectorMetadata&>(*output.kv_connector_metadata);
  }

  void run_on_all_ranks(const PlannedStep& step) {
    const KVConnectorMetadata& metadata = metadata_of(step.output);
    worker_outputs_.resize(workers_->ranks.size());
    for (std::size_t number = 0; number < worker_outputs_.size(); ++number) {
      Rank& rank = workers_->ranks[number];
      rank.worker->handle_preemptions(metadata, rank.copies);
      rank.worker->start_load_kv(metadata, rank.copies);
      if (step.output.total_num_scheduled_tokens > 0) {
        rank.worker->wait_for_save(metadata, rank.copies);
      }
      rank.worker->get_finished(metadata, step.finished, rank.copies, worker_outputs_[number]);
    }
    workers_->aggregator.aggregate(std::span<const KVConnectorWorkerOutput>(worker_outputs_),
                                   aggregated_);
  }

  // ---- Observations ----

  void forget_connector_answer() {
    observation_.loads.reset();
    observation_.stores.reset();
    observation_.requests_to_flush.reset();
    observation_.jobs_to_flush.reset();
    observation_.finished_recving.reset();
    observation_.finished_sending.reset();
    observation_.completed_jobs.reset();
    observation_.transfer_stats.reset();
  }

  void observe_metadata(const KVConnectorMetadata& metadata) {
    observation_.loads.emplace().clear();
    observation_.stores.emplace().clear();
    observation_.requests_to_flush.emplace().clear();
    observation_.jobs_to_flush.emplace().clear();
    add(metadata);
  }

  /// Child after child.
  void add(const KVConnectorMetadata& metadata) {
    if (const auto* multi = dynamic_cast<const MultiKVConnectorMetadata*>(&metadata)) {
      for (const auto& told : multi->told.metadata) add(*told);
    } else if (const auto* simple = dynamic_cast<const SimpleCPUOffloadMetadata*>(&metadata)) {
      add_copy(observation_.loads.emplace(), simple->load_gpu_blocks, simple->load_cpu_blocks);
      add_copy(observation_.stores.emplace(), simple->store_gpu_blocks, simple->store_cpu_blocks);
    } else {
      const auto& offloading = dynamic_cast<const OffloadingConnectorMetadata&>(metadata);
      for (const TransferJob& job : offloading.loads) add_job(observation_.loads.emplace(), job);
      for (const TransferJob& job : offloading.stores) add_job(observation_.stores.emplace(), job);
      auto& requests = observation_.requests_to_flush.emplace();
      requests.insert(requests.end(), offloading.requests_to_flush.begin(),
                      offloading.requests_to_flush.end());
      auto& jobs = observation_.jobs_to_flush.emplace();
      jobs.insert(jobs.end(), offloading.jobs_to_flush.begin(), offloading.jobs_to_flush.end());
    }
  }
  static void add_job(std::vector<engine::offloading::Transfer>& transfers,
                      const TransferJob& job) {
    add_copy(transfers, job.spec.gpu_blocks, job.spec.slots);
    transfers.back().job = job.job;
    transfers.back().request = job.request;
  }
  static void add_copy(std::vector<engine::offloading::Transfer>& transfers,
                       const std::vector<BlockId>& gpu_blocks,
                       const std::vector<std::uint32_t>& slots) {
    transfers.emplace_back();
    transfers.back().gpu_blocks = gpu_blocks;
    transfers.back().slots = slots;
  }

  void observe_report(const AggregatedOutput& report) {
    observation_.finished_recving.emplace() = report.finished_recving;
    observation_.finished_sending.emplace() = report.finished_sending;
    std::vector<engine::Completed>& completed = observation_.completed_jobs.emplace();
    completed.clear();
    for (const CompletedJob& job : report.completed_jobs) {
      completed.push_back({job.job, job.num_workers, job.num_failed});
    }
    observation_.transfer_stats.emplace().clear();
    add_stats("", report.stats);
    for (const TransferOperationsOfClass& child : report.stats_of_children) {
      add_stats(child.connector_class + ": ", child.stats);
    }
  }

  void add_stats(const std::string& whose, const std::vector<TransferOperations>& added) {
    std::vector<engine::offloading::Operation>& stats = observation_.transfer_stats.emplace();
    for (const TransferOperations& operations : added) {
      for (const OffloadingOperationMetrics& operation : operations.ops) {
        stats.push_back(
            {whose + operations.transfer_type, static_cast<std::uint32_t>(operation.op_size), 0});
      }
    }
  }

  void observe_transfers() {
    std::vector<engine::offloading::EngineTransfer>& transfers = observation_.transfers.emplace();
    transfers.clear();
    for (std::uint32_t rank = 0; rank < workers_->ranks.size(); ++rank) {
      for (const ScriptedTransferEngine::Transfer& each :
           workers_->ranks[rank].copies.transfers()) {
        transfers.push_back(
            {rank, each.job.job, each.job.request, each.job.spec.is_store, each.progress});
      }
    }
  }

  std::string name_;
  KVConnectorClass connector_;
  ConnectorSetup setup_;
  std::optional<SchedulerType> scheduler_;
  std::optional<Workers> workers_;
  Observer observer_;
  std::deque<PlannedStep> in_flight_;  ///< oldest first
  std::vector<KVConnectorWorkerOutput> worker_outputs_;
  AggregatedOutput aggregated_;
  ModelRunnerOutput runner_output_;
  EngineCoreOutputs outputs_;
  Observation observation_;
};

using ReferenceDriver = NamedDriver<reference::Scheduler, reference::KVOutputAggregator>;
using OptimizedDriver = NamedDriver<optimized::Scheduler, optimized::KVOutputAggregator>;

std::unique_ptr<Implementation> reference_of(const std::string& name) {
  return std::make_unique<ReferenceDriver>(name, *built_in_connectors_reference().get(name));
}

std::unique_ptr<Implementation> optimized_of(const std::string& name) {
  return std::make_unique<OptimizedDriver>(name, *built_in_connectors_optimized().get(name));
}

Observation answer(Implementation& implementation, const Command& command, const World& world) {
  Observation observation;
  EXPECT_FALSE(implementation.apply(command, world, Observe::kState, observation));
  return observation;
}

/// Whether every built-in connector can be built from it, and none has tiers.
bool fits(const Config& config) {
  const Parsed<EngineSetup> setup = EngineTarget::prepare(config, {}, {});
  if (!setup || setup->offloading->spec.has_tiers) return false;
  SimpleCPUOffloadSpec spec;
  spec.kv_cache = setup->offloading->spec.kv_cache;
  spec.num_cpu_blocks = config.connector<engine::offloading::Record>()->num_cpu_blocks;
  spec.num_workers = config.ranks;
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
  Config config;
  make_assembly(Assembly::kOffloading, config);
  const ConnectorSetup setup = *EngineTarget::prepare(config, {}, {})->offloading;
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
  Engine(const std::string& connector, const std::string& profile, std::uint32_t ranks = 1,
         bool optimized = false)
      : setup_(prepared(EngineTarget::description(), kvfence::Config(config_of(profile, ranks)))),
        world_(setup_.target().make_world(setup_)),
        engine_(optimized ? optimized_of(connector) : reference_of(connector)) {
    EXPECT_FALSE(engine_->reset(setup_));
  }

  engine::Observation run(engine::Command typed) {
    const Command command(std::move(typed));
    world_->apply(command);
    const Observation observation = answer(*engine_, command, *world_);
    EXPECT_EQ(observation.error, ErrorCode::kNone);
    return observation.numbers.as<engine::Observation>();
  }

  void add(std::string id, std::vector<TokenId> tokens, std::uint32_t max_tokens) {
    engine::AddRequest added;
    added.id = std::move(id);
    added.tokens = std::move(tokens);
    added.max_tokens = max_tokens;
    run(added);
  }

  /// Plans a step, which comes back.
  engine::Observation step() {
    run(engine::Schedule{});
    return run(engine::Update{});
  }

  void finish(JobId job, std::uint32_t rank = 0) {
    engine::offloading::AdvanceTransfer command;
    command.rank = rank;
    command.job = job;
    command.microseconds = 1;
    run(command);
  }

 private:
  static Config config_of(const std::string& profile, std::uint32_t ranks) {
    Config config;
    make_assembly(Assembly::kOffloading, config);
    config.ranks = ranks;
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
Jobs under_way(const engine::Observation& observation) {
  Jobs jobs;
  for (const engine::offloading::EngineTransfer& each : *observation.transfers)
    jobs.push_back(each.job);
  return jobs;
}

Jobs completed(const engine::Observation& observation) {
  Jobs jobs;
  for (const engine::Completed& each : *observation.completed_jobs) jobs.push_back(each.job);
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
  const engine::Observation second_is_done = engine.step();
  EXPECT_EQ(completed(second_is_done), Jobs{multi_connector_job({1, 0}, 2)});
  EXPECT_EQ(under_way(second_is_done), Jobs{of_first});
  engine.finish(of_first);
  const engine::Observation first_is_done = engine.step();
  EXPECT_EQ(completed(first_is_done), Jobs{of_first});
  EXPECT_EQ(under_way(first_is_done), Jobs{});

  engine.run(engine::ResetPrefixCache{});
  engine.add("B", {1, 2, 3, 4, 5}, /*max_tokens=*/1);
  const engine::Observation loading = engine.step();
  const JobId load = multi_connector_job({0, 1}, 2);
  EXPECT_EQ(under_way(loading), Jobs{load});
  EXPECT_EQ(*loading.skipped_waiting, Names{"B"});
  engine.finish(load);
  EXPECT_EQ(*engine.step().finished_recving, Names{"B"});
  EXPECT_EQ(engine.run(engine::Schedule{}).scheduled->front().num_tokens, 1U);
}

/// No request is left: the step waits for the job, which is the second child's.
TEST(BuiltInConnectors, AChildOfAMultiConnectorWaitsForItsOwnJobs) {
  Engine engine("multi_connector(simple_cpu_offload offloading)", "v0.23");
  engine.add("A", {1, 2, 3, 4}, /*max_tokens=*/1);
  engine.step();
  EXPECT_EQ(*engine.run(engine::Schedule{}).jobs_to_flush, Jobs{0});
  const engine::Observation flushed = engine.run(engine::Update{});
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
  const engine::Observation sent = engine.step();
  EXPECT_EQ(*sent.finished_sending, Names{"A"});
  EXPECT_EQ(sent.requests->size(), 0U);
}

/// What a step's statistics say, with whose they are.
Names measured(const engine::Observation& observation) {
  Names operations;
  for (const engine::offloading::Operation& each : *observation.transfer_stats) {
    operations.push_back(each.type + " " + std::to_string(each.bytes));
  }
  return operations;
}

/// Of one class all children and all ranks count together.
TEST(BuiltInConnectors, StatisticsOfAMultiConnectorSayWhose) {
  for (const bool optimized : {false, true}) {
    Engine engine("multi_connector(offloading multi_connector(offloading) offloading)", "v0.23",
                  /*ranks=*/2, optimized);
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
    Config config = engine::offloading::Generator::draw_config(choices);
    config.profile = profile;
    config.enable_caching = true;
    config.edit_connector<engine::offloading::Record>().transfers_may_fail = false;
    if (!fits(config)) continue;
    const Setup setup = prepared(EngineTarget::description(), kvfence::Config(config));
    const auto world = setup.target().make_world(setup);
    const auto generator = offloading_checks().make_generator(setup, choices);
    EXPECT_FALSE(reference->reset(setup));
    EXPECT_FALSE(optimized->reset(setup));
    Observation now;
    now.numbers.emplace<engine::Observation>();
    for (int number = 0; number < kCommands; ++number) {
      const Command command = generator->next(choices, now, *world);
      world->apply(command);
      now = answer(*reference, command, *world);
      EXPECT_TRUE(answer(*optimized, command, *world) == now)
          << name << ", " << profile << ", episode " << episode << ", command " << number;
      if (::testing::Test::HasFailure()) return counted;
      const auto& numbers = now.numbers.as<engine::Observation>();
      if (!numbers.completed_jobs.has_value()) continue;
      for (const engine::offloading::EngineTransfer& each : *numbers.transfers) {
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
