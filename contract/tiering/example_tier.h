#pragma once

/// A tier that keeps blocks in memory and moves them at once: the smallest SecondaryTier, for tests
/// of a manager. Given an empty view, it knows keys alone, as upstream's does.
/// Source: vLLM v0.23.0 v1/kv_offload/tiering/example/manager.py ExampleSecondaryTierManager.

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "contract/core/check.h"
#include "contract/tiering/secondary_tier.h"

namespace kvfence {

class ExampleTier {
 public:
  explicit ExampleTier(PrimaryKvView primary) : primary_(primary) {}

  LookupResult lookup(OffloadKeyView key, const RequestContext&) const {
    return blocks_.contains(key) ? LookupResult::kHit : LookupResult::kMiss;
  }

  /// A key that is held is written again.
  void submit_store(const TierJob& job) {
    KVFENCE_CHECK(job.keys.size() == job.slots.size(), "a job has one slot for each key");
    for (std::size_t i = 0; i < job.keys.size(); ++i) {
      const std::span<const std::byte> bytes = bytes_of(job.slots[i]);
      blocks_[OffloadKey(job.keys[i])].assign(bytes.begin(), bytes.end());
    }
    finished_.push_back({job.job_id, true});
  }

  /// Fails, and moves nothing, if a key is not held.
  void submit_load(const TierJob& job) {
    KVFENCE_CHECK(job.keys.size() == job.slots.size(), "a job has one slot for each key");
    const bool all_held = std::all_of(job.keys.begin(), job.keys.end(),
                                      [&](OffloadKeyView key) { return blocks_.contains(key); });
    for (std::size_t i = 0; all_held && i < job.keys.size(); ++i) {
      const std::vector<std::byte>& bytes = blocks_.find(job.keys[i])->second;
      std::copy(bytes.begin(), bytes.end(), bytes_of(job.slots[i]).begin());
    }
    finished_.push_back({job.job_id, all_held});
  }

  void get_finished_jobs(std::vector<JobResult>& out) {
    out.insert(out.end(), finished_.begin(), finished_.end());
    finished_.clear();
  }

  void touch(std::span<const OffloadKeyView>, const RequestContext&) {}
  OffloadPolicy on_new_request(const RequestContext&) { return OffloadPolicy::kBlockLevel; }
  void on_request_finished(const RequestContext&) {}
  void on_schedule_end() {}
  void shutdown() {}
  std::string_view tier_type() const { return "example"; }

  std::size_t get_num_blocks() const { return blocks_.size(); }

 private:
  std::span<std::byte> bytes_of(SlotId slot) const {
    return primary_.base == nullptr ? std::span<std::byte>() : primary_.slot(slot);
  }

  PrimaryKvView primary_;
  std::map<OffloadKey, std::vector<std::byte>, std::less<>> blocks_;
  std::vector<JobResult> finished_;
};

static_assert(SecondaryTier<ExampleTier> && std::copyable<ExampleTier>);

}  // namespace kvfence
