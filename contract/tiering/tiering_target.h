#pragma once

/// The `tiering` target: its configuration line, its commands, its observations. Everything that
/// reads or writes them derives from the declarations here (contract/core/declare.h). Keys are
/// numbers (contract/offload/offload_key_number.h), tiers their place in the order.
///
/// Below the manager are scripted tiers (contract/scripted/scripted_tier.h), which the commands
/// that begin with `tier_` drive. Some may be file tiers, whose file systems fail by command. A
/// list of commands decides a run.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
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

/// A command about one request.
struct OfRequest {
  std::string request;
  static void declare(auto& fields) {
    fields.add("request", &OfRequest::request, Domain::kRequest, "its request");
  }
};

/// A command about a list of keys of a request.
struct OfKeysAndRequest : offload::OfKeys, OfRequest {
  static void declare(auto& fields) {
    OfKeys::declare(fields);
    OfRequest::declare(fields);
  }
};

/// A command about a list of keys of a tier.
struct OfTierAndKeys : OfTier, offload::OfKeys {
  static void declare(auto& fields) {
    OfTier::declare(fields);
    OfKeys::declare(fields);
  }
};

struct Lookup : eviction::OfKey, OfRequest {
  static constexpr Verb kVerb{"lookup", "whether a block can be read; may begin a promotion"};
  static void declare(auto& fields) {
    OfKey::declare(fields);
    OfRequest::declare(fields);
  }
};

struct Touch : OfKeysAndRequest {
  static constexpr Verb kVerb{"touch", "marks blocks as used, in every tier"};
};

struct PrepareStore : OfKeysAndRequest {
  static constexpr Verb kVerb{"prepare_store", "slots for blocks that are not held; others may go"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kListedTwice};
};

struct CompleteStore : OfKeysAndRequest {
  static constexpr Verb kVerb{"complete_store",
                              "blocks have been written and go down, or could not be"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kUnknownKey, ErrorCode::kNotReady};
  bool success = true;
  static void declare(auto& fields) {
    OfKeysAndRequest::declare(fields);
    fields.optional("success", &CompleteStore::success, Domain::kFlag, "false: forgets them");
  }
};

struct OnNewRequest : OfRequest {
  static constexpr Verb kVerb{"on_new_request", "the tiers say what they want of a request"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig};
  std::vector<std::uint32_t> request_level;
  static void declare(auto& fields) {
    OfRequest::declare(fields);
    fields.optional("request_level", &OnNewRequest::request_level, Domain::kCount,
                    "tiers that want held blocks, too");
  }
};

struct OnRequestFinished : OfRequest {
  static constexpr Verb kVerb{"on_request_finished", "the tiers forget a request"};
};

struct OnScheduleEnd {
  static constexpr Verb kVerb{"on_schedule_end", "a step ends: queued promotions are submitted"};
};

struct ResetCache {
  static constexpr Verb kVerb{"reset_cache", "does nothing, as in v0.23"};
};

struct TierAskAgain : OfTier, eviction::OfKey {
  static constexpr Verb kVerb{"tier_ask_again", "the next lookups of a key at a tier are put off"};
  std::uint32_t times = 1;
  static void declare(auto& fields) {
    OfTier::declare(fields);
    OfKey::declare(fields);
    fields.optional("times", &TierAskAgain::times, Domain::kCount, "how many; 0: none");
  }
};

struct TierAdd : OfTierAndKeys {
  static constexpr Verb kVerb{"tier_add", "a tier holds blocks that another engine stored there"};
};

struct TierDrop : OfTierAndKeys {
  static constexpr Verb kVerb{"tier_drop", "a tier holds blocks no longer"};
};

/// The fault, or nothing for a call that cannot fail so.
std::optional<FileFault> file_fault_of(const Fault& fault);

/// No effect on a missing file.
/// Errors: kNotInConfig: no such tier, or no file tier.
struct TierDamage : OfTier, eviction::OfKey {
  static constexpr Verb kVerb{"tier_damage", "another process damages a block file"};
  FileDamage damage = FileDamage::kFlip;
  std::uint32_t at = 0;  ///< the bit, modulo those of the file; bytes left; bytes more; whose file
  static void declare(auto& fields) {
    using S = TierDamage;
    OfTier::declare(fields);
    OfKey::declare(fields);
    fields.add("damage", &S::damage, Domain::kChoice, "flip, truncate, grow, replace");
    fields.optional("at", &S::at, Domain::kCount, "a bit; bytes left, or more; the key");
  }
};

using Command =
    std::variant<Lookup, Touch, PrepareLoad, CompleteLoad, PrepareStore, CompleteStore,
                 OnNewRequest, OnRequestFinished, OnScheduleEnd, ResetCache, TakeEvents, TierFinish,
                 TierAskAgain, TierAdd, TierDrop, TierFaults, TierDamage, TierRestart, TierWriter>;

struct Config : eviction::Config {
  Config() { profile = Profile::kV023; }
  bool enable_events = true;
  std::uint32_t num_tiers = 1;
  std::vector<std::uint32_t> file_tiers;
  static void declare(auto& fields) {
    using S = Config;
    eviction::Config::declare(fields);
    fields.add("enable_events", &S::enable_events, "events");
    fields.add("num_tiers", &S::num_tiers, "scripted tiers, 0 to 8");
    fields.optional("file_tiers", &S::file_tiers, "those that keep files, by place");
  }
};

inline constexpr std::uint32_t kNumTiersMax = 8;

/// Bytes of a block, where there are file tiers: enough for digests to matter, and for its size in
/// a file's header to have two bytes.
inline constexpr std::uint32_t kBlockBytes = 264;

using TierCallRecord = CallRecordOf<std::vector<std::uint32_t>>;
using Transfer = TransferOf<std::vector<std::uint32_t>>;
using TierState = TierStateOf<std::vector<std::uint32_t>>;

/// What a manager returns after a command, and its calls on its tiers.
struct Observation : eviction::Lists {
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

  Reusable<std::vector<Transfer>> jobs;
  Reusable<std::vector<Transfer>> pending;
  Reusable<std::vector<TierState>> tiers;
  Reusable<std::vector<std::uint32_t>> damaged;  ///< where there are file tiers

  static void declare(auto& fields) {
    using S = Observation;
    fields.result("error", &S::error, "none, or why the command was refused");
    fields.result("result", &S::result, "miss, pending or hit");
    fields.result("slots", &S::slots, "of the keys to load, or to store");
    fields.result("stored", &S::stored, "false: what is there cannot go");
    fields.result("keys_to_store", &S::keys_to_store, "those not held");
    fields.result("evicted", &S::evicted, "what had to go for a store");
    fields.result("request_level", &S::request_level, "whether a tier wants that");
    fields.result("events", &S::events, "oldest first");
    fields.result("tier_calls", &S::tier_calls, "on the tiers, oldest first");
    fields.state("size", &S::size, "blocks held in the primary tier");
    fields.state("num_free_slots", &S::num_free_slots, "never used, or freed");
    fields.state("num_jobs", &S::num_jobs, "under way");
    fields.state("num_pending", &S::num_pending, "keys queued for promotion");
    fields.state("target_t1_size", &S::target_t1_size, "ARC's");
    eviction::Lists::declare(fields);
    fields.state("jobs", &S::jobs, "under way, by number");
    fields.state("pending", &S::pending, "promotions queued, in order");
    fields.state("tiers", &S::tiers, "what the tiers hold");
    fields.state("damaged", &S::damaged, "ready blocks whose slot holds others' bytes");
  }
  friend bool operator==(const Observation&, const Observation&) = default;
};

using World = NoWorld;

}  // namespace tiering

/// What is wrong with the places of tiers in a list of this name, if anything: what was found, and
/// what is expected.
std::optional<std::pair<std::string, std::string>> wrong_with_places(
    const std::string& name, const std::vector<std::uint32_t>& places, std::uint32_t num_tiers);

/// Returns what the primary tier is built from, or what is wrong with the configuration (position:
/// the config line).
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
