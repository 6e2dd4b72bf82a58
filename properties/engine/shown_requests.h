#pragma once

/// Finds what an observation shows of requests, by name.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "contract/engine/engine_target.h"

namespace kvfence::engine {

/// The record whose member is that name; null if there is none.
template <class T, class Owner>
const T* find_by(const std::vector<T>& records, std::string Owner::*member, std::string_view name) {
  const auto at =
      std::ranges::find_if(records, [&](const T& record) { return record.*member == name; });
  return at == records.end() ? nullptr : &*at;
}

/// Whether a list member is shown and not empty.
inline bool has_elements(const auto& list) { return !list.or_empty().empty(); }

/// Whether the state is shown: an observation has all of it or none.
inline bool has_state(const SchedulerObservation& shown) { return shown.requests.has_value(); }

/// Also null if the state is not shown.
inline const RequestState* find_state(const SchedulerObservation& shown, std::string_view name) {
  return find_by(shown.requests.or_empty(), &RequestState::id, name);
}

inline bool is_unfinished(const SchedulerObservation& shown, std::string_view name) {
  const RequestState* const state = find_state(shown, name);
  return state && !is_finished(state->status);
}

/// A request's tokens that were computed before the step; nothing: it is neither new nor cached.
inline std::optional<std::uint32_t> num_computed_before(const std::vector<ScheduledNew>& added,
                                                        const std::vector<ScheduledCached>& cached,
                                                        std::string_view name) {
  if (const auto* each = find_by(added, &ScheduledNew::request, name)) {
    return each->num_computed_tokens;
  }
  if (const auto* each = find_by(cached, &ScheduledCached::request, name)) {
    return each->num_computed_tokens;
  }
  return std::nullopt;
}

/// The engine that a command is for; nothing: it is for what is between two.
inline std::optional<EngineRole> named_engine(const Command& command) {
  if (std::holds_alternative<HandOver>(command)) return EngineRole::kConsumer;
  return std::visit(
      [](const auto& typed) -> std::optional<EngineRole> {
        if constexpr (requires { typed.engine; }) return typed.engine;
        return std::nullopt;
      },
      command);
}

/// The same; the producer if it is for none.
inline EngineRole role_of(const Command& command) {
  return named_engine(command).value_or(EngineRole::kProducer);
}

/// The requests that a command ends from outside, in order. Nothing for other commands, and where
/// the state before was not observed.
inline std::optional<std::vector<std::string>> ended_from_outside(
    const Command& command, const SchedulerObservation& before) {
  if (const auto* finish = std::get_if<FinishRequests>(&command)) return finish->requests;
  if (!std::holds_alternative<FinishAllRequests>(command) || !before.requests.has_value()) {
    return std::nullopt;
  }
  std::vector<std::string> names;
  for (const RequestState& state : *before.requests) names.push_back(state.id);
  return names;
}

}  // namespace kvfence::engine
