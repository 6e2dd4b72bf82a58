#include "optimized/files/file_tier.h"

#include <cstddef>
#include <utility>

#include "contract/core/check.h"

namespace kvfence::optimized {

namespace {

const FileTierConfig& checked(const FileTierConfig& config, const PrimaryKvView& primary) {
  KVFENCE_CHECK(!check_config(config), "not a configuration of a file tier");
  KVFENCE_CHECK(primary.slot_bytes > 0, "a block has bytes");
  return config;
}

}  // namespace

FileTier::FileTier(const FileTierConfig& config, PrimaryKvView primary, FileOperations& files)
    : primary_(primary),
      blocks_(checked(config, primary), primary.slot_bytes, files),
      pool_(config.n_read_threads, config.n_write_threads, config.max_queued_blocks) {}

LookupResult FileTier::lookup(OffloadKeyView key, const RequestContext&) {
  return blocks_.contains(key) ? LookupResult::kHit : LookupResult::kMiss;
}

void FileTier::submit_store(const TierJob& job) {
  submit(job, DualQueueThreadPool::Queue::kStores);
}

void FileTier::submit_load(const TierJob& job) { submit(job, DualQueueThreadPool::Queue::kLoads); }

void FileTier::add_to(StateHash& hash) const { hash.add(blocks_); }

void FileTier::submit(const TierJob& job, DualQueueThreadPool::Queue queue) {
  KVFENCE_CHECK(job.keys.size() == job.slots.size(), "a job has one slot for each key");
  const bool stores = queue == DualQueueThreadPool::Queue::kStores;
  std::vector<DualQueueThreadPool::MoveBlock> blocks;
  blocks.reserve(job.keys.size());
  for (std::size_t i = 0; i < job.keys.size(); ++i) {
    const std::span<std::byte> slot = primary_.slot(job.slots[i]);
    blocks.emplace_back([this, stores, slot, key = OffloadKey(job.keys[i])] {
      return stores ? blocks_.store(key, slot) : blocks_.load(key, slot);
    });
  }
  pool_.submit(job.job_id, queue, std::move(blocks));
}

void FileTier::get_finished_jobs(std::vector<JobResult>& out) { pool_.get_finished(out); }

void FileTier::shutdown() {
  pool_.shutdown();
  blocks_.release();
}

void FileTier::wait_idle() { pool_.wait_idle(); }

int FileTier::writer_error() const { return -blocks_.writer_error(); }

}  // namespace kvfence::optimized
