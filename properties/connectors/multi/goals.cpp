#include "properties/connectors/multi/goals.h"

#include <algorithm>
#include <cstddef>
#include <variant>
#include <vector>

#include "properties/core/invariant_values.h"

namespace kvfence::multi_connector {
namespace {

using detail::contains;

template <class Answer, class Holds>
std::ptrdiff_t num_of(const std::vector<Answer>& answers, Holds&& holds) {
  return std::count_if(answers.begin(), answers.end(), holds);
}

bool has_tokens(const Match& answer) { return answer.num_tokens.value_or(0) > 0; }
bool asks_again(const Match& answer) { return !answer.num_tokens.has_value(); }

/// Who is chosen; null if nobody is, or the state is not shown.
const Chosen* chosen_for(const Observation& shown, const std::string& request) {
  if (!shown.chosen.has_value()) return nullptr;
  for (const Chosen& chosen : *shown.chosen) {
    if (chosen.request == request) return &chosen;
  }
  return nullptr;
}

/// Of a request on a rank; 0 where the state is not shown.
std::uint32_t extra_saves(const Observation& shown, std::uint32_t rank,
                          const std::string& request) {
  if (!shown.ranks.has_value()) return 0;
  for (const Extra& extra : (*shown.ranks)[rank].extra) {
    if (extra.request == request) return extra.saves;
  }
  return 0;
}

}  // namespace

void Reach::count(const Command& command, const Observation& before, const Observation& after,
                  const World&) {
  if (after.error != ErrorCode::kNone) {
    add_error(after.error);
    return;
  }
  std::visit([&](const auto& one) { count_accepted(one, before, after); }, command);
}

void Reach::count_accepted(const GetNumNewMatchedTokens& command, const Observation& before,
                           const Observation& after) {
  if (!after.matched.has_value()) return;
  const std::vector<Match>& answers = command.answers;
  const auto again = std::find_if(answers.begin(), answers.end(), asks_again);
  const auto hit = std::find_if(answers.begin(), again, has_tokens);
  const bool is_hit = hit != again;
  const bool is_put_off = again != answers.end();
  add(Reached::kAskedAgain, is_put_off);
  add(Reached::kAskedAgainBehindHit, is_put_off && is_hit);
  add(Reached::kNothingFound, !is_put_off && !is_hit);
  add(Reached::kFirstChildChosen, is_hit && hit == answers.begin());
  add(Reached::kLaterChildChosen, is_hit && hit != answers.begin());
  add(Reached::kLosingHit, is_hit && std::any_of(hit + 1, again, has_tokens));
  add(Reached::kAsyncLoad, !is_put_off && is_hit && hit->load_async);
  const Chosen* was = chosen_for(before, command.request);
  const Chosen* is = chosen_for(after, command.request);
  add(Reached::kChoiceChanged, was && is && was->child != is->child);
  add(Reached::kChoiceKeptWithoutHit, was && !is_hit && !is_put_off);
}

void Reach::count_accepted(const UpdateStateAfterAlloc& command, const Observation&,
                           const Observation& after) {
  if (!after.chosen.has_value()) return;
  const bool is_chosen = chosen_for(after, command.request) != nullptr;
  add(Reached::kLoadedByChosen, is_chosen && command.num_external_tokens > 0);
  add(Reached::kAllocatedWithoutChoice, !is_chosen);
}

void Reach::count_accepted(const BuildConnectorMeta&, const Observation&,
                           const Observation& after) {
  add(Reached::kExtraSavesTravel,
      after.extra_async_saves.has_value() && !after.extra_async_saves->empty());
}

void Reach::count_accepted(const UpdateConnectorOutput&, const Observation&,
                           const Observation& after) {
  if (!after.finished_sending.has_value()) return;
  for (const std::string& request : *after.finished_sending) sent_.erase(request);
  add(Reached::kSentOnAllRanks, !after.finished_sending->empty());
  add(Reached::kSentOnSomeRanks, config_.num_ranks > 1 && !sent_.empty());
  add(Reached::kMetaOfTwoRanks, config_.num_ranks > 1 && after.worker_meta.has_value());
}

void Reach::count_accepted(const RequestFinished& command, const Observation&,
                           const Observation& after) {
  const auto num_holders =
      num_of(command.answers, [](const Finish& answer) { return answer.hold; });
  add(Reached::kHeldByNobody, num_holders == 0);
  add(Reached::kHeldByOne, num_holders == 1);
  add(Reached::kHeldBySeveral, num_holders > 1);
  add(Reached::kFinishedWithParams,
      after.kv_transfer_params.has_value() && after.kv_transfer_params->has_value());
  add(Reached::kAllGroups, config_.num_groups > 1);
  if (!after.calls.has_value()) return;
  add(Reached::kOneGroupOfHma,
      after.calls->front().method == "request_finished" &&
          num_of(config_.children, [](const Child& child) { return child.hma; }) > 0);
}

void Reach::count_accepted(const TakeEvents& command, const Observation&, const Observation&) {
  add(Reached::kEventsOfTwo,
      num_of(command.answers, [](const Events& answer) { return !answer.ids.empty(); }) > 1);
}

void Reach::count_accepted(const ResetCache& command, const Observation&,
                           const Observation& after) {
  if (!after.success.has_value()) return;
  add(*after.success ? Reached::kResetDone : Reached::kResetFailed);
  add(Reached::kResetUnsaid,
      num_of(command.answers, [](const Reset& answer) { return !answer.done; }) > 0);
}

void Reach::count_accepted(const HandlePreemptions&, const Observation&, const Observation&) {
  add(Reached::kPreemptions);
}

void Reach::count_accepted(const StartLoadKV& command, const Observation&,
                           const Observation& after) {
  if (!after.ranks.has_value()) return;
  const std::uint32_t num_waiting = (*after.ranks)[command.rank].num_waiting;
  add(Reached::kRanksApart, num_of(*after.ranks, [&](const Rank& rank) {
                              return rank.num_waiting > num_waiting + 1;
                            }) > 0);
}

void Reach::count_accepted(const GetKVConnectorOutput& command, const Observation& before,
                           const Observation& after) {
  add(Reached::kStepWithoutSave, !command.wait_for_save);
  if (!after.finished_sending.has_value()) return;
  const std::vector<std::string>& sent = *after.finished_sending;
  sent_.insert(sent.begin(), sent.end());
  add(Reached::kSentInTheEnd, !sent.empty());

  std::set<std::string> sent_before;
  for (const Output& answer : command.answers) {
    for (const std::string& request : answer.sending) {
      const bool is_extra = extra_saves(before, command.rank, request) > 0;
      add(Reached::kNoticeSwallowed, is_extra && !contains(sent, request));
      add(Reached::kSeveralChildrenSendAtOnce, !sent_before.insert(request).second);
    }
    for (const std::string& request : answer.recving) {
      add(Reached::kReceivedWhileHeld, extra_saves(before, command.rank, request) > 0);
    }
  }
  add(Reached::kLoadErrorsOfTwo,
      num_of(command.answers, [](const Output& answer) { return !answer.invalid.empty(); }) > 1);
  const auto num_with_meta =
      num_of(command.answers, [](const Output& answer) { return answer.meta.has_value(); });
  add(Reached::kMetaOfSomeChildren,
      num_with_meta > 0 && static_cast<std::size_t>(num_with_meta) < config_.children.size());
  count_stats(command);
}

void Reach::count_stats(const GetKVConnectorOutput& command) {
  std::set<std::string> classes;
  std::size_t num_children = 0;
  for (std::size_t child = 0; child < command.answers.size(); ++child) {
    if (!command.answers[child].stats) continue;
    classes.insert(config_.children[child].connector_class);
    ++num_children;
  }
  add(Reached::kStatsOfOneClass, classes.size() < num_children);
  add(Reached::kStatsOfTwoClasses, classes.size() > 1);
}

}  // namespace kvfence::multi_connector
