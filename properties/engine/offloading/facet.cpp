#include "properties/engine/offloading/facet.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <span>
#include <utility>

#include "contract/core/check.h"
#include "contract/scripted/scripted_transfer_engine.h"
#include "contract/tiering/tier_files.h"
#include "properties/tiering/tier_observations.h"

namespace kvfence::engine::offloading {
namespace {

bool has_tier(const Facet::Around& around, std::uint32_t place) {
  TieringView* const tiering = around.connector.tiering();
  return tiering && place < tiering->tiers().size();
}

ScriptedTier& tier(const Facet::Around& around, std::uint32_t place) {
  return scripted_tier_at(around.connector.tiering()->tiers(), place);
}

bool has_files(const Facet::Around& around, std::uint32_t place) {
  return has_tier(around, place) && tier(around, place).files() != nullptr;
}

void observe_jobs(const std::vector<TransferJob>& jobs, std::vector<Transfer>& transfers) {
  transfers.resize(jobs.size());
  for (std::size_t index = 0; index < jobs.size(); ++index) {
    transfers[index].job = jobs[index].job;
    transfers[index].request = jobs[index].request;
    transfers[index].gpu_blocks = jobs[index].spec.gpu_blocks;
    transfers[index].group_sizes = jobs[index].spec.group_sizes;
    transfers[index].block_indices = jobs[index].spec.block_indices;
    transfers[index].slots = jobs[index].spec.slots;
  }
}

void observe_blocks(const std::vector<PolicyEntry>& entries, std::vector<OffloadedBlock>& blocks) {
  blocks.resize(entries.size());
  for (std::size_t index = 0; index < entries.size(); ++index) {
    const BlockStatus& status = entries[index].status;
    blocks[index].key = entries[index].key;
    blocks[index].slot = status.slot;
    blocks[index].ready = status.ref_cnt != kNotReady;
    blocks[index].readers = static_cast<std::uint32_t>(std::max(status.ref_cnt, 0));
  }
}

void observe_operations(std::span<const TransferOperations> stats,
                        std::vector<Operation>& operations) {
  operations.clear();
  for (const TransferOperations& of_type : stats) {
    for (const OffloadingOperationMetrics& op : of_type.ops) {
      operations.push_back({of_type.transfer_type, op.op_size,
                            static_cast<std::uint32_t>(std::lround(op.op_time * 1e6))});
    }
  }
}

void observe_lines(std::string_view text, std::vector<std::string>& lines) {
  lines.clear();
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
}

void observe_keys(const std::vector<OffloadKey>& observed, KeyList& keys) {
  keys.assign(observed.begin(), observed.end());
}

}  // namespace

void Facet::start(const Config& config, ConnectorSetup& setup, TransferNumbers numbers,
                  const MakeTierFiles& make_tier_files) {
  numbers_ = numbers;
  const auto& record = *config.connector<Record>();
  transfers_may_fail_ = record.transfers_may_fail;
  tier_calls_ = std::make_shared<TierCalls>();
  slots_.reset();
  if (!record.file_tiers.empty()) {
    slots_ = std::make_shared<SlotBytes>(setup.spec.manager.cache.capacity,
                                         slot_bytes_of(setup.spec), setup.spec.num_workers);
    setup.primary = slots_->view();
  }
  setup.tier_types = scripted_tier_types(tier_calls_, make_tier_files);
  setup_ = setup;
}

void Facet::watch(std::vector<EngineRank>& ranks, std::unique_ptr<StatLoggers> loggers) {
  loggers_ = std::move(loggers);
  engine_idx_ = 0;
  for (EngineRank& rank : ranks) rank.copies.set_block_bytes(setup_.block_bytes);
  for (std::uint32_t rank = 0; slots_ && rank < ranks.size(); ++rank) {
    ranks[rank].copies.watch(
        [slots = slots_, numbers = numbers_, rank](ScriptedTransferEngine::Transfer transfer) {
          if (!numbers.is_own(transfer.job.job)) return;
          transfer.job.job = numbers.own(transfer.job.job);
          slots->on_progress(rank, transfer);
        });
  }
}

// ---- Commands ----

ErrorCode Facet::run(const AdvanceTransfer& command, const Around& around) {
  const bool fails = command.progress == TransferProgress::kFailed;
  if (command.progress == TransferProgress::kSubmitted) return ErrorCode::kBadRange;
  if (command.rank >= around.ranks.size() || around.ranks[command.rank].device) {
    return ErrorCode::kNotInConfig;
  }
  if (fails && !transfers_may_fail_) return ErrorCode::kNotInConfig;
  ScriptedTransferEngine& copies = around.ranks[command.rank].copies;
  const JobId job = numbers_.number_of(command.job);
  for (const ScriptedTransferEngine::Transfer& transfer : copies.transfers()) {
    const bool has_ended = transfer.progress == TransferProgress::kFinished ||
                           transfer.progress == TransferProgress::kFailed;
    if (transfer.job.job != job || has_ended) continue;
    const bool fences = setup_.spec.manager.rules.offload_fences_reuse;
    if (fails && transfer.job.spec.is_store && !fences) return ErrorCode::kNotInProfile;
    const bool has_groups = setup_.spec.kv_cache.groups.size() > 1;
    if (fails && !transfer.job.spec.is_store && has_groups) return ErrorCode::kNotInConfig;
  }
  return copies.advance(job, command.progress, command.microseconds) ? ErrorCode::kNone
                                                                     : ErrorCode::kUnknownJob;
}

ErrorCode Facet::run(const ReportTransferAgain& command, const Around& around) {
  if (command.rank >= around.ranks.size() || around.ranks[command.rank].device) {
    return ErrorCode::kNotInConfig;
  }
  return around.ranks[command.rank].copies.report_again(numbers_.number_of(command.job))
             ? ErrorCode::kNone
             : ErrorCode::kUnknownJob;
}

ErrorCode Facet::run(const TierFinish& command, const Around& around) {
  if (!has_tier(around, command.tier)) return ErrorCode::kNotInConfig;
  tier(around, command.tier).finish(command.job, command.success);
  return ErrorCode::kNone;
}

ErrorCode Facet::run(const TierAskAgain& command, const Around& around) {
  const ErrorCode error =
      find_keys(command.tier, command.request, command.group, {command.block}, around);
  if (error == ErrorCode::kNone) {
    tier(around, command.tier).ask_again(keys_.front(), command.times);
  }
  return error;
}

ErrorCode Facet::run(const TierAdd& command, const Around& around) {
  const ErrorCode error =
      find_keys(command.tier, command.request, command.group, command.blocks, around);
  if (error != ErrorCode::kNone) return error;
  for (const OffloadKey& key : keys_) tier(around, command.tier).add(key);
  return error;
}

ErrorCode Facet::run(const TierDrop& command, const Around& around) {
  const ErrorCode error =
      find_keys(command.tier, command.request, command.group, command.blocks, around);
  if (error != ErrorCode::kNone) return error;
  for (const OffloadKey& key : keys_) tier(around, command.tier).drop(key);
  return error;
}

ErrorCode Facet::run(const TierFaults& command, const Around& around) {
  if (!has_files(around, command.tier)) return ErrorCode::kNotInConfig;
  return plan_faults(command.faults, *tier(around, command.tier).files());
}

ErrorCode Facet::run(const TierDamage& command, const Around& around) {
  if (!has_files(around, command.tier)) return ErrorCode::kNotInConfig;
  const bool replaces = command.damage == FileDamage::kReplace;
  std::vector<std::uint32_t> blocks = {command.block};
  if (replaces) blocks.push_back(command.at);
  const ErrorCode error = find_keys(command.tier, command.request, command.group, blocks, around);
  if (error != ErrorCode::kNone) return error;
  damage_file(*tier(around, command.tier).files(), keys_.front(), command.damage, command.at,
              keys_.back(), slot_bytes_of(setup_.spec));
  return ErrorCode::kNone;
}

ErrorCode Facet::run(const LogStats& command, Observed& observed) {
  if (setup_.metrics.per_engine_labelvalues.count(command.engine_idx) == 0) {
    return ErrorCode::kBadRange;
  }
  engine_idx_ = command.engine_idx;
  observe_operations(loggers_->interval(), observed.interval_stats.emplace());
  std::vector<std::string>& logged = observed.logged.emplace();
  logged.clear();
  if (auto text = loggers_->log()) logged.push_back(*std::move(text));
  loggers_->collect(metrics_);
  observe_lines(print(metrics_), observed.metrics.emplace());
  return ErrorCode::kNone;
}

ErrorCode Facet::find_keys(std::uint32_t place, const std::string& request, GroupId group,
                           const std::vector<std::uint32_t>& blocks, const Around& around) {
  if (!has_tier(around, place) || group >= setup_.spec.kv_cache.groups.size()) {
    return ErrorCode::kNotInConfig;
  }
  const Request* prompt = around.world.requests().find(request);
  if (!prompt) return ErrorCode::kUnknownRequest;
  keys_.clear();
  for (std::uint32_t block : blocks) {
    const std::optional<OffloadKey> key = key_of_prompt_block(setup_.spec, *prompt, group, block);
    if (!key) return ErrorCode::kBadRange;
    keys_.push_back(*key);
  }
  return ErrorCode::kNone;
}

// ---- Observations ----

void Facet::observe_plan(const OffloadingConnectorMetadata& metadata,
                         const OffloadingConnectorScheduler& connector, Observed& observed) {
  observe_jobs(metadata.loads, observed.loads.emplace());
  observe_jobs(metadata.stores, observed.stores.emplace());
  if (slots_ && !metadata.stores.empty()) plan_slots(metadata.stores, connector);
  observed.requests_to_flush.emplace() = metadata.requests_to_flush;
  observed.jobs_to_flush.emplace() = metadata.jobs_to_flush;
}

/// Records which keys the stores write to which slots.
void Facet::plan_slots(const std::vector<TransferJob>& stores,
                       const OffloadingConnectorScheduler& connector) {
  connector.policy_lists(lists_);
  std::map<SlotId, const OffloadKey*> key_in;
  for (const auto* blocks : {&lists_.t1, &lists_.t2}) {
    for (const PolicyEntry& block : *blocks) key_in[block.status.slot] = &block.key;
  }
  for (const TransferJob& store : stores) {
    for (SlotId slot : store.spec.slots) {
      const auto key = key_in.find(slot);
      if (key != key_in.end()) slots_->plan(store.job, slot, *key->second);
    }
  }
}

void Facet::observe_report(const AggregatedOutput& report, Observed& observed) {
  observe_operations(report.stats, observed.transfer_stats.emplace());
}

void Facet::send_stats(const AggregatedOutput& report, std::string_view class_name) {
  if (!report.stats.empty()) loggers_->observe(report.stats, engine_idx_);
  for (const TransferOperationsOfClass& of_class : report.stats_of_children) {
    if (of_class.connector_class == class_name) loggers_->observe(of_class.stats, engine_idx_);
  }
}

void Facet::observe_numbers(OffloadingConnectorScheduler& connector, Observed& observed) {
  connector.policy_lists(lists_);
  observed.num_free_slots.emplace() = connector.num_free_slots();
  observed.target_t1_size.emplace() = lists_.target_t1_size;
  if (!has_tiers()) return;
  const TieringView* const tiering = connector.tiering();
  KVFENCE_CHECK(tiering, "a connector with tiers does not show them");
  observed.num_tier_jobs.emplace() = tiering->num_jobs();
  observed.num_pending_promotions.emplace() = tiering->num_pending();
  show_tier_calls(*tier_calls_, observed.tier_calls, observe_keys);
}

void Facet::observe_state(OffloadingConnectorScheduler& connector,
                          const std::vector<EngineRank>& ranks, Observed& observed) {
  if (!ranks.front().device) {
    std::vector<EngineTransfer>& transfers = observed.transfers.emplace();
    transfers.clear();
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      for (const ScriptedTransferEngine::Transfer& each : ranks[rank].copies.transfers()) {
        if (!numbers_.is_own(each.job.job)) continue;
        EngineTransfer& transfer = transfers.emplace_back();
        transfer.rank = static_cast<std::uint32_t>(rank);
        transfer.job = numbers_.own(each.job.job);
        transfer.request = each.job.request;
        transfer.store = each.job.spec.is_store;
        transfer.progress = each.progress;
      }
    }
  }
  observe_blocks(lists_.t1, observed.t1.emplace());
  observe_blocks(lists_.t2, observed.t2.emplace());
  observe_keys(lists_.b1, observed.b1.emplace());
  observe_keys(lists_.b2, observed.b2.emplace());
  if (has_tiers()) observe_tiers(connector, observed);
}

void Facet::observe_tiers(OffloadingConnectorScheduler& connector, Observed& observed) {
  TieringView& tiering = *connector.tiering();
  tiering.jobs(transfers_);
  show_tier_transfers(transfers_, observed.tier_jobs.emplace(), observe_keys);
  tiering.pending(transfers_);
  show_tier_transfers(transfers_, observed.pending_promotions.emplace(), observe_keys);
  show_tiers(tiering.tiers(), observed.tiers.emplace(), observe_keys);
  if (!slots_) return;
  KeyList& damaged = observed.damaged.emplace();
  damaged.clear();
  for_each_damaged(lists_, slots_->view(),
                   [&](const OffloadKey& key) { damaged.emplace_back(key); });
}

}  // namespace kvfence::engine::offloading
