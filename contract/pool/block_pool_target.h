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
#include "contract/pool/request_table.h"

namespace kvfence {

namespace block_pool {

using kvfence::operator==;

/// Declares a request, or declares it again: the input of its blocks' hashes. Not an operation of
/// the pool.
struct DeclareRequest : DeclaredRequest {
  static constexpr Verb kVerb{"request",
                              "declares a request (again): its tokens decide its hashes"};
};

struct AppendTokens {
  static constexpr Verb kVerb{"append_tokens",
                              "appends generated tokens to a request; full blocks get hashes"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kUnknownRequest};
  std::string request;
  std::vector<TokenId> tokens;
  static void declare(auto& fields) {
    using S = AppendTokens;
    fields.add("request", &S::request, Domain::kRequest, "the request");
    fields.add("tokens", &S::tokens, Domain::kTokens, "generated tokens");
  }
};

struct GetNewBlocks {
  static constexpr Verb kVerb{"get_new_blocks",
                              "allocates from the head of the free queue, evicting cached content"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNoFreeBlocks};
  std::uint32_t num_blocks = 0;
  static void declare(auto& fields) {
    fields.add("num_blocks", &GetNewBlocks::num_blocks, Domain::kCount, "how many");
  }
};

struct GetCachedBlock {
  static constexpr Verb kVerb{"get_cached_block",
                              "looks a block of a request up in the prefix cache"};
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
    fields.add("block_size", &S::block_size, Domain::kBlockSize, "tokens per block");
    fields.add("groups", &S::groups, Domain::kGroups, "a block of each is needed for a hit");
  }
};

struct Touch {
  static constexpr Verb kVerb{"touch",
                              "takes blocks into use again: ref_cnt rises, they leave the queue"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kUnknownBlock};
  std::vector<BlockId> blocks;
  static void declare(auto& fields) {
    fields.add("blocks", &Touch::blocks, Domain::kBlocks, "in order");
  }
};

struct CacheFullBlocks {
  static constexpr Verb kVerb{"cache_full_blocks",
                              "makes full blocks of a request findable by their hashes"};
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
    fields.add("block_size", &S::block_size, Domain::kBlockSize, "tokens per block");
    fields.add("group", &S::group, Domain::kGroup, "enters the key");
    fields.optional("block_mask", &S::block_mask, Domain::kMask,
                    "over the range; false passes over (rule cache_full_blocks_mask)");
  }
};

struct FreeBlocks {
  static constexpr Verb kVerb{"free_blocks",
                              "releases one reference each; at 0 a block joins the free queue"};
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
};

struct EvictBlocks {
  static constexpr Verb kVerb{"evict_blocks",
                              "takes blocks out of the prefix cache; they stay where they are"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kUnknownBlock};
  std::vector<BlockId> blocks;
  static void declare(auto& fields) {
    fields.add("blocks", &EvictBlocks::blocks, Domain::kBlocks, "in order");
  }
};

struct ResetPrefixCache {
  static constexpr Verb kVerb{"reset_prefix_cache",
                              "empties the prefix cache if no block is referenced"};
};

struct TakeEvents {
  static constexpr Verb kVerb{"take_events", "takes the KV events since the last call"};
};

using Command =
    std::variant<DeclareRequest, AppendTokens, GetNewBlocks, GetCachedBlock, Touch, CacheFullBlocks,
                 FreeBlocks, EvictBlocks, ResetPrefixCache, TakeEvents>;

/// The configuration as the config line has it; BlockPoolConfig is what a pool is built from.
struct Config : PoolSettings {
  std::uint32_t max_block_size = 0;
  std::optional<bool> free_blocks_prepend;
  std::optional<bool> cache_full_blocks_mask;
  std::optional<bool> events_carry_group;
  static void declare(auto& fields) {
    using S = Config;
    declare_blocks(fields);
    fields.optional("max_block_size", &S::max_block_size,
                    "largest block size of any group; 0 stands for hash_block_size");
    declare_hashing(fields);
    fields.optional("free_blocks_prepend", &S::free_blocks_prepend,
                    "overrides that rule of the profile");
    fields.optional("cache_full_blocks_mask", &S::cache_full_blocks_mask,
                    "overrides that rule of the profile");
    fields.optional("events_carry_group", &S::events_carry_group,
                    "overrides that rule of the profile");
  }
};

/// What a pool returns after a command.
struct Observation : ShownBlocks {
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

  static void declare(auto& fields) {
    using S = Observation;
    fields.result("error", &S::error, "none, or why the command was refused");
    fields.result("hit", &S::hit, "whether every group had the block");
    fields.result("blocks", &S::blocks, "allocated or found blocks");
    fields.result("success", &S::success, "whether the reset happened");
    fields.result("events", &S::events, "oldest first");
    fields.state("num_free_blocks", &S::num_free_blocks, "length of the free queue");
    fields.state("num_empty", &S::num_empty, "queued blocks without a hash");
    fields.state("num_cached", &S::num_cached, "queued blocks with a hash: evictable");
    fields.state("num_referenced", &S::num_referenced, "blocks not queued, null included");
    fields.state("num_cached_keys", &S::num_cached_keys, "keys in the prefix cache");
    fields.state("usage", &S::usage, "get_usage()");
    ShownBlocks::declare(fields);
  }
  friend bool operator==(const Observation&, const Observation&) = default;
};

/// What commands declare and no implementation owns: the requests. The driver keeps it once, and
/// lends it to every implementation in the process, to the oracles and to the generator; a child
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

/// Returns what a pool is built from, or what is wrong with the configuration (position: the config
/// line).
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
