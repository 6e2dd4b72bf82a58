#pragma once

/// The streams of a virtual device and the work in them: lists the steps that can be done next, and
/// does them. The scheduler decides which.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "contract/core/state_digest.h"
#include "cuda/virtual/random.h"
#include "cuda/virtual/story.h"
#include "cuda/virtual/work.h"

namespace kvfence::virtual_device {

/// Cost: a step is O(1) beside its bytes; completing work is O(streams that wait for an event).
/// Work is kept for reuse with its buffers.
class WorkQueue {
 public:
  struct Counters {
    std::uint64_t num_enqueued = 0;
    std::uint64_t num_reads = 0;
    std::uint64_t num_early_reads = 0;    ///< before the work's turn
    std::uint64_t num_waits_blocked = 0;  ///< waits whose event was not over when their turn came
  };

  explicit WorkQueue(bool poisons_destinations) : poisons_destinations_(poisons_destinations) {}
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  /// Makes room for stream number `stream`, from 1. A number that is used again goes on counting
  /// its work, so that moments of its former stream stay valid.
  void open_stream(Actor stream) {
    streams_.resize(std::max<std::size_t>(streams_.size(), stream + 1));
  }
  Actor num_actors() const { return static_cast<Actor>(streams_.size()); }
  Time enqueued(Actor stream) const { return streams_[stream].enqueued; }
  Time completed(Actor stream) const { return streams_[stream].completed; }

  /// Work to be filled in and enqueued.
  Work& take();
  /// Appends to work.stream. Work without chunks completes when its turn comes.
  void enqueue(Work& work);
  /// Cuts the entries into chunks: all in `num_chunks` equal parts, or, where `random` is given, at
  /// random bytes into 1 to num_chunks.
  static void cut(Work& work, std::uint32_t num_chunks, Random* random);

  bool is_over(const Moment& moment) const {
    return streams_[moment.stream].completed >= moment.time &&
           (moment.hold == 0 || moment.hold <= released_hold_);
  }
  std::uint64_t new_hold() { return ++last_hold_; }
  void release_holds();

  bool can_step() const { return ready_ != 0 || !early_.empty(); }
  /// Streams whose next work can run, one bit each.
  std::uint32_t ready() const { return ready_; }
  const std::vector<Work*>& early() const { return early_; }
  Work& head(Actor stream) { return *streams_[stream].work.front(); }
  /// The stream whose next work must run first so that `moment` comes; nothing if it is over, or if
  /// it cannot come (then is_over is false).
  std::optional<Actor> next_towards(Moment moment) const;

  /// One random step of the work of a ready stream, or an early read.
  void step(Actor stream, Random& random);
  void step_early(std::size_t index, Random& random);
  /// All of a ready stream's next work, untorn.
  void finish_head(Actor stream);
  /// Every step that can be done now, streams in order.
  void list_steps(std::vector<Step>& steps) const;
  /// Does the step, if it can be done now.
  bool step(const Step& step);

  /// Frees the memory [begin, end) and returns how much work in flight touches it. Such kernels
  /// fail without running. Such copies go on with the bytes there, or fail where they may not touch
  /// them.
  std::size_t take_away(const std::byte* begin, const std::byte* end, bool is_unmapped);
  /// The work in flight with this time, or nullptr.
  const Work* find(Actor stream, Time time) const;
  /// The work whose action runs, or nullptr.
  const Work* acting() const { return acting_; }

  /// The error that ended all work, or success.
  cudaError_t error() const { return error_; }
  /// Records what happens; nullptr: no record.
  void set_story(Story* story) { story_ = story; }
  std::size_t num_in_flight() const { return num_in_flight_; }
  const Counters& counters() const { return counters_; }

  void add_to(StateHash& hash) const { hash.add_all(streams_, last_hold_, released_hold_, error_); }

 private:
  struct Stream {
    std::deque<Work*> work;
    Time enqueued = 0;
    Time completed = 0;

    void add_to(StateHash& hash) const {
      hash.add_all(enqueued, completed);
      for (const Work* each : work) hash.add(*each);
    }
  };

  /// Passes waits that are over, and marks the stream ready if there is work to do.
  bool settle(Actor stream);
  void settle_waiting();
  /// The next work of its stream is over.
  void retire(Work& work);
  void complete(Work& work);
  void read(Work& work, std::size_t chunk);
  void write(Work& work, std::size_t chunk);
  /// Writes those bytes of a chunk that arrive; of one that was not read, from their source.
  void deliver(Work& work, const Chunk& chunk);
  void act(Work& work);
  void add_to_story(StoryEntry::Kind kind, const Work& work);
  void report_started(Work& work);
  void poison(Entry& entry);
  void leave_early(Work& work);
  Work* find_work(Actor stream, Time time) const;

  bool poisons_destinations_;
  std::vector<Stream> streams_{1};  ///< the host has none
  std::deque<Work> pool_;
  std::vector<Work*> unused_;
  std::vector<Work*> early_;  ///< with reads that can be done before their turn
  std::uint32_t ready_ = 0;
  std::uint32_t waiting_ = 0;  ///< streams whose next work is a wait that is not over
  std::uint64_t last_hold_ = 0;
  std::uint64_t released_hold_ = 0;
  std::size_t num_in_flight_ = 0;
  cudaError_t error_ = cudaSuccess;
  const Work* acting_ = nullptr;
  Story* story_ = nullptr;
  Counters counters_;
};

}  // namespace kvfence::virtual_device
