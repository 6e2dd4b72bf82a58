#pragma once

/// What the generators of an engine's assemblies draw alike: requests that share prefixes, and
/// commands that no engine sends.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "contract/core/declare.h"
#include "contract/engine/engine_target.h"
#include "properties/core/choices.h"
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
AddRequest draw_request(std::string name, const RequestHabits& habits, const engine::Config& config,
                        std::uint32_t& arrival_time, Choices& choices) {
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
/// in_flight: steps, each a list of engine::ScheduledRequest, oldest first.
template <class Update, class Steps>
Update draw_update(const Steps& in_flight, const RequestHabits& habits, Choices& choices) {
  Update command;
  command.token = choices.once_in(habits.vary_in) ? 1 : 0;
  if (in_flight.empty()) return command;
  for (const engine::ScheduledRequest& scheduled : in_flight.front()) {
    if (!scheduled.samples || !choices.once_in(6)) continue;
    command.samples.push_back({scheduled.request, {choices.below(2)}});
  }
  return command;
}

/// Those that have not come to an end.
inline std::uint32_t num_unfinished_of(const std::vector<engine::RequestState>& known) {
  return static_cast<std::uint32_t>(
      std::count_if(known.begin(), known.end(),
                    [](const engine::RequestState& state) { return !is_finished(state.status); }));
}

/// Ends one to three of the requests that are there. Requires: there are some.
inline engine::FinishRequests draw_finish(const std::vector<engine::RequestState>& known,
                                          Choices& choices) {
  engine::FinishRequests command;
  for (std::uint32_t count = 1 + skewed(choices, 3); count > 0; --count) {
    command.requests.push_back(pick(choices, known).id);
  }
  return command;
}

/// "nobody", or somebody: those that are there more often than those that are gone.
inline std::string draw_name(const std::vector<engine::RequestState>& known,
                             const std::vector<std::string>& names, Choices& choices) {
  if (names.empty() || choices.once_in(6)) return "nobody";
  if (!known.empty() && !choices.once_in(3)) return pick(choices, known).id;
  return pick(choices, names);
}

/// Which members of commands a room bends. A command has members for every assembly, and the
/// generator of one assembly knows and bends only those that mean something there. By default all,
/// less those of kSeldomBent. In generators, made of constant arrays:
///   constexpr std::string_view kAlsoBent[] = {"max_offload_tokens"};
///   constexpr BentMembers kBentMembers{.also = kAlsoBent};
struct BentMembers {
  std::span<const std::string_view> also = {};   ///< bent here, though in kSeldomBent
  std::span<const std::string_view> never = {};  ///< not bent here, though not in kSeldomBent
  std::span<const std::string_view> first = {};  ///< come first, in this order; others as declared
};

/// What only some assemblies know.
inline constexpr std::array<std::string_view, 19> kSeldomBent = {
    "external_tokens",  "load_async",
    "ask_again",        "hold_blocks",
    "grammar",          "min_tokens",
    "eos_token",        "stop_tokens",
    "lora_name",        "lora_id",
    "accepted",         "finished_recving",
    "finished_sending", "invalid_blocks",
    "connector_fails",  "reset_running_requests",
    "engine",           "max_offload_tokens",
    "do_remote_decode",
};

namespace detail {

template <class List>
bool has_name(const List& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

inline bool is_bent(const BentMembers& members, std::string_view name) {
  if (has_name(members.never, name)) return false;
  return !has_name(kSeldomBent, name) || has_name(members.also, name);
}

/// Takes a struct's declarations and passes on those whose names are accepted.
template <class Object, class Accepts, class Visit>
struct NamedMembers {
  struct Added {
    void optional() const {}
  };
  Object& object;
  const Accepts& accepts;
  Visit& visit;

  template <class Owner, class T>
  Added add(std::string_view name, T Owner::*member, Domain domain, std::string_view /*doc*/) {
    if (accepts(name)) visit(object.*member, domain);
    return {};
  }
};

/// Calls visit(member, domain) for each member of a struct whose name is accepted.
template <class Object, class Accepts, class Visit>
void for_each_named_member(Object& object, const Accepts& accepts, Visit& visit) {
  NamedMembers<Object, Accepts, Visit> fields{object, accepts, visit};
  Object::declare(fields);
}

}  // namespace detail

/// Calls visit(member, domain) for each member that is bent of whichever command a variant holds.
template <class Command, class Visit>
void for_each_bent_member(Command& command, const BentMembers& members, Visit&& visit) {
  std::visit(
      [&](auto& object) {
        for (std::string_view first : members.first) {
          detail::for_each_named_member(
              object,
              [&](std::string_view name) {
                return name == first && detail::is_bent(members, name);
              },
              visit);
        }
        detail::for_each_named_member(
            object,
            [&](std::string_view name) {
              return !detail::has_name(members.first, name) && detail::is_bent(members, name);
            },
            visit);
      },
      command);
}

/// Bends one member of a command; a new request does not become "nobody", a name like any other.
/// any_name(): as draw_name.
template <class AddRequest, class Command, class AnyName>
void bend_member(Command& command, std::uint32_t unit, std::uint32_t max_model_len,
                 AnyName&& any_name, Choices& choices, const BentMembers& members = {}) {
  std::size_t num_members = 0;
  for_each_bent_member(command, members, [&](auto&, Domain) { ++num_members; });
  if (num_members == 0) return;
  const std::size_t chosen = choices.below(static_cast<std::uint32_t>(num_members));
  const bool is_new = std::holds_alternative<AddRequest>(command);
  std::size_t at = 0;
  for_each_bent_member(command, members, [&](auto& member, Domain) {
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
    } else if constexpr (std::is_same_v<Member, std::vector<engine::Sample>>) {
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
