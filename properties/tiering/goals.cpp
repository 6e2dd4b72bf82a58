#include "properties/tiering/goals.h"

#include <algorithm>
#include <cstddef>
#include <sstream>
#include <string>
#include <variant>
#include <vector>

#include "properties/core/invariant_values.h"
#include "properties/eviction/policy_lists.h"

namespace kvfence::tiering {
namespace {

using Keys = std::vector<std::uint32_t>;
using detail::contains;

bool shows_state(const Observation& observation) {
  return eviction::shows_lists(observation) && observation.jobs.has_value() &&
         observation.pending.has_value();
}

/// Whether a transfer of that kind has the key. Requires: the state is shown.
bool has_transfer(const Observation& shown, bool promotion, std::uint32_t key) {
  const auto has_key = [&](const Transfer& transfer) {
    return transfer.promotion == promotion && contains(transfer.keys, key);
  };
  return std::any_of(shown.jobs->begin(), shown.jobs->end(), has_key) ||
         std::any_of(shown.pending->begin(), shown.pending->end(), has_key);
}

bool is_writing(const Observation& shown, std::uint32_t key) {
  for (const auto* blocks : {&*shown.t1, &*shown.t2}) {
    for (const eviction::Entry& block : *blocks) {
      if (block.key == key) return !block.ready;
    }
  }
  return false;
}

std::size_t num_calls(const Observation& shown, std::string_view method) {
  if (!shown.tier_calls.has_value()) return 0;
  return static_cast<std::size_t>(
      std::count_if(shown.tier_calls->begin(), shown.tier_calls->end(),
                    [&](const TierCallRecord& call) { return call.method == method; }));
}

}  // namespace

void Reach::start(const Config& config) {
  file_tiers_.clear();
  for (std::uint32_t place : config.file_tiers) file_tiers_[place];
}

void Reach::count(const Command& command, const Observation& before, const Observation& after,
                  const World&) {
  count_calls(command, before, after);
  if (after.error != ErrorCode::kNone) {
    add_error(after.error);
    return;
  }
  std::visit([&](const auto& one) { count_accepted(one, before, after); }, command);
}

void Reach::count_calls(const Command& command, const Observation& before,
                        const Observation& after) {
  if (!after.tier_calls.has_value()) return;
  const std::vector<TierCallRecord>& calls = *after.tier_calls;
  for (const TierCallRecord& call : calls) {
    if (call.method == "get_finished_jobs") count_results(call, before);
    if (call.method == "submit_load") {
      add(Reached::kLoadOfSeveralKeys, call.keys.size() > 1);
      add(Reached::kLoadsOfTwoRequests,
          std::any_of(calls.begin(), calls.end(), [&](const TierCallRecord& other) {
            return other.method == call.method && other.tier == call.tier &&
                   other.request != call.request;
          }));
    }
    if (call.method == "submit_store") {
      add(Reached::kCascadeToTwoTiers, call.tier > 0 && !call.keys.empty());
      add(Reached::kRequestLevelCascade, std::holds_alternative<PrepareStore>(command));
      add(Reached::kStoreOfNoKeys, call.keys.empty());
    }
  }
}

void Reach::count_results(const TierCallRecord& poll, const Observation& before) {
  std::istringstream words(poll.answer);
  std::uint32_t number = 0;
  std::size_t num_results = 0;
  for (std::string end; words >> number >> end; ++num_results) {
    count_tried(poll.tier, number, end == "done");
    if (!before.jobs.has_value()) continue;
    const auto job =
        std::find_if(before.jobs->begin(), before.jobs->end(), [&](const Transfer& candidate) {
          return candidate.job == number && candidate.tier == poll.tier;
        });
    const bool is_job = job != before.jobs->end();
    const bool is_promotion = is_job && job->promotion;
    add(Reached::kStrangeResultPassedOver, !is_job);
    add(Reached::kPromotionDone, is_promotion && end == "done");
    add(Reached::kPromotionFailed, is_promotion && end == "failed");
    add(Reached::kCascadeDone, is_job && !is_promotion && end == "done");
    add(Reached::kCascadeFailed, is_job && !is_promotion && end == "failed");
  }
  add(Reached::kSeveralJobsReported, num_results > 1);
}

void Reach::count_tried(std::uint32_t place, std::uint32_t number, bool done) {
  const auto tier = file_tiers_.find(place);
  if (tier == file_tiers_.end()) return;
  std::vector<Tried>& all = tier->second.tried;
  const auto tried =
      std::find_if(all.begin(), all.end(), [&](const Tried& one) { return one.job.job == number; });
  if (tried == all.end()) return;
  const Transfer& job = tried->job;
  const auto fails_with = [&](FileError error) {
    return std::any_of(tried->faults.begin(), tried->faults.end(),
                       [&](const Fault& fault) { return fault.fails_with == error; });
  };
  add(Reached::kPromotedFromFile, done && job.promotion);
  add(Reached::kCascadedToFile, done && !job.promotion && !job.keys.empty());
  add(Reached::kFileLoadFailed, !done && job.promotion);
  add(Reached::kFileStoreFailed, !done && !job.promotion);
  add(Reached::kDiskFull, !done && !job.promotion && fails_with(FileError::kENOSPC));
  add(Reached::kPermissionDenied, !done && fails_with(FileError::kEACCES));
  add(Reached::kShortTransferWentOn, done && fails_with(FileError::kNone));
  if (!done && job.promotion) {
    tier->second.lost.insert(tier->second.lost.end(), job.keys.begin(), job.keys.end());
  }
  all.erase(tried);
}

/// Missed by a tier that has a file of the key.
void Reach::count_missed_file(const Lookup& command, const Observation& before,
                              const Observation& after) {
  if (!after.tier_calls.has_value() || !before.tiers.has_value()) return;
  for (const TierCallRecord& call : *after.tier_calls) {
    const auto tier = file_tiers_.find(call.tier);
    if (tier == file_tiers_.end() || call.method != "lookup" || call.answer != "miss") continue;
    if (!contains((*before.tiers)[call.tier].held, command.key)) continue;
    const bool is_torn = contains(tier->second.torn, command.key);
    add(Reached::kTornFileMissed, is_torn);
    add(Reached::kDoubtfulFileMissed, !is_torn && contains(tier->second.lost, command.key));
  }
}

void Reach::count_accepted(const TierFinish& command, const Observation& before,
                           const Observation& after) {
  const auto tier = file_tiers_.find(command.tier);
  if (tier == file_tiers_.end() || !command.success || !shows_state(before)) return;
  const auto job = std::find_if(before.jobs->begin(), before.jobs->end(), [&](const Transfer& one) {
    return one.job == command.job && one.tier == command.tier;
  });
  if (job == before.jobs->end()) return;
  tier->second.tried.push_back({*job, tier->second.faults});
  if (!job->promotion) {
    std::erase_if(tier->second.torn, [&](std::uint32_t key) { return contains(job->keys, key); });
    std::erase_if(tier->second.lost, [&](std::uint32_t key) { return contains(job->keys, key); });
  }
  if (!before.tiers.has_value() || !after.tiers.has_value()) return;
  const TierState& was = (*before.tiers)[command.tier];
  const TierState& is = (*after.tiers)[command.tier];
  add(Reached::kBadFileRemoved, is.held.size() < was.held.size());
  add(Reached::kTemporaryFileLeft, is.num_temporary_files > was.num_temporary_files);
}

void Reach::count_accepted(const TierFaults& command, const Observation&, const Observation&) {
  file_tiers_[command.tier].faults = command.faults;
}

void Reach::count_accepted(const TierDamage& command, const Observation&, const Observation&) {
  const bool is_size =
      command.damage == FileDamage::kTruncate || command.damage == FileDamage::kGrow;
  if (is_size) file_tiers_[command.tier].torn.push_back(command.key);
}

void Reach::count_accepted(const Lookup& command, const Observation& before,
                           const Observation& after) {
  if (!after.result.has_value()) return;
  count_missed_file(command, before, after);
  const LookupResult result = *after.result;
  add(Reached::kHit, result == LookupResult::kHit);
  const std::size_t num_asked = num_calls(after, "lookup");
  if (num_asked == 0) {
    if (result != LookupResult::kPending || !shows_state(before)) return;
    const bool is_promoted = has_transfer(before, /*promotion=*/true, command.key);
    add(is_promoted ? Reached::kPutOffByAPromotion : Reached::kPutOffByAStore);
    return;
  }
  const TierCallRecord& last = after.tier_calls->back();
  const bool was_put_off =
      std::any_of(after.tier_calls->begin(), after.tier_calls->end(),
                  [](const TierCallRecord& call) { return call.answer == "pending"; });
  const bool begun = last.answer == "hit" && result == LookupResult::kPending;
  add(Reached::kMissInEveryTier, last.answer == "miss" && !was_put_off);
  add(Reached::kPromotionBegun, begun);
  add(Reached::kPromotionOfALowerTier, begun && last.tier > 0);
  add(Reached::kPromotionEvicted, begun && after.size == before.size);
  add(Reached::kPromotionHadNoRoom, last.answer == "hit" && !begun);
  add(Reached::kPutOffByATier, was_put_off && !begun && result == LookupResult::kPending);
  add(Reached::kTierBehindTheOneThatAsksAgain, was_put_off && last.answer == "hit");
}

void Reach::count_accepted(const PrepareLoad& command, const Observation&,
                           const Observation& after) {
  if (!shows_state(after)) return;
  add(Reached::kLoadAndCascade,
      std::any_of(command.keys.begin(), command.keys.end(), [&](std::uint32_t key) {
        return has_transfer(after, /*promotion=*/false, key);
      }));
}

void Reach::count_accepted(const PrepareStore& command, const Observation& before,
                           const Observation& after) {
  if (!after.stored.has_value() || !shows_state(before) || !shows_state(after)) return;
  if (!*after.stored) {
    add(Reached::kStoreFailedForCascades,
        std::any_of(after.jobs->begin(), after.jobs->end(),
                    [](const Transfer& job) { return !job.promotion && !job.keys.empty(); }));
    return;
  }
  add(Reached::kPendingLeftOut,
      num_calls(after, "submit_store") > 0 &&
          std::any_of(command.keys.begin(), command.keys.end(), [&](std::uint32_t key) {
            return is_writing(before, key) && is_writing(after, key);
          }));
}

void Reach::count_accepted(const CompleteStore& command, const Observation& before,
                           const Observation& after) {
  add(Reached::kFailedStoreStayed, !command.success && after.size < before.size);
}

void Reach::count_accepted(const OnRequestFinished& command, const Observation&,
                           const Observation& after) {
  if (!shows_state(after)) return;
  for (const auto* transfers : {&*after.jobs, &*after.pending}) {
    add(Reached::kPromotionOutlivedItsRequest,
        std::any_of(transfers->begin(), transfers->end(), [&](const Transfer& transfer) {
          return transfer.promotion && transfer.request == command.request;
        }));
  }
}

void Reach::count_accepted(const TakeEvents&, const Observation&, const Observation& after) {
  if (!after.events.has_value()) return;
  for (const offload::Event& event : *after.events) {
    add(event.removed ? Reached::kRemovedEvent : Reached::kStoredEvent);
  }
}

}  // namespace kvfence::tiering
