#include "properties/eviction/ledger.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <variant>

#include "contract/core/check.h"
#include "properties/core/invariant_values.h"

namespace kvfence::eviction {
namespace {

using detail::contains;

std::vector<Entry>::iterator find_in(std::vector<Entry>& blocks, std::uint32_t key) {
  return std::find_if(blocks.begin(), blocks.end(),
                      [key](const Entry& block) { return block.key == key; });
}

/// Takes the block out of the list, if it is there.
std::optional<Entry> take(std::vector<Entry>& blocks, std::uint32_t key) {
  const auto at = find_in(blocks, key);
  if (at == blocks.end()) return std::nullopt;
  const Entry block = *at;
  blocks.erase(at);
  return block;
}

double quotient(std::size_t dividend, std::size_t divisor) {
  return static_cast<double>(dividend) / static_cast<double>(divisor);
}

void trim(std::vector<std::uint32_t>& ghosts, std::size_t capacity) {
  if (ghosts.size() <= capacity) return;
  ghosts.erase(ghosts.begin(), ghosts.end() - static_cast<std::ptrdiff_t>(capacity));
}

}  // namespace

void Ledger::clear() {
  t1_.clear();
  t2_.clear();
  b1_.clear();
  b2_.clear();
  target_t1_size_ = 0;
}

ErrorCode Ledger::refusal(const Command& command) const {
  return std::visit(
      [&](const auto& alternative) {
        if constexpr (requires { alternative.key; }) {
          return refusal_of_key(command, find(alternative.key));
        } else {
          return ErrorCode::kNone;
        }
      },
      command);
}

ErrorCode Ledger::refusal_of_key(const Command& command, const Entry* block) const {
  if (std::holds_alternative<Get>(command)) return ErrorCode::kNone;
  if (std::holds_alternative<Insert>(command)) {
    if (block) return ErrorCode::kAlreadyStored;
    return size() >= config_.capacity ? ErrorCode::kNoFreeBlocks : ErrorCode::kNone;
  }
  if (!block) return ErrorCode::kUnknownKey;
  if (std::holds_alternative<Remove>(command)) return ErrorCode::kNone;
  if (std::holds_alternative<MakeReady>(command)) {
    return block->ready ? ErrorCode::kAlreadyReady : ErrorCode::kNone;
  }
  if (!block->ready) return ErrorCode::kNotReady;
  const bool is_release = std::holds_alternative<Release>(command);
  return is_release && block->readers == 0 ? ErrorCode::kNotReading : ErrorCode::kNone;
}

std::optional<std::vector<Entry>> Ledger::victims(
    std::uint32_t num_blocks, const std::vector<std::uint32_t>& protected_keys) const {
  std::vector<Entry> from_t1;
  std::vector<Entry> from_t2;
  const auto may_go = [&](const Entry& block) {
    return block.ready && block.readers == 0 && !contains(protected_keys, block.key);
  };
  std::copy_if(t1_.begin(), t1_.end(), std::back_inserter(from_t1), may_go);
  std::copy_if(t2_.begin(), t2_.end(), std::back_inserter(from_t2), may_go);

  // T1 may shrink to one less than the whole part of the target; a T1 below it stays as it is.
  const double allowed = static_cast<double>(t1_.size()) - std::floor(target_t1_size_) + 1;
  const std::size_t num_before_t2 =
      is_arc() ? std::min(from_t1.size(), static_cast<std::size_t>(std::max(allowed, 0.0)))
               : from_t1.size();
  const auto rest = from_t1.begin() + static_cast<std::ptrdiff_t>(num_before_t2);
  std::vector<Entry> in_order(from_t1.begin(), rest);
  in_order.insert(in_order.end(), from_t2.begin(), from_t2.end());
  if (!config_.arc_refuses_with_idle_t1) in_order.insert(in_order.end(), rest, from_t1.end());

  if (in_order.size() < num_blocks) return std::nullopt;
  in_order.resize(num_blocks);
  return in_order;
}

void Ledger::apply(const Command& command) {
  if (const auto* inserted = std::get_if<Insert>(&command)) {
    insert(inserted->key, inserted->slot);
  } else if (const auto* removed = std::get_if<Remove>(&command)) {
    remove(removed->key);
  } else if (const auto* written = std::get_if<MakeReady>(&command)) {
    make_ready(written->key);
  } else if (const auto* acquired = std::get_if<Acquire>(&command)) {
    acquire(acquired->key);
  } else if (const auto* released = std::get_if<Release>(&command)) {
    release(released->key);
  } else if (const auto* touched = std::get_if<Touch>(&command)) {
    touch(touched->keys);
  } else if (const auto* wanted = std::get_if<Evict>(&command)) {
    if (const auto chosen = victims(wanted->num_blocks, wanted->protected_keys)) evict(*chosen);
  } else if (std::holds_alternative<Clear>(command)) {
    clear();
  }
}

void Ledger::insert(std::uint32_t key, SlotId slot) {
  t1_.push_back({key, slot, /*ready=*/false, /*readers=*/0});
  std::erase(b1_, key);
  std::erase(b2_, key);
}

void Ledger::remove(std::uint32_t key) {
  if (!take(t1_, key)) take(t2_, key);
}

void Ledger::make_ready(std::uint32_t key) { held(key).ready = true; }

void Ledger::acquire(std::uint32_t key) { ++held(key).readers; }

void Ledger::release(std::uint32_t key) { --held(key).readers; }

void Ledger::touch(const std::vector<std::uint32_t>& keys) {
  for (std::size_t index = keys.size(); index-- > 0;) touch_one(keys[index]);
}

void Ledger::touch_one(std::uint32_t key) {
  if (const auto block = take(t1_, key)) {
    (is_arc() && block->ready ? t2_ : t1_).push_back(*block);
  } else if (const auto used = take(t2_, key)) {
    t2_.push_back(*used);
  } else if (contains(b1_, key)) {
    const double step = quotient(b2_.size(), b1_.size());
    target_t1_size_ += step > 1 ? step : 1;
    if (target_t1_size_ > config_.capacity) target_t1_size_ = config_.capacity;
    std::erase(b1_, key);
    b1_.push_back(key);
  } else if (contains(b2_, key)) {
    const double step = quotient(b1_.size(), b2_.size());
    target_t1_size_ -= step > 1 ? step : 1;
    if (target_t1_size_ < 0) target_t1_size_ = 0;
    std::erase(b2_, key);
    b2_.push_back(key);
  }
}

void Ledger::evict(const std::vector<Entry>& victims) {
  if (victims.empty()) return;
  for (const Entry& victim : victims) {
    const bool was_in_t1 = take(t1_, victim.key).has_value();
    if (!was_in_t1) take(t2_, victim.key);
    if (is_arc()) (was_in_t1 ? b1_ : b2_).push_back(victim.key);
  }
  trim(b1_, config_.capacity);
  trim(b2_, config_.capacity);
}

const Entry* Ledger::find(std::uint32_t key) const {
  for (const std::vector<Entry>* blocks : {&t1_, &t2_}) {
    for (const Entry& block : *blocks) {
      if (block.key == key) return &block;
    }
  }
  return nullptr;
}

Entry& Ledger::held(std::uint32_t key) {
  for (std::vector<Entry>* blocks : {&t1_, &t2_}) {
    const auto at = find_in(*blocks, key);
    if (at != blocks->end()) return *at;
  }
  KVFENCE_CHECK(false, "a command about a block that is not held was taken in");
}

}  // namespace kvfence::eviction
