#pragma once

/// What drivers with scripted tiers have in common: commands on files, and observations of the
/// tiers and their jobs (contract/tiering/tier_records.h). `show_keys(keys, shown)` replaces a list
/// of the target by keys.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "contract/core/declare.h"
#include "contract/core/status.h"
#include "contract/eviction/cache_policy.h"
#include "contract/scripted/scripted_tier.h"
#include "contract/tiering/file_fault.h"
#include "contract/tiering/secondary_tier.h"
#include "contract/tiering/tier_files.h"
#include "contract/tiering/tier_records.h"
#include "contract/tiering/tiering_manager.h"
#include "contract/tiering/tiering_target.h"

namespace kvfence {

/// Requires: scripted tiers.
inline ScriptedTier& scripted_tier_at(std::span<SecondaryTierHandle> tiers, std::size_t place) {
  return dynamic_cast<ScriptedTier&>(*tiers[place].get());
}

/// Errors: kBadRange: no call can fail in the way that a fault says; nothing is planned.
inline ErrorCode plan_faults(const std::vector<tiering::Fault>& planned, TierFiles& files) {
  std::vector<FileFault> faults;
  for (const tiering::Fault& each : planned) {
    const std::optional<FileFault> fault = tiering::file_fault_of(each);
    if (!fault) return ErrorCode::kBadRange;
    faults.push_back(*fault);
  }
  files.begin(FaultPlan(std::move(faults)));
  return ErrorCode::kNone;
}

/// Damages the file of `key`. at: the bit, or the difference from the right size; other: the key
/// whose file replaces it.
inline void damage_file(TierFiles& files, OffloadKeyView key, FileDamage damage, std::uint32_t at,
                        OffloadKeyView other, std::uint64_t block_bytes) {
  const std::uint64_t right_size = kBlockFileHeaderBytes + block_bytes;
  switch (damage) {
    case FileDamage::kFlip:
      files.flip_bit(key, at);
      break;
    case FileDamage::kTruncate:
      files.resize_file(key, at % right_size);
      break;
    case FileDamage::kGrow:
      files.resize_file(key, right_size + 1 + at % right_size);
      break;
    case FileDamage::kReplace:
      if (other != key) files.copy_file(other, key);
      break;
  }
}

/// Takes the calls out of the list; if there were none, nothing is shown.
template <class Keys, class ShowKeys>
void show_tier_calls(TierCalls& calls, Reusable<std::vector<tiering::CallRecordOf<Keys>>>& shown,
                     ShowKeys show_keys) {
  if (calls.empty()) return;
  auto& records = shown.emplace();
  records.resize(calls.size());
  for (std::size_t index = 0; index < records.size(); ++index) {
    const TierCall& call = calls[index];
    tiering::CallRecordOf<Keys>& record = records[index];
    static_cast<tiering::CallParts&>(record) = call;
    show_keys(call.keys, record.keys);
    for (const JobResult& result : call.results) {
      record.answer += (record.answer.empty() ? "" : " ") + std::to_string(result.job_id) +
                       (result.success ? " done" : " failed");
    }
  }
  calls.clear();
}

/// Jobs, or promotions that are queued.
template <class Keys, class ShowKeys>
void show_tier_transfers(const std::vector<TierTransferState>& transfers,
                         std::vector<tiering::TransferOf<Keys>>& shown, ShowKeys show_keys) {
  shown.resize(transfers.size());
  for (std::size_t index = 0; index < transfers.size(); ++index) {
    const TierTransferState& transfer = transfers[index];
    shown[index].job = transfer.id;
    shown[index].tier = transfer.tier;
    shown[index].promotion = transfer.is_promotion;
    shown[index].request = transfer.req_id;
    show_keys(transfer.keys, shown[index].keys);
    shown[index].slots = transfer.slots;
  }
}

/// In ascending order of the target's keys.
template <class Keys, class ShowKeys>
void show_tiers(std::span<SecondaryTierHandle> tiers,
                std::vector<tiering::TierStateOf<Keys>>& shown, ShowKeys show_keys) {
  static const tiering::TierStateOf<Keys> kWithoutFiles;
  shown.resize(tiers.size());
  for (std::size_t place = 0; place < tiers.size(); ++place) {
    ScriptedTier& tier = scripted_tier_at(tiers, place);
    show_keys(tier.held(), shown[place].held);
    TierFiles* const files = tier.files();
    shown[place].writers = files ? files->writers() : kWithoutFiles.writers;
  }
}

/// The blocks that a lookup finds in the primary tier although their slot holds other content.
template <class Show>
void for_each_damaged(const PolicyLists& lists, PrimaryKvView primary, Show show) {
  for (const auto* blocks : {&lists.t1, &lists.t2}) {
    for (const PolicyEntry& block : *blocks) {
      const bool is_ready = block.status.ref_cnt != kNotReady;
      if (is_ready && !holds_block(block.key, primary.slot(block.status.slot))) show(block.key);
    }
  }
}

}  // namespace kvfence
