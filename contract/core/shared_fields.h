#pragma once

/// What the declared structs (contract/core/declare.h) of several targets have in common.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "contract/core/declare.h"
#include "contract/core/rules.h"
#include "contract/pool/request.h"

namespace kvfence {

/// The settings of a configuration with a block pool.
struct PoolSettings {
  std::uint32_t num_gpu_blocks = 8;
  bool enable_caching = true;
  bool enable_kv_cache_events = true;
  std::uint32_t hash_block_size = 4;
  HashAlgorithm hash_algorithm = HashAlgorithm::kSha256Cbor;
  std::string hash_seed = "0";
  Profile profile = Profile::kV019;
  static void declare_blocks(auto& fields) {
    using S = PoolSettings;
    fields.add("num_gpu_blocks", &S::num_gpu_blocks, "blocks of the pool, with the null block");
    fields.add("enable_caching", &S::enable_caching, "prefix caching");
    fields.add("enable_kv_cache_events", &S::enable_kv_cache_events, "KV events");
    fields.add("hash_block_size", &S::hash_block_size, "tokens a hash stands for");
  }
  /// How it hashes, and whose rules it follows.
  static void declare_hashing(auto& fields) {
    using S = PoolSettings;
    fields.add("hash_algorithm", &S::hash_algorithm, "sha256_cbor or xxhash_cbor");
    fields.add("hash_seed", &S::hash_seed, "PYTHONHASHSEED; decides NONE_HASH");
    fields.add("profile", &S::profile, "the release whose rules hold: v0.19, v0.23");
  }
};

/// The declaration of a request.
struct DeclaredRequest {
  std::string id;
  std::vector<TokenId> tokens;
  std::optional<std::string> lora_name;
  std::uint32_t lora_id = 0;
  std::optional<std::string> cache_salt;
  std::vector<MmFeature> mm_features;
  static void declare(auto& fields) {
    using S = DeclaredRequest;
    fields.add("id", &S::id, Domain::kRequest, "its name");
    fields.add("tokens", &S::tokens, Domain::kTokens, "prompt tokens");
    fields.optional("lora_name", &S::lora_name, Domain::kText, "LoRA adapter");
    fields.optional("lora_id", &S::lora_id, Domain::kCount, "LoRA adapter id, shown in events");
    fields.optional("cache_salt", &S::cache_salt, Domain::kText, "enters the first block's hash");
    fields.optional("mm_features", &S::mm_features, Domain::kMultimodal,
                    "multimodal items, (item id=... offset=... length=...), by offset");
  }
  RequestSpec spec() const {
    RequestSpec spec{tokens, std::nullopt, cache_salt, mm_features};
    if (lora_name) spec.lora = LoraRequest{*lora_name, lora_id};
    return spec;
  }
};

}  // namespace kvfence
