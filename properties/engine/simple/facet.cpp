#include "properties/engine/simple/facet.h"

#include <cstddef>
#include <cstdint>
#include <optional>

#include "contract/scripted/scripted_transfer_engine.h"
#include "properties/engine/engines.h"

namespace kvfence::engine::simple {

ErrorCode Facet::run(const AdvanceCopy& command, Engine& engine) const {
  if (command.progress != TransferProgress::kPart &&
      command.progress != TransferProgress::kFinished) {
    return ErrorCode::kBadRange;
  }
  if (!engine.has_scripted_copies(command.rank)) return ErrorCode::kNotInConfig;
  ScriptedTransferEngine& copies = engine.ranks[command.rank].copies;
  for (const ScriptedTransferEngine::Transfer& transfer : copies.transfers()) {
    if (!place_.is_own(transfer.job.job)) continue;
    if (transfer.job.spec.is_store != command.store) continue;
    if (transfer.progress == TransferProgress::kFinished) continue;
    copies.advance(transfer.job.job, command.progress);
    return ErrorCode::kNone;
  }
  return ErrorCode::kUnknownJob;
}

void Facet::observe_plan(const KVConnectorMetadata& of_step, Observed& observed) const {
  const auto& metadata = place_.part_of<const SimpleCPUOffloadMetadata>(of_step);
  if (metadata.load_event) observed.load_event.emplace() = *metadata.load_event;
  observed.load_gpu_blocks.emplace() = metadata.load_gpu_blocks;
  observed.load_cpu_blocks.emplace() = metadata.load_cpu_blocks;
  observed.load_requests.emplace() = metadata.load_requests;
  if (metadata.store_event) observed.store_event.emplace() = *metadata.store_event;
  observed.store_gpu_blocks.emplace() = metadata.store_gpu_blocks;
  observed.store_cpu_blocks.emplace() = metadata.store_cpu_blocks;
  observed.need_flush.emplace() = metadata.need_flush;
}

void Facet::observe(Engine& engine, bool has_state, Observed& observed) {
  const auto& connector = place_.part_of<SimpleCPUOffloadScheduler>(engine.connector());
  const BlockCounts counts = connector.cpu_block_counts();
  observed.num_empty_cpu_blocks.emplace() = counts.empty;
  observed.num_cached_cpu_blocks.emplace() = counts.cached;
  observed.num_referenced_cpu_blocks.emplace() = counts.referenced;
  observed.has_pending_stores.emplace() = connector.has_pending_stores();
  const std::optional<BlockId> cursor = connector.lazy_cursor();
  if (cursor) observed.lazy_cursor.emplace() = *cursor;
  if (!has_state) return;
  observe_copies(engine, observed);
  connector.pinned_hits(hits_);
  std::vector<Pin>& pins = observed.pins.emplace();
  pins.resize(hits_.size());
  for (std::size_t index = 0; index < pins.size(); ++index) {
    pins[index].request = engine.observer.name_of(hits_[index].request);
    pins[index].cpu_blocks = hits_[index].cpu_blocks;
  }
  connector.cpu_pool(observed.cpu);
}

void Facet::observe_copies(const Engine& engine, Observed& observed) const {
  if (!engine.has_scripted_copies(0)) return;
  std::vector<Copy>& copies = observed.copies.emplace();
  copies.clear();
  for (std::uint32_t rank = 0; rank < engine.ranks.size(); ++rank) {
    for (const ScriptedTransferEngine::Transfer& each : engine.ranks[rank].copies.transfers()) {
      if (!place_.is_own(each.job.job)) continue;
      copies.push_back(
          {rank, each.job.spec.is_store, event_of(place_.own(each.job.job)), each.progress});
    }
  }
}

}  // namespace kvfence::engine::simple
