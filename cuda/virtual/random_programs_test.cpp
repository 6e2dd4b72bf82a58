/// Goal: a million random steps of barely correct programs raise no false alarm of order or of
/// bytes, and every program that leaves out one wait is found.
///
/// The generator keeps its own model: for each block its last touches, and for each stream and the
/// host which work of the others it comes after. It orders only what must be ordered, by a means
/// drawn at random.

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "contract/core/sanitized.h"
#include "cuda/virtual/test_rig.h"

namespace kvfence::virtual_device {
namespace {

constexpr std::uint64_t kStepsTotal = kIsSanitized ? 50'000 : 1'000'000;
constexpr std::uint64_t kBrokenPrograms = kIsSanitized ? 100 : 1000;
constexpr std::uint64_t kStepsPerProgram = 1000;

constexpr std::size_t kHostActor = 0;
constexpr std::size_t kActors = 1 + TestRig::kNumStreams;
constexpr std::size_t kEvents = 8;

/// What an actor comes after: the number of works of each stream.
using Knowledge = std::array<std::uint64_t, kActors>;

void learn(Knowledge& a, const Knowledge& b) {
  for (std::size_t actor = 0; actor < kActors; ++actor) a[actor] = std::max(a[actor], b[actor]);
}

struct Reached {
  std::uint64_t num_steps = 0;
  std::uint64_t num_checks = 0;
  std::uint64_t num_event_waits = 0;
  std::uint64_t num_host_waits = 0;
  std::uint64_t num_polls = 0;
  std::uint64_t num_needless = 0;  ///< orders that were known already
  std::uint64_t num_any = 0;
  std::uint64_t num_frees = 0;
  std::uint64_t num_left_out = 0;
};

class RandomProgram {
 public:
  /// `breaks`: leaves out the order that one step needs, once.
  RandomProgram(TestRig& rig, std::uint64_t seed, bool breaks, Reached& reached)
      : rig_(rig), random_(seed), breaks_(breaks), reached_(reached) {}

  void run(std::uint64_t num_steps) {
    for (std::uint64_t step = 0; step < num_steps; ++step) {
      ++reached_.num_steps;
      rig_.device().set_label({"step", step});
      do_step();
      if (breaks_ && has_broken_) break;
    }
    ok(cudaDeviceSynchronize());
    for (std::size_t block = 0; block < TestRig::kNumBlocks; ++block) {
      rig_.expect_cpu(block, cpu_[block].tag);
      rig_.expect_gpu(block, gpu_[block].tag);
    }
    reached_.num_checks += rig_.num_checks();
  }
  bool has_broken() const { return has_broken_; }

 private:
  struct Touch {
    std::size_t actor = kHostActor;
    std::uint64_t number = 0;
  };
  struct Block {
    content::Tag tag{content::kPoisonBlock, 0};
    Touch written;
    std::vector<Touch> read;
  };
  struct Event {
    bool is_recorded = false;
    Knowledge knowledge{};
  };

  std::size_t pick(std::size_t bound) { return random_.below(bound); }
  std::size_t pick_block() { return pick(TestRig::kNumBlocks); }
  content::Tag new_tag() { return {pick(kTags), next_generation_++}; }

  bool knows(std::size_t actor, const Touch& touch) const {
    return touch.actor == kHostActor || know_[actor][touch.actor] >= touch.number;
  }

  /// Makes everything that `actor` does from now on come after the touches.
  void order(std::size_t actor, const std::vector<Touch>& touches) {
    for (const Touch& touch : touches) {
      // The host enqueues the work, so the work comes after all that the host knows.
      if (knows(actor, touch) || knows(kHostActor, touch)) {
        ++reached_.num_needless;
        continue;
      }
      if (breaks_ && (has_broken_ || random_.one_in(20))) {
        has_broken_ = true;
        ++reached_.num_left_out;
        continue;
      }
      if (actor != kHostActor && !random_.one_in(5)) {
        const std::size_t event = pick(kEvents);
        record(event, touch.actor);
        wait(actor, event);
        ++reached_.num_event_waits;
      } else {
        host_waits_for(touch.actor);
      }
    }
  }

  void host_waits_for(std::size_t stream) {
    ++reached_.num_host_waits;
    const std::size_t event = pick(kEvents);
    switch (pick(4)) {
      case 0:
        rig_.sync(stream - 1);
        learn(know_[kHostActor], know_[stream]);
        return;
      case 1:
        while (cudaStreamQuery(rig_.stream(stream - 1)) == cudaErrorNotReady) progress();
        learn(know_[kHostActor], know_[stream]);
        return;
      case 2:
        record(event, stream);
        ok(cudaEventSynchronize(rig_.event(event)));
        learn(know_[kHostActor], events_[event].knowledge);
        return;
      default:
        record(event, stream);
        while (cudaEventQuery(rig_.event(event)) == cudaErrorNotReady) progress();
        learn(know_[kHostActor], events_[event].knowledge);
        return;
    }
  }

  void progress() {
    ++reached_.num_polls;
    std::vector<Step> steps;
    rig_.device().list_steps(steps);
    // A commanded device does nothing by itself.
    if (!steps.empty()) rig_.device().advance(steps[pick(steps.size())]);
  }

  void record(std::size_t event, std::size_t stream) {
    rig_.record(event, stream - 1);
    learn(know_[stream], know_[kHostActor]);
    events_[event] = {true, know_[stream]};
  }
  void wait(std::size_t stream, std::size_t event) {
    rig_.wait(stream - 1, event);
    if (events_[event].is_recorded) learn(know_[stream], events_[event].knowledge);
  }

  static std::vector<Touch> before_write(const Block& block) {
    std::vector<Touch> touches = block.read;
    touches.push_back(block.written);
    return touches;
  }
  /// The next work of a stream, after the work that it must come after.
  Touch enqueue(std::size_t stream) {
    learn(know_[stream], know_[kHostActor]);
    return {stream, ++know_[stream][stream]};
  }
  static void write(Block& block, const Touch& touch, content::Tag tag) {
    block.written = touch;
    block.read.clear();
    block.tag = tag;
  }

  std::size_t pick_stream() { return 1 + pick(TestRig::kNumStreams); }

  void copy(Block& src, Block& dst, void* dst_address, const void* src_address) {
    if (&src == &dst) return;
    const std::size_t stream = pick_stream();
    order(stream, {src.written});
    order(stream, before_write(dst));
    const Touch touch = enqueue(stream);
    src.read.push_back(touch);
    write(dst, touch, src.tag);
    ok(cudaMemcpyAsync(dst_address, src_address, TestRig::kBlockBytes, cudaMemcpyDefault,
                       rig_.stream(stream - 1)));
  }

  void batch() {
    const std::size_t stream = pick_stream();
    const bool is_early = random_.one_in(2);
    const bool is_load = random_.one_in(2);
    auto& from = is_load ? cpu_ : gpu_;
    auto& to = is_load ? gpu_ : cpu_;
    const std::size_t num_entries = 1 + pick(4);
    const std::size_t first_dst = pick_block();
    std::vector<TestRig::BlockCopy> copies;
    std::vector<std::pair<std::size_t, std::size_t>> blocks;
    for (std::size_t entry = 0; entry < num_entries; ++entry) {
      const std::size_t src = pick_block();
      const std::size_t dst = (first_dst + entry) % TestRig::kNumBlocks;
      blocks.emplace_back(src, dst);
      copies.push_back(is_load ? TestRig::BlockCopy{rig_.gpu(dst), rig_.cpu(src)}
                               : TestRig::BlockCopy{rig_.cpu(dst), rig_.gpu(src)});
    }
    for (const auto& [src, dst] : blocks) {
      // Out of stream order, only the host's knowledge counts.
      order(is_early ? kHostActor : stream, {from[src].written});
      order(stream, before_write(to[dst]));
    }
    if (is_early) ++reached_.num_any;
    const Touch touch = enqueue(stream);
    for (const auto& [src, dst] : blocks) {
      from[src].read.push_back(touch);
      write(to[dst], touch, from[src].tag);
    }
    ok(rig_.batch(stream - 1, copies,
                  is_early ? cudaMemcpySrcAccessOrderAny : cudaMemcpySrcAccessOrderStream));
  }

  void rows() {
    // Every second block of the device, from a run of the host's.
    const std::size_t first = pick(2);
    const std::size_t cpu_first = pick(TestRig::kNumBlocks - 3);
    const std::size_t stream = pick_stream();
    for (std::size_t row = 0; row < 3; ++row) {
      order(stream, {cpu_[cpu_first + row].written});
      order(stream, before_write(gpu_[first + 2 * row]));
    }
    const Touch touch = enqueue(stream);
    for (std::size_t row = 0; row < 3; ++row) {
      cpu_[cpu_first + row].read.push_back(touch);
      write(gpu_[first + 2 * row], touch, cpu_[cpu_first + row].tag);
    }
    ok(cudaMemcpy2DAsync(rig_.gpu(first), 2 * TestRig::kBlockBytes, rig_.cpu(cpu_first),
                         TestRig::kBlockBytes, TestRig::kBlockBytes, 3, cudaMemcpyHostToDevice,
                         rig_.stream(stream - 1)));
  }

  void compute() {
    const std::size_t stream = pick_stream();
    const std::size_t block = pick_block();
    order(stream, before_write(gpu_[block]));
    write(gpu_[block], enqueue(stream), new_tag());
    rig_.compute(stream - 1, block, gpu_[block].tag);
  }
  void attend() {
    const std::size_t stream = pick_stream();
    const std::size_t block = pick_block();
    order(stream, {gpu_[block].written});
    gpu_[block].read.push_back(enqueue(stream));
    rig_.attend(stream - 1, block, gpu_[block].tag);
  }
  void host_write() {
    const std::size_t block = pick_block();
    order(kHostActor, before_write(cpu_[block]));
    write(cpu_[block], {}, new_tag());
    rig_.fill(block, cpu_[block].tag);
  }
  void host_read() {
    const std::size_t block = pick_block();
    order(kHostActor, {cpu_[block].written});
    if (!has_broken_) rig_.expect_cpu(block, cpu_[block].tag);
    if (has_broken_) rig_.device().host_read(rig_.cpu(block), TestRig::kBlockBytes);
  }
  void staging() {
    const std::size_t stream = pick_stream();
    const std::size_t block = pick_block();
    void* memory = nullptr;
    ok(cudaHostAlloc(&memory, TestRig::kBlockBytes, cudaHostAllocDefault));
    rig_.device().host_write(memory, TestRig::kBlockBytes);
    const content::Tag tag = new_tag();
    content::fill({static_cast<std::byte*>(memory), TestRig::kBlockBytes}, tag, TestRig::kRunSeed);
    order(stream, before_write(gpu_[block]));
    const Touch touch = enqueue(stream);
    write(gpu_[block], touch, tag);
    ok(cudaMemcpyAsync(rig_.gpu(block), memory, TestRig::kBlockBytes, cudaMemcpyHostToDevice,
                       rig_.stream(stream - 1)));
    if (has_broken_) return;
    order(kHostActor, {touch});
    ok(cudaFreeHost(memory));
    ++reached_.num_frees;
  }

  void do_step() {
    const std::size_t a = pick_block();
    const std::size_t b = pick_block();
    switch (pick(15)) {
      case 0:
        return compute();
      case 1:
        return attend();
      case 2:
        return host_write();
      case 3:
        return host_read();
      case 4:
      case 5:
      case 6:
        return batch();
      case 7:
        return rows();
      case 8:
        return copy(gpu_[a], cpu_[b], rig_.cpu(b), rig_.gpu(a));
      case 9:
        return copy(cpu_[a], gpu_[b], rig_.gpu(b), rig_.cpu(a));
      case 10:
        return copy(gpu_[a], gpu_[b], rig_.gpu(b), rig_.gpu(a));
      case 11:
        return copy(cpu_[a], cpu_[b], rig_.cpu(b), rig_.cpu(a));
      case 12:
        return record(pick(kEvents), pick_stream());
      case 13:
        return wait(pick_stream(), pick(kEvents));
      default:
        if (random_.one_in(10)) return staging();
        return rig_.device().yield();
    }
  }

  static constexpr std::uint64_t kTags = 60;

  TestRig& rig_;
  Random random_;
  bool breaks_;
  bool has_broken_ = false;
  Reached& reached_;
  std::array<Block, TestRig::kNumBlocks> gpu_{};
  std::array<Block, TestRig::kNumBlocks> cpu_{};
  std::array<Knowledge, kActors> know_{};
  std::array<Event, kEvents> events_{};
  std::uint32_t next_generation_ = 1;
};

constexpr Schedule kSchedules[] = {Schedule::kEager, Schedule::kLazy, Schedule::kRandom,
                                   Schedule::kPriority, Schedule::kCommanded};

TEST(RandomPrograms, ThatAreRightAreNeverBlamed) {
  Reached reached;
  std::uint64_t num_early_reads = 0;
  std::uint64_t num_blocked = 0;
  std::uint64_t num_spurious = 0;
  for (std::uint64_t seed = 1; reached.num_steps < kStepsTotal; ++seed) {
    const Schedule schedule = kSchedules[seed % std::size(kSchedules)];
    TestRig rig({.schedule = schedule, .seed = seed});
    RandomProgram program(rig, seed, false, reached);
    program.run(kStepsPerProgram);
    ASSERT_TRUE(rig.device().is_clean()) << rig.device().report();
    ASSERT_TRUE(rig.wrong().empty()) << to_text(rig.wrong().front()) << "\n"
                                     << rig.device().report();
    num_early_reads += rig.device().queue().counters().num_early_reads;
    num_blocked += rig.device().queue().counters().num_waits_blocked;
    num_spurious += rig.device().counters().num_spurious;
  }
  for (const std::uint64_t count :
       {reached.num_checks, reached.num_event_waits, reached.num_host_waits, reached.num_polls,
        reached.num_needless, reached.num_any, reached.num_frees, num_early_reads, num_blocked,
        num_spurious}) {
    EXPECT_GT(count, 0U);
  }
  std::cout << reached.num_steps << " steps, " << reached.num_checks << " checks of content, "
            << reached.num_event_waits << " waits for events, " << reached.num_host_waits
            << " of the host, " << reached.num_needless << " orders known already, "
            << num_early_reads << " early reads, " << num_blocked << " waits blocked\n";
}

TEST(RandomPrograms, ThatLeaveOutOneWaitAreFound) {
  Reached reached;
  std::uint64_t num_broken = 0;
  for (std::uint64_t seed = 1; num_broken < kBrokenPrograms; ++seed) {
    const Schedule schedule = kSchedules[seed % std::size(kSchedules)];
    TestRig rig({.schedule = schedule, .seed = seed});
    RandomProgram program(rig, seed, true, reached);
    program.run(kStepsPerProgram);
    if (!program.has_broken()) continue;
    ++num_broken;
    ASSERT_FALSE(rig.device().races().empty()) << "seed " << seed << " " << rig.device().report();
  }
  EXPECT_GT(reached.num_left_out, 0U);
}

}  // namespace
}  // namespace kvfence::virtual_device
