#include "cuda/virtual/scenarios.h"

namespace kvfence::virtual_device {
namespace {

constexpr content::Tag kFirst{1, 1};
constexpr content::Tag kSecond{1, 2};
constexpr content::Tag kOther{2, 1};
constexpr auto kAny = cudaMemcpySrcAccessOrderAny;

// Streams of a worker.
constexpr std::size_t kCompute = 0;
constexpr std::size_t kToHost = 1;
constexpr std::size_t kToDevice = 2;
constexpr std::size_t kElsewhere = 3;

void finish(TestRig& rig) {
  // Copies first: where nothing orders them after compute, this shows it.
  rig.sync(kToHost);
  rig.sync(kToDevice);
  ok(cudaDeviceSynchronize());
}

void store_does_not_wait_for_compute(TestRig& rig) {
  rig.compute(kCompute, 0, kFirst);
  rig.store(kToHost, 0, 0);
  finish(rig);
  rig.expect_cpu(0, kFirst);
}

void load_into_a_block_that_is_still_read(TestRig& rig) {
  rig.set_gpu(0, kFirst);
  rig.set_cpu(0, kOther);
  rig.attend(kCompute, 0, kFirst);
  rig.load(kToDevice, 0, 0);
  finish(rig);
}

void any_order_behind_a_wait(TestRig& rig) {
  rig.compute(kCompute, 0, kFirst);
  rig.record(0, kCompute);
  rig.wait(kToHost, 0);
  ok(rig.batch(kToHost, {{rig.cpu(0), rig.gpu(0)}}, kAny));
  finish(rig);
  rig.expect_cpu(0, kFirst);
}

void staging_rewritten_while_it_is_loaded(TestRig& rig) {
  rig.fill(0, kFirst);
  rig.load(kToDevice, 0, 0);
  rig.fill(0, kSecond);
  finish(rig);
  rig.expect_gpu(0, kFirst);
}

void staging_freed_while_it_is_loaded(TestRig& rig) {
  void* staging = nullptr;
  ok(cudaHostAlloc(&staging, TestRig::kBlockBytes, cudaHostAllocDefault));
  rig.device().host_write(staging, TestRig::kBlockBytes);
  content::fill({static_cast<std::byte*>(staging), TestRig::kBlockBytes}, kFirst,
                TestRig::kRunSeed);
  ok(cudaMemcpyAsync(rig.gpu(0), staging, TestRig::kBlockBytes, cudaMemcpyHostToDevice,
                     rig.stream(kToDevice)));
  ok(cudaFreeHost(staging));
  finish(rig);
  rig.expect_gpu(0, kFirst);
}

void end_event_recorded_before_the_copy(TestRig& rig) {
  rig.set_gpu(0, kFirst);
  rig.record(0, kToHost);
  rig.store(kToHost, 0, 0);
  ok(cudaEventSynchronize(rig.event(0)));
  rig.expect_cpu(0, kFirst);
  finish(rig);
}

void import_event_never_waited_for(TestRig& rig) {
  rig.set_cpu(0, kFirst);
  rig.load(kToDevice, 0, 0);
  rig.record(0, kToDevice);
  rig.attend(kCompute, 0, kFirst);
  ok(cudaStreamSynchronize(rig.stream(kCompute)));
  finish(rig);
}

void event_recorded_again_before_the_wait(TestRig& rig) {
  rig.compute(kCompute, 0, kFirst);
  rig.record(0, kCompute);
  rig.record(0, kElsewhere);
  rig.wait(kToHost, 0);
  rig.store(kToHost, 0, 0);
  finish(rig);
  rig.expect_cpu(0, kFirst);
}

void event_waited_for_before_its_first_record(TestRig& rig) {
  rig.compute(kCompute, 0, kFirst);
  rig.wait(kToHost, 0);
  rig.record(0, kCompute);
  rig.store(kToHost, 0, 0);
  finish(rig);
  rig.expect_cpu(0, kFirst);
}

void dependent_entries_in_one_batch(TestRig& rig) {
  rig.set_cpu(0, kFirst);
  ok(rig.batch(kToDevice, {{rig.gpu(0), rig.cpu(0)}, {rig.gpu(1), rig.gpu(0)}}));
  finish(rig);
  rig.expect_gpu(1, kFirst);
}

void two_entries_with_one_destination(TestRig& rig) {
  rig.set_cpu(0, kFirst);
  rig.set_cpu(1, kSecond);
  ok(rig.batch(kToDevice, {{rig.gpu(0), rig.cpu(0)}, {rig.gpu(0), rig.cpu(1)}}));
  finish(rig);
  rig.expect_gpu(0, kSecond);
}

void load_in_any_order_of_what_is_being_stored(TestRig& rig) {
  rig.set_gpu(0, kFirst);
  rig.set_cpu(0, kOther);
  rig.store(kToHost, 0, 0);
  rig.record(0, kToHost);
  rig.wait(kToDevice, 0);
  ok(rig.batch(kToDevice, {{rig.gpu(1), rig.cpu(0)}}, kAny));
  finish(rig);
  rig.expect_gpu(1, kFirst);
}

void host_slot_stored_to_before_its_load_ends(TestRig& rig) {
  rig.set_cpu(0, kFirst);
  rig.set_gpu(1, kOther);
  rig.load(kToDevice, 0, 0);
  rig.store(kToHost, 1, 0);
  finish(rig);
  rig.expect_gpu(0, kFirst);
}

void stored_before_it_is_loaded(TestRig& rig) {
  rig.set_cpu(0, kFirst);
  rig.load(kToDevice, 0, 0);
  rig.store(kToHost, 0, 1);
  finish(rig);
  rig.expect_cpu(1, kFirst);
}

void block_computed_again_while_it_is_stored(TestRig& rig) {
  rig.compute(kCompute, 0, kFirst);
  rig.record(0, kCompute);
  rig.wait(kToHost, 0);
  rig.store(kToHost, 0, 0);
  rig.compute(kCompute, 0, kOther);  // the block's next owner
  ok(cudaStreamSynchronize(rig.stream(kCompute)));
  finish(rig);
  rig.expect_cpu(0, kFirst);
}

void store_behind_compute(TestRig& rig) {
  rig.compute(kCompute, 0, kFirst);
  rig.record(0, kCompute);
  rig.wait(kToHost, 0);
  rig.store(kToHost, 0, 0);
  rig.record(1, kToHost);
  rig.wait(kCompute, 1);
  rig.compute(kCompute, 0, kOther);
  ok(cudaEventSynchronize(rig.event(1)));
  rig.expect_cpu(0, kFirst);
  rig.fill(0, kSecond);
  finish(rig);
  rig.expect_gpu(0, kOther);
}

void load_behind_the_last_reader(TestRig& rig) {
  rig.set_gpu(0, kFirst);
  rig.fill(0, kOther);
  rig.attend(kCompute, 0, kFirst);
  rig.record(0, kCompute);
  rig.wait(kToDevice, 0);
  rig.record(0, kElsewhere);  // after the wait: does not concern it
  rig.load(kToDevice, 0, 0);
  rig.record(1, kToDevice);
  rig.wait(kCompute, 1);
  rig.attend(kCompute, 0, kOther);
  if (cudaEventQuery(rig.event(1)) == cudaErrorNotReady) ok(cudaEventSynchronize(rig.event(1)));
  rig.fill(0, kSecond);
  finish(rig);
}

void load_in_any_order_of_what_was_seen_stored(TestRig& rig) {
  rig.set_gpu(0, kFirst);
  rig.store(kToHost, 0, 0);
  rig.record(0, kToHost);
  ok(cudaEventSynchronize(rig.event(0)));
  ok(rig.batch(kToDevice, {{rig.gpu(1), rig.cpu(0)}, {rig.gpu(2), rig.cpu(0)}}, kAny));
  rig.record(1, kToDevice);
  rig.wait(kCompute, 1);
  rig.attend(kCompute, 1, kFirst);
  rig.attend(kCompute, 2, kFirst);
  finish(rig);
}

}  // namespace

const std::vector<Scenario>& racy_scenarios() {
  static const std::vector<Scenario> scenarios = {
      {"store does not wait for compute", "M1", store_does_not_wait_for_compute},
      {"load into a block that is still read", "M2", load_into_a_block_that_is_still_read},
      {"Any order behind a wait", "M3", any_order_behind_a_wait},
      {"staging rewritten while it is loaded", "M4", staging_rewritten_while_it_is_loaded},
      {"staging freed while it is loaded", "M5", staging_freed_while_it_is_loaded},
      {"end event recorded before the copy", "end-event", end_event_recorded_before_the_copy},
      {"import event never waited for", "M6", import_event_never_waited_for},
      {"event recorded again before the wait", "M7", event_recorded_again_before_the_wait},
      {"event waited for before its first record", "unrecorded",
       event_waited_for_before_its_first_record},
      {"dependent entries in one batch", "batch", dependent_entries_in_one_batch},
      {"two entries with one destination", "batch", two_entries_with_one_destination},
      {"load in Any order of what is being stored", "M3-load",
       load_in_any_order_of_what_is_being_stored},
      {"host slot stored to before its load ends", "slot",
       host_slot_stored_to_before_its_load_ends},
      {"stored before it is loaded", "M11", stored_before_it_is_loaded},
      {"block computed again while it is stored", "reuse", block_computed_again_while_it_is_stored},
  };
  return scenarios;
}

const std::vector<Scenario>& right_scenarios() {
  static const std::vector<Scenario> scenarios = {
      {"store behind compute", "", store_behind_compute},
      {"load behind the last reader", "", load_behind_the_last_reader},
      {"load in Any order of what was seen stored", "", load_in_any_order_of_what_was_seen_stored},
  };
  return scenarios;
}

}  // namespace kvfence::virtual_device
