#pragma once

/// Connects any cache policy that satisfies the concept to the interface that a lockstep drives.

#include <vector>

#include "contract/eviction/cache_policy.h"
#include "contract/eviction/eviction_target.h"
#include "properties/core/driver.h"
#include "properties/eviction/key_list.h"

namespace kvfence {

template <class MakePolicy>
class EvictionDriver final
    : public ValueDriver<EvictionDriver<MakePolicy>, EvictionTarget, MakePolicy> {
  using Base = ValueDriver<EvictionDriver, EvictionTarget, MakePolicy>;
  static_assert(CachePolicy<typename Base::Component>);
  friend Base;

 public:
  using Base::Base;

 private:
  using Base::component_;
  using Base::observed;
  using typename Base::World;

  void run(const eviction::Get& command, const World&) {
    std::vector<eviction::Entry>& found = observed().found.emplace();
    found.clear();
    BlockStatus status;
    if (component_->get(key_of_number(command.key), status)) {
      found.push_back(entry_of(command.key, status));
    }
  }

  ErrorCode run(const eviction::Insert& command, const World&) {
    return component_->insert(key_of_number(command.key), command.slot);
  }

  ErrorCode run(const eviction::Remove& command, const World&) {
    return component_->remove(key_of_number(command.key));
  }

  ErrorCode run(const eviction::MakeReady& command, const World&) {
    return component_->make_ready(key_of_number(command.key));
  }

  ErrorCode run(const eviction::Acquire& command, const World&) {
    return component_->acquire(key_of_number(command.key));
  }

  ErrorCode run(const eviction::Release& command, const World&) {
    return component_->release(key_of_number(command.key));
  }

  void run(const eviction::Touch& command, const World&) {
    component_->touch(keys_.of(command.keys));
  }

  void run(const eviction::Evict& command, const World&) {
    evicted_.clear();
    const bool success =
        component_->evict(command.num_blocks, keys_.of(command.protected_keys), evicted_);
    observed().success.emplace() = success;
    // A refused call should have appended nothing: what it appended is shown.
    if (success || !evicted_.empty()) victims_of(evicted_, observed().evicted.emplace());
  }

  void run(const eviction::Clear&, const World&) { component_->clear(); }

  void observe(const World&, bool with_state) {
    observed().size = component_->size();
    component_->lists(lists_);
    show_lists(lists_, with_state, observed());
  }

  OffloadKeyList keys_;
  std::vector<EvictedBlock> evicted_;
  PolicyLists lists_;
};

}  // namespace kvfence
