#include "properties/connectors/multi/rules.h"

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "properties/core/broken_rule.h"

namespace kvfence::multi_connector {
namespace {

// The places of kInvariants, so that code names a rule by its id.
enum Rule : std::size_t {
  kM1,
  kM2,
  kM3,
  kM4,
  kM5,
  kM6,
  kM7,
  kM8,
  kM9,
  kM10,
  kM11,
  kM12,
  kM13,
  kM14,
  kM15,
  kM16
};

static_assert(kInvariants.size() == kM16 + 1);

template <class T>
Divergence broken(Rule rule, std::string_view member, const T& expected, const T& actual) {
  return broken_rule(kInvariants[rule], member, expected, actual);
}

/// Whether a command can change what is noted of requests.
bool is_active(const Command& command, const Observation& expected) {
  return expected.error == ErrorCode::kNone &&
         (std::holds_alternative<GetNumNewMatchedTokens>(command) ||
          std::holds_alternative<RequestFinished>(command) ||
          std::holds_alternative<BuildConnectorMeta>(command) ||
          std::holds_alternative<StartLoadKV>(command) ||
          std::holds_alternative<GetKVConnectorOutput>(command));
}

/// Whom a call is to reach is M3's, or a lookup's; what it brings, mostly another's.
Rule rule_of(const ChildCall& expected, const ChildCall& actual) {
  if (expected.method == "get_num_new_matched_tokens") return kM4;
  if (expected.child != actual.child) return kM3;
  if (expected.metadata != actual.metadata) return kM7;
  if (expected.meta != actual.meta) return kM12;
  if (expected.method == "update_state_after_alloc") return kM6;
  return kM3;
}

std::optional<Divergence> check_calls(const Observation& expected, const Observation& observation) {
  if (expected.calls == observation.calls) return std::nullopt;
  const std::vector<ChildCall> none;
  const std::vector<ChildCall>& wanted = expected.calls.has_value() ? *expected.calls : none;
  const std::vector<ChildCall>& shown = observation.calls.has_value() ? *observation.calls : none;
  const auto [at, shown_at] =
      std::mismatch(wanted.begin(), wanted.end(), shown.begin(), shown.end());
  const bool is_lookup =
      (!wanted.empty() && wanted.front().method == "get_num_new_matched_tokens") ||
      (!shown.empty() && shown.front().method == "get_num_new_matched_tokens");
  const Rule rule = is_lookup                                       ? kM4
                    : at != wanted.end() && shown_at != shown.end() ? rule_of(*at, *shown_at)
                                                                    : kM3;
  return broken(rule, "calls", wanted, shown);
}

/// An answer that is there or not, as it should, and equal.
class Answers {
 public:
  template <class T>
  void compare(Rule rule, std::string_view name, const Reusable<T>& expected,
               const Reusable<T>& actual) {
    if (found || expected == actual) return;
    if (expected.has_value() == actual.has_value()) {
      found = broken(rule, name, *expected, *actual);
    } else {
      found = broken_presence(kInvariants[kM1], name, expected.has_value());
    }
  }

  std::optional<Divergence> found;
};

std::optional<Divergence> check_answers(const Observation& expected,
                                        const Observation& observation) {
  Answers answers;
  answers.compare(kM5, "matched", expected.matched, observation.matched);
  answers.compare(kM7, "metadata", expected.metadata, observation.metadata);
  answers.compare(kM8, "extra_async_saves", expected.extra_async_saves,
                  observation.extra_async_saves);
  answers.compare(kM14, "hold", expected.hold, observation.hold);
  answers.compare(kM14, "kv_transfer_params", expected.kv_transfer_params,
                  observation.kv_transfer_params);
  answers.compare(kM15, "events", expected.events, observation.events);
  answers.compare(kM15, "success", expected.success, observation.success);
  answers.compare(kM9, "finished_sending", expected.finished_sending, observation.finished_sending);
  answers.compare(kM10, "finished_recving", expected.finished_recving,
                  observation.finished_recving);
  answers.compare(kM11, "invalid_block_ids", expected.invalid_block_ids,
                  observation.invalid_block_ids);
  answers.compare(kM13, "stats", expected.stats, observation.stats);
  answers.compare(kM12, "worker_meta", expected.worker_meta, observation.worker_meta);
  return answers.found;
}

std::optional<Divergence> check_state(const Command& command, const Observation& expected,
                                      const Observation& observation) {
  const bool unasked = !is_active(command, expected);
  std::optional<Divergence> found;
  const auto compare = [&](Rule rule, std::string_view name, const auto& wanted,
                           const auto& shown) {
    if (!found && wanted != shown) found = broken(unasked ? kM2 : rule, name, wanted, shown);
  };
  const bool ends = std::holds_alternative<RequestFinished>(command);
  const Rule of_choice = ends ? kM16 : kM6;
  const Rule of_extra = std::holds_alternative<GetKVConnectorOutput>(command)
                            ? (expected.num_extra == 0 ? kM16 : kM9)
                            : kM8;
  compare(of_choice, "num_chosen", expected.num_chosen, observation.num_chosen);
  compare(of_extra, "num_extra", expected.num_extra, observation.num_extra);
  if (observation.chosen.has_value()) {
    compare(of_choice, "chosen", *expected.chosen, *observation.chosen);
  }
  if (observation.extra.has_value()) {
    compare(of_extra, "extra", *expected.extra, *observation.extra);
  }
  if (observation.ranks.has_value()) {
    compare(of_extra, "ranks", *expected.ranks, *observation.ranks);
  }
  return found;
}

}  // namespace

void Invariants::reset() { ledger_ = Ledger(config_); }

std::optional<Divergence> Invariants::check(const Command& command, const Observation& observation,
                                            const World&, std::size_t step) {
  const Observation expected = ledger_.apply(command);
  std::optional<Divergence> found;
  if (observation.error != expected.error) {
    const bool is_params = expected.error == ErrorCode::kSeveralParams;
    found = broken(is_params ? kM14 : kM1, "error", expected.error, observation.error);
  }
  if (!found) found = check_calls(expected, observation);
  if (!found) found = check_answers(expected, observation);
  if (!found) found = check_state(command, expected, observation);
  if (found) found->step = step;
  return found;
}

}  // namespace kvfence::multi_connector
