#pragma once

/// The payload of a message, decoded: msgpack of an EventBatch in either encoding.
///
/// A pull decoder of its own, not msgpack-c: untrusted input is read in place, no declared length
/// is allocated or looped over before that many bytes are known to be there, nothing recurses, and
/// an error names its byte. A malformed event does not lose the others of its batch.
/// Source: the msgpack specification; vLLM v0.19.0, v0.23.0 and v0.33.0 distributed/kv_events.py.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/audit/event_batch.h"

namespace kvfence::audit {

/// What is wrong with a payload, and at which of its bytes.
struct DecodeProblem {
  std::size_t offset = 0;
  std::string found;
  std::string expected;

  /// "byte 17: found nil, expected a list of hashes".
  std::string to_text() const;
};

/// Bytes of a payload, [begin, end).
struct ByteRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

struct DecodedBatch {
  EventBatch batch;
  std::vector<ByteRange> ranges;        ///< one per event
  Encoding encoding = Encoding::kMaps;  ///< of the last event; an event without fields shows none
  std::vector<DecodeProblem> problems;  ///< each is an event that was skipped, or what follows
  std::uint64_t unknown_fields = 0;     ///< skipped: of a later release
};

/// Decodes into `out`, which may have been used before. False: not even a batch; the reason is the
/// one problem.
/// Cost: O(payload) in time, a small multiple of it in memory.
bool decode(std::string_view payload, DecodedBatch& out);

/// The payload with only the events of these bytes, in their order.
std::string payload_of(std::string_view payload, const EventBatch& batch,
                       const std::vector<ByteRange>& events);

}  // namespace kvfence::audit
