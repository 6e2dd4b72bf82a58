#include "optimized/files/file_tier.h"

#include <cstddef>
#include <utility>

#include "contract/core/check.h"

namespace kvfence::optimized {

template <class Bugs>
struct BasicFileTier<Bugs>::State {
  State(const FileTierConfig& config, PrimaryKvView view, FileOperations& files, Bugs bugs)
      : primary(view),
        blocks(config, view.slot_bytes, files, bugs),
        pool(config.n_read_threads, config.n_write_threads, config.max_queued_blocks) {}

  const PrimaryKvView primary;
  BasicBlockFiles<Bugs> blocks;
  // Last, so that its threads are gone before what they use.
  DualQueueThreadPool pool;
};

template <class Bugs>
BasicFileTier<Bugs>::BasicFileTier(const FileTierConfig& config, PrimaryKvView primary,
                                   FileOperations& files, Bugs bugs) {
  KVFENCE_CHECK(!check_config(config), "not a configuration of a file tier");
  KVFENCE_CHECK(primary.slot_bytes > 0, "a block has bytes");
  state_ = std::make_shared<State>(config, primary, files, bugs);
}

template <class Bugs>
LookupResult BasicFileTier<Bugs>::lookup(OffloadKeyView key, const RequestContext&) {
  return state_->blocks.contains(key) ? LookupResult::kHit : LookupResult::kMiss;
}

template <class Bugs>
void BasicFileTier<Bugs>::submit_store(const TierJob& job) {
  submit(job, DualQueueThreadPool::Queue::kStores);
}

template <class Bugs>
void BasicFileTier<Bugs>::submit_load(const TierJob& job) {
  submit(job, DualQueueThreadPool::Queue::kLoads);
}

template <class Bugs>
void BasicFileTier<Bugs>::submit(const TierJob& job, DualQueueThreadPool::Queue queue) {
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

template <class Bugs>
void BasicFileTier<Bugs>::get_finished_jobs(std::vector<JobResult>& out) {
  state_->pool.get_finished(out);
}

template <class Bugs>
void BasicFileTier<Bugs>::shutdown() {
  state_->pool.shutdown();
  state_->blocks.release();
}

template <class Bugs>
void BasicFileTier<Bugs>::wait_idle() {
  state_->pool.wait_idle();
}

template <class Bugs>
int BasicFileTier<Bugs>::writer_error() const {
  return -state_->blocks.writer_error();
}

template class BasicFileTier<NoFileTierBugs>;
template class BasicFileTier<PlantedFileTierBugs>;

}  // namespace kvfence::optimized
