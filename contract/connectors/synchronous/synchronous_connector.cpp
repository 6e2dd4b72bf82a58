#include "contract/connectors/synchronous/synchronous_connector.h"

#include <algorithm>

#include "contract/core/digest.h"

namespace kvfence {

std::optional<std::string> check_spec(const SynchronousConnectorSpec& spec) {
  if (spec.num_workers == 0) return "a positive world_size";
  if (spec.num_layers == 0) return "a positive num_layers";
  const std::vector<KVCacheSpec>& groups = spec.kv_cache.groups;
  if (groups.empty()) return "a group";
  if (!all_of_kinds(groups, {KVCacheSpecKind::kFullAttention, KVCacheSpecKind::kSlidingWindow})) {
    return "groups of full attention or sliding window";
  }
  const bool one_size = std::all_of(groups.begin(), groups.end(), [&](const KVCacheSpec& group) {
    return group.block_size == groups.front().block_size;
  });
  if (!one_size) return "groups of one block size";
  if (spec.kind == SynchronousConnectorKind::kExample) {
    if (groups.size() > 1 || groups.front().kind != KVCacheSpecKind::kFullAttention) {
      return "one group of full attention, which is what the ExampleConnector can take";
    }
  } else if (groups.size() > 1 && !spec.kv_cache.pool.rules.decode_bench_hma) {
    return "one group, or the rule decode_bench_hma: v0.23";
  }
  return std::nullopt;
}

std::string folder_name(std::span<const TokenId> tokens, std::span<const MmFeature> mm_features) {
  std::string bytes;
  for (const TokenId token : tokens) {
    for (unsigned shift = 0; shift < 64; shift += 8) {
      bytes += static_cast<char>(std::uint64_t{token} >> shift & 0xFF);
    }
  }
  for (std::size_t i = 0; i < mm_features.size(); ++i) {
    if (i > 0) bytes += '-';
    bytes += mm_features[i].identifier;
  }
  return md5_hex(bytes);
}

std::string layer_file_name(std::uint32_t layer) {
  return "model.layers." + std::to_string(layer) + ".self_attn.attn.safetensors";
}

}  // namespace kvfence
