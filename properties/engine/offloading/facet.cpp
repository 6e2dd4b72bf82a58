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
#include "properties/engine/engines.h"
#include "properties/tiering/tier_observations.h"

namespace kvfence::engine::offloading {
namespace {

void observe_jobs(const std::vector<TransferJob>& jobs, std::vector<Transfer>& transfers) {
  transfers.resize(jobs.size());
  for (std::size_t index = 0; index < jobs.size(); ++index) {
    static_cast<TransferSpec&>(transfers[index]) = jobs[index].spec;
    transfers[index].job = jobs[index].job;
    transfers[index].request = jobs[index].request;
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

void Facet::start(const Config& config, ConnectorSetup& setup, ConnectorPlace place,
                  const MakeTierFiles& make_tier_files) {
  place_ = place;
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
        [slots = slots_, place = place_, rank](ScriptedTransferEngine::Transfer transfer) {
          if (!place.is_own(transfer.job.job)) return;
          transfer.job.job = place.own(transfer.job.job);
          slots->on_progress(rank, transfer);
        });
  }
}

OffloadingConnectorScheduler& Facet::connector_of(Engine& engine) const {
  return place_.part_of<OffloadingConnectorScheduler>(engine.connector());
}

/// Null: there is none.
ScriptedTier* Facet::tier_at(std::uint32_t place, Engine& engine) const {
  TieringView* const tiering = connector_of(engine).tiering();
  if (!tiering || place >= tiering->tiers().size()) return nullptr;
  return &scripted_tier_at(tiering->tiers(), place);
}

// ---- Commands ----

ErrorCode Facet::run(const AdvanceTransfer& command, Engine& engine, const World&) {
  const bool fails = command.progress == TransferProgress::kFailed;
  if (command.progress == TransferProgress::kSubmitted) return ErrorCode::kBadRange;
  if (!engine.has_scripted_copies(command.rank)) return ErrorCode::kNotInConfig;
  if (fails && !transfers_may_fail_) return ErrorCode::kNotInConfig;
  ScriptedTransferEngine& copies = engine.ranks[command.rank].copies;
  const JobId job = place_.number_of(command.job);
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

ErrorCode Facet::run(const ReportTransferAgain& command, Engine& engine, const World&) {
  if (!engine.has_scripted_copies(command.rank)) return ErrorCode::kNotInConfig;
  return engine.ranks[command.rank].copies.report_again(place_.number_of(command.job))
             ? ErrorCode::kNone
             : ErrorCode::kUnknownJob;
}

ErrorCode Facet::run(const TierFinish& command, Engine& engine, const World&) {
  ScriptedTier* const tier = tier_at(command.tier, engine);
  if (!tier) return ErrorCode::kNotInConfig;
  tier->finish(command.job, command.success);
  return ErrorCode::kNone;
}

ErrorCode Facet::run(const TierAskAgain& command, Engine& engine, const World& world) {
  const ErrorCode error = find_keys(command, command.group, {command.block}, engine, world);
  if (error == ErrorCode::kNone) {
    tier_at(command.tier, engine)->ask_again(keys_.front(), command.times);
  }
  return error;
}

ErrorCode Facet::run(const TierAdd& command, Engine& engine, const World& world) {
  const ErrorCode error = find_keys(command, command.group, command.blocks, engine, world);
  if (error != ErrorCode::kNone) return error;
  for (const OffloadKey& key : keys_) tier_at(command.tier, engine)->add(key);
  return error;
}

ErrorCode Facet::run(const TierDrop& command, Engine& engine, const World& world) {
  const ErrorCode error = find_keys(command, command.group, command.blocks, engine, world);
  if (error != ErrorCode::kNone) return error;
  for (const OffloadKey& key : keys_) tier_at(command.tier, engine)->drop(key);
  return error;
}

ErrorCode Facet::run(const TierFaults& command, Engine& engine, const World&) {
  ScriptedTier* const tier = tier_at(command.tier, engine);
  if (!tier || !tier->files()) return ErrorCode::kNotInConfig;
  return plan_faults(command.faults, *tier->files());
}

ErrorCode Facet::run(const TierDamage& command, Engine& engine, const World& world) {
  ScriptedTier* const tier = tier_at(command.tier, engine);
  if (!tier || !tier->files()) return ErrorCode::kNotInConfig;
  const bool replaces = command.damage == FileDamage::kReplace;
  std::vector<std::uint32_t> blocks = {command.block};
  if (replaces) blocks.push_back(command.at);
  const ErrorCode error = find_keys(command, command.group, blocks, engine, world);
  if (error != ErrorCode::kNone) return error;
  damage_file(*tier->files(), keys_.front(), command.damage, command.at, keys_.back(),
              slot_bytes_of(setup_.spec));
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

ErrorCode Facet::find_keys(const OfPrompt& prompt, GroupId group,
                           const std::vector<std::uint32_t>& blocks, Engine& engine,
                           const World& world) {
  if (!tier_at(prompt.tier, engine) || group >= setup_.spec.kv_cache.groups.size()) {
    return ErrorCode::kNotInConfig;
  }
  const Request* const request = world.requests().find(prompt.request);
  if (!request) return ErrorCode::kUnknownRequest;
  keys_.clear();
  for (std::uint32_t block : blocks) {
    const std::optional<OffloadKey> key = key_of_prompt_block(setup_.spec, *request, group, block);
    if (!key) return ErrorCode::kBadRange;
    keys_.push_back(*key);
  }
  return ErrorCode::kNone;
}

// ---- Observations ----

void Facet::observe_plan(const KVConnectorMetadata& of_step, Engine& engine, Observed& observed) {
  const auto& metadata = place_.part_of<const OffloadingConnectorMetadata>(of_step);
  observe_jobs(metadata.loads, observed.loads.emplace());
  observe_jobs(metadata.stores, observed.stores.emplace());
  if (slots_ && !metadata.stores.empty()) plan_slots(metadata.stores, connector_of(engine));
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

void Facet::observe(Engine& engine, bool has_state, Observed& observed) {
  OffloadingConnectorScheduler& connector = connector_of(engine);
  connector.policy_lists(lists_);
  observed.num_free_slots.emplace() = connector.num_free_slots();
  observed.target_t1_size.emplace() = lists_.target_t1_size;
  if (has_state) {
    observe_transfers(engine, observed);
    observe_blocks(lists_.t1, observed.t1.emplace());
    observe_blocks(lists_.t2, observed.t2.emplace());
    observe_keys(lists_.b1, observed.b1.emplace());
    observe_keys(lists_.b2, observed.b2.emplace());
  }
  if (has_tiers()) observe_tiers(connector.tiering(), has_state, observed);
}

void Facet::observe_transfers(const Engine& engine, Observed& observed) const {
  if (!engine.has_scripted_copies(0)) return;
  std::vector<EngineTransfer>& transfers = observed.transfers.emplace();
  transfers.clear();
  for (std::uint32_t rank = 0; rank < engine.ranks.size(); ++rank) {
    for (const ScriptedTransferEngine::Transfer& each : engine.ranks[rank].copies.transfers()) {
      if (!place_.is_own(each.job.job)) continue;
      transfers.push_back({rank, place_.own(each.job.job), each.job.request, each.job.spec.is_store,
                           each.progress});
    }
  }
}

void Facet::observe_tiers(TieringView* view, bool has_state, Observed& observed) {
  KVFENCE_CHECK(view, "a connector with tiers does not show them");
  TieringView& tiering = *view;
  observed.num_tier_jobs.emplace() = tiering.num_jobs();
  observed.num_pending_promotions.emplace() = tiering.num_pending();
  show_tier_calls(*tier_calls_, observed.tier_calls, observe_keys);
  if (!has_state) return;
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
