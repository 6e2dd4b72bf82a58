#pragma once

/// The `offload` target: its configuration line, its commands, its observations. Everything that
/// reads or writes them derives from the declarations here (contract/core/declare.h). Keys are
/// numbers (contract/offload/offload_key_number.h).

#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

#include "contract/core/declare.h"
#include "contract/core/status.h"
#include "contract/core/target.h"
#include "contract/eviction/eviction_target.h"
#include "contract/offload/offloading_manager.h"

namespace kvfence {

namespace offload {

using kvfence::operator==;

/// A command about a list of keys.
struct OfKeys {
  std::vector<std::uint32_t> keys;
  static void declare(auto& fields) {
    fields.add("keys", &OfKeys::keys, Domain::kKeys, "which blocks, in order");
  }
};

struct Lookup : OfKeys {
  static constexpr Verb kVerb{"lookup", "how many leading blocks can be read"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInProfile};
};

struct LookupKey : eviction::OfKey {
  static constexpr Verb kVerb{"lookup_key", "whether a block can be read (rule lookup_by_key)"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInProfile};
};

using eviction::Touch;

struct PrepareLoad : OfKeys {
  static constexpr Verb kVerb{"prepare_load", "blocks are about to be read"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kUnknownKey, ErrorCode::kNotReady};
};

struct CompleteLoad : OfKeys {
  static constexpr Verb kVerb{"complete_load", "blocks have been read"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kUnknownKey, ErrorCode::kNotReading};
};

struct PrepareStore : OfKeys {
  static constexpr Verb kVerb{"prepare_store", "slots for blocks that are not held; others may go"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kListedTwice};
};

struct CompleteStore : OfKeys {
  static constexpr Verb kVerb{"complete_store", "blocks have been written, or could not be"};
  bool success = true;
  static void declare(auto& fields) {
    OfKeys::declare(fields);
    fields.optional("success", &CompleteStore::success, Domain::kFlag, "false: forgets them");
  }
};

struct ResetCache {
  static constexpr Verb kVerb{"reset_cache", "forgets everything (rule offload_reset)"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInProfile};
};

struct TakeEvents {
  static constexpr Verb kVerb{"take_events", "takes the events since the last call"};
};

using Command = std::variant<Lookup, LookupKey, Touch, PrepareLoad, CompleteLoad, PrepareStore,
                             CompleteStore, ResetCache, TakeEvents>;

struct Config : eviction::Config {
  bool enable_events = true;
  std::uint32_t store_threshold = 0;
  std::uint32_t max_tracker_size = 64'000;
  static void declare(auto& fields) {
    using S = Config;
    eviction::Config::declare(fields);
    fields.add("enable_events", &S::enable_events, "events");
    fields.optional("store_threshold", &S::store_threshold,
                    "lookups before a block may be stored; below 2: no filter");
    fields.optional("max_tracker_size", &S::max_tracker_size, "keys whose lookups are counted");
  }
};

/// An OffloadingEvent.
struct Event {
  static constexpr std::string_view kWord = "event";
  std::vector<std::uint32_t> keys;
  bool removed = false;
  static void declare(auto& fields) {
    fields.add("keys", &Event::keys, "which blocks");
    fields.optional("removed", &Event::removed, "gone, else stored");
  }
};

/// What a manager returns after a command.
struct Observation : eviction::Lists {
  ErrorCode error = ErrorCode::kNone;
  Reusable<std::uint32_t> num_hits;
  Reusable<LookupResult> result;
  Reusable<std::vector<SlotId>> slots;
  Reusable<bool> stored;
  Reusable<std::vector<std::uint32_t>> keys_to_store;
  Reusable<std::vector<eviction::Victim>> evicted;
  Reusable<std::vector<Event>> events;

  std::uint32_t size = 0;
  std::uint32_t num_free_slots = 0;
  double target_t1_size = 0;

  static void declare(auto& fields) {
    using S = Observation;
    fields.result("error", &S::error, "none, or why the command was refused");
    fields.result("num_hits", &S::num_hits, "leading blocks that can be read");
    fields.result("result", &S::result, "miss, pending or hit");
    fields.result("slots", &S::slots, "of the keys to load, or to store");
    fields.result("stored", &S::stored, "false: what is there cannot go");
    fields.result("keys_to_store", &S::keys_to_store, "those not held");
    fields.result("evicted", &S::evicted, "what had to go");
    fields.result("events", &S::events, "oldest first");
    fields.state("size", &S::size, "blocks held");
    fields.state("num_free_slots", &S::num_free_slots, "never used, or freed");
    fields.state("target_t1_size", &S::target_t1_size, "ARC's");
    eviction::Lists::declare(fields);
  }
  friend bool operator==(const Observation&, const Observation&) = default;
};

using World = NoWorld;

}  // namespace offload

/// Returns what a manager is built from, or what is wrong with the configuration (position: the
/// config line).
Parsed<OffloadingManagerConfig> make_offloading_manager_config(const offload::Config& config,
                                                               std::string_view file = {},
                                                               Position position = {});

/// What generic code knows of the target.
struct OffloadTarget {
  static constexpr std::string_view kName = "offload";
  static constexpr std::string_view kDoc =
      "CPU offloading manager: slots, loads, stores, eviction, reuse filter";
  using Config = offload::Config;
  using Command = offload::Command;
  using Observation = offload::Observation;
  using World = offload::World;
  using Setup = OffloadingManagerConfig;

  static constexpr auto prepare = &make_offloading_manager_config;
  static const Target& description();
};

}  // namespace kvfence
