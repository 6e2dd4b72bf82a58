#pragma once

/// Connects any offloading manager that satisfies the concept to the interface that a lockstep
/// drives.

#include <cstddef>
#include <vector>

#include "contract/offload/offload_target.h"
#include "contract/offload/offloading_manager.h"
#include "properties/core/driver.h"
#include "properties/eviction/key_list.h"

namespace kvfence {

/// Replaces `shown` by the events as observations show them.
inline void show_events(const std::vector<OffloadingEvent>& events,
                        std::vector<offload::Event>& shown) {
  shown.resize(events.size());
  for (std::size_t index = 0; index < events.size(); ++index) {
    numbers_of(events[index].keys, shown[index].keys);
    shown[index].removed = events[index].removed;
  }
}

template <class MakeManager>
class OffloadDriver final
    : public ValueDriver<OffloadDriver<MakeManager>, OffloadTarget, MakeManager> {
  using Base = ValueDriver<OffloadDriver, OffloadTarget, MakeManager>;
  static_assert(OffloadingManager<typename Base::Component>);
  friend Base;

 public:
  using Base::Base;

 private:
  using Base::component_;
  using Base::observed;
  using typename Base::World;

  ErrorCode run(const offload::Lookup& command, const World&) {
    std::uint32_t num_hits = 0;
    const ErrorCode error = component_->lookup(keys_.of(command.keys), num_hits);
    if (error == ErrorCode::kNone) observed().num_hits.emplace() = num_hits;
    return error;
  }

  ErrorCode run(const offload::LookupKey& command, const World&) {
    LookupResult result = LookupResult::kMiss;
    const ErrorCode error = component_->lookup_key(key_of_number(command.key), result);
    if (error == ErrorCode::kNone) observed().result.emplace() = result;
    return error;
  }

  void run(const offload::Touch& command, const World&) {
    component_->touch(keys_.of(command.keys));
  }

  ErrorCode run(const offload::PrepareLoad& command, const World&) {
    slots_.clear();
    const ErrorCode error = component_->prepare_load(keys_.of(command.keys), slots_);
    if (error == ErrorCode::kNone) observed().slots.emplace() = slots_;
    return error;
  }

  ErrorCode run(const offload::CompleteLoad& command, const World&) {
    return component_->complete_load(keys_.of(command.keys));
  }

  ErrorCode run(const offload::PrepareStore& command, const World&) {
    bool stored = false;
    output_.keys_to_store.clear();
    output_.slots.clear();
    output_.evicted.clear();
    const ErrorCode error = component_->prepare_store(keys_.of(command.keys), stored, output_);
    if (error != ErrorCode::kNone) return error;
    observed().stored.emplace() = stored;
    if (!stored) return error;
    numbers_of(output_.keys_to_store, observed().keys_to_store.emplace());
    observed().slots.emplace() = output_.slots;
    victims_of(output_.evicted, observed().evicted.emplace());
    return error;
  }

  void run(const offload::CompleteStore& command, const World&) {
    component_->complete_store(keys_.of(command.keys), command.success);
  }

  ErrorCode run(const offload::ResetCache&, const World&) { return component_->reset_cache(); }

  void run(const offload::TakeEvents&, const World&) {
    component_->take_events(taken_);
    show_events(taken_, observed().events.emplace());
  }

  void observe(const World&, bool with_state) {
    observed().size = component_->policy().size();
    observed().num_free_slots = component_->num_free_slots();
    component_->policy().lists(lists_);
    show_lists(lists_, with_state, observed());
  }

  OffloadKeyList keys_;
  std::vector<SlotId> slots_;
  PrepareStoreOutput output_;
  std::vector<OffloadingEvent> taken_;
  PolicyLists lists_;
};

}  // namespace kvfence
