#pragma once

/// The `kv_cache` target: its commands and its observations (its configuration line:
/// contract/kv_cache/kv_cache_config.h). Everything that reads or writes them derives from the
/// declarations here (contract/core/declare.h).

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "contract/core/declare.h"
#include "contract/core/shared_fields.h"
#include "contract/core/status.h"
#include "contract/core/target.h"
#include "contract/kv_cache/kv_cache_config.h"
#include "contract/kv_cache/kv_cache_manager.h"
#include "contract/pool/block_pool_target.h"
#include "contract/pool/kv_events.h"
#include "contract/pool/request_table.h"

namespace kvfence {

namespace kv_cache {

/// Declares a request. A name is used once: a manager may hold blocks for it.
struct DeclareRequest : DeclaredRequest {
  static constexpr Verb kVerb{"request", "declares a request: its tokens decide its hashes"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kAlreadyDeclared};
  bool skip_reading_prefix_cache = false;
  static void declare(auto& fields) {
    DeclaredRequest::declare(fields);
    fields.optional("skip_reading_prefix_cache", &DeclareRequest::skip_reading_prefix_cache,
                    Domain::kFlag, "its lookups find nothing");
  }
};

using block_pool::AppendTokens;

struct NewStepStarts {
  static constexpr Verb kVerb{"new_step_starts", "a scheduler step begins"};
};

struct GetComputedBlocks {
  static constexpr Verb kVerb{"get_computed_blocks",
                              "looks for the longest cached prefix of a request"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kUnknownRequest};
  std::string request;
  bool was_preempted = false;
  static void declare(auto& fields) {
    using S = GetComputedBlocks;
    fields.add("request", &S::request, Domain::kRequest, "whose prefix");
    fields.optional("was_preempted", &S::was_preempted, Domain::kFlag,
                    "counted apart in the statistics");
  }
};

// from_cache looks the request's prefix up first, as a scheduler does before it asks for slots. The
// lookup is counted in the statistics also where the command itself is then refused.

struct CanFitFullSequence {
  static constexpr Verb kVerb{"can_fit_full_sequence",
                              "asks whether the whole sequence fits into the free blocks"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kUnknownRequest, ErrorCode::kNotInProfile,
                                            ErrorCode::kAlreadyAllocated};
  std::string request;
  std::uint32_t num_computed_tokens = 0;
  bool from_cache = false;
  std::uint32_t num_external_tokens = 0;
  std::uint32_t num_encoder_tokens = 0;
  static void declare(auto& fields) {
    using S = CanFitFullSequence;
    fields.add("request", &S::request, Domain::kRequest, "whose sequence");
    fields.optional("num_computed_tokens", &S::num_computed_tokens, Domain::kTokenCount,
                    "there already");
    fields.optional("from_cache", &S::from_cache, Domain::kFlag,
                    "with what get_computed_blocks finds now");
    fields.optional("num_external_tokens", &S::num_external_tokens, Domain::kTokenCount,
                    "tokens that a connector brings");
    fields.optional("num_encoder_tokens", &S::num_encoder_tokens, Domain::kTokenCount,
                    "what cross attention holds");
  }
};

struct AllocateSlots {
  static constexpr Verb kVerb{"allocate_slots",
                              "slots for a request's next tokens; full blocks are cached"};
  static constexpr ErrorCode kRefusals[] = {
      ErrorCode::kUnknownRequest,    ErrorCode::kNotInProfile,     ErrorCode::kNoTokens,
      ErrorCode::kBeyondModelLength, ErrorCode::kAlreadyAllocated, ErrorCode::kTableShrinks};
  std::string request;
  std::uint32_t num_computed_tokens = 0;
  std::uint32_t num_new_tokens = 0;
  bool from_cache = false;
  std::uint32_t num_lookahead_tokens = 0;
  std::uint32_t num_external_tokens = 0;
  bool delay_cache_blocks = false;
  std::uint32_t num_encoder_tokens = 0;
  bool full_sequence_must_fit = false;
  std::uint32_t reserved_blocks = 0;
  bool was_preempted = false;
  static void declare(auto& fields) {
    using S = AllocateSlots;
    fields.add("request", &S::request, Domain::kRequest, "its request");
    fields.add("num_computed_tokens", &S::num_computed_tokens, Domain::kTokenCount,
               "there already");
    fields.add("num_new_tokens", &S::num_new_tokens, Domain::kTokenCount, "to be computed now");
    fields.optional("from_cache", &S::from_cache, Domain::kFlag,
                    "with what get_computed_blocks finds now");
    fields.optional("num_lookahead_tokens", &S::num_lookahead_tokens, Domain::kTokenCount,
                    "slots for speculation, not cached");
    fields.optional("num_external_tokens", &S::num_external_tokens, Domain::kTokenCount,
                    "tokens that a connector brings");
    fields.optional("delay_cache_blocks", &S::delay_cache_blocks, Domain::kFlag,
                    "caches nothing yet");
    fields.optional("num_encoder_tokens", &S::num_encoder_tokens, Domain::kTokenCount,
                    "what cross attention holds");
    fields.optional("full_sequence_must_fit", &S::full_sequence_must_fit, Domain::kFlag,
                    "rule full_sequence_gate_in_allocate_slots");
    fields.optional("reserved_blocks", &S::reserved_blocks, Domain::kCount,
                    "free blocks to leave alone (rule full_sequence_gate_in_allocate_slots)");
    fields.optional("was_preempted", &S::was_preempted, Domain::kFlag,
                    "counted apart in the statistics");
  }
};

/// A command about the blocks of one request.
struct OfRequest {
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kUnknownRequest};
  std::string request;
  static void declare(auto& fields) {
    fields.add("request", &OfRequest::request, Domain::kRequest, "whose blocks");
  }
};

struct CacheBlocks : OfRequest {
  static constexpr Verb kVerb{"cache_blocks",
                              "makes a request's full blocks findable (after a load)"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kUnknownRequest, ErrorCode::kMissingHash,
                                            ErrorCode::kBadRange};
  std::uint32_t num_computed_tokens = 0;
  static void declare(auto& fields) {
    OfRequest::declare(fields);
    fields.add("num_computed_tokens", &CacheBlocks::num_computed_tokens, Domain::kTokenCount,
               "that are there");
  }
};

struct Free : OfRequest {
  static constexpr Verb kVerb{"free", "gives all blocks of a request back, the last first"};
};

struct RemoveSkippedBlocks : OfRequest {
  static constexpr Verb kVerb{"remove_skipped_blocks",
                              "gives blocks back that no group of the request needs any more"};
  std::uint32_t total_computed_tokens = 0;
  static void declare(auto& fields) {
    OfRequest::declare(fields);
    fields.add("total_computed_tokens", &RemoveSkippedBlocks::total_computed_tokens,
               Domain::kTokenCount, "with local and external ones");
  }
};

using block_pool::EvictBlocks;
using block_pool::ResetPrefixCache;
using block_pool::TakeEvents;

struct GetNumCommonPrefixBlocks : OfRequest {
  static constexpr Verb kVerb{"get_num_common_prefix_blocks",
                              "leading blocks that every allocated request holds, by group"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kUnknownRequest, ErrorCode::kNotAllocated};
};

struct GetUnhashedBlockIds : OfRequest {
  static constexpr Verb kVerb{"get_unhashed_block_ids",
                              "blocks of a request that carry no key, by group"};
};

struct TakeNewBlockIds {
  static constexpr Verb kVerb{"take_new_block_ids",
                              "takes the blocks that full attention took since the last call"};
};

struct TakePrefixCacheStats {
  static constexpr Verb kVerb{"take_prefix_cache_stats",
                              "takes the lookup statistics since the last call"};
};

using Command =
    std::variant<DeclareRequest, AppendTokens, NewStepStarts, GetComputedBlocks, CanFitFullSequence,
                 AllocateSlots, CacheBlocks, Free, RemoveSkippedBlocks, EvictBlocks,
                 ResetPrefixCache, GetNumCommonPrefixBlocks, GetUnhashedBlockIds, TakeNewBlockIds,
                 TakeEvents, TakePrefixCacheStats>;

/// What a manager returns after a command.
struct Observation : ShownBlocks {
  ErrorCode error = ErrorCode::kNone;

  // The answer: only what the command returns is present.
  Reusable<bool> allocated;                     ///< allocate_slots
  Reusable<std::uint32_t> num_remaining;        ///< allocate_slots, where it looks that far
  Reusable<bool> fits;                          ///< can_fit_full_sequence
  Reusable<BlockLists> blocks;                  ///< new, hit or unhashed ones
  Reusable<std::uint32_t> num_hit_tokens;       ///< get_computed_blocks
  Reusable<bool> success;                       ///< reset_prefix_cache
  Reusable<std::vector<std::uint32_t>> counts;  ///< get_num_common_prefix_blocks
  Reusable<std::vector<BlockId>> block_ids;     ///< take_new_block_ids
  Reusable<std::vector<KVCacheEvent>> events;   ///< take_events
  /// take_prefix_cache_stats: reset (0 or 1), requests, queries, hits, and the last three of
  /// preempted requests.
  Reusable<std::vector<std::uint32_t>> stats;

  // The numbers: after every command.
  std::uint32_t num_free_blocks = 0;
  std::uint32_t num_cached_keys = 0;
  double usage = 0;

  // The whole state: where asked for.
  Reusable<std::vector<RequestBlocks>>
      tables;  ///< of requests with an entry, in order of declaration

  static void declare(auto& fields) {
    using S = Observation;
    fields.result("error", &S::error, "none, or why the command was refused");
    fields.result("allocated", &S::allocated, "whether the free blocks sufficed");
    fields.result("num_remaining", &S::num_remaining,
                  "blocks that the request would still take for its whole sequence; from v0.23 on");
    fields.result("fits", &S::fits, "whether the free blocks suffice");
    fields.result("blocks", &S::blocks, "new, hit or unhashed blocks, by group");
    fields.result("num_hit_tokens", &S::num_hit_tokens, "length of the hit");
    fields.result("success", &S::success, "whether the reset happened");
    fields.result("counts", &S::counts, "common prefix blocks, by group");
    fields.result("block_ids", &S::block_ids, "taken since the last call");
    fields.result("events", &S::events, "oldest first");
    fields.result(
        "stats", &S::stats,
        "[reset requests queries hits preempted_requests preempted_queries preempted_hits]");
    fields.state("num_free_blocks", &S::num_free_blocks, "length of the free queue");
    fields.state("num_cached_keys", &S::num_cached_keys, "keys in the prefix cache");
    fields.state("usage", &S::usage, "the pool's get_usage()");
    ShownBlocks::declare(fields);
    fields.state("tables", &S::tables, "(table request=A blocks=[[1 2] [0 3]])");
  }
  friend bool operator==(const Observation&, const Observation&) = default;
};

/// What commands declare and no manager owns: the requests.
class World {
 public:
  World() = default;
  explicit World(const KVCacheManagerConfig& config) : requests_(config.pool.hash) {}

  /// Takes in DeclareRequest (of a new name) and AppendTokens; every other command leaves the world
  /// as it is.
  void apply(const Command& command);

  const RequestTable& requests() const { return requests_; }

  /// What only this target knows of a request; null for an unknown name.
  struct Entry {
    RequestIndex index = 0;
    std::string name;
    std::uint32_t num_prompt_tokens = 0;
    bool skip_reading_prefix_cache = false;
    bool is_new = false;  ///< declared by the last command
  };
  const Entry* find(const std::string& name) const;

  /// In order of declaration: entries()[index].index == index.
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  RequestTable requests_;
  std::vector<Entry> entries_;
};

}  // namespace kv_cache

/// What generic code knows of the target.
struct KVCacheTarget {
  static constexpr std::string_view kName = "kv_cache";
  static constexpr std::string_view kDoc =
      "KV-cache manager: coordinators, attention groups, slots, prefix hits";
  using Config = kv_cache::Config;
  using Command = kv_cache::Command;
  using Observation = kv_cache::Observation;
  using World = kv_cache::World;
  using Setup = KVCacheManagerConfig;

  static constexpr auto prepare = &make_kv_cache_manager_config;
  static const Target& description();
};

}  // namespace kvfence
