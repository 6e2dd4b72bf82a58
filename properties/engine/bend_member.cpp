#include "properties/engine/bend_member.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <variant>
#include <vector>

namespace kvfence::engine {
namespace {

constexpr std::uint32_t kHuge = 0xFFFF'FFFF;  // where sums and products wrap around

/// What only some assemblies know.
constexpr std::array<std::string_view, 24> kSeldomBent = {
    "external_tokens",  "load_async",
    "ask_again",        "hold_blocks",
    "grammar",          "min_tokens",
    "eos_token",        "stop_tokens",
    "lora_name",        "lora_id",
    "accepted",         "finished_recving",
    "finished_sending", "invalid_blocks",
    "connector_fails",  "reset_running_requests",
    "engine",           "max_offload_tokens",
    "do_remote_decode", "child",
    "params",           "reports",
    "failing_children", "silent_children",
};

template <class Visit>
void for_each_bent_member(Command& command, const std::function<bool(std::string_view)>& bends,
                          Visit&& visit) {
  std::visit(
      [&]<class Object>(Object& object) {
        for_each_field<Object>([&](std::string_view name, auto member, Domain domain) {
          const bool is_seldom = std::ranges::find(kSeldomBent, name) != kSeldomBent.end();
          if (!is_seldom || bends(name)) visit(object.*member, domain);
        });
      },
      command);
}

/// Any value of an enumeration.
template <class Enum>
Enum draw_enum(Enum last, Choices& choices) {
  return static_cast<Enum>(choices.below(static_cast<std::uint32_t>(last) + 1));
}

}  // namespace

void bend_member(Command& command, const Config& config, std::uint32_t unit,
                 const std::function<bool(std::string_view)>& bends,
                 const std::function<std::string()>& any_name, Choices& choices) {
  std::uint32_t num_members = 0;
  for_each_bent_member(command, bends, [&](auto&, Domain) { ++num_members; });
  if (num_members == 0) return;
  const std::uint32_t chosen = choices.below(num_members);
  const bool is_new =
      std::holds_alternative<AddRequest>(command) || std::holds_alternative<HandOver>(command);
  std::uint32_t at = 0;
  for_each_bent_member(command, bends, [&]<class Member>(Member& member, Domain domain) {
    if (at++ != chosen) return;
    if constexpr (std::is_same_v<Member, bool>) {
      member = !member;
    } else if constexpr (std::is_same_v<Member, std::uint32_t>) {
      if (member > 0 && choices.once_in(2)) {
        member = choices.below(member);
      } else if (is_new && choices.once_in(4)) {
        member = kHuge - choices.below(2);
      } else {
        member += 1 + choices.below(2 * unit);
      }
    } else if constexpr (std::is_same_v<Member, std::string>) {
      const std::string name = any_name();
      if (!is_new || name != "nobody") member = name;
    } else if constexpr (std::is_same_v<Member, std::vector<std::uint32_t>>) {
      if (domain == Domain::kBlocks) {
        member.push_back(choices.below(config.num_gpu_blocks + 1));
        if (choices.once_in(3)) member.push_back(member.front());
      } else if (choices.once_in(2)) {
        member.clear();
      } else {
        member.insert(member.end(), config.max_model_len, 0U);
      }
    } else if constexpr (std::is_same_v<Member, std::vector<std::string>>) {
      member.push_back(any_name());
      if (choices.once_in(3)) member.push_back(member.front());
    } else if constexpr (std::is_same_v<Member, std::vector<Sample>>) {
      member.push_back({any_name(), {}});
      member.back().tokens.assign(choices.below(3), 0U);
      if (choices.once_in(3)) member.push_back(member.front());
    } else if constexpr (std::is_same_v<Member, RequestStatus>) {
      member = draw_enum(RequestStatus::kFinishedRepetition, choices);
    } else if constexpr (std::is_same_v<Member, PauseState>) {
      member = draw_enum(PauseState::kPausedAll, choices);
    } else if constexpr (std::is_same_v<Member, EngineRole>) {
      member = draw_enum(EngineRole::kConsumer, choices);
    }
  });
}

}  // namespace kvfence::engine
