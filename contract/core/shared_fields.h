#pragma once

/// Declarations (contract/core/declare.h) of the members that the structs of several targets have
/// in common. `S` is the struct that declares them.

#include <optional>

#include "contract/core/declare.h"
#include "contract/pool/request.h"

namespace kvfence {

/// The settings of a configuration with a block pool.
template <class S>
void add_pool_fields(auto& fields) {
  fields.add("num_gpu_blocks", &S::num_gpu_blocks, Domain::kSetting,
             "blocks of the pool, with the null block");
  fields.add("enable_caching", &S::enable_caching, Domain::kSetting, "prefix caching");
  fields.add("enable_kv_cache_events", &S::enable_kv_cache_events, Domain::kSetting, "KV events");
  fields.add("hash_block_size", &S::hash_block_size, Domain::kSetting, "tokens a hash stands for");
}

/// How a configuration hashes, and whose rules it follows.
template <class S>
void add_hash_and_profile_fields(auto& fields) {
  fields.add("hash_algorithm", &S::hash_algorithm, Domain::kSetting, "sha256_cbor or xxhash_cbor");
  fields.add("hash_seed", &S::hash_seed, Domain::kSetting, "PYTHONHASHSEED; decides NONE_HASH");
  fields.add("profile", &S::profile, Domain::kSetting,
             "the release whose rules hold: v0.19, v0.23");
}

/// The settings of an offloading connector's CPU cache.
template <class S>
void add_cpu_cache_fields(auto& fields) {
  fields.add("num_cpu_blocks", &S::num_cpu_blocks, Domain::kSetting,
             "slots, one an offloaded block");
  fields.optional("block_size_factor", &S::block_size_factor, Domain::kSetting,
                  "GPU blocks an offloaded block");
  fields.optional("eviction_policy", &S::eviction_policy, Domain::kSetting, "lru or arc");
}

/// What an offloading connector stores.
template <class S>
void add_stored_fields(auto& fields) {
  fields.optional("offload_prompt_only", &S::offload_prompt_only, Domain::kSetting,
                  "nothing that decoding adds is stored (rule offload_fences_reuse)");
  fields.optional("request_level_policy", &S::request_level_policy, Domain::kSetting,
                  "a loaded prefix is stored again (rule offload_fences_reuse)");
}

/// The declaration of a request.
template <class S>
void add_request_fields(auto& fields) {
  fields.add("id", &S::id, Domain::kRequest, "its name");
  fields.add("tokens", &S::tokens, Domain::kTokens, "prompt tokens");
  fields.optional("lora_name", &S::lora_name, Domain::kText, "LoRA adapter");
  fields.optional("lora_id", &S::lora_id, Domain::kCount, "LoRA adapter id, shown in events");
  fields.optional("cache_salt", &S::cache_salt, Domain::kText, "enters the first block's hash");
  fields.optional("mm_features", &S::mm_features, Domain::kMultimodal,
                  "multimodal items, (item id=... offset=... length=...), by offset");
}

/// The request that a struct with the members of request_fields declares.
template <class S>
RequestSpec make_request_spec(const S& declared) {
  RequestSpec spec{declared.tokens, std::nullopt, declared.cache_salt, declared.mm_features};
  if (declared.lora_name) spec.lora = LoraRequest{*declared.lora_name, declared.lora_id};
  return spec;
}

}  // namespace kvfence
