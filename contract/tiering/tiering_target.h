#pragma once

/// The `tiering` target: its configuration line, its commands, its observations. Everything that
/// reads or writes them derives from the declarations here (contract/core/declare.h). Keys are
/// numbers (contract/offload/offload_key_number.h), tiers their place in the order.
///
/// Below the manager stand scripted tiers (contract/scripted/scripted_tier.h): what happens in them
/// are commands, those that begin with `tier_`. Some may be file tiers, in whose file system things
/// go wrong by command, too. A list of commands decides a run.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "contract/core/declare.h"
#include "contract/core/status.h"
#include "contract/core/target.h"
#include "contract/eviction/eviction_target.h"
#include "contract/offload/offload_target.h"
#include "contract/tiering/file_fault.h"
#include "contract/tiering/tier_records.h"
#include "contract/tiering/tiering_manager.h"

namespace kvfence {

namespace tiering {

using offload::CompleteLoad;
using offload::PrepareLoad;
using offload::TakeEvents;

template <class S>
void add_request_field(auto& fields) {
  fields.add("request", &S::request, Domain::kRequest, "for whom");
}

struct Lookup {
  static constexpr std::string_view kVerb = "lookup";
  static constexpr std::string_view kDoc = "whether a block can be read; may begin a promotion";
  std::uint32_t key = 0;
  std::string request;
  static void declare(auto& fields) {
    eviction::add_key_field<Lookup>(fields);
    add_request_field<Lookup>(fields);
  }
  friend bool operator==(const Lookup&, const Lookup&) = default;
};

struct Touch {
  static constexpr std::string_view kVerb = "touch";
  static constexpr std::string_view kDoc = "marks blocks as used, in every tier";
  std::vector<std::uint32_t> keys;
  std::string request;
  static void declare(auto& fields) {
    offload::add_keys_field<Touch>(fields);
    add_request_field<Touch>(fields);
  }
  friend bool operator==(const Touch&, const Touch&) = default;
};

struct PrepareStore {
  static constexpr std::string_view kVerb = "prepare_store";
  static constexpr std::string_view kDoc = "slots for blocks that are not held; others may go";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kListedTwice};
  std::vector<std::uint32_t> keys;
  std::string request;
  static void declare(auto& fields) {
    offload::add_keys_field<PrepareStore>(fields);
    add_request_field<PrepareStore>(fields);
  }
  friend bool operator==(const PrepareStore&, const PrepareStore&) = default;
};

struct CompleteStore {
  static constexpr std::string_view kVerb = "complete_store";
  static constexpr std::string_view kDoc = "blocks have been written and go down, or could not be";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kUnknownKey, ErrorCode::kNotReady};
  std::vector<std::uint32_t> keys;
  std::string request;
  bool success = true;
  static void declare(auto& fields) {
    using S = CompleteStore;
    offload::add_keys_field<S>(fields);
    add_request_field<S>(fields);
    fields.optional("success", &S::success, Domain::kFlag, "false: forgets them");
  }
  friend bool operator==(const CompleteStore&, const CompleteStore&) = default;
};

struct OnNewRequest {
  static constexpr std::string_view kVerb = "on_new_request";
  static constexpr std::string_view kDoc = "the tiers say what they want of a request";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig};
  std::string request;
  std::vector<std::uint32_t> request_level;
  static void declare(auto& fields) {
    add_request_field<OnNewRequest>(fields);
    fields.optional("request_level", &OnNewRequest::request_level, Domain::kCount,
                    "tiers that want held blocks, too");
  }
  friend bool operator==(const OnNewRequest&, const OnNewRequest&) = default;
};

struct OnRequestFinished {
  static constexpr std::string_view kVerb = "on_request_finished";
  static constexpr std::string_view kDoc = "the tiers forget a request";
  std::string request;
  static void declare(auto& fields) { add_request_field<OnRequestFinished>(fields); }
  friend bool operator==(const OnRequestFinished&, const OnRequestFinished&) = default;
};

struct OnScheduleEnd {
  static constexpr std::string_view kVerb = "on_schedule_end";
  static constexpr std::string_view kDoc = "a step ends: queued promotions are submitted";
  static void declare(auto& /*fields*/) {}
  friend bool operator==(const OnScheduleEnd&, const OnScheduleEnd&) = default;
};

struct ResetCache {
  static constexpr std::string_view kVerb = "reset_cache";
  static constexpr std::string_view kDoc = "does nothing, as in v0.23";
  static void declare(auto& /*fields*/) {}
  friend bool operator==(const ResetCache&, const ResetCache&) = default;
};

struct TierAskAgain {
  static constexpr std::string_view kVerb = "tier_ask_again";
  static constexpr std::string_view kDoc = "the next lookups of a key at a tier are put off";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig};
  std::uint32_t tier = 0;
  std::uint32_t key = 0;
  std::uint32_t times = 1;
  static void declare(auto& fields) {
    using S = TierAskAgain;
    add_tier_field<S>(fields);
    eviction::add_key_field<S>(fields);
    fields.optional("times", &S::times, Domain::kCount, "how many; 0: none");
  }
  friend bool operator==(const TierAskAgain&, const TierAskAgain&) = default;
};

struct TierAdd {
  static constexpr std::string_view kVerb = "tier_add";
  static constexpr std::string_view kDoc = "a tier holds blocks that another engine stored there";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig};
  std::uint32_t tier = 0;
  std::vector<std::uint32_t> keys;
  static void declare(auto& fields) {
    add_tier_field<TierAdd>(fields);
    offload::add_keys_field<TierAdd>(fields);
  }
  friend bool operator==(const TierAdd&, const TierAdd&) = default;
};

struct TierDrop {
  static constexpr std::string_view kVerb = "tier_drop";
  static constexpr std::string_view kDoc = "a tier holds blocks no longer";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig};
  std::uint32_t tier = 0;
  std::vector<std::uint32_t> keys;
  static void declare(auto& fields) {
    add_tier_field<TierDrop>(fields);
    offload::add_keys_field<TierDrop>(fields);
  }
  friend bool operator==(const TierDrop&, const TierDrop&) = default;
};

/// The fault, or nothing for a call that cannot fail so.
std::optional<FileFault> file_fault_of(const Fault& fault);

/// A file that is not there stays so.
/// Errors: kNotInConfig: no such tier, or no file tier.
struct TierDamage {
  static constexpr std::string_view kVerb = "tier_damage";
  static constexpr std::string_view kDoc = "another process damages a block file";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig};
  std::uint32_t tier = 0;
  std::uint32_t key = 0;
  FileDamage damage = FileDamage::kFlip;
  std::uint32_t at = 0;  ///< the bit, modulo those of the file; bytes left; bytes more; whose file
  static void declare(auto& fields) {
    using S = TierDamage;
    add_tier_field<S>(fields);
    eviction::add_key_field<S>(fields);
    fields.add("damage", &S::damage, Domain::kChoice, "flip, truncate, grow, replace");
    fields.optional("at", &S::at, Domain::kCount, "a bit; bytes left, or more; the key");
  }
  friend bool operator==(const TierDamage&, const TierDamage&) = default;
};

using Command = std::variant<Lookup, Touch, PrepareLoad, CompleteLoad, PrepareStore, CompleteStore,
                             OnNewRequest, OnRequestFinished, OnScheduleEnd, ResetCache, TakeEvents,
                             TierFinish, TierAskAgain, TierAdd, TierDrop, TierFaults, TierDamage>;

struct Config : eviction::Config {
  Config() { profile = "v0.23"; }
  bool enable_events = true;
  std::uint32_t num_tiers = 1;
  std::vector<std::uint32_t> file_tiers;
  static void declare(auto& fields) {
    using S = Config;
    eviction::Config::declare(fields);
    fields.add("enable_events", &S::enable_events, Domain::kSetting, "events");
    fields.add("num_tiers", &S::num_tiers, Domain::kSetting, "scripted tiers, 0 to 8");
    fields.optional("file_tiers", &S::file_tiers, Domain::kSetting,
                    "those that keep files, by place");
  }
  friend bool operator==(const Config&, const Config&) = default;
};

inline constexpr std::uint32_t kNumTiersMax = 8;

/// Bytes of a block, where there are file tiers: enough for digests to matter.
inline constexpr std::uint32_t kBlockBytes = 40;

using TierCallRecord = CallRecordOf<std::vector<std::uint32_t>>;
using Transfer = TransferOf<std::vector<std::uint32_t>>;
using TierState = TierStateOf<std::vector<std::uint32_t>>;

/// What a manager owes its caller, and its tiers, after a command.
struct Observation {
  ErrorCode error = ErrorCode::kNone;
  Reusable<LookupResult> result;
  Reusable<std::vector<SlotId>> slots;
  Reusable<bool> stored;
  Reusable<std::vector<std::uint32_t>> keys_to_store;
  Reusable<std::vector<eviction::Victim>> evicted;
  Reusable<bool> request_level;
  Reusable<std::vector<offload::Event>> events;
  Reusable<std::vector<TierCallRecord>> tier_calls;  ///< of this command, if any

  std::uint32_t size = 0;
  std::uint32_t num_free_slots = 0;
  std::uint32_t num_jobs = 0;
  std::uint32_t num_pending = 0;
  double target_t1_size = 0;

  Reusable<std::vector<eviction::Entry>> t1;
  Reusable<std::vector<eviction::Entry>> t2;
  Reusable<std::vector<std::uint32_t>> b1;
  Reusable<std::vector<std::uint32_t>> b2;
  Reusable<std::vector<Transfer>> jobs;
  Reusable<std::vector<Transfer>> pending;
  Reusable<std::vector<TierState>> tiers;
  Reusable<std::vector<std::uint32_t>> damaged;  ///< where there are file tiers

  static void declare(auto& fields) {
    using S = Observation;
    fields.add("result", &S::result, Domain::kResult, "miss, pending or hit");
    fields.add("slots", &S::slots, Domain::kResult, "of the keys to load, or to store");
    fields.add("stored", &S::stored, Domain::kResult, "false: what is there cannot go");
    fields.add("keys_to_store", &S::keys_to_store, Domain::kResult, "those not held");
    fields.add("evicted", &S::evicted, Domain::kResult, "what had to go for a store");
    fields.add("request_level", &S::request_level, Domain::kResult, "whether a tier wants that");
    fields.add("events", &S::events, Domain::kResult, "oldest first");
    fields.add("tier_calls", &S::tier_calls, Domain::kResult, "on the tiers, oldest first");
    fields.add("size", &S::size, Domain::kState, "blocks held in the primary tier");
    fields.add("num_free_slots", &S::num_free_slots, Domain::kState, "never used, or freed");
    fields.add("num_jobs", &S::num_jobs, Domain::kState, "under way");
    fields.add("num_pending", &S::num_pending, Domain::kState, "keys queued for promotion");
    fields.add("target_t1_size", &S::target_t1_size, Domain::kState, "ARC's");
    fields.add("t1", &S::t1, Domain::kState, "oldest first; LRU's list");
    fields.add("t2", &S::t2, Domain::kState, "oldest first");
    fields.add("b1", &S::b1, Domain::kState, "keys, oldest first");
    fields.add("b2", &S::b2, Domain::kState, "keys, oldest first");
    fields.add("jobs", &S::jobs, Domain::kState, "under way, by number");
    fields.add("pending", &S::pending, Domain::kState, "promotions queued, in order");
    fields.add("tiers", &S::tiers, Domain::kState, "what the tiers hold");
    fields.add("damaged", &S::damaged, Domain::kState,
               "ready blocks whose slot holds others' bytes");
  }
  friend bool operator==(const Observation&, const Observation&) = default;
};

using World = NoWorld;

}  // namespace tiering

/// What the primary tier is built from, or what is wrong with the configuration (position: the
/// config line).
Parsed<OffloadingManagerConfig> make_tiering_config(const tiering::Config& config,
                                                    std::string_view file = {},
                                                    Position position = {});

/// What generic code knows of the target.
struct TieringTarget {
  static constexpr std::string_view kName = "tiering";
  static constexpr std::string_view kDoc =
      "tiered offloading: a CPU tier above others, promotion, cascade, polled completion";
  using Config = tiering::Config;
  using Command = tiering::Command;
  using Observation = tiering::Observation;
  using World = tiering::World;
  using Setup = OffloadingManagerConfig;

  static constexpr auto prepare = &make_tiering_config;
  static const Target& description();
};

}  // namespace kvfence
