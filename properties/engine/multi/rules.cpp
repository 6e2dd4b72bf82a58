#include "properties/engine/multi/rules.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "properties/core/broken_rule.h"

namespace kvfence::engine::multi {
namespace {

using Calls = std::vector<ConnectorCallRecord>;

enum Rule : std::size_t {
  kSlots,
  kCpuBlocks,
  kTold,
  kAsked,
  kOneLoads,
  kMetadata,
  kKept,
  kExtraSaves
};
static_assert(kInvariants.size() == kExtraSaves + 1);

std::string call_name(std::size_t at) { return "connector_calls[" + std::to_string(at) + "]"; }

Divergence broken(Rule rule, std::string member, std::string expected, std::string actual) {
  return broken_rule(kInvariants[rule], member, expected, actual);
}

/// The part of a call that is the same for all children.
ConnectorCallRecord what_all_hear(const ConnectorCallRecord& call) {
  ConnectorCallRecord common;
  common.method = call.method;
  common.rank = call.rank;
  common.request = call.request;
  common.finished = call.finished;
  common.sending = call.sending;
  common.recving = call.recving;
  common.invalid = call.invalid;
  if (call.method == "request_finished") common.blocks = call.blocks;
  return common;
}

bool is_shutdown(const ConnectorCallRecord& call) { return call.method == "shutdown"; }

bool is_unfinished(const Observation& shown, const std::string& request) {
  return std::any_of(shown.requests->begin(), shown.requests->end(), [&](const auto& state) {
    return state.id == request && !is_finished(state.status);
  });
}

}  // namespace

std::optional<Divergence> Invariants::check(const Command& command, const Observation& observation,
                                            const World&, std::size_t step) const {
  Found found = check_sums(observation);
  if (observation.connector_calls.has_value()) {
    const Calls& calls = *observation.connector_calls;
    const bool is_cut_off = observation.engine_ended.has_value();
    const auto whole =
        is_cut_off ? std::find_if(calls.begin(), calls.end(), is_shutdown) : calls.begin();
    if (!found) found = check_told({whole, calls.end()});
    if (!found) found = check_lookups(calls);
    if (!found) found = check_loads(calls);
    if (!found) found = check_metadata(calls);
  }
  if (!found) found = check_kept(command, observation);
  if (found) found->step = step;
  return found;
}

std::optional<Divergence> Invariants::check_sums(const Observation& observation) const {
  const auto add_up = [](Rule rule, std::string_view member, std::uint32_t all,
                         std::size_t sum) -> Found {
    if (sum == all) return std::nullopt;
    return broken_rule(kInvariants[rule], member, all, static_cast<std::uint32_t>(sum));
  };
  Found found;
  if (setup_.offloading && observation.t1.has_value()) {
    found = add_up(kSlots, "num_free_slots", setup_.offloading->spec.manager.cache.capacity,
                   *observation.num_free_slots + observation.t1->size() + observation.t2->size());
  }
  if (!found && setup_.simple) {
    found = add_up(kCpuBlocks, "num_empty_cpu_blocks", setup_.simple->num_cpu_blocks,
                   *observation.num_empty_cpu_blocks + *observation.num_cached_cpu_blocks +
                       *observation.num_referenced_cpu_blocks);
  }
  return found;
}

std::optional<Divergence> Invariants::check_told(std::span<const ConnectorCallRecord> calls) const {
  std::map<std::uint32_t, Calls> told;  // by scripted child
  for (std::uint32_t place = 0; place < setup_.children.size(); ++place) {
    if (setup_.has_child(place, ConnectorKind::kScripted)) told[place];
  }
  for (const ConnectorCallRecord& call : calls) {
    const bool may_end_early =
        call.method == "get_num_new_matched_tokens" || call.method == "get_handshake_metadata";
    if (may_end_early) continue;
    told[*call.child].push_back(what_all_hear(call));
  }
  const Calls& first = told.begin()->second;
  for (const auto& [child, own] : told) {
    const auto [at, other] = std::mismatch(first.begin(), first.end(), own.begin(), own.end());
    if (at == first.end() && other == own.end()) continue;
    const auto name = [](const Calls& list, auto found) {
      return found == list.end() ? std::string("nothing") : found->method + " " + found->request;
    };
    return broken(kTold, "connector_calls of child " + std::to_string(child), name(first, at),
                  name(own, other));
  }
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_lookups(const Calls& calls) const {
  std::uint32_t first = 0;
  while (first < setup_.children.size() && !setup_.has_child(first, ConnectorKind::kScripted)) {
    ++first;
  }
  const ConnectorCallRecord* before = nullptr;
  for (std::size_t at = 0; at < calls.size(); ++at) {
    const ConnectorCallRecord& call = calls[at];
    const bool is_lookup = call.method == "get_num_new_matched_tokens";
    const bool goes_on = is_lookup && before && before->request == call.request;
    // Whoever was put off may be looked up once more.
    if (goes_on && *call.child != first &&
        (before->answer == "again" || *before->child >= *call.child)) {
      return broken(kAsked, call_name(at), "the children in order", std::to_string(*call.child));
    }
    before = is_lookup ? &call : nullptr;
  }
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_loads(const Calls& calls) const {
  const std::size_t num_groups = setup_.scheduler().kv_cache.groups.size();
  const ConnectorCallRecord* loader = nullptr;
  std::uint32_t last_child = 0;
  for (std::size_t at = 0; at < calls.size(); ++at) {
    const ConnectorCallRecord& call = calls[at];
    if (call.method != "update_state_after_alloc") continue;
    const bool goes_on = loader && loader->request == call.request && *call.child > last_child;
    if (!goes_on) loader = nullptr;
    last_child = *call.child;
    if (call.blocks.size() != num_groups) {
      return broken(kOneLoads, call_name(at) + ".blocks", std::to_string(num_groups) + " groups",
                    std::to_string(call.blocks.size()) + " groups");
    }
    if (call.num_tokens == 0) continue;
    if (loader) {
      return broken(kOneLoads, call_name(at) + ".num_tokens", "0", std::to_string(call.num_tokens));
    }
    loader = &call;
  }
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_metadata(const Calls& calls) const {
  for (std::size_t at = 0; at < calls.size(); ++at) {
    const ConnectorCallRecord& call = calls[at];
    const bool has_metadata = !call.method.starts_with("register_") &&
                              call.method != "get_handshake_metadata" && !is_shutdown(call);
    if (!call.rank || !has_metadata) continue;
    const std::string own = std::to_string(*call.child) + ".";
    if (call.metadata.starts_with(own)) continue;
    return broken(kMetadata, call_name(at) + ".metadata", own + "...", call.metadata);
  }
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_kept(const Command& command,
                                                 const Observation& shown) const {
  if (!shown.chosen.has_value() || !shown.requests.has_value()) return std::nullopt;
  for (const Chosen& chosen : *shown.chosen) {
    if (is_unfinished(shown, chosen.request)) continue;
    return broken(kKept, "chosen", "unfinished requests", chosen.request);
  }
  // What never fits ends after the step was told.
  const bool is_step = std::holds_alternative<Schedule>(command) &&
                       shown.error == ErrorCode::kNone && !has_ended(shown) &&
                       !shown.never_fits.has_value();
  for (const Extra& extra : *shown.extra_saves) {
    if (is_step && !extra.rank) return broken(kKept, "extra_saves", "the workers'", extra.request);
    if (extra.saves < setup_.children.size()) continue;
    return broken(kExtraSaves, "extra_saves",
                  "fewer than " + std::to_string(setup_.children.size()),
                  std::to_string(extra.saves));
  }
  return std::nullopt;
}

}  // namespace kvfence::engine::multi
