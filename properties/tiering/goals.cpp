/// Coverage goals of target tiering: a green suite in which no promotion failed has shown nothing
/// about failed promotions.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "contract/core/lists.h"
#include "contract/tiering/tiering_target.h"
#include "properties/core/goals.h"
#include "properties/core/invariant_values.h"
#include "properties/eviction/policy_lists.h"
#include "properties/targets/rooms.h"

namespace kvfence::tiering {
namespace {

constexpr Goal kGoals[] = {
    {"hit", "a lookup found a block that can be read"},
    {"miss_in_every_tier", "a lookup asked every tier, and none had the block"},
    {"promotion_begun", "a lookup began a promotion"},
    {"promotion_of_a_lower_tier", "the first tier did not have what another had"},
    {"promotion_evicted", "a promotion evicted a block"},
    {"promotion_had_no_room",
     "a block in a tier was missed because nothing could be evicted for it"},
    {"put_off_by_a_store", "a lookup found a store under way"},
    {"put_off_by_a_promotion", "a lookup found a promotion under way"},
    {"put_off_by_a_tier", "a tier asked for a retry"},
    {"tier_after_the_one_that_asks_again",
     "a tier had the block after another one asked for a retry"},
    {"load_of_several_keys", "a load job had several keys"},
    {"loads_of_two_requests", "the end of a step submitted two loads to one tier"},
    {"promotion_done", "a promotion was reported as done"},
    {"promotion_failed", "a promotion was reported as failed"},
    {"promotion_outlived_its_request",
     "a request was finished while a block was being promoted for it"},
    {"cascade_done", "a cascade was reported as done"},
    {"cascade_failed", "a cascade was reported as failed"},
    {"cascade_to_two_tiers", "a store went down to several tiers"},
    {"request_level_cascade", "a tier at request level got blocks that were there"},
    {"pending_left_out", "a cascade at request level left out what is being written"},
    {"failed_store_stayed", "a store failed and went to no tier"},
    {"store_failed_for_cascades", "a store was impossible while cascades held blocks"},
    {"load_and_cascade", "a load read a block of a cascade"},
    {"several_jobs_reported", "one tier reported several jobs at once"},
    {"strange_result_passed_over", "a tier reported a job that it does not have"},
    {"store_of_no_keys", "a cascade had no keys"},
    {"stored_event", "an event reported stored blocks"},
    {"removed_event", "an event reported removed blocks"},
    {"promoted_from_file", "a load of a file tier was done"},
    {"cascaded_to_file", "a store of a file tier was done"},
    {"file_store_failed", "a store of a file tier failed"},
    {"file_load_failed", "a load of a file tier failed"},
    {"disk_full", "a store failed while the disk was to be full"},
    {"permission_denied", "a job failed while permission was to be denied"},
    {"short_transfer_went_on", "a job was done while a read or write was to be short"},
    {"torn_file_missed", "a file of another size was missed"},
    {"bad_file_removed", "a load removed the file"},
    {"doubtful_file_missed", "a file was missed after a load that failed"},
    {"temporary_file_left", "a temporary file could not be removed"},
    {"leavings_reclaimed", "a tier that opened removed what a writer that exited had left"},
    {"number_overtaken", "another writer had number 0 when the tier opened"},
    {"no_writer", "a tier opened and holds no lock"},
    {"writer_at_last", "a store made a tier a writer that was none before"},
};

using Keys = std::vector<std::uint32_t>;

bool shows_state(const Observation& observation) {
  return eviction::shows_lists(observation) && observation.jobs.has_value() &&
         observation.pending.has_value();
}

/// Whether a transfer of that kind has the key. Requires: the state is shown.
bool has_transfer(const Observation& shown, bool promotion, std::uint32_t key) {
  const auto has_key = [&](const Transfer& transfer) {
    return transfer.promotion == promotion && contains(transfer.keys, key);
  };
  return std::ranges::any_of(*shown.jobs, has_key) || std::ranges::any_of(*shown.pending, has_key);
}

bool is_writing(const Observation& shown, std::uint32_t key) {
  const eviction::Entry* const block = eviction::find_block(shown, key);
  return block && !block->ready;
}

std::size_t num_calls(const Observation& shown, std::string_view method) {
  if (!shown.tier_calls.has_value()) return 0;
  return static_cast<std::size_t>(std::ranges::count_if(
      *shown.tier_calls, [&](const TierCallRecord& call) { return call.method == method; }));
}

class Counter : public GoalCounter<TieringTarget, kGoals> {
 public:
  using GoalCounter::GoalCounter;

  /// A refused command may have polled the tiers.
  void count_any(const Command& command) {
    if (!after().tier_calls.has_value()) return;
    const std::vector<TierCallRecord>& calls = *after().tier_calls;
    for (const TierCallRecord& call : calls) {
      if (call.method == "get_finished_jobs") count_results(call);
      if (call.method == "submit_load") {
        add("load_of_several_keys", call.keys.size() > 1);
        add("loads_of_two_requests", std::ranges::any_of(calls, [&](const TierCallRecord& other) {
              return other.method == call.method && other.tier == call.tier &&
                     other.request != call.request;
            }));
      }
      if (call.method == "submit_store") {
        add("cascade_to_two_tiers", call.tier > 0 && !call.keys.empty());
        add("request_level_cascade", std::holds_alternative<PrepareStore>(command));
        add("store_of_no_keys", call.keys.empty());
      }
    }
  }

  void count(const TierFinish& command) {
    const auto tier = file_tiers_.find(command.tier);
    if (tier == file_tiers_.end() || !command.success || !shows_state(before())) return;
    const auto job = std::ranges::find_if(*before().jobs, [&](const Transfer& one) {
      return one.job == command.job && one.tier == command.tier;
    });
    if (job == before().jobs->end()) return;
    tier->second.tried.push_back({*job, tier->second.faults});
    if (!job->promotion) {
      std::erase_if(tier->second.torn, [&](std::uint32_t key) { return contains(job->keys, key); });
      std::erase_if(tier->second.lost, [&](std::uint32_t key) { return contains(job->keys, key); });
    }
    if (!before().tiers.has_value() || !after().tiers.has_value()) return;
    const TierState& was = (*before().tiers)[command.tier];
    const TierState& is = (*after().tiers)[command.tier];
    add("bad_file_removed", is.held.size() < was.held.size());
    add("temporary_file_left",
        contains(is.writers, std::string("0.tmp")) && !contains(was.writers, std::string("0.tmp")));
    add("writer_at_last", was.writers.empty() && !is.writers.empty());
  }

  void count(const TierFaults& command) { file_tiers_[command.tier].faults = command.faults; }

  void count(const TierRestart& command) {
    if (!after().tiers.has_value()) return;
    const std::vector<std::string>& are = (*after().tiers)[command.tier].writers;
    add("number_overtaken", command.overtaken && contains(are, std::string("1.lock")));
    add("no_writer", are.empty());
    if (!before().tiers.has_value()) return;
    add("leavings_reclaimed", are.size() + 1 < (*before().tiers)[command.tier].writers.size());
  }

  void count(const TierDamage& command) {
    const bool is_size =
        command.damage == FileDamage::kTruncate || command.damage == FileDamage::kGrow;
    if (is_size) file_tiers_[command.tier].torn.push_back(command.key);
  }

  void count(const Lookup& command) {
    if (!after().result.has_value()) return;
    count_missed_file(command);
    const LookupResult result = *after().result;
    add("hit", result == LookupResult::kHit);
    const std::size_t num_asked = num_calls(after(), "lookup");
    if (num_asked == 0) {
      if (result != LookupResult::kPending || !shows_state(before())) return;
      const bool is_promoted = has_transfer(before(), /*promotion=*/true, command.key);
      add(is_promoted ? Name("put_off_by_a_promotion") : Name("put_off_by_a_store"));
      return;
    }
    const TierCallRecord& last = after().tier_calls->back();
    const bool was_put_off = std::ranges::any_of(
        *after().tier_calls, [](const TierCallRecord& call) { return call.answer == "pending"; });
    const bool begun = last.answer == "hit" && result == LookupResult::kPending;
    add("miss_in_every_tier", last.answer == "miss" && !was_put_off);
    add("promotion_begun", begun);
    add("promotion_of_a_lower_tier", begun && last.tier > 0);
    add("promotion_evicted", begun && after().size == before().size);
    add("promotion_had_no_room", last.answer == "hit" && !begun);
    add("put_off_by_a_tier", was_put_off && !begun && result == LookupResult::kPending);
    add("tier_after_the_one_that_asks_again", was_put_off && last.answer == "hit");
  }

  void count(const PrepareLoad& command) {
    if (!shows_state(after())) return;
    add("load_and_cascade", std::ranges::any_of(command.keys, [&](std::uint32_t key) {
          return has_transfer(after(), /*promotion=*/false, key);
        }));
  }

  void count(const PrepareStore& command) {
    if (!after().stored.has_value() || !shows_state(before()) || !shows_state(after())) return;
    if (!*after().stored) {
      add("store_failed_for_cascades", std::ranges::any_of(*after().jobs, [](const Transfer& job) {
            return !job.promotion && !job.keys.empty();
          }));
      return;
    }
    add("pending_left_out", num_calls(after(), "submit_store") > 0 &&
                                std::ranges::any_of(command.keys, [&](std::uint32_t key) {
                                  return is_writing(before(), key) && is_writing(after(), key);
                                }));
  }

  void count(const CompleteStore& command) {
    add("failed_store_stayed", !command.success && after().size < before().size);
  }

  void count(const OnRequestFinished& command) {
    if (!shows_state(after())) return;
    for (const auto* transfers : {&*after().jobs, &*after().pending}) {
      add("promotion_outlived_its_request",
          std::ranges::any_of(*transfers, [&](const Transfer& transfer) {
            return transfer.promotion && transfer.request == command.request;
          }));
    }
  }

  void count(const TakeEvents&) {
    if (!after().events.has_value()) return;
    for (const offload::Event& event : *after().events) {
      add(event.removed ? Name("removed_event") : Name("stored_event"));
    }
  }

 private:
  void count_results(const TierCallRecord& poll) {
    std::istringstream words(poll.answer);
    std::uint32_t number = 0;
    std::size_t num_results = 0;
    for (std::string end; words >> number >> end; ++num_results) {
      count_tried(poll.tier, number, end == "done");
      if (!before().jobs.has_value()) continue;
      const auto job = std::ranges::find_if(*before().jobs, [&](const Transfer& candidate) {
        return candidate.job == number && candidate.tier == poll.tier;
      });
      const bool is_job = job != before().jobs->end();
      const bool is_promotion = is_job && job->promotion;
      add("strange_result_passed_over", !is_job);
      add("promotion_done", is_promotion && end == "done");
      add("promotion_failed", is_promotion && end == "failed");
      add("cascade_done", is_job && !is_promotion && end == "done");
      add("cascade_failed", is_job && !is_promotion && end == "failed");
    }
    add("several_jobs_reported", num_results > 1);
  }

  void count_tried(std::uint32_t place, std::uint32_t number, bool done) {
    const auto tier = file_tiers_.find(place);
    if (tier == file_tiers_.end()) return;
    std::vector<Tried>& all = tier->second.tried;
    const auto tried =
        std::ranges::find_if(all, [&](const Tried& one) { return one.job.job == number; });
    if (tried == all.end()) return;
    const Transfer& job = tried->job;
    const auto fails_with = [&](FileError error) {
      return std::ranges::any_of(tried->faults,
                                 [&](const Fault& fault) { return fault.fails_with == error; });
    };
    add("promoted_from_file", done && job.promotion);
    add("cascaded_to_file", done && !job.promotion && !job.keys.empty());
    add("file_load_failed", !done && job.promotion);
    add("file_store_failed", !done && !job.promotion);
    add("disk_full", !done && !job.promotion && fails_with(FileError::kENOSPC));
    add("permission_denied", !done && fails_with(FileError::kEACCES));
    add("short_transfer_went_on", done && fails_with(FileError::kNone));
    if (!done && job.promotion) {
      tier->second.lost.insert(tier->second.lost.end(), job.keys.begin(), job.keys.end());
    }
    all.erase(tried);
  }

  /// Missed by a tier that has a file of the key.
  void count_missed_file(const Lookup& command) {
    if (!after().tier_calls.has_value() || !before().tiers.has_value()) return;
    for (const TierCallRecord& call : *after().tier_calls) {
      const auto tier = file_tiers_.find(call.tier);
      if (tier == file_tiers_.end() || call.method != "lookup" || call.answer != "miss") continue;
      if (!contains((*before().tiers)[call.tier].held, command.key)) continue;
      const bool is_torn = contains(tier->second.torn, command.key);
      add("torn_file_missed", is_torn);
      add("doubtful_file_missed", !is_torn && contains(tier->second.lost, command.key));
    }
  }

  /// A job that a file tier tried to carry out, and the planned faults.
  struct Tried {
    Transfer job;
    std::vector<Fault> faults;
  };

  struct FileTier {
    std::vector<Fault> faults;        ///< planned last
    std::vector<Tried> tried;         ///< not yet reported
    std::vector<std::uint32_t> torn;  ///< keys whose file got another size
    std::vector<std::uint32_t> lost;  ///< keys of loads that failed
  };

  std::map<std::uint32_t, FileTier> file_tiers_ = [this] {
    std::map<std::uint32_t, FileTier> tiers;
    for (std::uint32_t place : config().file_tiers) tiers[place];
    return tiers;
  }();  ///< by place
};

}  // namespace

GoalSuite goals() { return goal_suite<TieringTarget, kGoals, Counter>(); }

}  // namespace kvfence::tiering
