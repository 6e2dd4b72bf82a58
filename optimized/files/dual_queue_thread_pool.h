#pragma once

/// A pool of threads that load and store blocks, for jobs of many blocks each.
/// Source: vLLM v0.23.0 v1/kv_offload/tiering/fs/thread_pool.py DualQueueThreadPool.

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "contract/tiering/secondary_tier.h"

namespace kvfence::optimized {

/// Two queues, of loads and of stores. Read threads take from the loads first, write threads from
/// the stores. A thread with an empty queue takes from the other, so neither kind waits for the
/// other. A job is finished when all its blocks are, and succeeds if all did. Jobs that are done
/// are reported once.
class DualQueueThreadPool {
 public:
  enum class Queue : std::uint8_t { kLoads, kStores };

  /// Moves one block; returns whether it did. Called on a thread of the pool, and never throws.
  using MoveBlock = std::function<bool()>;

  /// Requires: at least one thread.
  /// Throws std::system_error if the system has no more threads.
  DualQueueThreadPool(std::uint32_t num_read_threads, std::uint32_t num_write_threads,
                      std::size_t max_queued_blocks);
  DualQueueThreadPool(const DualQueueThreadPool&) = delete;
  DualQueueThreadPool& operator=(const DualQueueThreadPool&) = delete;
  ~DualQueueThreadPool() { shutdown(); }

  /// Never waits for a block. A job that does not fit into the queue, or that comes after shutdown,
  /// fails at once.
  void submit(TierJobId job_id, Queue queue, std::vector<MoveBlock> blocks);

  /// Appends what finished since the last call.
  void get_finished(std::vector<JobResult>& out);

  /// Returns when every submitted job is finished.
  void wait_idle();

  /// Returns when no thread runs; blocks that were not begun fail.
  void shutdown();

 private:
  struct Job {
    TierJobId job_id = 0;
    std::size_t num_left = 0;
    bool success = true;
  };
  struct Task {
    MoveBlock move_block;
    std::shared_ptr<Job> job;
  };

  void work(Queue first);
  void block_done(Job& job, bool success);  // Requires: mutex_ is held.

  const std::size_t max_queued_blocks_;
  std::mutex mutex_;
  std::condition_variable has_work_;
  std::condition_variable is_idle_;
  bool stops_ = false;
  std::deque<Task> loads_;
  std::deque<Task> stores_;
  std::size_t num_jobs_ = 0;  ///< submitted, not finished
  std::vector<JobResult> finished_;
  std::vector<std::thread> threads_;
};

}  // namespace kvfence::optimized
