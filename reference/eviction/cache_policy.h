#pragma once

/// A cache policy: the executable specification. Picks LRU or ARC, checks everything that may be
/// refused, and counts the readers of a block, which is the same for both. The rules of each
/// function, and its errors in order, stand in contract/eviction/cache_policy.h.
/// Source: vLLM v0.19.0 v1/kv_offload/cpu/policies/abstract.py CachePolicy.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "contract/core/cloned.h"
#include "contract/core/state_digest.h"
#include "contract/eviction/cache_policy.h"

namespace kvfence::reference {

/// What LRU and ARC do each in its own way.
class PolicyOfKind {
 public:
  virtual ~PolicyOfKind() = default;
  virtual std::unique_ptr<PolicyOfKind> clone() const = 0;

  /// Null if the block is not held. The pointer holds until the next operation.
  virtual BlockStatus* find(OffloadKeyView key) = 0;
  /// Requires: the block is not held
  virtual void insert(OffloadKeyView key, SlotId slot) = 0;
  /// Requires: the block is held
  virtual void remove(OffloadKeyView key) = 0;
  virtual void touch(std::span<const OffloadKeyView> keys) = 0;
  virtual bool evict(std::uint32_t num_blocks, std::span<const OffloadKeyView> protected_keys,
                     std::vector<EvictedBlock>& out) = 0;
  virtual void clear() = 0;
  virtual std::uint32_t size() const = 0;
  virtual void lists(PolicyLists& out) const = 0;
  /// Takes in the whole state: what decides later answers.
  virtual void add_to(StateHash& hash) const = 0;
};

std::unique_ptr<PolicyOfKind> make_lru_cache_policy();
std::unique_ptr<PolicyOfKind> make_arc_cache_policy(const CachePolicyConfig& config);

class CachePolicy {
 public:
  explicit CachePolicy(const CachePolicyConfig& config);

  bool get(OffloadKeyView key, BlockStatus& out) const;
  ErrorCode insert(OffloadKeyView key, SlotId slot);
  ErrorCode remove(OffloadKeyView key);
  ErrorCode make_ready(OffloadKeyView key);
  ErrorCode acquire(OffloadKeyView key);
  ErrorCode release(OffloadKeyView key);
  void touch(std::span<const OffloadKeyView> keys);
  bool evict(std::uint32_t num_blocks, std::span<const OffloadKeyView> protected_keys,
             std::vector<EvictedBlock>& out);
  void clear();

  std::uint32_t size() const;
  void lists(PolicyLists& out) const;
  const CachePolicyConfig& config() const { return config_; }

  /// Takes in the whole state: what decides later answers. The configuration, which never changes,
  /// stays out.
  void add_to(StateHash& hash) const;

 private:
  CachePolicyConfig config_;
  Cloned<PolicyOfKind> policy_;
};

}  // namespace kvfence::reference

static_assert(kvfence::CachePolicy<kvfence::reference::CachePolicy>);
