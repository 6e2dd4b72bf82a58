#include "cuda/figures/held_races.h"

#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include "contract/worker/content_report.h"
#include "cuda/copy_paths/host_access.h"
#include "cuda/figures/content_kernel.h"
#include "cuda/figures/latch.h"
#include "planted/cuda/worker/worker.h"
#include "properties/planted/bugs.h"

namespace kvfence::cuda {
namespace {

using planted::cuda::JobId;
using planted::cuda::TransferResult;
using planted::cuda::Worker;

constexpr std::size_t kNumBlocks = 4;
constexpr std::size_t kChecksMax = 8;
constexpr std::uint64_t kRunSeed = 11;
constexpr content::Tag kPoison{content::kPoisonBlock, 0};
// The contents of blocks in turn.
constexpr content::Tag kBefore{1, 1};
constexpr content::Tag kAfter{1, 2};
constexpr content::Tag kOther{2, 1};

}  // namespace

/// A worker, a compute stream that can be held, and blocks on both sides.
class RaceStage {
 public:
  explicit RaceStage(std::size_t page_bytes) : page_bytes_(page_bytes) {}
  ~RaceStage() {
    latch_.open();
    worker_.reset();
    for (const cudaEvent_t event : events_) {
      if (event != nullptr) static_cast<void>(cudaEventDestroy(event));
    }
    for (const cudaStream_t stream : {compute_, loads_}) {
      if (stream == nullptr) continue;
      static_cast<void>(cudaStreamSynchronize(stream));
      static_cast<void>(cudaStreamDestroy(stream));
    }
    if (gpu_ != nullptr) static_cast<void>(cudaFree(gpu_));
  }
  RaceStage(const RaceStage&) = delete;
  RaceStage& operator=(const RaceStage&) = delete;

  void open(CopyPathKind path) {
    ok(latch_.make());
    ok(cudaMalloc(&gpu_, kNumBlocks * page_bytes_));
    ok(PinnedMemory::allocate(kChecksMax * sizeof(content::Mismatch), found_));
    ok(cudaStreamCreateWithFlags(&compute_, cudaStreamNonBlocking));
    ok(cudaStreamCreateWithFlags(&loads_, cudaStreamNonBlocking));
    for (cudaEvent_t& event : events_) {
      ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    }
    if (!is_ok()) return;
    Worker::Opened opened =
        Worker::open({.gpu_layout = {.tensors = {{reinterpret_cast<std::uintptr_t>(gpu_),
                                                  kNumBlocks, page_bytes_, page_bytes_}},
                                     .groups = {{{0, page_bytes_}}}},
                      .num_cpu_blocks = kNumBlocks,
                      .compute_stream = compute_,
                      .only_path = path});
    worker_ = std::move(opened.worker);
    outcome_.refusal = opened.refusal;
  }

  /// The latch stays open in a rehearsal; its findings are discarded.
  void begin(bool is_rehearsal) {
    outcome_ = {};
    num_checks_ = 0;
    latch_.close();
    if (is_rehearsal) latch_.open();
  }
  /// Requires that all work is over, or an error.
  RaceOutcome end() {
    take_findings();
    outcome_.has_timed_out = latch_.has_timed_out();
    return std::move(outcome_);
  }
  bool is_ok() const { return outcome_.code == cudaSuccess && outcome_.refusal.empty(); }
  void ok(cudaError_t code) {
    if (outcome_.code == cudaSuccess) outcome_.code = code;
  }
  void ok(ErrorCode refusal) {
    if (refusal != ErrorCode::kNone && outcome_.refusal.empty()) {
      outcome_.refusal = to_text(refusal);
    }
  }

  // The contents of blocks before a stream is held.

  void put_gpu(std::size_t block, content::Tag tag) {
    compute(block, tag);
    ok(cudaStreamSynchronize(compute_));
  }
  void put_cpu(std::size_t row, content::Tag tag) { put(cpu(row), tag); }
  void put(std::byte* bytes, content::Tag tag) {
    kvfence_host_write(bytes, page_bytes_);
    content::fill({bytes, page_bytes_}, tag, kRunSeed);
  }

  // Compute: kernels that write a block, and kernels that read one and report what they found.

  void hold_compute() { ok(latch_.hold(compute_)); }
  void compute(std::size_t block, content::Tag tag) {
    const ContentSlots slots = slots_of(block, tag);
    ok(kvfence_launch_fill_kernel(&slots, compute_));
  }
  void attend(std::size_t block, content::Tag expected) {
    const ContentSlots slots = slots_of(block, expected);
    auto* const found = reinterpret_cast<content::Mismatch*>(found_.device_address());
    ok(kvfence_launch_check_kernel(&slots, found + num_checks_, compute_));
    expected_[num_checks_++] = {block, expected};
  }
  /// An event after all compute so far; the stage has two.
  cudaEvent_t record_compute(std::size_t event = 0) { return record(event, compute_); }
  cudaEvent_t record_loads(std::size_t event) { return record(event, loads_); }

  // The worker's transfers, one block per transfer.

  void store(JobId job_id, std::uint32_t block, std::uint32_t row) {
    ok(worker_->store(job_id, spec(block, row)));
    worker_->begin_step();
  }
  void load(JobId job_id, std::uint32_t row, std::uint32_t block,
            std::span<const cudaEvent_t> after) {
    ok(worker_->load(job_id, spec(block, row), after));
  }
  /// Where nothing orders the job it ends now, and this waits for it; else it must not end.
  void end_early(JobId job_id, bool can) {
    const JobId jobs[] = {job_id};
    if (can) ok(worker_->wait(jobs));
    take_results();
    outcome_.is_early = num_results_ > 0;
  }

  // Transfers without the worker, on a stream that can be held too.

  void hold_loads() { ok(latch_.hold(loads_)); }
  void load_from(const std::byte* host_bytes, std::size_t block) {
    ok(cudaMemcpyAsync(static_cast<std::byte*>(gpu_) + block * page_bytes_, host_bytes, page_bytes_,
                       cudaMemcpyHostToDevice, loads_));
  }
  void end_loads() {
    latch_.open();
    ok(cudaStreamSynchronize(loads_));
  }
  /// A buffer for one block, from a pool.
  void take_staging() { ok(staging_pool_.take(page_bytes_, staging_)); }
  std::byte* staging() const { return staging_.host_address(); }
  void give_staging() { staging_pool_.give(std::move(staging_)); }
  bool has_staging() const { return staging_.host_address() != nullptr; }

  /// Releases what is held, and waits for all of it.
  void end_all(std::span<const JobId> jobs) {
    latch_.open();
    ok(worker_->wait(jobs));
    take_results();
    ok(cudaStreamSynchronize(loads_));
    ok(cudaStreamSynchronize(compute_));
  }
  void expect_cpu(std::size_t row, content::Tag expected) {
    kvfence_host_read(cpu(row), page_bytes_);
    const content::BlockReport report =
        content::check_block({cpu(row), page_bytes_}, expected, universe());
    if (!report.is_right()) wrong("CPU", row, content::to_text(report));
  }
  /// Of a block, when all is over.
  void expect_gpu(std::size_t block, content::Tag expected) {
    attend(block, expected);
    ok(cudaStreamSynchronize(compute_));
  }

 private:
  std::byte* cpu(std::size_t row) const {
    const PageTensor& rows = worker_->cpu_layout().tensors[0];
    return reinterpret_cast<std::byte*>(rows.address + row * rows.block_stride);
  }
  ContentSlots slots_of(std::size_t block, content::Tag tag) const {
    return {.address = reinterpret_cast<std::uintptr_t>(gpu_) + block * page_bytes_,
            .stride_bytes = page_bytes_,
            .granules_per_slot = page_bytes_ / content::kGranuleBytes,
            .num_slots = 1,
            .first = tag,
            .run_seed = kRunSeed};
  }
  content::Universe universe() const {
    return {kRunSeed, 8, 8, page_bytes_ / content::kGranuleBytes};
  }
  static TransferSpec spec(std::uint32_t block, std::uint32_t row) {
    return {.gpu_blocks = {block}, .cpu_blocks = {row}, .group_sizes = {1}, .block_indices = {0}};
  }
  cudaEvent_t record(std::size_t event, cudaStream_t stream) {
    ok(cudaEventRecord(events_[event], stream));
    return events_[event];
  }
  /// Of the kernels of attend().
  void take_findings() {
    if (num_checks_ == 0) return;
    const std::size_t size = num_checks_ * sizeof(content::Mismatch);
    kvfence_host_read(found_.host_address(), size);
    std::array<content::Mismatch, kChecksMax> found;
    std::memcpy(found.data(), found_.host_address(), size);
    for (std::size_t check = 0; check < num_checks_; ++check) {
      const auto& [block, expected] = expected_[check];
      if (found[check].num_wrong == 0) continue;
      const content::Owner owner = content::decode(kRunSeed, found[check].first_wrong);
      wrong("GPU", block,
            "expected " + content::to_text(expected) + ": " +
                std::to_string(found[check].num_wrong) + " granules wrong, first of " +
                content::to_text(owner.tag));
    }
  }
  void take_results() {
    std::vector<TransferResult> results;
    worker_->poll(results);
    num_results_ = results.size();
    for (const TransferResult& result : results) ok(result.code);
  }
  void wrong(const char* where, std::size_t block, const std::string& what) {
    outcome_.wrong.push_back(std::string(where) + " block " + std::to_string(block) + ": " + what);
  }

  std::size_t page_bytes_;
  RaceOutcome outcome_;
  void* gpu_ = nullptr;
  cudaStream_t compute_ = nullptr;
  cudaStream_t loads_ = nullptr;
  std::array<cudaEvent_t, 2> events_ = {};
  PinnedMemory found_;
  PinnedMemory staging_;
  PinnedPool staging_pool_;
  std::array<std::pair<std::size_t, content::Tag>, kChecksMax> expected_ = {};
  std::size_t num_checks_ = 0;
  std::size_t num_results_ = 0;
  Latch latch_;
  std::unique_ptr<Worker> worker_;
};

namespace {

using Arm = HeldRace::Arm;

constexpr JobId kJob = 1;
constexpr JobId kNextJob = 2;
constexpr JobId kJobs[] = {kJob, kNextJob};

/// M1, M7: the store must wait for the forward that writes its block. M3: it waits, but its source
/// may still be read before that.
void store_after_compute(RaceStage& stage, const Arm& arm) {
  stage.put_gpu(0, kBefore);
  stage.put_cpu(0, kPoison);
  stage.hold_compute();
  stage.compute(0, kAfter);
  stage.store(kJob, 0, 0);
  stage.end_early(kJob, arm.is_early);
  stage.end_all(kJobs);
  stage.expect_cpu(0, kAfter);
}

/// M2: the load must wait for the forward that still reads its block. M6: it gets two events, and
/// the second one matters.
void load_after_reader(RaceStage& stage, const Arm& arm) {
  stage.put_gpu(0, kBefore);
  stage.put_cpu(0, kOther);
  stage.hold_compute();
  stage.attend(0, kBefore);
  const cudaEvent_t after[] = {stage.record_loads(1), stage.record_compute()};
  stage.load(kJob, 0, 0, after);
  stage.end_early(kJob, arm.is_early);
  stage.end_all(kJobs);
  stage.expect_gpu(0, kOther);
}

/// M4: a kernel's descriptors must not change until it has read them.
void descriptors_kept(RaceStage& stage, const Arm& arm) {
  stage.put_gpu(0, kPoison);
  stage.put_gpu(1, kPoison);
  stage.put_cpu(0, kBefore);
  stage.put_cpu(1, kOther);
  stage.hold_compute();
  const cudaEvent_t after[] = {stage.record_compute()};
  stage.load(kJob, 0, 0, after);
  stage.load(kNextJob, 1, 1, after);
  stage.end_early(kJob, arm.is_early);
  stage.end_all(kJobs);
  stage.expect_gpu(0, kBefore);
  stage.expect_gpu(1, kOther);
}

/// Loads block 0 from staging, on the stream that is held. False: there is no staging.
bool load_staging(RaceStage& stage, const Arm& arm) {
  if (!stage.has_staging()) stage.take_staging();
  if (!stage.is_ok()) return false;
  stage.put_gpu(0, kPoison);
  stage.put(stage.staging(), kBefore);
  stage.hold_loads();
  stage.load_from(stage.staging(), 0);
  if (arm.has_barrier) stage.end_loads();
  return true;
}

/// M4: staging may be rewritten only when its load is over.
void staging_rewritten(RaceStage& stage, const Arm& arm) {
  if (!load_staging(stage, arm)) return;
  stage.put(stage.staging(), kAfter);
  stage.end_all({});
  stage.expect_gpu(0, kBefore);
}

/// M5: staging may be given back, and used by another, only when its load is over.
void staging_given_back(RaceStage& stage, const Arm& arm) {
  stage.put_gpu(1, kPoison);
  if (!load_staging(stage, arm)) return;
  stage.give_staging();
  stage.take_staging();
  stage.put(stage.staging(), kOther);
  stage.load_from(stage.staging(), 1);
  stage.end_all({});
  stage.expect_gpu(0, kBefore);
  stage.expect_gpu(1, kOther);
}

using Kind = CopyPathKind;

}  // namespace

std::span<const HeldRace> held_races() {
  const std::vector<Kind> all = {Kind::kBatched, Kind::kLooped, Kind::kStrided, Kind::kKernel};
  static const std::vector<HeldRace> races = {
      {.id = "M1",
       .name = "store does not wait for compute",
       .bug = "store_ignores_compute",
       .paths = all,
       .is_early = true,
       .program = store_after_compute},
      {.id = "M2",
       .name = "load into a block that is still read",
       .bug = "load_ignores_readers",
       .paths = all,
       .is_early = true,
       .program = load_after_reader},
      {.id = "M3",
       .name = "store in Any order after a wait",
       .bug = "store_reads_in_any_order",
       .paths = {Kind::kBatched},
       .must_corrupt = false,
       .program = store_after_compute},
      {.id = "M4",
       .name = "descriptors rewritten before the kernel has read them",
       .bug = "descriptors_reused_in_flight",
       .paths = {Kind::kKernel},
       .program = descriptors_kept},
      {.id = "M4",
       .name = "staging rewritten while it is loaded",
       .paths = {Kind::kLooped},
       .program = staging_rewritten},
      {.id = "M5",
       .name = "staging given back while it is loaded",
       .paths = {Kind::kLooped},
       .program = staging_given_back},
      {.id = "M6",
       .name = "second event not waited for",
       .bug = "only_first_event_awaited",
       .paths = all,
       .is_early = true,
       .program = load_after_reader},
      {.id = "M7",
       .name = "event recorded again before the wait",
       .bug = "event_recorded_again_before_wait",
       .paths = all,
       .is_early = true,
       .program = store_after_compute},
  };
  return races;
}

RaceOutcome run_race(const HeldRace& race, CopyPathKind path, bool has_barrier,
                     std::size_t page_bytes) {
  const planted::SwitchedOn bug("worker", has_barrier ? "" : race.bug);
  RaceStage stage(page_bytes);
  stage.open(path);
  for (const bool is_rehearsal : {true, false}) {
    if (!stage.is_ok()) break;
    stage.begin(is_rehearsal);
    race.program(stage, {has_barrier, !has_barrier && race.is_early});
  }
  return stage.end();
}

}  // namespace kvfence::cuda
