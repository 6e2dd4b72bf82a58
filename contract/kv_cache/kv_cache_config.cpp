#include "contract/kv_cache/kv_cache_config.h"

#include <algorithm>
#include <utility>

#include "contract/core/limits.h"
#include "contract/kv_cache/kv_cache_manager.h"
#include "contract/pool/block_pool_target.h"

namespace kvfence {
namespace kv_cache {

// The overloads of this namespace would hide those of plain types.
using kvfence::from_value;
using kvfence::to_value;

namespace {

Value spec_value(const KVCacheSpec& spec) {
  Record record;
  record.verb = to_text(spec.kind);
  const auto add = [&record](std::string_view key, std::uint32_t number) {
    if (number > 0) record.fields.push_back({std::string(key), to_value(number), {}});
  };
  add("block_size", spec.block_size);
  add("window", spec.sliding_window);
  add("chunk", spec.attention_chunk_size);
  if (spec.mamba_align) record.fields.push_back({"align", to_value(true), {}});
  add("spec_blocks", spec.num_speculative_blocks);
  add("sink_len", spec.sink_len);
  return Value::Variant(std::move(record));
}

bool spec_from(const Value& value, KVCacheSpec& spec) {
  const auto* record = value.get_if<Record>();
  const auto kind = record ? from_text<KVCacheSpecKind>(record->verb) : std::nullopt;
  if (!kind) return false;
  spec.kind = *kind;
  for (const Field& member : record->fields) {
    std::string expected;
    bool read = false;
    if (member.key == "align") {
      read = from_value(member.value, spec.mamba_align, expected);
    } else {
      std::uint32_t* const number = member.key == "block_size"    ? &spec.block_size
                                    : member.key == "window"      ? &spec.sliding_window
                                    : member.key == "chunk"       ? &spec.attention_chunk_size
                                    : member.key == "spec_blocks" ? &spec.num_speculative_blocks
                                    : member.key == "sink_len"    ? &spec.sink_len
                                                                  : nullptr;
      read = number && from_value(member.value, *number, expected);
    }
    if (!read) return false;
  }
  return true;
}

}  // namespace

Value to_value(const GroupList& member) {
  Value::List list;
  for (const KVCacheSpec& spec : member) list.push_back(spec_value(spec));
  return Value::Variant(std::move(list));
}

bool from_value(const Value& value, GroupList& member, std::string& expected) {
  expected = "groups such as [(full block_size=4) (sliding block_size=4 window=8)]";
  const auto* list = value.get_if<Value::List>();
  if (!list) return false;
  member.clear();
  for (const Value& element : *list) {
    if (!spec_from(element, member.emplace_back())) return false;
  }
  return true;
}

}  // namespace kv_cache

Parsed<KVCacheManagerConfig> make_kv_cache_manager_config(const kv_cache::Config& config,
                                                          std::string_view file,
                                                          Position position) {
  block_pool::Config pool;
  pool.num_gpu_blocks = config.num_gpu_blocks;
  pool.enable_caching = config.enable_caching;
  pool.enable_kv_cache_events = config.enable_kv_cache_events;
  pool.hash_block_size = config.hash_block_size;
  pool.hash_algorithm = config.hash_algorithm;
  pool.hash_seed = config.hash_seed;
  pool.profile = config.profile;
  std::uint32_t factor_max = 1;
  if (config.hash_block_size > 0) {
    for (const KVCacheSpec& group : config.groups) {
      factor_max = std::max(factor_max, group.block_size / config.hash_block_size);
    }
  }
  pool.max_block_size = std::min(factor_max, limits::kHashesPerKeyMax) * config.hash_block_size;
  Parsed<BlockPoolConfig> pool_config = make_block_pool_config(pool, file, position);
  if (!pool_config) return pool_config.error();

  KVCacheManagerConfig result;
  result.pool = std::move(*pool_config);
  result.groups = config.groups;
  result.max_model_len = config.max_model_len;
  result.max_num_batched_tokens = config.max_num_batched_tokens;
  result.use_eagle = config.use_eagle;
  result.eagle_groups = config.eagle_groups;
  result.retention_interval = config.retention_interval;
  if (auto expected = check_config(result)) {
    return InputError{std::string(file), position, "groups=" + print(to_value(config.groups)),
                      std::move(*expected)};
  }
  return result;
}

}  // namespace kvfence
