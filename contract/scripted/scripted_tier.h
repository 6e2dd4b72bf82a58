#pragma once

/// A secondary tier whose answers and progress are commands and whose calls are observed: the world
/// below a tiering manager in scenarios and campaigns. It holds keys alone, or is a file tier
/// (contract/tiering/tier_files.h), whose files decide what its jobs move and whether they succeed.

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/core/cloned.h"
#include "contract/tiering/secondary_tier.h"
#include "contract/tiering/tier_files.h"
#include "contract/tiering/tier_records.h"

namespace kvfence {

/// One call that a manager made on a tier, with what was passed and what was answered.
struct TierCall : tiering::CallParts {
  std::vector<OffloadKey> keys;
  std::vector<JobResult> results;  ///< of get_finished_jobs
};

/// The calls on all tiers of one manager, oldest first.
using TierCalls = std::vector<TierCall>;

/// A value, except for the list of calls, which it shares with the other tiers and the list's
/// reader. One that has files cannot be copied: copying it aborts.
class ScriptedTier final : public Cloning<ScriptedTier, SecondaryTier> {
 public:
  /// Knows keys alone. Given slots that are not empty, a load writes its blocks there, as they have
  /// to be, and nothing else moves.
  ///
  /// With files it is a file tier.
  ScriptedTier(std::uint32_t place, std::shared_ptr<TierCalls> calls, PrimaryKvView primary = {},
               std::unique_ptr<TierFiles> files = nullptr)
      : place_(place), calls_(std::move(calls)), primary_(primary), files_(std::move(files)) {}

  // What is commanded. It shows in the answers to later calls.

  /// A job is over. Of a store that succeeded, the tier holds the keys from now on. A job that the
  /// tier does not have is reported as well, as a tier with a bug would; but not where slots have
  /// bytes, which such a tier would spoil. A file tier carries the job out now, and reports what
  /// became of it; without success it is given up before it began.
  void finish(TierJobId job_id, bool success);
  /// So many lookups of the key are answered with kPending, first; instead of what was said before.
  void ask_again(OffloadKeyView key, std::uint32_t times);
  /// Adds blocks that another engine stored in the place that the tier stands for.
  void add(OffloadKeyView key);
  /// Removes blocks that the tier evicted, or lost.
  void drop(OffloadKeyView key);
  /// The answer of on_new_request from now on.
  void want(OffloadPolicy policy) { policy_ = policy; }

  /// The list that was given.
  const std::shared_ptr<TierCalls>& calls() const { return calls_; }

  /// Null if it knows keys alone.
  TierFiles* files() { return files_.get(); }

  /// In ascending order. Of a file tier those that have a file, whatever is in it.
  std::vector<OffloadKey> held() const;

  // What a manager calls.

  /// kPending while it was asked to, then whether it holds the key.
  LookupResult lookup(OffloadKeyView key, const RequestContext& request) override;
  void submit_store(const TierJob& job) override;
  void submit_load(const TierJob& job) override;
  void get_finished_jobs(std::vector<JobResult>& out) override;
  void touch(std::span<const OffloadKeyView> keys, const RequestContext& request) override;
  OffloadPolicy on_new_request(const RequestContext& request) override;
  void on_request_finished(const RequestContext& request) override;
  void on_schedule_end() override;

  void add_to(StateHash& hash) const override {
    hash.add_kept(files_, held_, ask_again_, jobs_, finished_, policy_);
  }

 private:
  struct Job {
    bool is_load = false;
    std::vector<OffloadKey> keys;
    std::vector<SlotId> slots;
    std::string req_id;
  };

  TierCall& note(std::string_view method, std::string_view request = {});
  void note_job(const TierJob& job, bool is_load);
  bool carry_out(TierJobId job_id, const Job& job);

  std::uint32_t place_;
  std::shared_ptr<TierCalls> calls_;
  PrimaryKvView primary_;
  Cloned<TierFiles> files_;
  std::set<OffloadKey> held_;
  std::map<OffloadKey, std::uint32_t> ask_again_;
  std::map<TierJobId, Job> jobs_;    ///< under way
  std::vector<JobResult> finished_;  ///< not yet reported
  OffloadPolicy policy_ = OffloadPolicy::kBlockLevel;
};

}  // namespace kvfence
