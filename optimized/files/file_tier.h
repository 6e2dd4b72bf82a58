#pragma once

/// The file tier: blocks as files, loaded and stored by a pool of threads. Its rules are in
/// contract/tiering/file_tier.h and contract/tiering/secondary_tier.h, the format of its files in
/// optimized/file_formats.md.
///
/// Several tiers, of one process or of many, may use the same folders at a time: each finds the
/// blocks that the others stored.

#include <string_view>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/tiering/file_tier.h"
#include "optimized/files/block_files.h"
#include "optimized/files/dual_queue_thread_pool.h"
#include "optimized/files/file_operations.h"

namespace kvfence::optimized {

class FileTier final : public SecondaryTier {
 public:
  /// Opens the folders and starts the threads. `files` outlives the tier. With an unusable folder
  /// the tier is still built: its stores fail, and writer_error says why.
  /// Requires: check_config(config) finds nothing wrong; primary has slots of 1 byte or more.
  /// Throws std::system_error if the system has no more threads.
  FileTier(const FileTierConfig& config, PrimaryKvView primary, FileOperations& files);
  // Threads point into it.
  FileTier(const FileTier&) = delete;
  FileTier& operator=(const FileTier&) = delete;
  /// Calls shutdown.
  ~FileTier() override = default;

  LookupResult lookup(OffloadKeyView key, const RequestContext& request) override;
  void submit_store(const TierJob& job) override;
  void submit_load(const TierJob& job) override;
  void get_finished_jobs(std::vector<JobResult>& out) override;
  void shutdown() override;

  /// Returns when every job that was submitted is over.
  void wait_idle();

  /// The errno why stores fail at present, because nothing can be written below the folder; 0 if
  /// they do not.
  int writer_error() const;

  /// Adds the tier's state beside its files. Requires: idle.
  void add_to(StateHash& hash) const override;

 private:
  void submit(const TierJob& job, DualQueueThreadPool::Queue queue);

  const PrimaryKvView primary_;
  BlockFiles blocks_;
  // The last member, so that its threads end before what they use is destroyed.
  DualQueueThreadPool pool_;
};

}  // namespace kvfence::optimized
