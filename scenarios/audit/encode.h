#pragma once

/// KV events on their way to the wire: from what a pool reports to a batch, and from a batch to the
/// payload that vLLM publishes, byte for byte.

#include <cstdint>
#include <string>
#include <vector>

#include "contract/pool/kv_events.h"
#include "scenarios/audit/event_batch.h"

namespace kvfence::audit {

/// Whose fields a payload has. Arrays have every field of their release, none as nil: msgspec omits
/// defaults of maps alone. What a release has no field for is left out.
/// Source: vLLM v0.19.0, v0.23.0 and v0.33.0 distributed/kv_events.py, encoded by msgspec 0.22.0.
enum class WireRelease : std::uint8_t {
  kV019,  ///< arrays that end with extra_keys
  kV023,  ///< and then have group_idx and the kind of the group
  kV033,  ///< maps
};

constexpr Encoding encoding_of(WireRelease release) {
  return release == WireRelease::kV033 ? Encoding::kMaps : Encoding::kArrays;
}

/// The msgpack payload of a batch.
/// Cost: one pass; an integer has the shortest form, as msgspec writes it.
std::string encode(const EventBatch& batch, WireRelease release);

/// What a pool reported, as it is published with hashes as bytes; a medium of none is "GPU".
Event to_event(const KVCacheEvent& event);

/// Replaces a hash by its low 64 bits as an integer, as a publisher under
/// VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES writes it. Requires: at least 8 bytes.
void to_low64(EventHash& hash);
/// The same of every hash of a batch.
void to_low64(EventBatch& batch);

}  // namespace kvfence::audit
