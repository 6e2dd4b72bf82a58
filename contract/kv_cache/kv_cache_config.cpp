#include "contract/kv_cache/kv_cache_config.h"

#include <algorithm>
#include <utility>

#include "contract/core/limits.h"
#include "contract/kv_cache/kv_cache_manager.h"
#include "contract/pool/block_pool_target.h"

namespace kvfence {

Value to_value(const KVCacheSpec& member) {
  return detail::record_of(to_text(member.kind), object_of(member));
}

bool from_value(const Value& value, KVCacheSpec& member, std::string& expected) {
  const auto* record = value.get_if<Record>();
  const auto kind = record ? from_text<KVCacheSpecKind>(record->verb) : std::nullopt;
  if (kind) member.kind = *kind;
  if (kind && !assign_fields(member, record->fields, {})) return true;
  expected = "a group such as (sliding block_size=4 window=8)";
  return false;
}

std::string list_of(const KVCacheSpec&) {
  return "groups such as [(full block_size=4) (sliding block_size=4 window=8)]";
}

Parsed<KVCacheManagerConfig> make_kv_cache_manager_config(const kv_cache::Config& config,
                                                          std::string_view file,
                                                          Position position) {
  block_pool::Config pool;
  static_cast<PoolSettings&>(pool) = config;
  std::uint32_t factor_max = 1;
  if (config.hash_block_size > 0) {
    for (const KVCacheSpec& group : config.groups) {
      factor_max = std::max(factor_max, group.block_size / config.hash_block_size);
    }
  }
  pool.max_block_size = std::min(factor_max, limits::kHashesPerKeyMax) * config.hash_block_size;
  Parsed<BlockPoolConfig> pool_config = make_block_pool_config(pool, file, position);
  if (!pool_config) return pool_config.error();

  KVCacheManagerConfig result{config, std::move(*pool_config)};
  if (auto expected = check_config(result)) {
    return InputError{std::string(file), position, "groups=" + print(to_value(config.groups)),
                      std::move(*expected)};
  }
  return result;
}

}  // namespace kvfence
