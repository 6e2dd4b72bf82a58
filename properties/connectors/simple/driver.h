#pragma once

/// Puts a scheduler with a simple CPU offload connector, the workers' halves of all ranks and their
/// copy engines behind the interface that a lockstep drives (copying_connector_driver.h).
///
/// Besides the codes there:
///   kBadRange  advance_copy: neither part nor finished

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/connectors/kv_output_aggregator.h"
#include "contract/connectors/simple/simple_cpu_offload.h"
#include "contract/connectors/simple/simple_offload_target.h"
#include "contract/core/check.h"
#include "contract/scripted/scripted_transfer_engine.h"
#include "properties/connectors/offloading/copying_connector_driver.h"

namespace kvfence {

template <class Side>
class SimpleOffloadDriver final
    : public CopyingConnectorDriver<SimpleOffloadDriver<Side>, SimpleOffloadTarget, Side,
                                    SimpleOffloadSetup, SimpleCPUOffloadScheduler,
                                    SimpleCPUOffloadMetadata> {
  using Base = typename SimpleOffloadDriver::CopyingConnectorDriver;
  friend Base;

 public:
  using Base::Base;
  using typename Base::Config;
  using typename Base::World;

 private:
  using Base::connector;
  using Base::observation;
  using Base::ranks;
  using Base::run;

  static constexpr std::string_view kConnectorName = "simple CPU offload connector";

  static SimpleOffloadSetup make_setup(const Config&, SimpleOffloadSetup setup) { return setup; }

  // ---- Commands ----

  ErrorCode run(const simple_offload::AdvanceCopy& command, const World&) {
    if (command.progress != TransferProgress::kPart &&
        command.progress != TransferProgress::kFinished) {
      return ErrorCode::kBadRange;
    }
    if (command.rank >= ranks().size()) return ErrorCode::kNotInConfig;
    ScriptedTransferEngine& engine = ranks()[command.rank].engine;
    for (const ScriptedTransferEngine::Transfer& transfer : engine.transfers()) {
      if (transfer.job.spec.is_store != command.store) continue;
      if (transfer.progress == TransferProgress::kFinished) continue;
      engine.advance(transfer.job.job, command.progress);
      return ErrorCode::kNone;
    }
    return ErrorCode::kUnknownJob;
  }

  // ---- Observations ----

  void forget_connector_answer() {
    observation().load_event.reset();
    observation().load_gpu_blocks.reset();
    observation().load_cpu_blocks.reset();
    observation().load_requests.reset();
    observation().store_event.reset();
    observation().store_gpu_blocks.reset();
    observation().store_cpu_blocks.reset();
    observation().need_flush.reset();
    observation().finished_recving.reset();
    observation().completed_stores.reset();
  }

  void forget_connector_state() {
    observation().copies.reset();
    observation().pins.reset();
    observation().cpu_free_queue.reset();
    observation().cpu_ref_cnts.reset();
    observation().cpu_keys.reset();
  }

  void observe_metadata(const SimpleCPUOffloadMetadata& metadata) {
    if (metadata.load_event) observation().load_event.emplace() = *metadata.load_event;
    observation().load_gpu_blocks.emplace() = metadata.load_gpu_blocks;
    observation().load_cpu_blocks.emplace() = metadata.load_cpu_blocks;
    observation().load_requests.emplace() = metadata.load_requests;
    if (metadata.store_event) observation().store_event.emplace() = *metadata.store_event;
    observation().store_gpu_blocks.emplace() = metadata.store_gpu_blocks;
    observation().store_cpu_blocks.emplace() = metadata.store_cpu_blocks;
    observation().need_flush.emplace() = metadata.need_flush;
  }

  void observe_report(const AggregatedOutput& report) {
    observation().finished_recving.emplace() = report.finished_recving;
    std::vector<simple_offload::CompletedStore>& completed =
        observation().completed_stores.emplace();
    completed.resize(report.completed_jobs.size());
    for (std::size_t index = 0; index < completed.size(); ++index) {
      completed[index].event = report.completed_jobs[index].job;
      completed[index].num_workers = report.completed_jobs[index].num_workers;
    }
  }

  void observe_connector_numbers() {
    const BlockCounts counts = connector().cpu_block_counts();
    observation().num_empty_cpu_blocks = counts.empty;
    observation().num_cached_cpu_blocks = counts.cached;
    observation().num_referenced_cpu_blocks = counts.referenced;
    observation().has_pending_stores = connector().has_pending_stores();
    observation().lazy_cursor.reset();
    const std::optional<BlockId> cursor = connector().lazy_cursor();
    if (cursor) observation().lazy_cursor.emplace() = *cursor;
  }

  void observe_connector_state() {
    std::vector<simple_offload::Copy>& copies = observation().copies.emplace();
    copies.clear();
    for (std::size_t rank = 0; rank < ranks().size(); ++rank) {
      for (const ScriptedTransferEngine::Transfer& each : ranks()[rank].engine.transfers()) {
        simple_offload::Copy& copy = copies.emplace_back();
        copy.rank = static_cast<std::uint32_t>(rank);
        copy.store = each.job.spec.is_store;
        copy.event = event_of(each.job.job);
        copy.progress = each.progress;
      }
    }
    connector().pinned_hits(hits_);
    std::vector<RequestIndex> pinning(hits_.size());
    std::transform(hits_.begin(), hits_.end(), pinning.begin(),
                   [](const PinnedHit& hit) { return hit.request; });
    Base::observer().names_of(pinning, names_);
    std::vector<simple_offload::Pin>& pins = observation().pins.emplace();
    pins.resize(hits_.size());
    for (std::size_t index = 0; index < pins.size(); ++index) {
      pins[index].request = names_[index];
      pins[index].cpu_blocks = hits_[index].cpu_blocks;
    }
    connector().cpu_pool(cpu_pool_);
    observation().cpu_free_queue.emplace() = cpu_pool_.free_queue;
    observation().cpu_ref_cnts.emplace() = cpu_pool_.ref_cnts;
    observation().cpu_keys.emplace().assign(cpu_pool_.keys.begin(), cpu_pool_.keys.end());
  }

  std::vector<PinnedHit> hits_;
  std::vector<std::string> names_;
  CpuPoolState cpu_pool_;
};

}  // namespace kvfence
