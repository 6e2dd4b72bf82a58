#pragma once

/// Which refused commands still change the state, and how.

#include <optional>
#include <variant>

#include "contract/core/observation.h"
#include "contract/kv_cache/kv_cache_target.h"
#include "contract/tiering/tiering_target.h"

namespace kvfence {

/// A command with the same effect as the refused one; nothing if it has no effect.
inline std::optional<Command> left_behind(const Command& refused) {
  if (const auto* kv = refused.get_if<kv_cache::Command>()) {
    // The command begins with a lookup, which the statistics count.
    if (const auto* asked = std::get_if<kv_cache::CanFitFullSequence>(kv)) {
      if (asked->from_cache)
        return Command(kv_cache::Command(kv_cache::GetComputedBlocks{asked->request}));
    } else if (const auto* slots = std::get_if<kv_cache::AllocateSlots>(kv)) {
      if (slots->from_cache)
        return Command(
            kv_cache::Command(kv_cache::GetComputedBlocks{slots->request, slots->was_preempted}));
    }
  } else if (const auto* tiers = refused.get_if<tiering::Command>()) {
    // The command begins with a poll, and so does an empty load.
    if (std::holds_alternative<tiering::PrepareLoad>(*tiers) ||
        std::holds_alternative<tiering::PrepareStore>(*tiers)) {
      return Command(tiering::Command(tiering::PrepareLoad{}));
    }
  }
  return std::nullopt;
}

}  // namespace kvfence
