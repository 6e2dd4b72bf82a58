#pragma once

/// The configuration line of a KV-cache manager, and block tables as values: what the targets
/// `kv_cache` and `engine` have in common. Everything that reads or writes them derives from the
/// declarations here (contract/core/declare.h).

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/declare.h"
#include "contract/core/line.h"
#include "contract/core/shared_fields.h"
#include "contract/kv_cache/kv_cache_spec.h"

namespace kvfence {

struct KVCacheManagerConfig;  ///< contract/kv_cache/kv_cache_manager.h

/// A group of a configuration: (sliding block_size=4 window=8).
Value to_value(const KVCacheSpec& member);
bool from_value(const Value& value, KVCacheSpec& member, std::string& expected);
std::string list_of(const KVCacheSpec&);

namespace kv_cache {

using kvfence::operator==;

/// Blocks by group: [[1 2] [3]].
using BlockLists = BlocksByGroup;

/// A request's block table.
struct RequestBlocks {
  static constexpr std::string_view kWord = "table";
  std::string request;
  BlockLists blocks;
  static void declare(auto& fields) {
    fields.add("request", &RequestBlocks::request, "the request");
    fields.add("blocks", &RequestBlocks::blocks, "by group");
  }
};

/// The configuration as the config line has it; KVCacheManagerConfig is what a manager is built
/// from.
struct Config : PoolSettings, KVCacheSettings {
  Config() {
    num_gpu_blocks = 16;
    groups = {{.block_size = 4}};
    max_model_len = max_num_batched_tokens = 64;
  }
  static void declare(auto& fields) {
    using S = Config;
    declare_blocks(fields);
    declare_hashing(fields);
    fields.add("groups", &S::groups,
               "(full|sliding|chunked|mamba|cross|sink block_size=... window=... "
               "chunk=... align=... spec_blocks=... sink_len=...)");
    fields.add("max_model_len", &S::max_model_len, "tokens");
    fields.add("max_num_batched_tokens", &S::max_num_batched_tokens,
               "tokens; rule full_sequence_gate_in_allocate_slots");
    fields.optional("use_eagle", &S::use_eagle, "draft layers recompute the last hit block");
    fields.optional("eagle_groups", &S::eagle_groups,
                    "with use_eagle: which groups; empty for all (rule eagle_by_group)");
    fields.optional("retention_interval", &S::retention_interval,
                    "tokens (rule sliding_window_mask)");
  }
};

}  // namespace kv_cache

/// Returns what a manager is built from, or what is wrong with the configuration (position: the
/// config line).
Parsed<KVCacheManagerConfig> make_kv_cache_manager_config(const kv_cache::Config& config,
                                                          std::string_view file = {},
                                                          Position position = {});

}  // namespace kvfence
