/// The rules for a MultiConnector and its children together. Other rules of real children are
/// checked in their own assemblies, those of the scheduler by the core rules. The rules of NIXL's
/// room are checked here too, as far as they hold beside other children (nixl/rules.cpp), but not
/// beside scripted children, which report requests that they do not have.

#include "properties/engine/rooms.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "contract/core/lists.h"
#include "contract/engine/engine_target.h"
#include "properties/core/broken_rule.h"
#include "properties/core/divergence.h"
#include "properties/core/invariant_values.h"
#include "properties/core/left_out.h"
#include "properties/core/named_place.h"
#include "properties/engine/shown_requests.h"

namespace kvfence::engine::multi {
namespace {

const LeftOut kBesideScripted(LeftOut::By::kRule, "nixl.1 to nixl.12: scripted children",
                              "they report what they do not hold, as the script says",
                              "engine/multi/pairs/notice_before_the_extra_saves.kvs");

/// Every invariant, for the command line and the documentation.
constexpr Invariant kInvariants[] = {
    {"multi.1", "slots_add_up", "slots of the CPU cache are free, or hold one block of its lists"},
    {"multi.2", "cpu_blocks_add_up",
     "empty, cached and referenced CPU blocks are all blocks of the simple connector's pool"},
    {"multi.3", "every_child_is_notified",
     "all scripted children get the same calls with the same arguments, apart from lookups and "
     "the search for a handshake"},
    {"multi.4", "children_are_asked_in_order",
     "a lookup asks the children in order, up to one that wants to be asked again"},
    {"multi.5", "one_child_loads",
     "at most one child gets a request's tokens, and every child gets a list per group"},
    {"multi.6", "metadata_reach_their_child", "a child's workers get what that child built"},
    {"multi.7", "nothing_is_kept_of_what_is_over",
     "only an unfinished request has a chosen child; a step takes all extra saves to the workers"},
    {"multi.8", "extra_saves_leave_one",
     "fewer notices that a request is sent are swallowed than there are children"},
};

using Rule = NamedPlace<kInvariants>;
constexpr BrokenRuleOf<kInvariants> broken;

using Calls = std::vector<ConnectorCall>;

std::string call_name(std::size_t at) { return detail::element("connector_calls", at); }

/// The part of a call that is the same for all children.
ConnectorCall what_all_hear(const ConnectorCall& call) {
  ConnectorCall common;
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

bool is_shutdown(const ConnectorCall& call) { return call.method == "shutdown"; }

class Invariants final : public Rules {
 public:
  explicit Invariants(const EngineSetup& setup) : setup_(setup) {
    const bool has_scripted = contains(setup.children, ConnectorKind::kScripted, &ChildSetup::kind);
    if (setup.nixl && !kBesideScripted(has_scripted)) nixl_ = nixl::rules().make(setup);
  }

  void check_all(const Command& command) override {
    for (std::size_t number = 0; number < setup_.schedulers.size(); ++number) {
      check_engine(static_cast<EngineRole>(number), command);
    }
    if (nixl_) nixl_->check_inside(command, before(), shown(), world());
  }

 private:
  void check_engine(EngineRole role, const Command& command) const {
    const EngineObservation& engine = shown().of(role);
    check_sums(role, engine);
    if (engine.connector_calls.has_value()) {
      const Calls& calls = *engine.connector_calls;
      const bool is_cut_off = shown().engine_ended.has_value();
      const auto whole = is_cut_off ? std::ranges::find_if(calls, is_shutdown) : calls.begin();
      check_calls({whole, calls.end()});
      check_lookups(calls);
      check_loads(calls);
      check_metadata(calls);
    }
    // A request that never fits ends after the step was planned.
    const auto* const planned = std::get_if<Schedule>(&command);
    const bool is_step = planned && planned->engine == role && shown().error == ErrorCode::kNone &&
                         !has_ended(shown()) && !engine.never_fits.has_value();
    check_kept(engine, is_step);
  }

  void check_sums(EngineRole role, const EngineObservation& engine) const {
    const auto add_up = [](Rule rule, std::string_view member, std::uint32_t all, std::size_t sum) {
      broken.unless_equal(rule, member, all, static_cast<std::uint32_t>(sum));
    };
    const ConnectorParts& parts = setup_.of(role);
    if (parts.offloading && engine.t1.has_value()) {
      add_up("slots_add_up", "num_free_slots", parts.offloading->spec.manager.cache.capacity,
             *engine.num_free_slots + engine.t1->size() + engine.t2->size());
    }
    if (parts.simple) {
      add_up("cpu_blocks_add_up", "num_empty_cpu_blocks", parts.simple->num_cpu_blocks,
             *engine.num_empty_cpu_blocks + *engine.num_cached_cpu_blocks +
                 *engine.num_referenced_cpu_blocks);
    }
  }

  void check_calls(std::span<const ConnectorCall> calls) const {
    std::map<std::uint32_t, Calls> by_child;  // scripted ones
    for (std::uint32_t place = 0; place < setup_.children.size(); ++place) {
      if (setup_.has_child(place, ConnectorKind::kScripted)) by_child[place];
    }
    for (const ConnectorCall& call : calls) {
      const bool may_end_early =
          call.method == "get_num_new_matched_tokens" || call.method == "get_handshake_metadata";
      if (may_end_early) continue;
      by_child[*call.child].push_back(what_all_hear(call));
    }
    const Calls& first = by_child.begin()->second;
    for (const auto& [child, own] : by_child) {
      const auto [at, other] = std::mismatch(first.begin(), first.end(), own.begin(), own.end());
      if (at == first.end() && other == own.end()) continue;
      const auto name = [](const Calls& list, auto found) {
        return found == list.end() ? std::string("nothing") : found->method + " " + found->request;
      };
      broken("every_child_is_notified", "connector_calls of child " + std::to_string(child),
             name(first, at), name(own, other));
    }
  }

  void check_lookups(const Calls& calls) const {
    std::uint32_t first = 0;
    while (first < setup_.children.size() && !setup_.has_child(first, ConnectorKind::kScripted)) {
      ++first;
    }
    const ConnectorCall* before = nullptr;
    for (std::size_t at = 0; at < calls.size(); ++at) {
      const ConnectorCall& call = calls[at];
      const bool is_lookup = call.method == "get_num_new_matched_tokens";
      const bool goes_on = is_lookup && before && before->request == call.request;
      // A request that was put off may be looked up once more.
      if (goes_on && *call.child != first &&
          (before->answer == "again" || *before->child >= *call.child)) {
        broken("children_are_asked_in_order", call_name(at), "the children in order",
               std::to_string(*call.child));
      }
      before = is_lookup ? &call : nullptr;
    }
  }

  void check_loads(const Calls& calls) const {
    const std::size_t num_groups = setup_.scheduler().kv_cache.groups.size();
    const ConnectorCall* loader = nullptr;
    std::uint32_t last_child = 0;
    for (std::size_t at = 0; at < calls.size(); ++at) {
      const ConnectorCall& call = calls[at];
      if (call.method != "update_state_after_alloc") continue;
      const bool goes_on = loader && loader->request == call.request && *call.child > last_child;
      if (!goes_on) loader = nullptr;
      last_child = *call.child;
      if (call.blocks.size() != num_groups) {
        broken("one_child_loads", call_name(at) + ".blocks", std::to_string(num_groups) + " groups",
               std::to_string(call.blocks.size()) + " groups");
      }
      if (call.num_tokens == 0) continue;
      if (loader) {
        broken("one_child_loads", call_name(at) + ".num_tokens", "0",
               std::to_string(call.num_tokens));
      }
      loader = &call;
    }
  }

  void check_metadata(const Calls& calls) const {
    for (std::size_t at = 0; at < calls.size(); ++at) {
      const ConnectorCall& call = calls[at];
      const bool has_metadata = !call.method.starts_with("register_") &&
                                call.method != "get_handshake_metadata" && !is_shutdown(call);
      if (!call.rank || !has_metadata) continue;
      const std::string own = std::to_string(*call.child) + ".";
      if (call.metadata.starts_with(own)) continue;
      broken("metadata_reach_their_child", call_name(at) + ".metadata", own + "...", call.metadata);
    }
  }

  void check_kept(const EngineObservation& engine, bool is_step) const {
    if (!engine.chosen.has_value() || !engine.requests.has_value()) return;
    for (const ChosenConnector& chosen : *engine.chosen) {
      if (is_unfinished(engine, chosen.request)) continue;
      broken("nothing_is_kept_of_what_is_over", "chosen", "unfinished requests", chosen.request);
    }
    for (const Extra& extra : *engine.extra_saves) {
      if (is_step && !extra.rank)
        broken("nothing_is_kept_of_what_is_over", "extra_saves", "the workers'", extra.request);
      if (extra.saves < setup_.children.size()) continue;
      broken("extra_saves_leave_one", "extra_saves",
             "fewer than " + std::to_string(setup_.children.size()), std::to_string(extra.saves));
    }
  }

  EngineSetup setup_;
  std::unique_ptr<Rules> nixl_;  ///< null: not checked
};

}  // namespace

RuleSuite<EngineTarget> rules() {
  static const std::vector<Invariant> kAll = [] {
    std::vector<Invariant> all(std::begin(kInvariants), std::end(kInvariants));
    const std::span<const Invariant> more = nixl::rules().rows;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }();
  return rule_suite<Invariants>(kAll);
}

}  // namespace kvfence::engine::multi
