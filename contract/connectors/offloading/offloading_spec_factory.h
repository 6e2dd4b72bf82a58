#pragma once

/// Offloading specs by name: turns a connector's `key=value` settings into an OffloadingSpec.
/// Source: vLLM v0.19.0 and v0.23.0 v1/kv_offload/factory.py OffloadingSpecFactory.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "contract/connectors/offloading/offloading_connector.h"
#include "contract/core/line.h"

namespace kvfence {

/// What a spec learns from the engine around it. Rules, groups, the number of GPU blocks and
/// whether there are events are those of kv_cache.
struct OffloadingSpecContext {
  KVCacheManagerConfig kv_cache;
  std::uint32_t world_size = 1;
  std::vector<std::uint64_t> page_size_bytes;   ///< by group: a block in one of its tensors
  std::vector<std::uint64_t> kv_cache_tensors;  ///< bytes of each, on one worker
};

/// Builds a spec from settings.
/// Errors: each names the setting, at its position in `file`.
using OffloadingSpecBuilder = std::function<Parsed<OffloadingSpec>(
    const std::vector<Field>& settings, const OffloadingSpecContext& context,
    const std::string& file)>;

/// Where no spec_name is set.
inline constexpr const char* kDefaultOffloadingSpec = "CPUOffloadingSpec";
inline constexpr const char* kTieringOffloadingSpec = "TieringOffloadingSpec";

/// CPUOffloadingSpec:
///
///   cpu_bytes_to_use     for all workers; required, positive
///   block_size           tokens of an offloaded block; a multiple of the groups' one block size
///   block_size_factor    the same as a factor; one of the two, 1 where none is set (ours)
///   eviction_policy      lru or arc; lru
///   store_threshold      0
///   max_tracker_size     64000
///   offload_prompt_only  true or false; true (hold: has no effect)
///
/// Slots: cpu_bytes_to_use, divided by the bytes of an offloaded block of all workers, rounded
/// down. These are block_size_factor * world_size times
///   hold   the groups' one page size * the number of tensors;
///   fence  the sum of the tensors / num_gpu_blocks, rounded down.
///
/// Numbers are read as by Python's int(): a decimal is truncated, and a string of digits is a
/// number. An unknown setting is an error (upstream ignores it); so are a string for a flag
/// (upstream takes it as true) and less memory than one slot takes.
/// Source: vLLM v0.19.0 v1/kv_offload/{spec,cpu/spec}.py; v0.23.0 {base,cpu/spec}.py.
Parsed<OffloadingSpec> make_cpu_offloading_spec(const std::vector<Field>& settings,
                                                const OffloadingSpecContext& context,
                                                const std::string& file = {});

/// Bytes that a slot above secondary tiers is a multiple of: a page of memory.
/// Source: vLLM v0.23.0 v1/kv_offload/cpu/shared_offload_region.py BLOCK_SIZE_ALIGNMENT, which is
/// mmap.PAGESIZE.
inline constexpr std::uint64_t kTieringSlotAlignment = 4096;

/// TieringOffloadingSpec: the settings of CPUOffloadingSpec, for a manager above secondary tiers,
/// and
///
///   secondary_tiers      [(type key=value ...) ...], in order; none
///
/// from which a SecondaryTierFactory makes the tiers once there is a primary one. The bytes of an
/// offloaded block of all workers are rounded up to kTieringSlotAlignment. Errors, besides: a
/// profile without tiers; store_threshold of 2 and more.
/// Source: vLLM v0.23.0 v1/kv_offload/{tiering,cpu}/spec.py.
Parsed<OffloadingSpec> make_tiering_offloading_spec(const std::vector<Field>& settings,
                                                    const OffloadingSpecContext& context,
                                                    const std::string& file = {});

/// A value, empty at first; built_in_offloading_specs() has the two above.
class OffloadingSpecFactory {
 public:
  /// Errors: the name is taken.
  std::optional<InputError> register_spec(const std::string& name, OffloadingSpecBuilder builder);

  /// Asks the spec that `spec_name` names, CPUOffloadingSpec without it. The spec gets the other
  /// settings.
  /// Errors: a setting given twice; no such spec; the spec's own.
  Parsed<OffloadingSpec> create_spec(const std::vector<Field>& settings,
                                     const OffloadingSpecContext& context,
                                     const std::string& file = {}) const;

 private:
  std::map<std::string, OffloadingSpecBuilder> builders_;
};

OffloadingSpecFactory built_in_offloading_specs();

}  // namespace kvfence
