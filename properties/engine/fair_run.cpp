#include "properties/engine/fair_run.h"

#include <algorithm>
#include <type_traits>
#include <variant>

#include "properties/engine/shown_requests.h"

namespace kvfence::engine {
namespace {

template <class C, class... Those>
constexpr bool kIsOneOf = (std::is_same_v<C, Those> || ...);

}  // namespace

bool goes_on(const Command& command, const Observation& shown) {
  if (has_elements(shown.invalid_blocks)) return false;
  return std::visit(
      [](const auto& typed) {
        using C = std::decay_t<decltype(typed)>;
        if constexpr (std::is_same_v<C, Update>) {
          return typed.invalid_blocks.empty() &&
                 std::ranges::all_of(typed.reports, [](const multi::ChildReport& report) {
                   return report.invalid.empty();
                 });
        } else if constexpr (requires { typed.progress; }) {
          return typed.progress != TransferProgress::kFailed;
        } else if constexpr (std::is_same_v<C, offloading::TierFinish>) {
          return typed.success;
        } else {
          return kIsOneOf<C, Schedule, Execute, Poll, UpdateDraftTokenIds, Advance,
                          nixl::DeliverNotice>;
        }
      },
      command);
}

std::uint64_t num_times_put_off(const Command& command) {
  return std::visit(
      [](const auto& typed) -> std::uint64_t {
        if constexpr (requires { typed.ask_again; }) return typed.ask_again;
        if constexpr (requires { typed.times; }) return typed.times;
        return 0;
      },
      command);
}

bool is_anything_under_way(const Observation& shown, EngineRole role) {
  const EngineObservation& own = shown.of(role);
  return has_elements(own.transfers) || has_elements(own.tier_jobs) || has_elements(own.copies) ||
         own.has_pending_stores.or_empty() || own.num_transfers.or_empty() > 0 ||
         std::ranges::any_of(shown.reads.or_empty(), &ReadState::is_under_way) ||
         !std::ranges::all_of(shown.notices.or_empty(), &NoticeState::delivered);
}

}  // namespace kvfence::engine
