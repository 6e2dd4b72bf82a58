// Stories of a whole pair: each is a scenario with what has to be seen, told to the reference
// through the driver. Blocks have 4 tokens; a prompt of 8 has two, and the last token of what was
// loaded is computed anew.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "contract/core/line.h"
#include "contract/core/scenario.h"
#include "contract/engine/engine_target.h"
#include "properties/engine/driver.h"
#include "properties/engine/engine_parts.h"
#include "reference/connectors/disaggregated/disaggregated_connector.h"
#include "reference/connectors/disaggregated/disaggregated_worker.h"
#include "reference/connectors/kv_output_aggregator.h"
#include "reference/scheduler/scheduler.h"

namespace kvfence {
namespace {

std::unique_ptr<Implementation> make_reference() {
  EngineParts parts;
  parts.make_producer = [](const DisaggregatedSpec& spec) {
    return std::make_unique<reference::DisaggregatedProducer>(spec);
  };
  parts.make_consumer = [](const DisaggregatedSpec& spec) {
    return std::make_unique<reference::DisaggregatedConsumer>(spec);
  };
  parts.make_nixl_worker = [](const DisaggregatedSpec& spec, EngineRole role,
                              std::uint32_t rank) -> std::unique_ptr<DisaggregatedWorker> {
    if (role == EngineRole::kConsumer) {
      return std::make_unique<reference::DisaggregatedConsumerWorker>(spec, rank);
    }
    return std::make_unique<reference::DisaggregatedProducerWorker>(spec, rank);
  };
  parts.make_aggregate = [](const EngineSetup&, std::uint32_t num_ranks) {
    return aggregate_with(reference::KVOutputAggregator(num_ranks));
  };
  const auto make_scheduler = [](const SchedulerConfig& config, KVConnectorHandle connector) {
    return reference::Scheduler(config, std::move(connector));
  };
  return std::make_unique<EngineDriver<reference::Scheduler>>("reference", make_scheduler,
                                                              std::move(parts));
}

/// Every member that a line expects is what is seen behind it.
void expect(const std::string& config, std::string_view lines) {
  const Parsed<Document> document =
      parse_document("target engine\nconfig " + config + "\n" + std::string(lines));
  ASSERT_TRUE(document) << document.error().to_text();
  const auto scenario = scenario_from_document(EngineTarget::description(), *document);
  ASSERT_TRUE(scenario) << scenario.error().to_text();
  const std::unique_ptr<Implementation> pair = make_reference();
  const Setup setup = *prepare(*scenario);
  ASSERT_FALSE(pair->reset(setup));
  const std::unique_ptr<World> world = setup.target().make_world(setup);
  for (const Step& step : scenario->steps) {
    world->apply(step.command);
    Observation seen;
    ASSERT_FALSE(pair->apply(step.command, *world, Observe::kState, seen));
    const std::vector<Field> fields = to_fields(seen);
    const std::string line = print(to_line(step.command));
    const std::vector<Field> expected = step.expectation.value_or(std::vector<Field>());
    const bool refuses = find_field(expected, "error") != nullptr;
    if (!refuses) {
      ASSERT_EQ(seen.error, ErrorCode::kNone) << line << " " << to_text(seen.error);
    }
    for (const Field& field : expected) {
      const Field* const actual = find_field(fields, field.key);
      const std::string text = actual ? print(actual->value) : "absent";
      ASSERT_EQ(text, print(field.value))
          << line << " (line " << step.position.line << ") " << field.key;
    }
  }
}

/// Behind it request A is finished at the producer, in blocks 1 and 2, and the router knows.
constexpr const char* kPrefillsA = R"(
add_request engine=producer id=A tokens=[1 2 3 4 5 6 7 8] do_remote_decode=true max_tokens=1
schedule engine=producer -> reqs_in_batch=[A]
update engine=producer -> finished_prefills=[(prefill request=A blocks=[1 2])]
)";

/// And here all ranks of the consumer started to read it for request B.
const std::string kReadsA = std::string(kPrefillsA) + R"(
hand_over request=A id=B max_tokens=4
schedule engine=consumer -> reqs_to_recv=[(receive request=B remote_request=A local_blocks=[1 2] remote_blocks=[1 2])]
update engine=consumer
)";

constexpr const char* kOld = "assembly=prefill_decode num_gpu_blocks=9 profile=v0.19";
constexpr const char* kNew = "assembly=prefill_decode num_gpu_blocks=9 profile=v0.23";
const std::string kFaulty =
    std::string(kOld) + " engines=2 connectors=[(nixl transport_may_fail=true)]";
const std::string kFaultyForEver =
    std::string(kOld) + " engines=2 connectors=[(nixl deadline=0 transport_may_fail=true)]";

TEST(NixlPair, AConsumerReadsAndTheProducerIsTold) {
  expect(kOld, kReadsA + R"(
schedule engine=producer -> reqs_to_send=[(send request=A expires=30)]
update engine=producer -> finished_sending=[] num_referenced_blocks=3
schedule engine=consumer -> consumer_scheduled=[]
update engine=consumer -> finished_recving=[]
advance_read read=0 -> notices=[(notice notice=0 requests=[A])]
schedule engine=consumer
update engine=consumer -> finished_recving=[B] reads=[]
schedule engine=consumer -> consumer_new_reqs=[(new request=B num_computed_tokens=7 blocks=[[1 2]])]
update engine=consumer -> consumer_outputs=[(output request=B tokens=[1])]
schedule engine=producer
update engine=producer -> finished_sending=[]
deliver_notice notice=0
schedule engine=producer
update engine=producer -> finished_sending=[A] notices=[] num_referenced_blocks=1
)");
}

TEST(NixlPair, LocalRequestsGoOnAsEver) {
  expect(kOld, kReadsA + R"(
add_request engine=producer id=C tokens=[1 2 3 4 9] max_tokens=1
add_request engine=consumer id=D tokens=[1 2 3 4 9] max_tokens=1
schedule engine=producer -> reqs_in_batch=[] scheduled=[(scheduled request=C num_tokens=1 samples=true)]
update engine=producer -> finished_prefills=[] num_referenced_blocks=3
schedule engine=consumer -> reqs_to_recv=[] consumer_scheduled=[(scheduled request=D num_tokens=5 samples=true)]
update engine=consumer -> consumer_num_referenced_blocks=3
add_request engine=consumer id=E tokens=[1] do_remote_decode=true -> error=not_in_config
)");
}

TEST(NixlPair, AnAbortBeforeTheReadTellsTheProducer) {
  expect(kOld, std::string(kPrefillsA) + R"(
hand_over request=A id=B
finish_requests engine=consumer requests=[B]
schedule engine=consumer -> reqs_to_recv=[(receive request=B remote_request=A)]
update engine=consumer -> reads=[] notices=[(notice notice=0 requests=[A])]
deliver_notice notice=0
schedule engine=producer
update engine=producer -> finished_sending=[A]
)");
}

TEST(NixlPair, AnAbortWhileReadingWaitsForTheRead) {
  expect(kOld, kReadsA + R"(
finish_requests engine=consumer requests=[B] -> consumer_num_referenced_blocks=3
schedule engine=consumer -> reqs_to_recv=[]
update engine=consumer -> finished_recving=[] consumer_num_referenced_blocks=3
reset_prefix_cache engine=consumer -> consumer_success=false
advance_read read=0 progress=part
advance_read read=0
schedule engine=consumer
update engine=consumer -> finished_recving=[B] consumer_num_referenced_blocks=1
reset_prefix_cache engine=consumer reset_connector=true -> consumer_success=true
deliver_notice notice=0
schedule engine=producer
update engine=producer -> finished_sending=[A] num_referenced_blocks=1
)");
}

TEST(NixlPair, AnAbortAtTheProducerFreesAtOnce) {
  expect(kOld, R"(
add_request engine=producer id=A tokens=[1 2 3 4 5 6 7 8] do_remote_decode=true max_tokens=2
schedule engine=producer
update engine=producer -> finished_prefills=[]
finish_requests engine=producer requests=[A] -> num_referenced_blocks=1
schedule engine=producer -> reqs_not_processed=[A] reqs_to_send=[]
update engine=producer
hand_over request=A id=B -> error=not_finished
)");
}

TEST(NixlPair, OnlyTheNewerReleaseSendsWhatStopped) {
  const std::string stops = R"(
add_request engine=producer id=A tokens=[1 2 3 4] do_remote_decode=true max_tokens=2 stop_tokens=[7]
schedule engine=producer
update engine=producer token=7 -> )";
  expect(kOld, stops + "finished_prefills=[] num_referenced_blocks=1");
  expect(kNew, stops + "finished_prefills=[(prefill request=A blocks=[1])]");
}

TEST(NixlPair, TheDeadlineGivesBackWhatNobodyReads) {
  expect(kOld, std::string(kPrefillsA) + R"(
advance_clock seconds=29
schedule engine=producer
update engine=producer -> finished_sending=[] now=29
advance_clock seconds=1
schedule engine=producer
update engine=producer -> finished_sending=[A] num_referenced_blocks=1
)");
}

TEST(NixlPair, WithoutADeadlineALostNoticeHoldsForEver) {
  expect(kFaultyForEver, kReadsA + R"(
advance_read read=0
lose_notice notice=0 -> notices=[]
advance_clock seconds=1000000
schedule engine=producer -> reqs_to_send=[(send request=A expires=none)]
update engine=producer -> finished_sending=[] num_referenced_blocks=3
)");
}

TEST(NixlPair, WithADeadlineALostNoticeDoesNot) {
  expect(kFaulty, kReadsA + R"(
advance_read read=0
lose_notice notice=0
schedule engine=producer
update engine=producer -> finished_sending=[]
advance_clock seconds=30
schedule engine=producer
update engine=producer -> finished_sending=[A] num_referenced_blocks=1
)");
}

TEST(NixlPair, ALateNoticeIsPassedOver) {
  expect(kOld, kReadsA + R"(
advance_read read=0
advance_clock seconds=30
schedule engine=producer
update engine=producer -> finished_sending=[A]
deliver_notice notice=0
schedule engine=producer
update engine=producer -> finished_sending=[] notices=[] num_referenced_blocks=1
)");
}

TEST(NixlPair, ANoticeAtTheDeadlineFinishesOnce) {
  expect(kOld, kReadsA + R"(
advance_read read=0
deliver_notice notice=0
advance_clock seconds=30
schedule engine=producer
update engine=producer -> finished_sending=[A]
schedule engine=producer
update engine=producer -> finished_sending=[]
)");
}

TEST(NixlPair, TheDeadlineFailsAReadUnderWay) {
  expect(kOld, kReadsA + R"(
advance_read read=0 progress=part
advance_clock seconds=30
schedule engine=producer
update engine=producer -> finished_sending=[A] notices=[]
advance_read read=0 -> error=unknown_job
schedule engine=consumer
update engine=consumer -> finished_recving=[B] invalid_blocks=[1 2] consumer_outputs=[(output request=B tokens=[] status=finished_error)] consumer_num_referenced_blocks=1
)");
}

TEST(NixlPair, AReadBehindTheDeadlineFails) {
  expect(std::string(kOld) + " kv_load_failure_policy=recompute", std::string(kPrefillsA) + R"(
advance_clock seconds=30
schedule engine=producer
update engine=producer -> finished_sending=[A]
hand_over request=A id=B
schedule engine=consumer
update engine=consumer -> finished_recving=[B] invalid_blocks=[1 2]
schedule engine=consumer -> reqs_to_recv=[] consumer_scheduled=[(scheduled request=B num_tokens=8 samples=true)]
)");
}

TEST(NixlPair, ARepeatedNoticeIsPassedOver) {
  expect(kFaulty, kReadsA + R"(
advance_read read=0
repeat_notice notice=0 -> error=unknown_job
deliver_notice notice=0
repeat_notice notice=0 -> notices=[(notice notice=0 requests=[A] delivered=true) (notice notice=1 requests=[A])]
deliver_notice notice=1
schedule engine=producer
update engine=producer -> finished_sending=[A]
repeat_notice notice=1
deliver_notice notice=2
schedule engine=producer
update engine=producer -> finished_sending=[] notices=[] num_referenced_blocks=1
)");
}

TEST(NixlPair, ARepeatedNoticeIsNotAnotherRank) {
  expect(kFaulty + " consumer_ranks=2", kReadsA + R"(
schedule engine=producer
update engine=producer
advance_read read=0
deliver_notice notice=0
repeat_notice notice=0
deliver_notice notice=1
schedule engine=producer
update engine=producer -> finished_sending=[] reads=[(read read=0 request=B remote_request=A local_blocks=[1 2] remote_blocks=[1 2] progress=finished) (read read=1 rank=1 request=B remote_request=A local_blocks=[1 2] remote_blocks=[1 2] progress=submitted)]
advance_read read=1
deliver_notice notice=2
schedule engine=producer
update engine=producer -> finished_sending=[A]
)");
}

TEST(NixlPair, AConsumersRankReadsFromSeveralOfTheProducers) {
  expect(kFaulty + " ranks=2", kReadsA + R"(
advance_read read=0 progress=failed
schedule engine=consumer
update engine=consumer -> finished_recving=[] invalid_blocks=[1 2] consumer_num_referenced_blocks=3
advance_read read=1 -> notices=[(notice notice=0 remote_rank=1 requests=[A])]
deliver_notice notice=0
schedule engine=consumer
update engine=consumer -> finished_recving=[B] consumer_num_referenced_blocks=1
schedule engine=producer
update engine=producer -> finished_sending=[]
advance_clock seconds=30
schedule engine=producer
update engine=producer -> finished_sending=[A]
)");
}

TEST(NixlPair, AFailedReadEndsTheRequest) {
  expect(kFaulty, kReadsA + R"(
advance_read read=0 progress=failed -> notices=[]
schedule engine=consumer
update engine=consumer -> finished_recving=[B] invalid_blocks=[1 2] consumer_outputs=[(output request=B tokens=[] status=finished_error)] consumer_num_referenced_blocks=1 num_referenced_blocks=3
)");
}

TEST(NixlPair, AFailedReadIsComputedAnew) {
  expect(kFaulty + " kv_load_failure_policy=recompute", kReadsA + R"(
advance_read read=0 progress=failed
schedule engine=consumer
update engine=consumer -> finished_recving=[B] invalid_blocks=[1 2] consumer_outputs=[]
schedule engine=consumer -> reqs_to_recv=[] consumer_scheduled=[(scheduled request=B num_tokens=8 samples=true)]
update engine=consumer -> consumer_outputs=[(output request=B tokens=[1])]
)");
}

TEST(NixlPair, OnlyWhatIsNotCachedIsRead) {
  expect(kOld, std::string(kPrefillsA) + R"(
add_request engine=consumer id=C tokens=[1 2 3 4 9] max_tokens=1
schedule engine=consumer
update engine=consumer
hand_over request=A id=B
schedule engine=consumer -> reqs_to_recv=[(receive request=B remote_request=A local_blocks=[3] remote_blocks=[2])]
)");
}

TEST(NixlPair, AFailedReadKeepsWhatWasCached) {
  expect(kFaulty + " kv_load_failure_policy=recompute", std::string(kPrefillsA) + R"(
add_request engine=consumer id=C tokens=[1 2 3 4 9] max_tokens=1
schedule engine=consumer
update engine=consumer
hand_over request=A id=B
schedule engine=consumer
update engine=consumer
advance_read read=0 progress=failed
schedule engine=consumer
update engine=consumer -> invalid_blocks=[3] finished_recving=[B]
schedule engine=consumer -> consumer_scheduled=[(scheduled request=B num_tokens=4 samples=true)]
)");
}

TEST(NixlPair, APromptOfOneTokenNeedsOnlyANotice) {
  expect(kOld, R"(
add_request engine=producer id=A tokens=[5] do_remote_decode=true max_tokens=1
schedule engine=producer
update engine=producer -> finished_prefills=[(prefill request=A blocks=[1])]
hand_over request=A id=B
schedule engine=consumer -> reqs_to_recv=[(receive request=B remote_request=A)] consumer_scheduled=[(scheduled request=B num_tokens=1 samples=true)]
update engine=consumer -> notices=[(notice notice=0 requests=[A])] reads=[]
)");
}

TEST(NixlPair, APreemptedConsumerComputesAnew) {
  expect(std::string(kOld) + " consumer_num_gpu_blocks=4", std::string(kPrefillsA) + R"(
add_request engine=consumer id=C tokens=[9] max_tokens=9
schedule engine=consumer
update engine=consumer
hand_over request=A id=B max_tokens=4
schedule engine=consumer -> reqs_to_recv=[(receive request=B remote_request=A local_blocks=[2 3] remote_blocks=[1 2])]
update engine=consumer
advance_read read=0
schedule engine=consumer
update engine=consumer -> finished_recving=[B]
schedule engine=consumer -> consumer_running=[C B]
update engine=consumer
schedule engine=consumer -> consumer_preempted=[B]
update engine=consumer
finish_requests engine=consumer requests=[C]
schedule engine=consumer -> reqs_to_recv=[] consumer_scheduled=[(scheduled request=B num_tokens=5 samples=true)]
)");
}

TEST(NixlPair, ARequestThatIsHandedOverTwiceIsReadOnce) {
  expect(std::string(kOld) + " kv_load_failure_policy=recompute", kReadsA + R"(
hand_over request=A id=C
schedule engine=consumer -> reqs_to_recv=[(receive request=C remote_request=A local_blocks=[3 4] remote_blocks=[1 2])]
update engine=consumer
advance_read read=0
deliver_notice notice=0
schedule engine=producer
update engine=producer -> finished_sending=[A]
schedule engine=consumer
update engine=consumer -> finished_recving=[B C] invalid_blocks=[3 4]
)");
}

TEST(NixlPair, ReadersMayBeFasterThanTheProducer) {
  expect(std::string(kOld) + " async_scheduling=true max_concurrent_batches=2", R"(
add_request engine=producer id=A tokens=[1 2 3 4 5 6 7 8] do_remote_decode=true max_tokens=1
schedule engine=producer -> reqs_in_batch=[A]
schedule engine=producer
update engine=producer -> finished_prefills=[(prefill request=A blocks=[1 2])]
hand_over request=A id=B
schedule engine=consumer
update engine=consumer
advance_read read=0
deliver_notice notice=0
update engine=producer -> finished_sending=[A] num_referenced_blocks=1
schedule engine=producer -> reqs_to_send=[(send request=A expires=30)]
update engine=producer -> finished_sending=[]
advance_clock seconds=60
schedule engine=producer
update engine=producer -> finished_sending=[]
)");
}

TEST(NixlPair, HeartbeatsRenewALease) {
  expect(std::string(kNew) + " max_num_seqs=1", std::string(kPrefillsA) + R"(
schedule engine=producer
update engine=producer
add_request engine=consumer id=C tokens=[9 9 9] max_tokens=9
schedule engine=consumer
update engine=consumer
hand_over request=A id=B
schedule engine=consumer -> heartbeats=[A]
update engine=consumer -> notices=[(notice notice=0 heartbeat=true requests=[A])]
advance_clock seconds=4
schedule engine=consumer -> heartbeats=[]
update engine=consumer
advance_clock seconds=21
schedule engine=consumer -> heartbeats=[A]
update engine=consumer
deliver_notice notice=1
schedule engine=producer
update engine=producer
advance_clock seconds=19
schedule engine=producer
update engine=producer -> finished_sending=[] now=44
advance_clock seconds=1
schedule engine=producer
update engine=producer -> finished_sending=[A]
)");
}

TEST(NixlPair, ARenewedLeaseDoesNotKeepTheNextOne) {
  expect(std::string(kNew) + " max_num_seqs=1", std::string(kPrefillsA) + R"(
add_request engine=producer id=X tokens=[9 9 9 9] do_remote_decode=true max_tokens=1
schedule engine=producer
update engine=producer -> finished_prefills=[(prefill request=X blocks=[3])]
add_request engine=consumer id=C tokens=[9 9 9] max_tokens=9
schedule engine=consumer
update engine=consumer
advance_clock seconds=20
hand_over request=A id=B
schedule engine=consumer -> heartbeats=[A]
update engine=consumer
deliver_notice notice=0
schedule engine=producer
update engine=producer
advance_clock seconds=10
schedule engine=producer
update engine=producer -> finished_sending=[X] num_referenced_blocks=3
)");
}

TEST(NixlPair, BothReleasesAgreeOnTheRest) {
  for (const char* config : {kOld, kNew}) {
    expect(config, kReadsA + R"(
finish_requests engine=consumer requests=[B] status=finished_stopped -> error=bad_range
update engine=producer -> error=no_step_in_flight
hand_over request=Z id=C -> error=unknown_request
hand_over request=A id=B -> error=already_declared
advance_read read=7 -> error=unknown_job
advance_read read=0 progress=failed -> error=not_in_config
deliver_notice notice=9 -> error=unknown_job
lose_notice notice=0 -> error=not_in_config
repeat_notice notice=0 -> error=not_in_config
advance_clock seconds=2000000000 -> error=bad_range
)");
  }
}

}  // namespace
}  // namespace kvfence
