#pragma once

/// The `eviction` target: its configuration line, its commands, its observations. Everything that
/// reads or writes them derives from the declarations here (contract/core/declare.h). Keys are
/// numbers (contract/offload/offload_key_number.h).

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "contract/core/declare.h"
#include "contract/core/status.h"
#include "contract/core/target.h"
#include "contract/eviction/cache_policy.h"
#include "contract/pool/block_pool_target.h"

namespace kvfence {

namespace eviction {

/// A command about one key.
template <class S>
void add_key_field(auto& fields) {
  fields.add("key", &S::key, Domain::kKey, "which block");
}

struct Get {
  static constexpr std::string_view kVerb = "get";
  static constexpr std::string_view kDoc = "asks whether a block is held";
  std::uint32_t key = 0;
  static void declare(auto& fields) { add_key_field<Get>(fields); }
  friend bool operator==(const Get&, const Get&) = default;
};

struct Insert {
  static constexpr std::string_view kVerb = "insert";
  static constexpr std::string_view kDoc = "holds a block that is being written";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kAlreadyStored, ErrorCode::kNoFreeBlocks};
  std::uint32_t key = 0;
  SlotId slot = 0;
  static void declare(auto& fields) {
    add_key_field<Insert>(fields);
    fields.optional("slot", &Insert::slot, Domain::kCount, "where it lies");
  }
  friend bool operator==(const Insert&, const Insert&) = default;
};

struct Remove {
  static constexpr std::string_view kVerb = "remove";
  static constexpr std::string_view kDoc = "forgets a block";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kUnknownKey};
  std::uint32_t key = 0;
  static void declare(auto& fields) { add_key_field<Remove>(fields); }
  friend bool operator==(const Remove&, const Remove&) = default;
};

struct MakeReady {
  static constexpr std::string_view kVerb = "make_ready";
  static constexpr std::string_view kDoc = "a block has been written";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kUnknownKey, ErrorCode::kAlreadyReady};
  std::uint32_t key = 0;
  static void declare(auto& fields) { add_key_field<MakeReady>(fields); }
  friend bool operator==(const MakeReady&, const MakeReady&) = default;
};

struct Acquire {
  static constexpr std::string_view kVerb = "acquire";
  static constexpr std::string_view kDoc = "a transfer begins to read a block";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kUnknownKey, ErrorCode::kNotReady};
  std::uint32_t key = 0;
  static void declare(auto& fields) { add_key_field<Acquire>(fields); }
  friend bool operator==(const Acquire&, const Acquire&) = default;
};

struct Release {
  static constexpr std::string_view kVerb = "release";
  static constexpr std::string_view kDoc = "a transfer has read a block";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kUnknownKey, ErrorCode::kNotReady,
                                            ErrorCode::kNotReading};
  std::uint32_t key = 0;
  static void declare(auto& fields) { add_key_field<Release>(fields); }
  friend bool operator==(const Release&, const Release&) = default;
};

struct Touch {
  static constexpr std::string_view kVerb = "touch";
  static constexpr std::string_view kDoc = "marks blocks as used, the last key first";
  std::vector<std::uint32_t> keys;
  static void declare(auto& fields) {
    fields.add("keys", &Touch::keys, Domain::kKeys, "which blocks");
  }
  friend bool operator==(const Touch&, const Touch&) = default;
};

struct Evict {
  static constexpr std::string_view kVerb = "evict";
  static constexpr std::string_view kDoc = "lets exactly so many idle blocks go, or none";
  std::uint32_t num_blocks = 0;
  std::vector<std::uint32_t> protected_keys;
  static void declare(auto& fields) {
    using S = Evict;
    fields.add("num_blocks", &S::num_blocks, Domain::kCount, "how many");
    fields.optional("protected", &S::protected_keys, Domain::kKeys, "that must stay");
  }
  friend bool operator==(const Evict&, const Evict&) = default;
};

struct Clear {
  static constexpr std::string_view kVerb = "clear";
  static constexpr std::string_view kDoc = "forgets everything";
  static void declare(auto& /*fields*/) {}
  friend bool operator==(const Clear&, const Clear&) = default;
};

using Command = std::variant<Get, Insert, Remove, MakeReady, Acquire, Release, Touch, Evict, Clear>;

struct Config {
  std::string policy = "lru";
  std::uint32_t capacity = 8;
  std::string profile = "v0.19";
  std::optional<bool> arc_refuses_with_idle_t1;
  static void declare(auto& fields) {
    using S = Config;
    fields.add("policy", &S::policy, Domain::kSetting, "lru or arc");
    fields.add("capacity", &S::capacity, Domain::kSetting, "blocks held at most");
    fields.add("profile", &S::profile, Domain::kSetting,
               "the release whose rules hold: v0.19, v0.23");
    fields.optional("arc_refuses_with_idle_t1", &S::arc_refuses_with_idle_t1, Domain::kSetting,
                    "overrides the profile's rule");
  }
  friend bool operator==(const Config&, const Config&) = default;
};

/// A block in a list.
struct Entry {
  static constexpr std::string_view kWord = "block";
  std::uint32_t key = 0;
  SlotId slot = 0;
  bool ready = false;
  std::uint32_t readers = 0;
  static void declare(auto& fields) {
    using S = Entry;
    fields.add("key", &S::key, Domain::kState, "which");
    fields.add("slot", &S::slot, Domain::kState, "where it lies");
    fields.optional("ready", &S::ready, Domain::kState, "written");
    fields.optional("readers", &S::readers, Domain::kState, "transfers that read it");
  }
  friend bool operator==(const Entry&, const Entry&) = default;
};

/// A block that had to go.
struct Victim {
  static constexpr std::string_view kWord = "evicted";
  std::uint32_t key = 0;
  SlotId slot = 0;
  static void declare(auto& fields) {
    fields.add("key", &Victim::key, Domain::kResult, "which");
    fields.add("slot", &Victim::slot, Domain::kResult, "where it lay");
  }
  friend bool operator==(const Victim&, const Victim&) = default;
};

/// What a policy owes its caller after a command.
struct Observation {
  ErrorCode error = ErrorCode::kNone;
  Reusable<std::vector<Entry>> found;     ///< get: the block, or nothing
  Reusable<bool> success;                 ///< evict
  Reusable<std::vector<Victim>> evicted;  ///< evict

  std::uint32_t size = 0;
  double target_t1_size = 0;

  Reusable<std::vector<Entry>> t1;
  Reusable<std::vector<Entry>> t2;
  Reusable<std::vector<std::uint32_t>> b1;
  Reusable<std::vector<std::uint32_t>> b2;

  static void declare(auto& fields) {
    using S = Observation;
    fields.add("found", &S::found, Domain::kResult, "the block, if it is held");
    fields.add("success", &S::success, Domain::kResult, "whether so many could go");
    fields.add("evicted", &S::evicted, Domain::kResult, "in the order of choice");
    fields.add("size", &S::size, Domain::kState, "blocks held");
    fields.add("target_t1_size", &S::target_t1_size, Domain::kState, "ARC's");
    fields.add("t1", &S::t1, Domain::kState, "oldest first; LRU's list");
    fields.add("t2", &S::t2, Domain::kState, "oldest first");
    fields.add("b1", &S::b1, Domain::kState, "keys, oldest first");
    fields.add("b2", &S::b2, Domain::kState, "keys, oldest first");
  }
  friend bool operator==(const Observation&, const Observation&) = default;
};

using World = NoWorld;

}  // namespace eviction

/// What a policy is built from, or what is wrong with the configuration (position: the config
/// line).
Parsed<CachePolicyConfig> make_cache_policy_config(const eviction::Config& config,
                                                   std::string_view file = {},
                                                   Position position = {});

/// What generic code knows of the target.
struct EvictionTarget {
  static constexpr std::string_view kName = "eviction";
  static constexpr std::string_view kDoc = "LRU and ARC: what the CPU cache keeps, and what goes";
  using Config = eviction::Config;
  using Command = eviction::Command;
  using Observation = eviction::Observation;
  using World = eviction::World;
  using Setup = CachePolicyConfig;

  static constexpr auto prepare = &make_cache_policy_config;
  static const Target& description();
};

}  // namespace kvfence
