#pragma once

/// What the generators of targets with a scheduler and a connector draw alike: requests that share
/// prefixes, and commands that no engine sends.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "contract/scheduler/scheduler_target.h"
#include "properties/core/choices.h"
#include "properties/core/command_members.h"
#include "properties/kv_cache/generator.h"

namespace kvfence {

/// The habits of an episode's clients.
struct RequestHabits {
  std::uint32_t unit = 1;        ///< tokens: the groups' common block size
  std::uint32_t prompt_max = 1;  ///< tokens that leave room for others
  std::uint32_t output_max = 1;
  std::uint32_t vary_in = 6;   ///< one block in so many differs from the shared prefix
  std::uint32_t skip_in = 12;  ///< one request in so many does not read the GPU's cache
};

/// Two or more requests fill the GPU's pool together, and few do so alone.
inline RequestHabits draw_request_habits(const kv_cache::Config& config, Choices& choices) {
  const std::uint32_t capacity = kv_cache::capacity_of(config);
  RequestHabits habits;
  habits.unit = kv_cache::common_block_size(config);
  habits.prompt_max = std::max(1U, capacity / (1 + choices.below(3)));
  habits.output_max = choices.once_in(3) ? 3 : 1 + capacity / (1 + choices.below(3));
  habits.vary_in = choices.once_in(3) ? 3 : 12;
  habits.skip_in = choices.once_in(4) ? 2 : 16;
  return habits;
}

/// A request of that name. Prompts are of blocks that repeat one of two tokens, so that prefixes
/// are shared all the time. arrival_time: of the request before; moves on.
template <class AddRequest>
AddRequest draw_request(std::string name, const RequestHabits& habits,
                        const scheduler::Config& config, std::uint32_t& arrival_time,
                        Choices& choices) {
  AddRequest command;
  command.id = std::move(name);
  const std::uint32_t length_max =
      choices.once_in(16) ? config.max_model_len - 1 : habits.prompt_max;
  const std::uint32_t length =
      1 + (choices.once_in(3) ? skewed(choices, length_max) : choices.below(length_max));
  while (command.tokens.size() < length) {
    const TokenId token = choices.once_in(habits.vary_in) ? 1U : 0U;
    command.tokens.insert(command.tokens.end(), habits.unit, token);
  }
  command.tokens.resize(length);
  command.max_tokens = 1 + choices.below(habits.output_max);
  if (config.policy == "priority") command.priority = choices.below(3);
  arrival_time += choices.below(2);
  command.arrival_time = arrival_time;
  if (choices.once_in(16)) command.cache_salt = "salt";
  command.skip_reading_prefix_cache = choices.once_in(habits.skip_in);
  return command;
}

/// The oldest step comes back; now and then a request samples something else than the others.
/// in_flight: steps, each a list of scheduler::ScheduledRequest, oldest first.
template <class Update, class Steps>
Update draw_update(const Steps& in_flight, const RequestHabits& habits, Choices& choices) {
  Update command;
  command.token = choices.once_in(habits.vary_in) ? 1 : 0;
  if (in_flight.empty()) return command;
  for (const scheduler::ScheduledRequest& scheduled : in_flight.front()) {
    if (!scheduled.samples || !choices.once_in(6)) continue;
    command.samples.push_back({scheduled.request, {choices.below(2)}});
  }
  return command;
}

/// Those that have not come to an end.
inline std::uint32_t num_unfinished_of(const std::vector<scheduler::RequestState>& known) {
  return static_cast<std::uint32_t>(std::count_if(
      known.begin(), known.end(),
      [](const scheduler::RequestState& state) { return !is_finished(state.status); }));
}

/// Ends one to three of the requests that are there. Requires: there are some.
inline scheduler::FinishRequests draw_finish(const std::vector<scheduler::RequestState>& known,
                                             Choices& choices) {
  scheduler::FinishRequests command;
  for (std::uint32_t count = 1 + skewed(choices, 3); count > 0; --count) {
    command.requests.push_back(pick(choices, known).id);
  }
  return command;
}

/// "nobody", or somebody: those that are there more often than those that are gone.
inline std::string draw_name(const std::vector<scheduler::RequestState>& known,
                             const std::vector<std::string>& names, Choices& choices) {
  if (names.empty() || choices.once_in(6)) return "nobody";
  if (!known.empty() && !choices.once_in(3)) return pick(choices, known).id;
  return pick(choices, names);
}

/// Bends one member of a command; a new request does not become "nobody", a name like any other.
/// any_name(): as draw_name.
template <class AddRequest, class Command, class AnyName>
void bend_member(Command& command, std::uint32_t unit, std::uint32_t max_model_len,
                 AnyName&& any_name, Choices& choices) {
  std::size_t num_members = 0;
  for_each_member_of_command(command, [&](auto&, Domain) { ++num_members; });
  if (num_members == 0) return;
  const std::size_t chosen = choices.below(static_cast<std::uint32_t>(num_members));
  const bool is_new = std::holds_alternative<AddRequest>(command);
  std::size_t at = 0;
  for_each_member_of_command(command, [&](auto& member, Domain) {
    if (at++ != chosen) return;
    using Member = std::remove_cvref_t<decltype(member)>;
    if constexpr (std::is_same_v<Member, bool>) {
      member = !member;
    } else if constexpr (std::is_same_v<Member, std::uint32_t>) {
      if (member > 0 && choices.once_in(2)) {
        member = choices.below(member);
      } else {
        member += 1 + choices.below(2 * unit);
      }
    } else if constexpr (std::is_same_v<Member, std::string>) {
      const std::string name = any_name();
      if (!is_new || name != "nobody") member = name;
    } else if constexpr (std::is_same_v<Member, std::vector<std::uint32_t>>) {
      if (choices.once_in(2)) {
        member.clear();
      } else {
        member.insert(member.end(), max_model_len, 0U);
      }
    } else if constexpr (std::is_same_v<Member, std::vector<std::string>>) {
      member.push_back(any_name());
      if (choices.once_in(3)) member.push_back(member.front());
    } else if constexpr (std::is_same_v<Member, std::vector<scheduler::Sample>>) {
      member.push_back({any_name(), {}});
      member.back().tokens.assign(choices.below(3), 0U);
      if (choices.once_in(3)) member.push_back(member.front());
    } else if constexpr (std::is_same_v<Member, RequestStatus>) {
      member = static_cast<RequestStatus>(
          choices.below(static_cast<std::uint32_t>(RequestStatus::kFinishedRepetition) + 1));
    } else if constexpr (std::is_same_v<Member, PauseState>) {
      member = static_cast<PauseState>(choices.below(3));
    }
  });
}

}  // namespace kvfence
