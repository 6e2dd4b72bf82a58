#pragma once

/// Recorded traffic in the Mooncake request-trace format: one JSON object per line, in order of
/// arrival.
///
///     {"timestamp": 0, "input_length": 1030, "output_length": 5, "hash_ids": [0, 1, 2]}
///
/// Source of the format: repository kvcache-ai/Mooncake, folder FAST25-release; serving simulators
/// read and write it too. Other keys are ignored.

#include <cstdint>
#include <istream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/line.h"

namespace kvfence {

/// Times of a trace are in milliseconds, those of a replay in microseconds.
inline constexpr std::uint64_t kMicrosecondsAMillisecond = 1000;

/// Prompt tokens that one hash id stands for in the published traces.
inline constexpr std::uint32_t kMooncakeBlockTokens = 512;

/// A part of a whole, such as a hit rate: from 0 to 1; 0 of nothing.
inline double ratio(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

struct MooncakeRequest {
  std::uint64_t timestamp_ms = 0;   ///< arrival, since the first request
  std::uint32_t input_length = 0;   ///< prompt tokens
  std::uint32_t output_length = 0;  ///< generated tokens
  /// One id per prompt block, the last and partly filled one included. Prefix-chained: the same id
  /// means the same whole prefix up to and including that block.
  std::vector<std::uint32_t> hash_ids;
  friend bool operator==(const MooncakeRequest&, const MooncakeRequest&) = default;
};

/// Reads a trace to its end, line by line; skips blank lines. With block_tokens, each line must
/// have as many hash ids as its input_length has blocks of that many tokens, a partly filled one
/// included; 0 skips this check, since recorders use other block sizes.
///
/// Errors: a line that is not JSON or no object; a key that is missing or holds anything but a
///         non-negative integer that fits (a list of them for hash_ids); another number of hash ids
///         than block_tokens demands; no request at all. The column is that of the character or the
///         key that is wrong, 1 for the line as a whole.
Parsed<std::vector<MooncakeRequest>> read_mooncake_trace(std::istream& text,
                                                         std::string_view file = {},
                                                         std::uint32_t block_tokens = 0);

/// Errors: a file that cannot be opened, besides.
Parsed<std::vector<MooncakeRequest>> read_mooncake_trace_file(const std::string& path,
                                                              std::uint32_t block_tokens = 0);

/// The size of a trace, and the hits of an unbounded prefix cache.
struct MooncakeTotals {
  std::uint64_t num_blocks = 0;
  std::uint64_t num_distinct_blocks = 0;
  std::uint64_t span_ms = 0;  ///< from the earliest to the latest arrival

  /// Share of the blocks that a cache which never evicts has seen before; 0 for no blocks.
  double hit_rate_max() const;
};

MooncakeTotals totals_of(std::span<const MooncakeRequest> requests);

}  // namespace kvfence
