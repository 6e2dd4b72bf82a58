#pragma once

/// The `block_pool` target: its configuration line, its commands, its observations. Everything that
/// reads or writes them derives from the declarations here (contract/core/declare.h).

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "contract/core/declare.h"
#include "contract/core/shared_fields.h"
#include "contract/core/status.h"
#include "contract/core/target.h"
#include "contract/pool/block_pool.h"
#include "contract/pool/kv_events.h"
#include "contract/pool/pool_values.h"
#include "contract/pool/request.h"
#include "contract/pool/request_table.h"

namespace kvfence {

namespace block_pool {

/// Declares a request, or declares it anew: what a block's hash is computed from. Not an operation
/// of the pool.
struct DeclareRequest {
  static constexpr std::string_view kVerb = "request";
  static constexpr std::string_view kDoc =
      "declares a request (again): its tokens decide its hashes";
  std::string id;
  std::vector<TokenId> tokens;
  std::optional<std::string> lora_name;
  std::uint32_t lora_id = 0;
  std::optional<std::string> cache_salt;
  std::vector<MmFeature> mm_features;
  static void declare(auto& fields) { add_request_fields<DeclareRequest>(fields); }
  friend bool operator==(const DeclareRequest&, const DeclareRequest&) = default;
};

struct AppendTokens {
  static constexpr std::string_view kVerb = "append_tokens";
  static constexpr std::string_view kDoc =
      "appends generated tokens to a request; full blocks get hashes";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kUnknownRequest};
  std::string request;
  std::vector<TokenId> tokens;
  static void declare(auto& fields) {
    using S = AppendTokens;
    fields.add("request", &S::request, Domain::kRequest, "whose");
    fields.add("tokens", &S::tokens, Domain::kTokens, "generated tokens");
  }
  friend bool operator==(const AppendTokens&, const AppendTokens&) = default;
};

struct GetNewBlocks {
  static constexpr std::string_view kVerb = "get_new_blocks";
  static constexpr std::string_view kDoc =
      "allocates from the head of the free queue, evicting cached content";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNoFreeBlocks};
  std::uint32_t num_blocks = 0;
  static void declare(auto& fields) {
    fields.add("num_blocks", &GetNewBlocks::num_blocks, Domain::kCount, "how many");
  }
  friend bool operator==(const GetNewBlocks&, const GetNewBlocks&) = default;
};

struct GetCachedBlock {
  static constexpr std::string_view kVerb = "get_cached_block";
  static constexpr std::string_view kDoc = "looks a block of a request up in the prefix cache";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kUnknownRequest, ErrorCode::kBadBlockSize,
                                            ErrorCode::kMissingHash};
  std::string request;
  std::uint32_t index = 0;
  std::uint32_t block_size = 0;
  std::vector<GroupId> groups;
  static void declare(auto& fields) {
    using S = GetCachedBlock;
    fields.add("request", &S::request, Domain::kRequest, "whose block");
    fields.add("index", &S::index, Domain::kHashIndex, "which block, at that block size");
    fields.add("block_size", &S::block_size, Domain::kBlockSize, "tokens a block");
    fields.add("groups", &S::groups, Domain::kGroups, "a block of each is needed for a hit");
  }
  friend bool operator==(const GetCachedBlock&, const GetCachedBlock&) = default;
};

struct Touch {
  static constexpr std::string_view kVerb = "touch";
  static constexpr std::string_view kDoc =
      "takes blocks into use again: ref_cnt rises, they leave the queue";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kUnknownBlock};
  std::vector<BlockId> blocks;
  static void declare(auto& fields) {
    fields.add("blocks", &Touch::blocks, Domain::kBlocks, "in order");
  }
  friend bool operator==(const Touch&, const Touch&) = default;
};

struct CacheFullBlocks {
  static constexpr std::string_view kVerb = "cache_full_blocks";
  static constexpr std::string_view kDoc =
      "makes full blocks of a request findable by their hashes";
  static constexpr ErrorCode kRefusals[] = {
      ErrorCode::kUnknownRequest, ErrorCode::kNotInProfile, ErrorCode::kCachingDisabled,
      ErrorCode::kBadBlockSize,   ErrorCode::kBadRange,     ErrorCode::kBadMask,
      ErrorCode::kMissingHash,    ErrorCode::kUnknownBlock, ErrorCode::kAlreadyHashed};
  std::string request;
  std::vector<BlockId> blocks;
  std::uint32_t num_cached_blocks = 0;
  std::uint32_t num_full_blocks = 0;
  std::uint32_t block_size = 0;
  GroupId group = 0;
  std::optional<std::vector<bool>> block_mask;
  static void declare(auto& fields) {
    using S = CacheFullBlocks;
    fields.add("request", &S::request, Domain::kRequest, "whose hashes");
    fields.add("blocks", &S::blocks, Domain::kBlocks, "all blocks of the request in this group");
    fields.add("num_cached_blocks", &S::num_cached_blocks, Domain::kBlockCount,
               "start of the range");
    fields.add("num_full_blocks", &S::num_full_blocks, Domain::kBlockCount, "end of the range");
    fields.add("block_size", &S::block_size, Domain::kBlockSize, "tokens a block");
    fields.add("group", &S::group, Domain::kGroup, "enters the key");
    fields.optional("block_mask", &S::block_mask, Domain::kMask,
                    "over the range; false passes over (rule cache_full_blocks_mask)");
  }
  friend bool operator==(const CacheFullBlocks&, const CacheFullBlocks&) = default;
};

struct FreeBlocks {
  static constexpr std::string_view kVerb = "free_blocks";
  static constexpr std::string_view kDoc =
      "releases one reference each; at 0 a block joins the free queue";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInProfile, ErrorCode::kUnknownBlock,
                                            ErrorCode::kDoubleFree};
  std::vector<BlockId> blocks;
  bool prepend = false;
  static void declare(auto& fields) {
    using S = FreeBlocks;
    fields.add("blocks", &S::blocks, Domain::kBlocks, "in eviction order: the first goes first");
    fields.optional("prepend", &S::prepend, Domain::kFlag,
                    "to the head (rule free_blocks_prepend)");
  }
  friend bool operator==(const FreeBlocks&, const FreeBlocks&) = default;
};

struct EvictBlocks {
  static constexpr std::string_view kVerb = "evict_blocks";
  static constexpr std::string_view kDoc =
      "takes blocks out of the prefix cache; they stay where they are";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kUnknownBlock};
  std::vector<BlockId> blocks;
  static void declare(auto& fields) {
    fields.add("blocks", &EvictBlocks::blocks, Domain::kBlocks, "in order");
  }
  friend bool operator==(const EvictBlocks&, const EvictBlocks&) = default;
};

struct ResetPrefixCache {
  static constexpr std::string_view kVerb = "reset_prefix_cache";
  static constexpr std::string_view kDoc = "empties the prefix cache if no block is referenced";
  static void declare(auto& /*fields*/) {}
  friend bool operator==(const ResetPrefixCache&, const ResetPrefixCache&) = default;
};

struct TakeEvents {
  static constexpr std::string_view kVerb = "take_events";
  static constexpr std::string_view kDoc = "takes the KV events since the last call";
  static void declare(auto& /*fields*/) {}
  friend bool operator==(const TakeEvents&, const TakeEvents&) = default;
};

using Command =
    std::variant<DeclareRequest, AppendTokens, GetNewBlocks, GetCachedBlock, Touch, CacheFullBlocks,
                 FreeBlocks, EvictBlocks, ResetPrefixCache, TakeEvents>;

/// The configuration as it stands on the config line; BlockPoolConfig is what a pool is built from.
struct Config {
  std::uint32_t num_gpu_blocks = 8;
  bool enable_caching = true;
  bool enable_kv_cache_events = true;
  std::uint32_t hash_block_size = 4;
  std::uint32_t max_block_size = 0;
  std::string hash_algorithm = "sha256_cbor";
  std::string hash_seed = "0";
  std::string profile = "v0.19";
  std::optional<bool> free_blocks_prepend;
  std::optional<bool> cache_full_blocks_mask;
  std::optional<bool> events_carry_group;
  static void declare(auto& fields) {
    using S = Config;
    add_pool_fields<S>(fields);
    fields.optional("max_block_size", &S::max_block_size, Domain::kSetting,
                    "largest block size of any group; 0 stands for hash_block_size");
    add_hash_and_profile_fields<S>(fields);
    fields.optional("free_blocks_prepend", &S::free_blocks_prepend, Domain::kSetting,
                    "overrides that rule of the profile");
    fields.optional("cache_full_blocks_mask", &S::cache_full_blocks_mask, Domain::kSetting,
                    "overrides that rule of the profile");
    fields.optional("events_carry_group", &S::events_carry_group, Domain::kSetting,
                    "overrides that rule of the profile");
  }
  friend bool operator==(const Config&, const Config&) = default;
};

/// What a pool owes its caller after a command.
struct Observation {
  ErrorCode error = ErrorCode::kNone;

  // The answer: only what the command returns is present.
  Reusable<bool> hit;                          ///< get_cached_block
  Reusable<std::vector<BlockId>> blocks;       ///< get_new_blocks; get_cached_block that hits
  Reusable<bool> success;                      ///< reset_prefix_cache
  Reusable<std::vector<KVCacheEvent>> events;  ///< take_events

  // The numbers: after every command.
  std::uint32_t num_free_blocks = 0;
  std::uint32_t num_empty = 0;
  std::uint32_t num_cached = 0;
  std::uint32_t num_referenced = 0;
  std::uint32_t num_cached_keys = 0;
  double usage = 0;

  // The whole state: where asked for.
  Reusable<std::vector<BlockId>> free_queue;      ///< head to tail
  Reusable<std::vector<std::uint32_t>> ref_cnts;  ///< by block id; 0 for the null block
  Reusable<KeyList> keys;                         ///< packed keys by block id; empty for none

  static void declare(auto& fields) {
    using S = Observation;
    fields.add("hit", &S::hit, Domain::kResult, "whether every group had the block");
    fields.add("blocks", &S::blocks, Domain::kResult, "allocated or found blocks");
    fields.add("success", &S::success, Domain::kResult, "whether the reset happened");
    fields.add("events", &S::events, Domain::kResult, "oldest first");
    fields.add("num_free_blocks", &S::num_free_blocks, Domain::kState, "length of the free queue");
    fields.add("num_empty", &S::num_empty, Domain::kState, "queued blocks without a hash");
    fields.add("num_cached", &S::num_cached, Domain::kState,
               "queued blocks with a hash: evictable");
    fields.add("num_referenced", &S::num_referenced, Domain::kState,
               "blocks not queued, null included");
    fields.add("num_cached_keys", &S::num_cached_keys, Domain::kState, "keys in the prefix cache");
    fields.add("usage", &S::usage, Domain::kState, "get_usage()");
    fields.add("free_queue", &S::free_queue, Domain::kState, "head to tail");
    fields.add("ref_cnts", &S::ref_cnts, Domain::kState, "by block id");
    fields.add("keys", &S::keys, Domain::kState, "packed keys by block id");
  }
  friend bool operator==(const Observation&, const Observation&) = default;
};

/// What commands declare and no implementation owns: the requests. Kept once by whoever drives, and
/// lent to every implementation in the process, to the oracles and to the generator; a child
/// process keeps its own.
class World {
 public:
  World() = default;
  explicit World(const BlockPoolConfig& config) : requests_(config.hash) {}

  /// Takes in DeclareRequest and AppendTokens; every other command leaves the world as it is.
  void apply(const Command& command);

  const RequestTable& requests() const { return requests_; }

 private:
  RequestTable requests_;
};

}  // namespace block_pool

/// What a pool is built from, or what is wrong with the configuration (position: the config line).
Parsed<BlockPoolConfig> make_block_pool_config(const block_pool::Config& config,
                                               std::string_view file = {}, Position position = {});

/// What generic code knows of the target.
struct BlockPoolTarget {
  static constexpr std::string_view kName = "block_pool";
  static constexpr std::string_view kDoc = "blocks, free queue, prefix-cache map, pool, KV events";
  using Config = block_pool::Config;
  using Command = block_pool::Command;
  using Observation = block_pool::Observation;
  using World = block_pool::World;
  using Setup = BlockPoolConfig;

  static constexpr auto prepare = &make_block_pool_config;
  static const Target& description();
};

}  // namespace kvfence
