#include "optimized/files/file_tier.h"

#include <cstddef>
#include <utility>

#include "contract/core/check.h"

namespace kvfence::optimized {

struct FileTier::State {
  State(const FileTierConfig& config, PrimaryKvView view, FileOperations& files)
      : primary(view),
        blocks(config, view.slot_bytes, files),
        pool(config.n_read_threads, config.n_write_threads, config.max_queued_blocks) {}

  const PrimaryKvView primary;
  BlockFiles blocks;
  // Last, so that its threads are gone before what they use.
  DualQueueThreadPool pool;
};

FileTier::FileTier(const FileTierConfig& config, PrimaryKvView primary, FileOperations& files) {
  KVFENCE_CHECK(!check_config(config), "not a configuration of a file tier");
  KVFENCE_CHECK(primary.slot_bytes > 0, "a block has bytes");
  state_ = std::make_shared<State>(config, primary, files);
}

LookupResult FileTier::lookup(OffloadKeyView key, const RequestContext&) {
  return state_->blocks.contains(key) ? LookupResult::kHit : LookupResult::kMiss;
}

void FileTier::submit_store(const TierJob& job) {
  submit(job, DualQueueThreadPool::Queue::kStores);
}

void FileTier::submit_load(const TierJob& job) { submit(job, DualQueueThreadPool::Queue::kLoads); }

void FileTier::add_to(StateHash& hash) const { hash.add(state_->blocks); }

void FileTier::submit(const TierJob& job, DualQueueThreadPool::Queue queue) {
  KVFENCE_CHECK(job.keys.size() == job.slots.size(), "a job has one slot for each key");
  State* const state = state_.get();
  const bool stores = queue == DualQueueThreadPool::Queue::kStores;
  std::vector<DualQueueThreadPool::MoveBlock> blocks;
  blocks.reserve(job.keys.size());
  for (std::size_t i = 0; i < job.keys.size(); ++i) {
    const std::span<std::byte> slot = state->primary.slot(job.slots[i]);
    blocks.emplace_back([state, stores, slot, key = OffloadKey(job.keys[i])] {
      return stores ? state->blocks.store(key, slot) : state->blocks.load(key, slot);
    });
  }
  state->pool.submit(job.job_id, queue, std::move(blocks));
}

void FileTier::get_finished_jobs(std::vector<JobResult>& out) { state_->pool.get_finished(out); }

void FileTier::shutdown() {
  state_->pool.shutdown();
  state_->blocks.release();
}

void FileTier::wait_idle() { state_->pool.wait_idle(); }

int FileTier::writer_error() const { return -state_->blocks.writer_error(); }

}  // namespace kvfence::optimized
