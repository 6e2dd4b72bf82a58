#pragma once

/// The `eviction` target: its configuration line, its commands, its observations. Everything that
/// reads or writes them derives from the declarations here (contract/core/declare.h). Keys are
/// numbers (contract/offload/offload_key_number.h).

#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "contract/core/declare.h"
#include "contract/core/rules.h"
#include "contract/core/status.h"
#include "contract/core/target.h"
#include "contract/eviction/cache_policy.h"
#include "contract/pool/block_pool_target.h"

namespace kvfence {

namespace eviction {

using kvfence::operator==;

/// A command about one key.
struct OfKey {
  std::uint32_t key = 0;
  static void declare(auto& fields) { fields.add("key", &OfKey::key, Domain::kKey, "which block"); }
};

struct Get : OfKey {
  static constexpr Verb kVerb{"get", "asks whether a block is held"};
};

struct Insert : OfKey {
  static constexpr Verb kVerb{"insert", "holds a block that is being written"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kAlreadyStored, ErrorCode::kNoFreeBlocks};
  SlotId slot = 0;
  static void declare(auto& fields) {
    OfKey::declare(fields);
    fields.optional("slot", &Insert::slot, Domain::kCount, "where it lies");
  }
};

struct Remove : OfKey {
  static constexpr Verb kVerb{"remove", "forgets a block"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kUnknownKey};
};

struct MakeReady : OfKey {
  static constexpr Verb kVerb{"make_ready", "a block has been written"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kUnknownKey, ErrorCode::kAlreadyReady};
};

struct Acquire : OfKey {
  static constexpr Verb kVerb{"acquire", "a transfer begins to read a block"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kUnknownKey, ErrorCode::kNotReady};
};

struct Release : OfKey {
  static constexpr Verb kVerb{"release", "a transfer has read a block"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kUnknownKey, ErrorCode::kNotReady,
                                            ErrorCode::kNotReading};
};

struct Touch {
  static constexpr Verb kVerb{"touch", "marks blocks as used, the last key first"};
  std::vector<std::uint32_t> keys;
  static void declare(auto& fields) {
    fields.add("keys", &Touch::keys, Domain::kKeys, "which blocks");
  }
};

struct Evict {
  static constexpr Verb kVerb{"evict", "lets exactly so many idle blocks go, or none"};
  std::uint32_t num_blocks = 0;
  std::vector<std::uint32_t> protected_keys;
  static void declare(auto& fields) {
    using S = Evict;
    fields.add("num_blocks", &S::num_blocks, Domain::kCount, "how many");
    fields.optional("protected", &S::protected_keys, Domain::kKeys, "that must stay");
  }
};

struct Clear {
  static constexpr Verb kVerb{"clear", "forgets everything"};
};

using Command = std::variant<Get, Insert, Remove, MakeReady, Acquire, Release, Touch, Evict, Clear>;

struct Config {
  EvictionPolicy policy = EvictionPolicy::kLRU;
  std::uint32_t capacity = 8;
  Profile profile = Profile::kV019;
  std::optional<bool> arc_refuses_with_idle_t1;
  static void declare(auto& fields) {
    using S = Config;
    fields.add("policy", &S::policy, "lru or arc");
    fields.add("capacity", &S::capacity, "blocks held at most");
    fields.add("profile", &S::profile, "the release whose rules hold: v0.19, v0.23");
    fields.optional("arc_refuses_with_idle_t1", &S::arc_refuses_with_idle_t1,
                    "overrides the profile's rule");
  }
};

/// A block in a list, with its key as the target shows it: a number, or bytes.
template <class Key>
struct EntryOf {
  static constexpr std::string_view kWord = "block";
  Key key{};
  SlotId slot = 0;
  bool ready = false;
  std::uint32_t readers = 0;
  static void declare(auto& fields) {
    using S = EntryOf;
    fields.add("key", &S::key, "which");
    fields.add("slot", &S::slot, "where it lies");
    fields.optional("ready", &S::ready, "written");
    fields.optional("readers", &S::readers, "transfers that read it");
  }
};
using Entry = EntryOf<std::uint32_t>;

/// What a policy has in its lists, oldest first: where the whole state is asked for.
template <class Block, class Keys>
struct ListsOf {
  Reusable<std::vector<Block>> t1;
  Reusable<std::vector<Block>> t2;
  Reusable<Keys> b1;
  Reusable<Keys> b2;

  /// The blocks of both lists, t1 first. Requires: the lists are shown.
  std::vector<const Block*> blocks() const {
    std::vector<const Block*> all;
    for (const Block& block : *t1) all.push_back(&block);
    for (const Block& block : *t2) all.push_back(&block);
    return all;
  }

  static void declare(auto& fields) {
    using S = ListsOf;
    fields.state("t1", &S::t1, "oldest first; LRU's list");
    fields.state("t2", &S::t2, "oldest first");
    fields.state("b1", &S::b1, "keys, oldest first");
    fields.state("b2", &S::b2, "keys, oldest first");
  }
};
using Lists = ListsOf<Entry, std::vector<std::uint32_t>>;

/// A block that had to go.
struct Victim {
  static constexpr std::string_view kWord = "evicted";
  std::uint32_t key = 0;
  SlotId slot = 0;
  static void declare(auto& fields) {
    fields.add("key", &Victim::key, "which");
    fields.add("slot", &Victim::slot, "where it lay");
  }
};

/// What a policy returns after a command.
struct Observation : Lists {
  ErrorCode error = ErrorCode::kNone;
  Reusable<std::vector<Entry>> found;     ///< get: the block, or nothing
  Reusable<bool> success;                 ///< evict
  Reusable<std::vector<Victim>> evicted;  ///< evict

  std::uint32_t size = 0;
  double target_t1_size = 0;

  static void declare(auto& fields) {
    using S = Observation;
    fields.result("error", &S::error, "none, or why the command was refused");
    fields.result("found", &S::found, "the block, if it is held");
    fields.result("success", &S::success, "whether so many could go");
    fields.result("evicted", &S::evicted, "in the order of choice");
    fields.state("size", &S::size, "blocks held");
    fields.state("target_t1_size", &S::target_t1_size, "ARC's");
    Lists::declare(fields);
  }
  friend bool operator==(const Observation&, const Observation&) = default;
};

using World = NoWorld;

}  // namespace eviction

/// Returns what a policy is built from, or what is wrong with the configuration (position: the
/// config line).
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
