#pragma once

/// Full reports on the bytes of a KV block: the host's side of content_pattern.h.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "contract/core/words.h"
#include "contract/worker/content_pattern.h"

namespace kvfence::content {

/// Writes the pattern. Requires a multiple of 16 bytes; any alignment.
void fill(std::span<std::byte> bytes, Tag tag, std::uint64_t run_seed);

/// Marks bytes as never written, and as never to be written. `generation` distinguishes
/// the uses.
void fill_poison(std::span<std::byte> bytes, std::uint64_t run_seed, std::uint32_t generation = 0);
void fill_canary(std::span<std::byte> bytes, std::uint64_t run_seed, std::uint32_t generation = 0);

/// The check of one block. `verdict` sums up: right where all are; foreign where any granule is;
/// torn where kinds are mixed; else the one kind that all are. A granule that is itself torn is
/// foreign.
struct BlockReport {
  Tag expected;
  std::uint64_t num_granules = 0;
  std::array<std::uint64_t, kNumVerdicts> num_by_verdict{};  ///< indexed by Verdict
  Verdict verdict = Verdict::kRight;
  // The first granule that is not right; meaningless where verdict is kRight.
  std::uint64_t first_wrong_index = 0;
  Verdict first_wrong_verdict = Verdict::kRight;
  Owner first_wrong_owner;

  bool is_right() const { return verdict == Verdict::kRight; }
};

/// Requires a multiple of 16 bytes; any alignment. Cost: O(bytes), no allocation.
BlockReport check_block(std::span<const std::byte> bytes, Tag expected, const Universe& universe);

using kvfence::to_text;
constexpr auto words_of(Verdict) {
  return words({"right", "stale", "other block", "shifted", "torn", "poison", "canary", "foreign"});
}

/// "block 7 generation 2", "poison generation 0", "canary generation 0".
std::string to_text(const Tag& tag);

/// One line: `expected block 7 generation 2: torn, 3 of 8 granules wrong (3 stale); first at byte
/// 80: stale, block 7 generation 1 granule 5`.
std::string to_text(const BlockReport& report);

}  // namespace kvfence::content
