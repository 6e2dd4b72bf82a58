#include "properties/offload/ledger.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>
#include <variant>

namespace kvfence::offload {
namespace {

using Keys = std::vector<std::uint32_t>;

constexpr std::uint32_t kFilterFrom = 2;  // a threshold below filters nothing

}  // namespace

void Ledger::reset() { *this = Ledger(config_); }

ErrorCode Ledger::refusal(const Command& command) const {
  return std::visit([&](const auto& alternative) { return refusal_of(alternative); }, command);
}

ErrorCode Ledger::refusal_of(const Lookup&) const {
  return config_.rules.lookup_by_key ? ErrorCode::kNotInProfile : ErrorCode::kNone;
}

ErrorCode Ledger::refusal_of(const LookupKey&) const {
  return config_.rules.lookup_by_key ? ErrorCode::kNone : ErrorCode::kNotInProfile;
}

ErrorCode Ledger::refusal_of(const PrepareLoad& command) const {
  if (!all_held(command.keys)) return ErrorCode::kUnknownKey;
  const bool all_ready = std::all_of(command.keys.begin(), command.keys.end(),
                                     [&](std::uint32_t key) { return cache_.find(key)->ready; });
  return all_ready ? ErrorCode::kNone : ErrorCode::kNotReady;
}

ErrorCode Ledger::refusal_of(const CompleteLoad& command) const {
  if (!all_held(command.keys)) return ErrorCode::kUnknownKey;
  const Keys& keys = command.keys;
  const bool all_read = std::all_of(keys.begin(), keys.end(), [&](std::uint32_t key) {
    const auto num_listed = static_cast<std::size_t>(std::count(keys.begin(), keys.end(), key));
    return cache_.find(key)->readers >= num_listed;
  });
  return all_read ? ErrorCode::kNone : ErrorCode::kNotReading;
}

ErrorCode Ledger::refusal_of(const PrepareStore& command) const {
  Keys keys = missing(passing(command.keys));
  std::sort(keys.begin(), keys.end());
  const bool is_repeated = std::adjacent_find(keys.begin(), keys.end()) != keys.end();
  return is_repeated ? ErrorCode::kListedTwice : ErrorCode::kNone;
}

ErrorCode Ledger::refusal_of(const ResetCache&) const {
  return config_.rules.offload_reset ? ErrorCode::kNone : ErrorCode::kNotInProfile;
}

std::optional<StorePlan> Ledger::plan(const PrepareStore& command) const {
  StorePlan plan;
  const Keys passed = passing(command.keys);
  plan.keys_to_store = missing(passed);
  const std::size_t num_wanted = plan.keys_to_store.size();
  if (num_wanted > num_free_slots()) {
    auto victims =
        cache_.victims(static_cast<std::uint32_t>(num_wanted - num_free_slots()), passed);
    if (!victims) return std::nullopt;
    plan.victims = std::move(*victims);
  }
  // Never used ones first; then from the freed ones, the victims' on top, backwards.
  for (SlotId slot = num_used_slots_;
       slot < config_.cache.capacity && plan.slots.size() < num_wanted; ++slot) {
    plan.slots.push_back(slot);
  }
  std::vector<SlotId> freed = freed_slots_;
  for (const eviction::Entry& victim : plan.victims) freed.push_back(victim.slot);
  for (auto slot = freed.rbegin(); plan.slots.size() < num_wanted; ++slot) {
    plan.slots.push_back(*slot);
  }
  return plan;
}

void Ledger::apply(const Command& command) {
  std::visit([&](const auto& alternative) { apply_one(alternative); }, command);
}

void Ledger::apply_one(const Lookup& command) {
  for (std::uint32_t key : command.keys) count(key);
}

void Ledger::apply_one(const LookupKey& command) { count(command.key); }

void Ledger::apply_one(const Touch& command) { cache_.touch(command.keys); }

void Ledger::apply_one(const PrepareLoad& command) {
  for (std::uint32_t key : command.keys) cache_.acquire(key);
}

void Ledger::apply_one(const CompleteLoad& command) {
  for (std::uint32_t key : command.keys) cache_.release(key);
}

void Ledger::apply_one(const PrepareStore& command) {
  const std::optional<StorePlan> store = plan(command);
  if (!store) return;
  cache_.evict(store->victims);
  for (const eviction::Entry& victim : store->victims) {
    freed_slots_.push_back(victim.slot);
    told_.erase(victim.key);
  }
  for (std::size_t index = 0; index < store->slots.size(); ++index) {
    const SlotId slot = store->slots[index];
    if (slot >= num_used_slots_) {
      num_used_slots_ = slot + 1;
    } else {
      std::erase(freed_slots_, slot);
    }
    cache_.insert(store->keys_to_store[index], slot);
  }
}

void Ledger::apply_one(const CompleteStore& command) {
  for (std::uint32_t key : command.keys) {
    const eviction::Entry* block = cache_.find(key);
    if (!block || block->ready) continue;
    if (command.success) {
      cache_.make_ready(key);
      told_.insert(key);
      untold_.insert(key);
    } else {
      freed_slots_.push_back(block->slot);
      cache_.remove(key);
    }
  }
}

void Ledger::apply_one(const ResetCache&) {
  cache_.clear();
  num_used_slots_ = 0;
  freed_slots_.clear();
}

bool Ledger::take(const Event& event) {
  for (std::uint32_t key : event.keys) {
    if (event.removed) {
      if (index_.erase(key) == 0) return false;
      continue;
    }
    const auto became_ready = untold_.find(key);
    if (became_ready == untold_.end()) return false;
    untold_.erase(became_ready);
    index_.insert(key);
  }
  return true;
}

std::vector<std::uint32_t> Ledger::passing(const Keys& keys) const {
  if (config_.store_threshold < kFilterFrom) return keys;
  Keys passed;
  std::copy_if(keys.begin(), keys.end(), std::back_inserter(passed), [&](std::uint32_t key) {
    return std::any_of(counts_.begin(), counts_.end(), [&](const Count& counted) {
      return counted.key == key && counted.num_lookups >= config_.store_threshold;
    });
  });
  return passed;
}

bool Ledger::all_held(const Keys& keys) const { return missing(keys).empty(); }

std::vector<std::uint32_t> Ledger::missing(const Keys& keys) const {
  Keys absent;
  std::copy_if(keys.begin(), keys.end(), std::back_inserter(absent),
               [&](std::uint32_t key) { return cache_.find(key) == nullptr; });
  return absent;
}

void Ledger::count(std::uint32_t key) {
  if (config_.store_threshold < kFilterFrom) return;
  std::uint32_t num_before = 0;
  for (auto at = counts_.begin(); at != counts_.end(); ++at) {
    if (at->key != key) continue;
    num_before = at->num_lookups;
    counts_.erase(at);
    break;
  }
  counts_.push_back({key, num_before + 1});
  if (counts_.size() > config_.max_tracker_size) counts_.erase(counts_.begin());
}

}  // namespace kvfence::offload
