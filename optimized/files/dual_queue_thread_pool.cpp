#include "optimized/files/dual_queue_thread_pool.h"

#include <utility>

#include "contract/core/check.h"

namespace kvfence::optimized {

DualQueueThreadPool::DualQueueThreadPool(std::uint32_t num_read_threads,
                                         std::uint32_t num_write_threads,
                                         std::size_t max_queued_blocks)
    : max_queued_blocks_(max_queued_blocks) {
  KVFENCE_CHECK(num_read_threads + num_write_threads > 0, "a pool has a thread");
  try {
    for (std::uint32_t i = 0; i < num_read_threads; ++i) {
      threads_.emplace_back([this] { work(Queue::kLoads); });
    }
    for (std::uint32_t i = 0; i < num_write_threads; ++i) {
      threads_.emplace_back([this] { work(Queue::kStores); });
    }
  } catch (...) {
    // The system has no more threads; the running ones must end before they are destroyed.
    shutdown();
    throw;
  }
}

void DualQueueThreadPool::submit(TierJobId job_id, Queue queue, std::vector<MoveBlock> blocks) {
  const std::lock_guard guard(mutex_);
  std::deque<Task>& tasks = queue == Queue::kLoads ? loads_ : stores_;
  if (blocks.empty() || stops_ || blocks.size() > max_queued_blocks_ - tasks.size()) {
    finished_.push_back({job_id, blocks.empty()});
    return;
  }
  ++num_jobs_;
  const auto job = std::make_shared<Job>();
  job->job_id = job_id;
  job->num_left = blocks.size();
  for (MoveBlock& move_block : blocks) tasks.push_back({std::move(move_block), job});
  if (blocks.size() == 1) {
    has_work_.notify_one();
  } else {
    has_work_.notify_all();
  }
}

void DualQueueThreadPool::get_finished(std::vector<JobResult>& out) {
  const std::lock_guard guard(mutex_);
  out.insert(out.end(), finished_.begin(), finished_.end());
  finished_.clear();
}

void DualQueueThreadPool::wait_idle() {
  std::unique_lock lock(mutex_);
  is_idle_.wait(lock, [this] { return num_jobs_ == 0; });
}

void DualQueueThreadPool::shutdown() {
  {
    const std::lock_guard guard(mutex_);
    stops_ = true;
    for (std::deque<Task>* tasks : {&loads_, &stores_}) {
      for (const Task& task : *tasks) block_done(*task.job, false);
      tasks->clear();
    }
    has_work_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void DualQueueThreadPool::work(Queue first) {
  std::deque<Task>& preferred = first == Queue::kLoads ? loads_ : stores_;
  std::deque<Task>& other = first == Queue::kLoads ? stores_ : loads_;
  std::unique_lock lock(mutex_);
  while (true) {
    has_work_.wait(lock, [&] { return stops_ || !preferred.empty() || !other.empty(); });
    if (stops_) return;
    std::deque<Task>& tasks = preferred.empty() ? other : preferred;
    const Task task = std::move(tasks.front());
    tasks.pop_front();
    lock.unlock();
    const bool success = task.move_block();
    lock.lock();
    block_done(*task.job, success);
  }
}

void DualQueueThreadPool::block_done(Job& job, bool success) {
  job.success = job.success && success;
  if (--job.num_left > 0) return;
  finished_.push_back({job.job_id, job.success});
  --num_jobs_;
  if (num_jobs_ == 0) is_idle_.notify_all();
}

}  // namespace kvfence::optimized
