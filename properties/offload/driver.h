#pragma once

/// Puts any offloading manager that satisfies the concept behind the interface that a lockstep
/// drives.

#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "contract/core/check.h"
#include "contract/core/implementation.h"
#include "contract/core/state_digest.h"
#include "contract/offload/offload_target.h"
#include "contract/offload/offloading_manager.h"
#include "properties/core/driver.h"
#include "properties/eviction/key_list.h"

namespace kvfence {

/// make_manager builds the manager from its configuration: the place where a planted variant gets
/// its bug.
template <OffloadingManager Manager, class MakeManager>
class OffloadDriver final : public DriverOf<OffloadTarget> {
 public:
  OffloadDriver(std::string name, MakeManager make_manager)
      : name_(std::move(name)), make_manager_(std::move(make_manager)) {}

  std::string name() const override { return name_; }

  std::optional<ImplementationFailure> start(const Config&, const Setup& setup) override {
    manager_.emplace(make_manager_(setup));
    return std::nullopt;
  }

  void submit_typed(const Command& command, const World&, Observe observe) override {
    observation_.num_hits.reset();
    observation_.result.reset();
    observation_.slots.reset();
    observation_.stored.reset();
    observation_.keys_to_store.reset();
    observation_.evicted.reset();
    observation_.events.reset();
    observation_.error =
        std::visit([&](const auto& alternative) { return run(alternative); }, command);
    observation_.size = manager_->policy().size();
    observation_.num_free_slots = manager_->num_free_slots();
    manager_->policy().lists(lists_);
    show_lists(lists_, observe == Observe::kState, observation_);
  }

  void collect_typed(Observation& observation) override { observation = std::move(observation_); }

  /// Without the storage of single calls, whose views are of keys that are gone.
  std::unique_ptr<Implementation> clone() const override {
    auto copy = std::make_unique<OffloadDriver>(name_, make_manager_);
    copy->manager_ = manager_;
    return copy;
  }
  void assign(const Implementation& other) override {
    manager_ = static_cast<const OffloadDriver&>(other).manager_;
  }
  void add_to(StateHash& hash) const override { add_state(hash, *manager_); }

  const Manager& manager() const { return *manager_; }

 private:
  ErrorCode run(const offload::Lookup& command) {
    std::uint32_t num_hits = 0;
    const ErrorCode error = manager_->lookup(keys_.of(command.keys), num_hits);
    if (error == ErrorCode::kNone) observation_.num_hits.emplace() = num_hits;
    return error;
  }

  ErrorCode run(const offload::LookupKey& command) {
    LookupResult result = LookupResult::kMiss;
    const ErrorCode error = manager_->lookup_key(key_of_number(command.key), result);
    if (error == ErrorCode::kNone) observation_.result.emplace() = result;
    return error;
  }

  ErrorCode run(const offload::Touch& command) {
    manager_->touch(keys_.of(command.keys));
    return ErrorCode::kNone;
  }

  ErrorCode run(const offload::PrepareLoad& command) {
    slots_.clear();
    const ErrorCode error = manager_->prepare_load(keys_.of(command.keys), slots_);
    if (error == ErrorCode::kNone) observation_.slots.emplace() = slots_;
    return error;
  }

  ErrorCode run(const offload::CompleteLoad& command) {
    return manager_->complete_load(keys_.of(command.keys));
  }

  ErrorCode run(const offload::PrepareStore& command) {
    bool stored = false;
    output_.keys_to_store.clear();
    output_.slots.clear();
    output_.evicted.clear();
    const ErrorCode error = manager_->prepare_store(keys_.of(command.keys), stored, output_);
    if (error != ErrorCode::kNone) return error;
    observation_.stored.emplace() = stored;
    if (!stored) return error;
    numbers_of(output_.keys_to_store, observation_.keys_to_store.emplace());
    observation_.slots.emplace() = output_.slots;
    victims_of(output_.evicted, observation_.evicted.emplace());
    return error;
  }

  ErrorCode run(const offload::CompleteStore& command) {
    manager_->complete_store(keys_.of(command.keys), command.success);
    return ErrorCode::kNone;
  }

  ErrorCode run(const offload::ResetCache&) { return manager_->reset_cache(); }

  ErrorCode run(const offload::TakeEvents&) {
    manager_->take_events(taken_);
    std::vector<offload::Event>& events = observation_.events.emplace();
    events.resize(taken_.size());
    for (std::size_t index = 0; index < taken_.size(); ++index) {
      numbers_of(taken_[index].keys, events[index].keys);
      events[index].removed = taken_[index].removed;
    }
    return ErrorCode::kNone;
  }

  std::string name_;
  MakeManager make_manager_;
  std::optional<Manager> manager_;
  Observation observation_;
  OffloadKeyList keys_;
  std::vector<SlotId> slots_;
  PrepareStoreOutput output_;
  std::vector<OffloadingEvent> taken_;
  PolicyLists lists_;
};

/// A driver of managers that make_manager(config) makes.
template <class MakeManager>
std::unique_ptr<Implementation> make_offload_driver(std::string name, MakeManager make_manager) {
  using Manager = std::invoke_result_t<MakeManager&, const OffloadingManagerConfig&>;
  return std::make_unique<OffloadDriver<Manager, MakeManager>>(std::move(name),
                                                               std::move(make_manager));
}

/// A driver of managers that are made from their configuration alone.
template <OffloadingManager Manager>
std::unique_ptr<Implementation> make_offload_driver(std::string name) {
  return make_offload_driver(std::move(name),
                             [](const OffloadingManagerConfig& config) { return Manager(config); });
}

}  // namespace kvfence
