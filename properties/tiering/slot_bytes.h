#pragma once

/// The bytes of the CPU cache's slots, as the copy engines of all ranks write them. A rank's part
/// of a slot is written when its transfer has succeeded; until then, from the start of the
/// transfer, it holds other bytes. The key of a block determines its bytes
/// (contract/tiering/tier_files.h).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "contract/connectors/transfer_engine.h"
#include "contract/core/state_digest.h"
#include "contract/scripted/scripted_transfer_engine.h"
#include "contract/tiering/secondary_tier.h"
#include "contract/tiering/tier_files.h"

namespace kvfence {

class SlotBytes {
 public:
  /// Slots that hold zeros; slot_bytes is a multiple of num_ranks.
  SlotBytes(std::uint32_t num_slots, std::size_t slot_bytes, std::uint32_t num_ranks)
      : bytes_(num_slots * slot_bytes),
        view_{bytes_.data(), slot_bytes, num_slots},
        part_bytes_(slot_bytes / num_ranks) {}
  SlotBytes(const SlotBytes&) = delete;
  SlotBytes& operator=(const SlotBytes&) = delete;

  const PrimaryKvView& view() const { return view_; }

  /// A store copies that block there.
  void plan(JobId job, SlotId slot, OffloadKey key) { keys_[{job, slot}] = std::move(key); }

  /// A rank's transfer was submitted or made progress.
  void on_progress(std::uint32_t rank, const ScriptedTransferEngine::Transfer& transfer) {
    const bool begins = transfer.progress == TransferProgress::kSubmitted;
    if (!transfer.job.spec.is_store) return;
    if (!begins && transfer.progress != TransferProgress::kFinished) return;
    for (SlotId slot : transfer.job.spec.slots) {
      const std::size_t first = rank * part_bytes_;
      const std::span<std::byte> part = view_.slot(slot).subspan(first, part_bytes_);
      std::ranges::fill(part, std::byte{0xff});
      const auto key = keys_.find({transfer.job.job, slot});
      if (begins || key == keys_.end()) continue;
      for (std::size_t place = 0; place < part_bytes_; ++place) {
        part[place] = block_byte(key->second, first + place);
      }
    }
  }

  void add_to(StateHash& hash) const { hash.add_all(bytes_, keys_); }

 private:
  std::vector<std::byte> bytes_;
  PrimaryKvView view_;
  std::size_t part_bytes_;
  std::map<std::pair<JobId, SlotId>, OffloadKey> keys_;
};

}  // namespace kvfence
