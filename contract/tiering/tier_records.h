#pragma once

/// What the targets with scripted tiers show of them. `Keys` is a list of keys as the target shows
/// them: numbers, or bytes.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/declare.h"
#include "contract/eviction/cache_policy.h"

namespace kvfence::tiering {

/// A TierCall (contract/scripted/scripted_tier.h).
template <class Keys>
struct CallRecordOf {
  static constexpr std::string_view kWord = "call";
  std::string method;
  std::uint32_t tier = 0;
  std::string request;
  std::optional<std::uint32_t> job;
  Keys keys;
  std::vector<SlotId> slots;
  std::string answer;  ///< of get_finished_jobs "3 done 5 failed"
  static void declare(auto& fields) {
    using S = CallRecordOf;
    fields.add("method", &S::method, Domain::kResult, "upstream's name");
    fields.add("tier", &S::tier, Domain::kResult, "of which tier");
    fields.optional("request", &S::request, Domain::kResult, "for whom");
    fields.optional("job", &S::job, Domain::kResult, "its number");
    fields.optional("keys", &S::keys, Domain::kResult, "which blocks");
    fields.optional("slots", &S::slots, Domain::kResult, "of the primary tier");
    fields.optional("answer", &S::answer, Domain::kResult, "what was answered");
  }
  friend bool operator==(const CallRecordOf&, const CallRecordOf&) = default;
};

/// A job between the primary tier and another one that is under way, or promotions that are queued.
template <class Keys>
struct TransferOf {
  static constexpr std::string_view kWord = "transfer";
  std::optional<std::uint32_t> job;  ///< nothing while it is queued
  std::uint32_t tier = 0;
  bool promotion = false;
  std::string request;
  Keys keys;
  std::vector<SlotId> slots;
  static void declare(auto& fields) {
    using S = TransferOf;
    fields.optional("job", &S::job, Domain::kState, "its number, once it is submitted");
    fields.add("tier", &S::tier, Domain::kState, "with which tier");
    fields.optional("promotion", &S::promotion, Domain::kState, "up, else a cascade");
    fields.add("request", &S::request, Domain::kState, "for whom");
    fields.add("keys", &S::keys, Domain::kState, "which blocks");
    fields.add("slots", &S::slots, Domain::kState, "of the primary tier");
  }
  friend bool operator==(const TransferOf&, const TransferOf&) = default;
};

/// What a tier holds.
template <class Keys>
struct TierStateOf {
  static constexpr std::string_view kWord = "tier";
  Keys held;
  std::uint32_t num_temporary_files = 0;
  static void declare(auto& fields) {
    using S = TierStateOf;
    fields.add("held", &S::held, Domain::kState, "keys, ascending; of files");
    fields.optional("num_temporary_files", &S::num_temporary_files, Domain::kState,
                    "that a file tier left behind");
  }
  friend bool operator==(const TierStateOf&, const TierStateOf&) = default;
};

}  // namespace kvfence::tiering
