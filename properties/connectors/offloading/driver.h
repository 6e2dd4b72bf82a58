#pragma once

/// Puts a scheduler with an offloading connector, the workers' halves of all ranks and their copy
/// engines behind the interface that a lockstep drives (copying_connector_driver.h).
///
/// Besides the codes there, and those of the commands that begin with `tier_`:
///   kBadRange  advance_transfer: to "submitted"
///
/// Where there are file tiers, slots have bytes (slot_bytes.h): the Side's make_tier_files(primary)
/// makes what such a tier keeps its blocks in.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/connectors/kv_output_aggregator.h"
#include "contract/connectors/offloading/connector_target.h"
#include "contract/connectors/offloading/offloading_connector.h"
#include "contract/core/check.h"
#include "contract/scripted/scripted_tier.h"
#include "contract/scripted/scripted_transfer_engine.h"
#include "contract/tiering/tier_files.h"
#include "properties/connectors/offloading/copying_connector_driver.h"
#include "properties/core/driver.h"
#include "properties/tiering/slot_bytes.h"
#include "properties/tiering/tier_observations.h"

namespace kvfence {

template <class Side>
class ConnectorDriver final
    : public CopyingConnectorDriver<ConnectorDriver<Side>, ConnectorTarget, Side, ConnectorSetup,
                                    OffloadingConnectorScheduler, OffloadingConnectorMetadata> {
  using Base = typename ConnectorDriver::CopyingConnectorDriver;
  friend Base;

 public:
  using Base::Base;
  using typename Base::Config;
  using typename Base::Setup;
  using typename Base::World;

  std::optional<ImplementationFailure> start(const Config& config, const Setup& setup) override {
    transfers_may_fail_ = config.transfers_may_fail;
    // The tiers of before go before their slots do.
    const std::shared_ptr<SlotBytes> old_slots = slots_;
    if (auto failure = Base::start(config, setup)) return failure;
    for (std::uint32_t rank = 0; slots_ && rank < ranks().size(); ++rank) {
      ranks()[rank].engine.watch(
          [slots = slots_, rank](const ScriptedTransferEngine::Transfer& transfer) {
            slots->on_progress(rank, transfer);
          });
    }
    return std::nullopt;
  }

 private:
  using Base::connector;
  using Base::observation;
  using Base::ranks;
  using Base::run;

  static constexpr std::string_view kConnectorName = "offloading connector";

  ConnectorSetup make_setup(const Config& config, ConnectorSetup setup) {
    tier_calls_ = std::make_shared<TierCalls>();
    slots_.reset();
    if (!config.file_tiers.empty()) {
      slots_ = std::make_shared<SlotBytes>(setup.spec.manager.cache.capacity,
                                           slot_bytes_of(setup.spec), setup.spec.num_workers);
      setup.primary = slots_->view();
    }
    const Side* const side = &Base::side();
    setup.tier_types = scripted_tier_types(
        tier_calls_, [side](PrimaryKvView primary) { return side->make_tier_files(primary); });
    return setup;
  }

  // ---- Commands ----

  ErrorCode run(const connector::AdvanceTransfer& command, const World&) {
    const bool fails = command.progress == TransferProgress::kFailed;
    if (command.progress == TransferProgress::kSubmitted) return ErrorCode::kBadRange;
    if (command.rank >= ranks().size()) return ErrorCode::kNotInConfig;
    if (fails && !transfers_may_fail_) return ErrorCode::kNotInConfig;
    ScriptedTransferEngine& engine = ranks()[command.rank].engine;
    for (const ScriptedTransferEngine::Transfer& transfer : engine.transfers()) {
      const bool has_ended = transfer.progress == TransferProgress::kFinished ||
                             transfer.progress == TransferProgress::kFailed;
      if (transfer.job.job != command.job || has_ended) continue;
      const bool fences = Base::setup().spec.manager.rules.offload_fences_reuse;
      if (fails && transfer.job.spec.is_store && !fences) return ErrorCode::kNotInProfile;
    }
    return engine.advance(command.job, command.progress, command.microseconds)
               ? ErrorCode::kNone
               : ErrorCode::kUnknownJob;
  }

  ErrorCode run(const connector::ReportTransferAgain& command, const World&) {
    if (command.rank >= ranks().size()) return ErrorCode::kNotInConfig;
    return ranks()[command.rank].engine.report_again(command.job) ? ErrorCode::kNone
                                                                  : ErrorCode::kUnknownJob;
  }

  ErrorCode run(const connector::ResetPrefixCache& command, const World& world) {
    if (command.reset_connector && has_tiers()) return ErrorCode::kNotInConfig;
    return Base::run(command, world);
  }

  ErrorCode run(const connector::TierFinish& command, const World&) {
    if (!has_tier(command.tier)) return ErrorCode::kNotInConfig;
    tier(command.tier).finish(command.job, command.success);
    return ErrorCode::kNone;
  }

  ErrorCode run(const connector::TierAskAgain& command, const World& world) {
    const ErrorCode error =
        find_keys(command.tier, command.request, command.group, {command.block}, world);
    if (error == ErrorCode::kNone) tier(command.tier).ask_again(keys_.front(), command.times);
    return error;
  }

  ErrorCode run(const connector::TierAdd& command, const World& world) {
    const ErrorCode error =
        find_keys(command.tier, command.request, command.group, command.blocks, world);
    if (error != ErrorCode::kNone) return error;
    for (const OffloadKey& key : keys_) tier(command.tier).add(key);
    return error;
  }

  ErrorCode run(const connector::TierDrop& command, const World& world) {
    const ErrorCode error =
        find_keys(command.tier, command.request, command.group, command.blocks, world);
    if (error != ErrorCode::kNone) return error;
    for (const OffloadKey& key : keys_) tier(command.tier).drop(key);
    return error;
  }

  ErrorCode run(const connector::TierFaults& command, const World&) {
    if (!has_files(command.tier)) return ErrorCode::kNotInConfig;
    return plan_faults(command.faults, *tier(command.tier).files());
  }

  ErrorCode run(const connector::TierDamage& command, const World& world) {
    if (!has_files(command.tier)) return ErrorCode::kNotInConfig;
    const bool replaces = command.damage == FileDamage::kReplace;
    std::vector<std::uint32_t> blocks = {command.block};
    if (replaces) blocks.push_back(command.at);
    const ErrorCode error = find_keys(command.tier, command.request, command.group, blocks, world);
    if (error != ErrorCode::kNone) return error;
    damage_file(*tier(command.tier).files(), keys_.front(), command.damage, command.at,
                keys_.back(), slot_bytes_of(Base::setup().spec));
    return ErrorCode::kNone;
  }

  bool has_files(std::uint32_t place) { return has_tier(place) && tier(place).files() != nullptr; }
  bool has_tiers() const { return Base::setup().spec.has_tiers; }
  bool has_tier(std::uint32_t place) { return place < connector().tiers().size(); }
  ScriptedTier& tier(std::uint32_t place) { return scripted_tier_at(connector().tiers(), place); }

  /// Fills keys_.
  ErrorCode find_keys(std::uint32_t place, const std::string& request, GroupId group,
                      const std::vector<std::uint32_t>& blocks, const World& world) {
    const OffloadingSpec& spec = Base::setup().spec;
    if (!has_tier(place) || group >= spec.kv_cache.groups.size()) return ErrorCode::kNotInConfig;
    const Request* prompt = world.requests().find(request);
    if (!prompt) return ErrorCode::kUnknownRequest;
    keys_.clear();
    for (std::uint32_t block : blocks) {
      const std::optional<OffloadKey> key = key_of_prompt_block(spec, *prompt, group, block);
      if (!key) return ErrorCode::kBadRange;
      keys_.push_back(*key);
    }
    return ErrorCode::kNone;
  }

  // ---- Observations ----

  void forget_connector_answer() {
    observation().tier_calls.reset();
    observation().num_tier_jobs.reset();
    observation().num_pending_promotions.reset();
    observation().loads.reset();
    observation().stores.reset();
    observation().requests_to_flush.reset();
    observation().jobs_to_flush.reset();
    observation().finished_recving.reset();
    observation().finished_sending.reset();
    observation().invalid_blocks.reset();
    observation().completed_jobs.reset();
    observation().transfer_stats.reset();
  }

  void forget_connector_state() {
    observation().transfers.reset();
    observation().t1.reset();
    observation().t2.reset();
    observation().b1.reset();
    observation().b2.reset();
    forget_tiers();
  }

  void forget_tiers() {
    observation().damaged.reset();
    observation().tier_jobs.reset();
    observation().pending_promotions.reset();
    observation().tiers.reset();
  }

  void observe_metadata(const OffloadingConnectorMetadata& metadata) {
    observe_jobs(metadata.loads, observation().loads.emplace());
    observe_jobs(metadata.stores, observation().stores.emplace());
    if (slots_ && !metadata.stores.empty()) plan_slots(metadata.stores);
    observation().requests_to_flush.emplace() = metadata.requests_to_flush;
    observation().jobs_to_flush.emplace() = metadata.jobs_to_flush;
  }

  /// Which blocks are to be copied where.
  void plan_slots(const std::vector<TransferJob>& stores) {
    connector().policy_lists(lists_);
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

  static void observe_jobs(const std::vector<TransferJob>& jobs,
                           std::vector<connector::Transfer>& transfers) {
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

  void observe_report(const AggregatedOutput& report) {
    observation().finished_recving.emplace() = report.finished_recving;
    observation().finished_sending.emplace() = report.finished_sending;
    observation().invalid_blocks.emplace() = report.invalid_block_ids;
    std::vector<connector::Completed>& completed = observation().completed_jobs.emplace();
    completed.resize(report.completed_jobs.size());
    for (std::size_t index = 0; index < completed.size(); ++index) {
      completed[index].job = report.completed_jobs[index].job;
      completed[index].num_workers = report.completed_jobs[index].num_workers;
      completed[index].num_failed = report.completed_jobs[index].num_failed;
    }
    std::vector<connector::Operation>& stats = observation().transfer_stats.emplace();
    stats.clear();
    for (const TransferOperations& operations : report.stats) {
      for (const OffloadingOperationMetrics& op : operations.ops) {
        stats.push_back({operations.transfer_type, static_cast<std::uint32_t>(op.op_size),
                         static_cast<std::uint32_t>(std::lround(op.op_time * 1e6))});
      }
    }
  }

  void observe_connector_numbers() {
    connector().policy_lists(lists_);
    observation().num_free_slots = connector().num_free_slots();
    observation().target_t1_size = lists_.target_t1_size;
    if (!has_tiers()) return;
    observation().num_tier_jobs.emplace() = connector().num_tier_jobs();
    observation().num_pending_promotions.emplace() = connector().num_pending_promotions();
    show_tier_calls(*tier_calls_, observation().tier_calls, observe_keys);
  }

  void observe_connector_state() {
    std::vector<connector::EngineTransfer>& transfers = observation().transfers.emplace();
    transfers.clear();
    for (std::size_t rank = 0; rank < ranks().size(); ++rank) {
      for (const ScriptedTransferEngine::Transfer& each : ranks()[rank].engine.transfers()) {
        connector::EngineTransfer& transfer = transfers.emplace_back();
        transfer.rank = static_cast<std::uint32_t>(rank);
        transfer.job = each.job.job;
        transfer.request = each.job.request;
        transfer.store = each.job.spec.is_store;
        transfer.progress = each.progress;
      }
    }
    observe_blocks(lists_.t1, observation().t1.emplace());
    observe_blocks(lists_.t2, observation().t2.emplace());
    observe_keys(lists_.b1, observation().b1.emplace());
    observe_keys(lists_.b2, observation().b2.emplace());
    // The one before may have had a configuration with tiers.
    if (!has_tiers()) return forget_tiers();
    observe_tiers();
  }

  void observe_tiers() {
    connector().tier_jobs(job_states_);
    show_tier_jobs(job_states_, observation().tier_jobs.emplace(), observe_keys);
    connector().pending_promotions(pending_states_);
    show_pending_promotions(pending_states_, observation().pending_promotions.emplace(),
                            observe_keys);
    show_tiers(connector().tiers(), observation().tiers.emplace(), observe_keys);
    observation().damaged.reset();
    if (slots_) observe_damaged();
  }

  void observe_damaged() {
    KeyList& damaged = observation().damaged.emplace();
    damaged.clear();
    for_each_damaged(lists_, slots_->view(),
                     [&](const OffloadKey& key) { damaged.emplace_back(key); });
  }

  static void observe_blocks(const std::vector<PolicyEntry>& entries,
                             std::vector<connector::OffloadedBlock>& blocks) {
    blocks.resize(entries.size());
    for (std::size_t index = 0; index < entries.size(); ++index) {
      const BlockStatus& status = entries[index].status;
      blocks[index].key.bytes = entries[index].key;
      blocks[index].slot = status.slot;
      blocks[index].ready = status.ref_cnt != kNotReady;
      blocks[index].readers = static_cast<std::uint32_t>(std::max(status.ref_cnt, 0));
    }
  }

  static void observe_keys(const std::vector<OffloadKey>& observed, KeyList& keys) {
    keys.assign(observed.begin(), observed.end());
  }

  bool transfers_may_fail_ = false;
  std::shared_ptr<TierCalls> tier_calls_;
  std::shared_ptr<SlotBytes> slots_;  ///< where there are file tiers
  PolicyLists lists_;
  std::vector<OffloadKey> keys_;
  std::vector<TierJobState> job_states_;
  std::vector<PendingPromotionState> pending_states_;
};

}  // namespace kvfence
