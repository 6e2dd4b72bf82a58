#pragma once

/// Connects any tiering manager that satisfies the concept to the interface that a lockstep drives,
/// with scripted tiers below it.
///
/// Refused here, since only the script knows what they are about:
///   kNotInConfig      on_new_request, tier_*: no such tier; tier_faults, tier_damage,
///                     tier_restart, tier_writer: no file tier
///   kBadRange         tier_faults: a call that cannot fail so
///
/// With file tiers, slots have bytes: the GPU writes the block of a key once its store is complete,
/// and other bytes before that.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "contract/core/lists.h"
#include "contract/core/state_digest.h"
#include "contract/scripted/scripted_tier.h"
#include "contract/tiering/tier_files.h"
#include "contract/tiering/tiering_manager.h"
#include "contract/tiering/tiering_target.h"
#include "properties/core/driver.h"
#include "properties/core/replayed_implementation.h"
#include "properties/eviction/key_list.h"
#include "properties/offload/driver.h"
#include "properties/tiering/tier_observations.h"

namespace kvfence {

/// make_manager builds the manager from its configuration and tiers, make_files the files of a file
/// tier: planted variants get their bugs there.
template <TieringOffloadingManager Manager, class MakeManager>
class TieringDriver final : public DriverOf<TieringTarget> {
 public:
  TieringDriver(std::string name, MakeManager make_manager, MakeTierFiles make_files)
      : name_(std::move(name)),
        make_manager_(std::move(make_manager)),
        make_files_(std::move(make_files)) {}

  std::string name() const override { return name_; }

  std::optional<ImplementationFailure> start(const Config& config, const Setup& setup) override {
    calls_ = std::make_shared<TierCalls>();
    // Tiers are destroyed before their slots.
    manager_.reset();
    writes_.clear();
    has_files_ = !config.file_tiers.empty();
    slot_bytes_.assign(has_files_ ? config.capacity * tiering::kBlockBytes : 0, std::byte{0});
    primary_ = {};
    if (has_files_) primary_ = {slot_bytes_.data(), tiering::kBlockBytes, config.capacity};
    std::vector<SecondaryTierHandle> tiers;
    for (std::uint32_t place = 0; place < config.num_tiers; ++place) {
      const bool has_files =
          std::binary_search(config.file_tiers.begin(), config.file_tiers.end(), place);
      tiers.emplace_back(std::make_unique<ScriptedTier>(
          place, calls_, primary_, has_files ? make_files_(primary_) : nullptr));
    }
    manager_.emplace(make_manager_(setup, std::move(tiers)));
    return std::nullopt;
  }

  void answer(const Command& command, const World&, Observe observe) override {
    observed().error = std::visit(
        [&](const auto& typed) { return error_of([&] { return run(typed); }); }, command);
    show_tier_calls(*calls_, observed().tier_calls, show_keys);
    observed().size = manager_->primary().policy().size();
    observed().num_free_slots = manager_->primary().num_free_slots();
    observed().num_jobs = manager_->num_jobs();
    observed().num_pending = manager_->num_pending();
    manager_->primary().policy().lists(lists_);
    show_lists(lists_, observe == Observe::kState, observed());
    if (observe == Observe::kState) show_state();
  }

  void add_to(StateHash& hash) const override {
    hash.add_kept(slot_bytes_, writes_);
    hash.add(*manager_);
  }

 private:
  bool has_tier(std::uint32_t tier) { return tier < manager_->tiers().size(); }
  ScriptedTier& tier(std::uint32_t place) { return scripted_tier_at(manager_->tiers(), place); }

  void run(const tiering::Lookup& command) {
    observed().result.emplace() = manager_->lookup(key_of_number(command.key), {command.request});
  }

  void run(const tiering::Touch& command) {
    manager_->touch(keys_.of(command.keys), {command.request});
  }

  ErrorCode run(const tiering::PrepareLoad& command) {
    slots_.clear();
    const ErrorCode error = manager_->prepare_load(keys_.of(command.keys), slots_);
    if (error == ErrorCode::kNone) observed().slots.emplace() = slots_;
    return error;
  }

  ErrorCode run(const tiering::CompleteLoad& command) {
    return manager_->complete_load(keys_.of(command.keys));
  }

  ErrorCode run(const tiering::PrepareStore& command) {
    bool stored = false;
    output_.keys_to_store.clear();
    output_.slots.clear();
    output_.evicted.clear();
    const ErrorCode error =
        manager_->prepare_store(keys_.of(command.keys), {command.request}, stored, output_);
    if (error != ErrorCode::kNone) return error;
    observed().stored.emplace() = stored;
    if (!stored) return error;
    for (std::size_t i = 0; has_files_ && i < output_.keys_to_store.size(); ++i) {
      const std::span<std::byte> slot = primary_.slot(output_.slots[i]);
      std::ranges::fill(slot, std::byte{0xff});
      writes_[OffloadKey(output_.keys_to_store[i])] = output_.slots[i];
    }
    numbers_of(output_.keys_to_store, observed().keys_to_store.emplace());
    observed().slots.emplace() = output_.slots;
    victims_of(output_.evicted, observed().evicted.emplace());
    return error;
  }

  ErrorCode run(const tiering::CompleteStore& command) {
    const std::span<const OffloadKeyView> keys = keys_.of(command.keys);
    bytes_before_ = slot_bytes_;
    for (OffloadKeyView key : keys) {
      const auto write = writes_.find(OffloadKey(key));
      if (command.success && write != writes_.end()) fill_block(key, primary_.slot(write->second));
    }
    const ErrorCode error = manager_->complete_store(keys, {command.request}, command.success);
    if (error != ErrorCode::kNone) {
      std::ranges::copy(bytes_before_, slot_bytes_.begin());
      return error;
    }
    for (OffloadKeyView key : keys) writes_.erase(OffloadKey(key));
    return error;
  }

  ErrorCode run(const tiering::OnNewRequest& command) {
    const std::vector<std::uint32_t>& wanting = command.request_level;
    for (std::uint32_t place : wanting) {
      if (!has_tier(place)) return ErrorCode::kNotInConfig;
    }
    for (std::uint32_t place = 0; has_tier(place); ++place) {
      const bool wants = contains(wanting, place);
      tier(place).want(wants ? OffloadPolicy::kRequestLevel : OffloadPolicy::kBlockLevel);
    }
    observed().request_level.emplace() =
        manager_->on_new_request({command.request}) == OffloadPolicy::kRequestLevel;
    return ErrorCode::kNone;
  }

  void run(const tiering::OnRequestFinished& command) {
    manager_->on_request_finished({command.request});
  }

  void run(const tiering::OnScheduleEnd&) { manager_->on_schedule_end(); }

  void run(const tiering::ResetCache&) { manager_->reset_cache(); }

  void run(const tiering::TakeEvents&) {
    manager_->take_events(taken_);
    show_events(taken_, observed().events.emplace());
  }

  /// A command that names a tier is refused if there is no such tier, or, if the command is about
  /// files, if the tier has none.
  ErrorCode run(const std::derived_from<tiering::OfTier> auto& command) {
    if (!has_tier(command.tier)) return ErrorCode::kNotInConfig;
    ScriptedTier& named = tier(command.tier);
    if constexpr (requires { run(command, named); }) {
      run(command, named);
      return ErrorCode::kNone;
    } else {
      if (!named.files()) return ErrorCode::kNotInConfig;
      return error_of([&] { return run(command, *named.files()); });
    }
  }

  void run(const tiering::TierFinish& command, ScriptedTier& named) {
    named.finish(command.job, command.success);
  }

  void run(const tiering::TierAskAgain& command, ScriptedTier& named) {
    named.ask_again(key_of_number(command.key), command.times);
  }

  void run(const tiering::TierAdd& command, ScriptedTier& named) {
    for (OffloadKeyView key : keys_.of(command.keys)) named.add(key);
  }

  void run(const tiering::TierDrop& command, ScriptedTier& named) {
    for (OffloadKeyView key : keys_.of(command.keys)) named.drop(key);
  }

  ErrorCode run(const tiering::TierFaults& command, TierFiles& files) {
    return plan_faults(command.faults, files);
  }

  void run(const tiering::TierRestart& command, TierFiles& files) {
    files.restart(command.overtaken);
  }

  void run(const tiering::TierWriter& command, TierFiles& files) {
    files.act_as_writer(command.number, command.does);
  }

  void run(const tiering::TierDamage& command, TierFiles& files) {
    damage_file(files, key_of_number(command.key), command.damage, command.at,
                key_of_number(command.at), tiering::kBlockBytes);
  }

  void show_state() {
    manager_->jobs(transfers_);
    show_tier_transfers(transfers_, observed().jobs.emplace(), show_keys);
    manager_->pending(transfers_);
    show_tier_transfers(transfers_, observed().pending.emplace(), show_keys);
    show_tiers(manager_->tiers(), observed().tiers.emplace(),
               [](const std::vector<OffloadKey>& keys, std::vector<std::uint32_t>& numbers) {
                 show_keys(keys, numbers);
                 std::ranges::sort(numbers);
               });
    if (!has_files_) return;
    std::vector<std::uint32_t>& damaged = observed().damaged.emplace();
    damaged.clear();
    for_each_damaged(lists_, primary_,
                     [&](const OffloadKey& key) { damaged.push_back(number_of(key)); });
  }

  static void show_keys(const std::vector<OffloadKey>& keys, std::vector<std::uint32_t>& numbers) {
    numbers_of(keys, numbers);
  }

  std::string name_;
  MakeManager make_manager_;
  MakeTierFiles make_files_;
  std::shared_ptr<TierCalls> calls_;
  bool has_files_ = false;  ///< any tier; else slots have no bytes
  std::vector<std::byte> slot_bytes_;
  std::vector<std::byte> bytes_before_;  ///< of a command that may be refused
  PrimaryKvView primary_;
  std::map<OffloadKey, SlotId> writes_;  ///< of stores that are not complete
  std::optional<Manager> manager_;
  OffloadKeyList keys_;
  std::vector<SlotId> slots_;
  PrepareStoreOutput output_;
  std::vector<OffloadingEvent> taken_;
  PolicyLists lists_;
  std::vector<TierTransferState> transfers_;
};

/// A driver of managers that are made from their primary tier's configuration and the tiers below.
template <TieringOffloadingManager Manager>
std::unique_ptr<Implementation> make_tiering_driver(std::string name, MakeTierFiles make_files) {
  auto make_manager = [](const OffloadingManagerConfig& primary,
                         std::vector<SecondaryTierHandle> tiers) {
    return Manager(primary, std::move(tiers));
  };
  return std::make_unique<ReplayedImplementation>(
      [name = std::move(name), make_manager, make_files = std::move(make_files)] {
        return std::make_unique<TieringDriver<Manager, decltype(make_manager)>>(name, make_manager,
                                                                                make_files);
      });
}

}  // namespace kvfence
