#pragma once

/// What stands between the CPU cache and the tiers below it, by the calls that the tiers got: who
/// was told what, which jobs are under way, which blocks came up, and what the tiers hold.
///
/// A tier does as it is told, a file tier also with its files, until something is made to go wrong
/// in it. From then on what its files make of a job is taken as it is shown, but for this: what was
/// given up is no success, and it holds nothing that was never stored in it.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "contract/engine/engine_target.h"

namespace kvfence::engine::offloading {

/// What is wrong with the tiers.
enum class TierRule : std::uint8_t {
  kTiersAreTold,
  kStoresGoDown,
  kPromotionsComeWhole,
  kStoredIsKept,
};

struct BrokenTierRule {
  TierRule rule = TierRule::kTiersAreTold;
  std::string where;
  std::string expected;
  std::string actual;
};

/// A block that a tier should have brought up.
struct EndedPromotion {
  std::string key;
  SlotId slot = 0;
  bool success = false;
};

/// A value: copyable. Without tiers nothing is ever wrong.
class TierLedger {
 public:
  explicit TierLedger(const ConnectorSetup& setup);

  /// The calls of a command, whatever it was answered. Nothing, or the first rule that they break.
  /// keys: of the blocks that a command on a tier is about; of tier_damage with replace, the one
  /// whose file comes in its place.
  std::optional<BrokenTierRule> take_in(const Command& command, const Observation& observation,
                                        const std::vector<OffloadKey>& keys = {});

  /// Requires: the observation has the whole state.
  std::optional<BrokenTierRule> check_state(const Observation& observation) const;

  /// Of the last command, in the order of the reports; slots that are being brought up since it.
  const std::vector<EndedPromotion>& ended_promotions() const { return ended_; }
  const std::vector<SlotId>& begun_promotions() const { return begun_; }

  /// Whether the last command began to bring it up.
  bool has_begun(const std::string& key) const { return begun_keys_.count(key) > 0; }

  /// Whether a request was looked up in the last command; the last one whose lookup that was.
  bool was_asked_for(const std::string& request) const { return asked_.count(request) > 0; }
  const std::string& last_asked() const { return last_asked_; }
  /// Whether a tier wants to be asked again for it, or for anyone.
  bool is_anyone_put_off_by_tier() const { return !put_off_.empty(); }
  bool is_put_off_by_tier(const std::string& request) const { return put_off_.count(request) > 0; }

  bool is_request_level(const std::string& request) const {
    return request_level_.count(request) > 0;
  }
  bool is_idle() const { return jobs_.empty(); }

  /// Transfers between the GPU and the CPU cache that are not over on all ranks: their slots, and
  /// whether the request has one.
  bool is_being_loaded(SlotId slot) const;
  bool has_copies(const std::string& request) const;

 private:
  using Broken = std::optional<BrokenTierRule>;

  /// A transfer between the GPU and the CPU cache.
  struct CopyJob {
    std::string request;
    bool is_store = false;
    std::vector<SlotId> slots;
    std::uint32_t num_pending = 0;  ///< ranks
    bool has_failed = false;
  };

  /// A submit_store that is due, or was made.
  struct Cascade {
    std::uint32_t tier = 0;
    std::string request;
    std::vector<SlotId> slots;  ///< ascending
    friend bool operator==(const Cascade&, const Cascade&) = default;
  };

  /// How a job went.
  struct Finished {
    bool success = false;
    bool is_certain = true;  ///< else it is what files made of it
  };

  /// What a tier holds.
  struct Contents {
    bool has_files = false;
    bool is_exact = true;  ///< nothing was made to go wrong
    std::set<std::string> held;
    std::set<std::string> seen;                  ///< was held, or was to be
    std::map<std::uint32_t, TierTransfer> jobs;  ///< that it has
    std::map<std::uint32_t, Finished> finished;  ///< jobs that are over and not reported
  };

  void take_in_commands(const Command& command, const std::vector<OffloadKey>& keys);
  void finish(const TierFinish& command);
  Broken check_contents(const Observation& observation) const;
  Broken take_in_call(const TierCallRecord& call);
  Broken end_jobs(const TierCallRecord& call);
  Broken begin_job(const TierCallRecord& call);
  Broken check_told(const Command& command, const Observation& observation) const;
  Broken check_cascades(const Command& command, const Observation& observation);
  void plan(const Observation& observation);
  std::vector<Cascade> due_cascades(const Observation& observation);
  Broken check_blocks(const TierTransfer& job, const Observation& observation) const;

  bool has_tiers_ = false;
  bool has_files_ = false;  ///< any tier: slots have bytes
  std::uint32_t num_tiers_ = 0;
  std::uint32_t num_workers_ = 1;
  std::vector<Contents> contents_;                 ///< by tier
  std::vector<bool> polled_;                       ///< by tier: in this step
  std::vector<std::set<std::string>> unfinished_;  ///< by tier: requests that it knows of
  std::set<std::string> request_level_;
  std::set<std::uint32_t> request_level_tiers_;
  std::uint32_t next_job_ = 0;
  std::map<std::uint32_t, TierTransfer> jobs_;  ///< under way
  std::map<JobId, CopyJob> copy_jobs_;

  // Of the last command.
  std::vector<EndedPromotion> ended_;
  std::vector<SlotId> begun_;
  std::set<std::string> begun_keys_;
  std::vector<Cascade> cascades_;
  std::vector<std::uint32_t> num_ends_;  ///< by tier: of steps
  std::vector<std::string> new_;         ///< requests, once a tier
  std::set<std::string> asked_;
  std::set<std::string> put_off_;
  std::string last_asked_;
  bool step_has_ended_ = false;
};

}  // namespace kvfence::engine::offloading
