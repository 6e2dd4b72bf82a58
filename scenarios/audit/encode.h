#pragma once

/// Encodes KV events: the events of a pool as a batch, and a batch as the payload that vLLM
/// publishes, byte for byte.

#include <string>

#include "contract/pool/kv_events.h"
#include "scenarios/audit/event_batch.h"

namespace kvfence::audit {

/// The msgpack payload of a batch.
/// Cost: one pass; an integer has the shortest form, as msgspec writes it.
std::string encode(const EventBatch& batch, WireRelease release);

/// An event of a pool as it is published, with hashes as bytes; a medium of none is "GPU".
Event to_event(const KVCacheEvent& event);

/// Replaces a hash by its low 64 bits as an integer, as a publisher under
/// VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES writes it. Requires: at least 8 bytes.
void to_low64(EventHash& hash);
/// The same of every hash of a batch.
void to_low64(EventBatch& batch);

}  // namespace kvfence::audit
