#pragma once

/// Which refused commands leave something behind, and what.

#include <optional>
#include <variant>

#include "contract/core/observation.h"
#include "contract/kv_cache/kv_cache_target.h"
#include "contract/tiering/tiering_target.h"

namespace kvfence {

/// What a refused command leaves behind. A lookup that it begins with is an operation of its own,
/// which the statistics count.
inline std::optional<kv_cache::Command> left_behind(const kv_cache::Command& refused) {
  if (const auto* asked = std::get_if<kv_cache::CanFitFullSequence>(&refused)) {
    if (asked->from_cache) return kv_cache::GetComputedBlocks{asked->request};
  } else if (const auto* slots = std::get_if<kv_cache::AllocateSlots>(&refused)) {
    if (slots->from_cache) return kv_cache::GetComputedBlocks{slots->request, slots->was_preempted};
  }
  return std::nullopt;
}
/// The poll that it begins with, which an empty load begins with, too.
inline std::optional<tiering::Command> left_behind(const tiering::Command& refused) {
  if (std::holds_alternative<tiering::PrepareLoad>(refused) ||
      std::holds_alternative<tiering::PrepareStore>(refused)) {
    return tiering::PrepareLoad{};
  }
  return std::nullopt;
}
inline std::optional<Command> left_behind(const Command& refused) {
  const auto erased = [](const auto& left) {
    return left ? std::optional<Command>(Command(*left)) : std::nullopt;
  };
  if (const auto* typed = refused.get_if<kv_cache::Command>()) return erased(left_behind(*typed));
  if (const auto* typed = refused.get_if<tiering::Command>()) return erased(left_behind(*typed));
  return std::nullopt;
}

}  // namespace kvfence
