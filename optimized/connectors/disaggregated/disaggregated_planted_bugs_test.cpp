// Goal: every planted bug of a disaggregated pair is alive, and only when it is asked for. Method:
// the same pseudo-random life of clients, router, transport and clock goes to a pair with sound
// halves and to one with planted ones; the two part company in some configuration exactly when a
// bug is planted.

#include "optimized/connectors/disaggregated/planted_disaggregated_bugs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/scripted/scripted_transport.h"
#include "optimized/base/planted_bugs_table.h"
#include "optimized/connectors/disaggregated/disaggregated_connector.h"
#include "optimized/connectors/kv_output_aggregator.h"
#include "optimized/scheduler/scheduler.h"

namespace kvfence::optimized {
namespace {

constexpr std::uint32_t kBlockSize = 4;
constexpr std::uint32_t kMaxModelLen = 48;
constexpr std::uint32_t kNumRequestsMax = 6;
constexpr int kNumSteps = 6'000;
constexpr int kNumStepsBroken = 1'500;

struct World {
  SchedulerConfig scheduler;
  DisaggregatedSpec spec;
};

World world_of(Profile profile, std::uint32_t producers, std::uint32_t consumers) {
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
  world.spec.rules = rules_of(profile);
  world.spec.producer_world_size = producers;
  world.spec.consumer_world_size = consumers;
  world.spec.deadline = 12;
  return world;
}

std::vector<World> worlds() {
  std::vector<World> all;
  for (const Profile profile : kProfiles) {
    all.push_back(world_of(profile, 1, 1));
    all.push_back(world_of(profile, 2, 1));
    all.back().scheduler.kv_load_failure_policy = KVLoadFailurePolicy::kFail;
    all.push_back(world_of(profile, 1, 2));
    all.back().scheduler.async_scheduling = true;
    all.back().scheduler.max_concurrent_batches = 2;
    all.push_back(world_of(profile, 1, 1));
    all.back().scheduler.async_scheduling = true;
    all.back().scheduler.max_concurrent_batches = 2;
    all.back().spec.deadline = 25;
    all.push_back(world_of(profile, 2, 2));
    all.back().scheduler.max_num_seqs = 1;
    all.back().spec.deadline = 40;
  }
  return all;
}

/// What one step answered and left behind.
struct Observation {
  ErrorCode code = ErrorCode::kNone;
  std::vector<SchedulerOutput::Scheduled> scheduled;
  std::vector<std::string> reqs_in_batch;
  std::vector<std::string> reqs_not_processed;
  std::vector<ProducerMetadata::Send> reqs_to_send;
  std::vector<ConsumerMetadata::Receive> reqs_to_recv;
  std::vector<std::string> heartbeats;
  AggregatedOutput report;
  std::vector<EngineCoreOutputs::Output> outputs;
  std::vector<RemotePrefill> prefills;
  std::array<std::vector<RequestIndex>, 2> requests;  ///< by engine
  std::vector<ScriptedTransport::Read> reads;
  std::vector<ScriptedTransport::SentNotice> notices;
  friend bool operator==(const Observation&, const Observation&) = default;
};

/// The halves of a pair with one instrumentation.
struct SoundSide {
  using Aggregator = KVOutputAggregator;
  auto make_producer(const DisaggregatedSpec& spec) const {
    return make_disaggregated_producer(spec);
  }
  auto make_consumer(const DisaggregatedSpec& spec) const {
    return make_disaggregated_consumer(spec);
  }
  auto make_producer_worker(const DisaggregatedSpec& spec, std::uint32_t rank) const {
    return make_disaggregated_producer_worker(spec, rank);
  }
  auto make_consumer_worker(const DisaggregatedSpec& spec, std::uint32_t rank) const {
    return make_disaggregated_consumer_worker(spec, rank);
  }
  Aggregator make_aggregator(std::uint32_t num_workers) const { return {num_workers}; }
};

struct PlantedSide {
  using Aggregator = PlantedKVOutputAggregator;
  auto make_producer(const DisaggregatedSpec& spec) const {
    return make_planted_disaggregated_producer(spec, bug);
  }
  auto make_consumer(const DisaggregatedSpec& spec) const {
    return make_planted_disaggregated_consumer(spec, bug);
  }
  auto make_producer_worker(const DisaggregatedSpec& spec, std::uint32_t rank) const {
    return make_planted_disaggregated_producer_worker(spec, rank, bug);
  }
  auto make_consumer_worker(const DisaggregatedSpec& spec, std::uint32_t rank) const {
    return make_planted_disaggregated_consumer_worker(spec, rank, bug);
  }
  Aggregator make_aggregator(std::uint32_t num_workers) const { return {num_workers, bug}; }

  PlantedDisaggregatedBug bug = PlantedDisaggregatedBug::kNone;
};

/// One engine of a pair.
template <class Aggregator>
struct Engine {
  Engine(const SchedulerConfig& config, KVConnectorHandle half, Aggregator aggregator_of_all)
      : scheduler(config, std::move(half)), aggregator(std::move(aggregator_of_all)) {}

  Scheduler scheduler;
  std::vector<DisaggregatedWorkerHandle> workers;
  Aggregator aggregator;
  std::deque<SchedulerOutput> in_flight;
};

/// Two lives with the same seed give their halves the same commands for as long as the answers are
/// the same.
template <class Side>
class Life {
 public:
  Life(const World& world, const Side& side, std::uint32_t seed)
      : world_(world),
        producer_(world.scheduler, KVConnectorHandle(side.make_producer(world.spec)),
                  side.make_aggregator(world.spec.producer_world_size)),
        consumer_(world.scheduler, KVConnectorHandle(side.make_consumer(world.spec)),
                  side.make_aggregator(world.spec.consumer_world_size)),
        random_(seed) {
    for (std::uint32_t rank = 0; rank < world.spec.producer_world_size; ++rank) {
      producer_.workers.emplace_back(side.make_producer_worker(world.spec, rank));
    }
    for (std::uint32_t rank = 0; rank < world.spec.consumer_world_size; ++rank) {
      consumer_.workers.emplace_back(side.make_consumer_worker(world.spec, rank));
    }
  }

  Observation step() {
    Observation seen;
    switch (below(20)) {
      case 0:
      case 1:
        prefill(seen);
        break;
      case 2:
      case 3:
        hand_over(seen);
        break;
      case 4:
        if (below(3) == 0) abort(flip() ? producer_ : consumer_);
        break;
      case 5:
        if (flip()) advance_clock();
        break;
      case 6:
      case 7:
      case 8:
        move_a_read();
        break;
      case 9:
      case 10:
      case 11:
        move_a_notice();
        break;
      default:
        run(seen);
    }
    producer_.scheduler.requests(seen.requests[0]);
    consumer_.scheduler.requests(seen.requests[1]);
    seen.reads = transport_.reads();
    seen.notices = transport_.notices();
    return seen;
  }

 private:
  using EngineType = Engine<typename Side::Aggregator>;

  std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>(random_() % bound); }
  bool flip() { return below(2) == 0; }
  DisaggregatedProducer& producer_half() {
    return static_cast<DisaggregatedProducer&>(*producer_.scheduler.connector());
  }
  DisaggregatedConsumer& consumer_half() {
    return static_cast<DisaggregatedConsumer&>(*consumer_.scheduler.connector());
  }
  static bool is_full(const EngineType& engine) {
    std::vector<RequestIndex> requests;
    engine.scheduler.requests(requests);
    return requests.size() >= kNumRequestsMax;
  }

  /// Some prompts begin alike, some have one token.
  std::vector<TokenId> draw_prompt() {
    const std::uint32_t num_tokens = below(5) == 0 ? 1 : 2 + below(22);
    const TokenId first = 100 * below(3);
    const std::uint32_t num_common = flip() ? num_tokens : below(num_tokens);
    std::vector<TokenId> tokens;
    for (TokenId token = 0; token < num_tokens; ++token) {
      tokens.push_back(first + (token < num_common ? token : 1'000 + token));
    }
    return tokens;
  }

  void add(EngineType& engine, NewRequest request, Observation& seen) {
    request.id = std::to_string(num_names_++);
    RequestIndex index = 0;
    seen.code = engine.scheduler.add_request(request, index);
    if (&engine == &producer_) prompts_.push_back({request.id, request.spec});
  }

  void prefill(Observation& seen) {
    if (is_full(producer_)) return;
    NewRequest request;
    request.spec.tokens = draw_prompt();
    request.max_tokens = 1 + below(3) * below(3);
    request.stop_token_ids = {1};
    request.kv_transfer_params.do_remote_decode = below(6) != 0;
    add(producer_, request, seen);
  }

  /// What was told of late; at times the same again, at times a request of the consumer's own.
  void hand_over(Observation& seen) {
    if (is_full(consumer_)) return;
    NewRequest request;
    request.max_tokens = 1 + below(12);
    if (told_.empty() || below(8) == 0) {
      request.spec.tokens = draw_prompt();
    } else {
      const std::size_t from_end = std::min<std::size_t>(told_.size(), 1 + below(3));
      const RemotePrefill& prefill = told_[told_.size() - from_end];
      const auto prompt = std::find_if(
          prompts_.begin(), prompts_.end(),
          [&prefill](const auto& candidate) { return candidate.first == prefill.request; });
      request.spec = prompt->second;
      request.kv_transfer_params = prefill.params;
    }
    add(consumer_, request, seen);
  }

  void abort(EngineType& engine) {
    std::vector<RequestIndex> requests;
    engine.scheduler.requests(requests);
    if (requests.empty()) return;
    const RequestIndex request = requests[below(static_cast<std::uint32_t>(requests.size()))];
    engine.scheduler.finish_requests(std::span(&request, 1), RequestStatus::kFinishedAborted);
  }

  void advance_clock() {
    transport_.advance_clock(below(4));
    producer_half().tell_time(transport_.now());
    consumer_half().tell_time(transport_.now());
  }

  void move_a_read() {
    const std::uint32_t draw = below(64);
    if (transport_.reads().empty()) return;
    const ReadId read = transport_.reads()[draw / 8 % transport_.reads().size()].read;
    transport_.advance(read,
                       draw % 8 < 2 ? TransferProgress::kFailed : TransferProgress::kFinished);
  }

  void move_a_notice() {
    const std::uint32_t draw = below(64);
    if (transport_.notices().empty()) return;
    const NoticeId notice = transport_.notices()[draw / 8 % transport_.notices().size()].number;
    if (draw % 8 == 0) {
      transport_.lose(notice);
    } else if (draw % 8 == 1) {
      transport_.repeat(notice);
    } else {
      transport_.deliver(notice);
    }
  }

  void run(Observation& seen) {
    // In stretches, so that one engine gets far while a step of the other is in flight.
    if (below(6) == 0) is_producers_turn_ = !is_producers_turn_;
    EngineType& engine = is_producers_turn_ ? producer_ : consumer_;
    const std::size_t num_steps = engine.in_flight.size();
    if (num_steps == 0 || (num_steps < world_.scheduler.max_concurrent_batches && flip())) {
      plan(engine, seen);
    } else {
      update(engine, seen);
    }
  }

  void plan(EngineType& engine, Observation& seen) {
    SchedulerOutput& output = engine.in_flight.emplace_back();
    seen.code = engine.scheduler.schedule(output);
    ASSERT_EQ(seen.code, ErrorCode::kNone);
    seen.scheduled = output.scheduled;
    if (&engine == &producer_) {
      const auto& told = static_cast<const ProducerMetadata&>(*output.kv_connector_metadata);
      seen.reqs_in_batch = told.reqs_in_batch;
      seen.reqs_not_processed = told.reqs_not_processed;
      seen.reqs_to_send = told.reqs_to_send;
    } else {
      const auto& told = static_cast<const ConsumerMetadata&>(*output.kv_connector_metadata);
      seen.reqs_to_recv = told.reqs_to_recv;
      seen.heartbeats = told.heartbeats;
    }
  }

  void update(EngineType& engine, Observation& seen) {
    const SchedulerOutput planned = std::move(engine.in_flight.front());
    engine.in_flight.pop_front();
    std::vector<KVConnectorWorkerOutput> outputs(engine.workers.size());
    for (std::size_t rank = 0; rank < outputs.size(); ++rank) {
      engine.workers[rank]->start_load_kv(*planned.kv_connector_metadata, transport_);
      engine.workers[rank]->get_finished(transport_, outputs[rank]);
    }
    engine.aggregator.aggregate(outputs, seen.report);
    KVConnectorOutput report;
    indices_of(engine, seen.report.finished_recving, report.finished_recving);
    indices_of(engine, seen.report.finished_sending, report.finished_sending);
    report.invalid_block_ids = seen.report.invalid_block_ids;
    ModelRunnerOutput runner_output;
    for (const SchedulerOutput::Scheduled& entry : planned.scheduled) {
      if (entry.samples) runner_output.sampled_token_ids.push_back(1 + below(5));
      runner_output.sampled_token_ids.end_list();
    }
    runner_output.kv_connector_output = report.empty() ? nullptr : &report;
    EngineCoreOutputs out;
    seen.code = engine.scheduler.update_from_output(planned, runner_output, out);
    if (seen.code != ErrorCode::kNone) {
      // What a broken half reports may be refused; the step comes back all the same.
      runner_output.kv_connector_output = nullptr;
      ASSERT_EQ(engine.scheduler.update_from_output(planned, runner_output, out), ErrorCode::kNone);
    }
    seen.outputs = out.outputs;
    if (&engine != &producer_) return;
    producer_half().take_remote_prefills(seen.prefills);
    told_.insert(told_.end(), seen.prefills.begin(), seen.prefills.end());
  }

  static void indices_of(const EngineType& engine, const std::vector<std::string>& names,
                         std::vector<RequestIndex>& out) {
    for (const std::string& name : names) {
      if (const auto index = engine.scheduler.find_request(name)) out.push_back(*index);
    }
  }

  const World& world_;
  EngineType producer_;
  EngineType consumer_;
  ScriptedTransport transport_;
  std::mt19937 random_;
  bool is_producers_turn_ = true;
  std::uint32_t num_names_ = 0;
  std::vector<std::pair<std::string, RequestSpec>> prompts_;  ///< of the producer
  std::vector<RemotePrefill> told_;
};

bool diverges(PlantedDisaggregatedBug bug) {
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

class PlantedDisaggregatedBugs : public testing::TestWithParam<PlantedDisaggregatedBugInfo> {};

TEST_P(PlantedDisaggregatedBugs, PartsFromTheSoundPair) { EXPECT_TRUE(diverges(GetParam().bug)); }

TEST_P(PlantedDisaggregatedBugs, KeepsAnsweringOnceBroken) {
  std::uint32_t seed = 0;
  std::size_t num_answers = 0;
  const std::vector<World> all = worlds();
  for (const World& world : all) {
    Life<PlantedSide> life(world, PlantedSide{GetParam().bug}, ++seed);
    for (int i = 0; i < kNumStepsBroken; ++i) {
      const Observation seen = life.step();
      for (const auto& requests : seen.requests) EXPECT_LE(requests.size(), kNumRequestsMax);
      ++num_answers;
    }
  }
  EXPECT_EQ(num_answers, all.size() * kNumStepsBroken);
}

INSTANTIATE_TEST_SUITE_P(All, PlantedDisaggregatedBugs,
                         testing::ValuesIn(kPlantedDisaggregatedBugs),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(PlantedDisaggregatedBugTable, NoBugIsTheSoundPair) {
  EXPECT_FALSE(diverges(PlantedDisaggregatedBug::kNone));
}

// A sound pair's reports are never refused, and its life is a life.
TEST(PlantedDisaggregatedBugTable, TheSoundPairReadsFailsAndGivesBack) {
  std::uint32_t seed = 0;
  for (const World& world : worlds()) {
    SCOPED_TRACE(seed);
    Life<SoundSide> life(world, SoundSide(), ++seed);
    std::size_t num_sent = 0;
    std::size_t num_received = 0;
    std::size_t num_failed = 0;
    std::size_t num_heartbeats = 0;
    for (int i = 0; i < kNumSteps; ++i) {
      const Observation seen = life.step();
      ASSERT_EQ(seen.code, ErrorCode::kNone);
      num_sent += seen.report.finished_sending.size();
      num_received += seen.report.finished_recving.size();
      num_failed += seen.report.invalid_block_ids.size();
      num_heartbeats += seen.heartbeats.size();
    }
    EXPECT_GT(num_sent, 20U);
    EXPECT_GT(num_received, 20U);
    EXPECT_GT(num_failed, 5U);
    EXPECT_EQ(num_heartbeats > 0, world.spec.rules.kv_lease_heartbeats);
  }
}

TEST(PlantedDisaggregatedBugTable, IsInTheOrderOfTheEnumerationWithNamesOfItsOwn) {
  EXPECT_EQ(misplaced_bugs(kPlantedDisaggregatedBugs, planted_disaggregated_bug_from_name),
            std::vector<std::string_view>{});
}

}  // namespace
}  // namespace kvfence::optimized
