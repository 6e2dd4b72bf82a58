#pragma once

/// A GPU that looks for trouble: the state on which the functions of the CUDA runtime act.
///
/// A test makes a Device, installs it, and runs code that calls the runtime. One thread; the
/// program and the options decide everything that happens. A device cannot be copied, since the
/// program holds its addresses. To branch, run the program again with other choices.

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "contract/core/state_digest.h"
#include "cuda/virtual/address_space.h"
#include "cuda/virtual/findings.h"
#include "cuda/virtual/options.h"
#include "cuda/virtual/scheduler.h"
#include "cuda/virtual/shadow.h"
#include "cuda/virtual/story.h"
#include "cuda/virtual/work_queue.h"

namespace kvfence::virtual_device {

class Device {
 public:
  struct Counters {
    std::array<std::uint64_t, kNumFunctions> num_calls{};  ///< by Function
    std::uint64_t num_not_ready = 0;                       ///< answers of queries
    std::uint64_t num_spurious = 0;                        ///< of these, though the work was over
    std::uint64_t num_faults = 0;                          ///< injected
    std::uint64_t num_races = 0;                           ///< found, including those not kept
  };

  explicit Device(Options options = {});
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // Calls of a program beside the runtime's.

  /// The host reads or writes memory that the device may touch. Checks only: nothing is copied.
  void host_read(const void* address, std::size_t size);
  void host_write(const void* address, std::size_t size);
  /// Enqueues a kernel's twin: `function` runs when its turn comes, on bytes(). `reads` and
  /// `writes` are all that it touches.
  cudaError_t launch(cudaStream_t stream, const std::vector<MemoryRange>& reads,
                     const std::vector<MemoryRange>& writes, std::function<void()> function);
  /// The bytes at addresses of device or pinned memory; for twins of kernels and for tests.
  /// Aborts unless they lie in one live allocation, and in a twin unless they lie in one range that
  /// it declares.
  std::byte* bytes(const void* address, std::size_t size) const;
  /// Reports repeat it for the following calls. The text is a literal.
  void set_label(Label label) { label_ = label; }
  /// Injects one of these faults, at the first call from now on that meets one; their nth counts
  /// from now. Then no fault is left, nor any that was injected before.
  void inject_once(std::vector<Fault> faults);
  bool has_injected() const { return !injected_.empty(); }

  // Progress.

  /// A call of the program that does nothing: the device may do something.
  void yield();
  /// Every step that can be done now. advance() does one, if it still can be done.
  void list_steps(std::vector<Step>& steps) const { queue_.list_steps(steps); }
  bool advance(const Step& step) { return queue_.step(step); }
  /// Up to `num_steps` steps of one stream, first chunk first; returns how many.
  std::size_t advance(cudaStream_t stream, std::size_t num_steps);
  /// All that can run of a stream's work up to the next moment at which an event was recorded in
  /// it, or up to its end; returns whether anything ran.
  bool advance_to_event(Actor stream);
  /// The work that advance_to_event would run.
  struct NextWork {
    Time last = 0;  ///< of the stream's work; 0: nothing can run
    /// Reads and writes of chunks, and actions; up to the first work that fails.
    std::size_t num_steps = 0;
    std::vector<ByteRange> writes = {};
  };
  NextWork next_work(Actor stream) const;
  /// Up to `num_steps` steps of it, in any order, but not its last; and reads of the stream's that
  /// need not wait for their turn. Returns whether advance_to_event would run anything.
  bool advance_part(Actor stream, std::size_t num_steps, Random& random);
  /// Events that a fault keeps from completing (kNeverReady) complete.
  void release_completions() { queue_.release_holds(); }
  /// Whether an error has ended all work.
  bool is_lost() const { return queue_.error() != cudaSuccess; }
  /// Whether the host knows that this work of a stream is over.
  bool host_knows(Actor stream, Time time) const { return host_clock_.seen[stream] >= time; }
  /// Whether it knows of the last write of each of these bytes.
  bool host_knows_writes(const void* address, std::size_t size) const;
  /// The number that reports give a stream.
  Actor stream_number(cudaStream_t stream) const;

  /// Records from now on what the program asks and what the device does; nullptr ends it. The story
  /// outlives the device, or stays until it is ended.
  void set_story(Story* story) {
    story_ = story;
    queue_.set_story(story);
  }

  // Findings.

  const std::vector<Race>& races() const { return races_; }
  const std::vector<Misuse>& misuses() const { return misuses_; }
  bool is_clean() const { return races_.empty() && misuses_.empty(); }
  /// `schedule=random seed=7 calls=31 races=1 misuses=0`, then a line for each finding.
  std::string report() const;
  const Counters& counters() const { return counters_; }
  const WorkQueue& queue() const { return queue_; }
  /// The number of calls so far stands for the order of accesses, since the happens-before check
  /// treats no two calls alike.
  void add_to(StateHash& hash) const {
    hash.add_all(call_, memory_, queue_, scheduler_, host_clock_.seen, injected_.size(),
                 races_.size(), misuses_.size());
  }
  /// Allocations that were not freed.
  std::size_t num_allocations() const { return memory_.num_live(); }
  std::size_t num_streams() const;
  std::size_t num_events() const;

  // Only for the functions of the runtime, which are defined in device_*.cpp.

  struct StreamState {
    std::uint32_t generation = 0;
    bool is_live = false;
    std::uint32_t num_polls = 0;
    std::uint32_t num_spurious = 0;
    Clock clock;  ///< what happens before the next work
  };
  struct EventState {
    std::uint32_t generation = 0;
    bool is_live = false;
    bool is_recorded = false;
    bool has_timing = false;
    std::uint32_t num_polls = 0;
    std::uint32_t num_spurious = 0;
    std::size_t num_late = 0;  ///< queries that a fault still answers with NotReady
    std::uint64_t recorded_at_call = 0;
    Moment moment;  ///< the snapshot
    Clock clock;
  };
  /// A copy that has passed the checks of its arguments.
  struct Copy {
    Place dst;
    Place src;
    std::size_t size = 0;
    bool has_host_address = false;  ///< where the device has another address
  };

  // device.cpp
  /// Begins each call: numbers it, injects faults, and returns the code that ends it at once, if
  /// any.
  std::optional<cudaError_t> enter(Function function);
  void misuse(Misuse::Kind kind, Function function);
  void misuse(Misuse::Kind kind) { misuse(kind, function_); }
  StreamState* find_stream(cudaStream_t stream);
  EventState* find_event(cudaEvent_t event);
  Actor open_stream();
  void access(Access access, const Clock& clock);
  /// The first moment after what is completed at which a live event was recorded, or the end.
  Time next_recorded(Actor stream) const;
  /// An access by work that is about to be enqueued, or by the host.
  Access describe(const Place& place, std::size_t size, bool is_write,
                  const Work* of = nullptr) const;
  void host_access(const void* address, std::size_t size, Function function);
  /// The clock of work about to be enqueued in a stream; advances the host's time.
  const Clock& clock_of_next(Actor stream);
  void host_learns(const Clock& clock);
  void add_to_story(StoryEntry::Kind kind, Actor stream, std::uint32_t event, const Moment& moment);
  cudaError_t wait_for(Moment moment, const Clock& clock);
  bool is_checking() const { return options_.checks_happens_before; }

  // device_copies.cpp
  cudaError_t check_copy(const void* dst, const void* src, std::size_t size, cudaMemcpyKind kind,
                         Copy& copy);
  Work& start_work(Actor stream, Work::Kind kind);
  void add_entry(Work& work, const Copy& copy, cudaMemcpySrcAccessOrder order,
                 std::uint32_t number);
  /// An action declares a range.
  void touch(Work& work, const Place& place, std::size_t size, bool is_write);
  void enqueue(Work& work);
  void enqueue_wait(Actor stream, Moment moment, const Clock& clock);
  /// Poisons what the fault of the call in progress leaves undefined, if anything.
  void enqueue_undefined(Actor stream);
  bool has_fault(Fault::Kind kind) const { return fault_ && fault_->kind == kind; }
  /// Enqueues a copy of one entry or of rows.
  cudaError_t enqueue_copies(std::span<const Copy> copies, Actor stream);

  // device_memory.cpp
  /// The host gives back the bytes of an allocation.
  void give_back(const Allocation& allocation);

  // device_streams.cpp
  /// The answer of a query, and the last error.
  cudaError_t not_ready();
  cudaError_t query(const Moment& moment, const Clock& clock, std::uint32_t& num_polls,
                    std::uint32_t& num_spurious);

  Options options_;
  AddressSpace memory_;
  WorkQueue queue_;
  Scheduler scheduler_;
  Shadow shadow_;
  Clock host_clock_;
  std::vector<StreamState> streams_;  ///< by Actor; the first is unused
  std::vector<EventState> events_;
  std::vector<std::uint32_t> unused_events_;
  std::uint64_t call_ = 0;
  Function function_ = Function::kDeviceSynchronize;  ///< of the call in progress
  Label label_;
  /// For cudaGetLastError: only of queries, since other errors are failures that a caller sees.
  cudaError_t last_error_ = cudaSuccess;
  std::vector<Fault> injected_;  ///< nth counts from the start of the run
  std::optional<Fault> fault_;   ///< of the call in progress
  std::vector<Copy> copies_;     ///< of the call in progress
  std::vector<Race> races_;
  std::vector<Misuse> misuses_;
  Counters counters_;
  Story* story_ = nullptr;
};

/// The device that the runtime's functions use in this thread; aborts if there is none.
Device& current();

/// Makes a device the current one during its lifetime.
class Installed {
 public:
  explicit Installed(Device& device);
  ~Installed();
  Installed(const Installed&) = delete;
  Installed& operator=(const Installed&) = delete;

 private:
  Device* former_;
};

}  // namespace kvfence::virtual_device
