#pragma once

/// A secondary tier whose answers and progress are commands and whose calls are observed: the world
/// below a tiering manager in scenarios and campaigns. It moves nothing.

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "contract/secondary_tier.h"

namespace kvfence {

/// One call that a manager made on a tier, with what was passed and what was answered.
struct TierCall {
  std::string method;      ///< upstream's name
  std::uint32_t tier = 0;  ///< its place in the order
  std::string request;     ///< empty where the call is about none
  TierJobId job_id = 0;    ///< of submit_store and submit_load
  std::vector<OffloadKey> keys;
  std::vector<SlotId> slots;       ///< of submit_store and submit_load
  std::string answer;              ///< "hit", "miss", "pending"; "request_level", "block_level"
  std::vector<JobResult> results;  ///< of get_finished_jobs
  friend bool operator==(const TierCall&, const TierCall&) = default;
};

/// The calls on all tiers of one manager, oldest first.
using TierCalls = std::vector<TierCall>;

/// A value, but for the list of calls, which it shares with the other tiers and with whoever reads
/// it.
class ScriptedTier {
 public:
  ScriptedTier(std::uint32_t place, std::shared_ptr<TierCalls> calls);

  // What is commanded. It shows in the answers to later calls.

  /// A job is over. Of a store that succeeded, the tier holds the keys from now on. A job that the
  /// tier does not have is reported as well, as a tier with a bug would.
  void finish(TierJobId job_id, bool success);
  /// So many lookups of the key are answered with kPending, first; instead of what was said before.
  void ask_again(OffloadKeyView key, std::uint32_t times);
  /// Blocks that someone else stored in the place that the tier stands for.
  void add(OffloadKeyView key) { held_.emplace(key); }
  /// Blocks that the tier evicted, or lost.
  void drop(OffloadKeyView key) { held_.erase(OffloadKey(key)); }
  /// The answer of on_new_request from now on.
  void want(OffloadPolicy policy) { policy_ = policy; }

  const std::set<OffloadKey>& held() const { return held_; }

  // What a manager calls.

  /// kPending while it was told to, then whether it holds the key.
  LookupResult lookup(OffloadKeyView key, const RequestContext& request);
  void submit_store(const TierJob& job);
  void submit_load(const TierJob& job);
  void get_finished_jobs(std::vector<JobResult>& out);
  void touch(std::span<const OffloadKeyView> keys, const RequestContext& request);
  OffloadPolicy on_new_request(const RequestContext& request);
  void on_request_finished(const RequestContext& request);
  void on_schedule_end();
  void shutdown() {}
  std::string_view tier_type() const { return "scripted"; }

 private:
  TierCall& note(std::string_view method, std::string_view request = {});
  void note_job(std::string_view method, const TierJob& job);

  std::uint32_t place_;
  std::shared_ptr<TierCalls> calls_;
  std::set<OffloadKey> held_;
  std::map<OffloadKey, std::uint32_t> ask_again_;
  std::map<TierJobId, std::vector<OffloadKey>> stores_;  ///< under way
  std::vector<JobResult> finished_;                      ///< not yet reported
  OffloadPolicy policy_ = OffloadPolicy::kBlockLevel;
};

static_assert(SecondaryTier<ScriptedTier>);

}  // namespace kvfence
