#pragma once

/// Mutations of fuzz inputs that keep commands whole. Races need a command removed, repeated or
/// moved; a changed byte in the middle of an input changes all commands after it.

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace kvfence::fuzz {

using Bytes = std::vector<std::uint8_t>;

/// Where commands begin in an input, in order, and where the last one ends.
using Marks = std::vector<std::size_t>;

/// The input with one command removed, repeated, exchanged with its neighbor or moved back, or with
/// random bytes as an additional command. Unchanged if it has no command.
Bytes mutate_commands(std::span<const std::uint8_t> input, const Marks& marks,
                      std::minstd_rand& random);

/// The first commands of the input, or all, then random bytes for many others: continues at random
/// from a state that the input reaches. Unchanged if the input has not run.
Bytes replace_end(std::span<const std::uint8_t> input, const Marks& marks,
                  std::minstd_rand& random);

/// The first commands of one input, then the last ones of another.
Bytes cross_commands(std::span<const std::uint8_t> first, const Marks& first_marks,
                     std::span<const std::uint8_t> second, const Marks& second_marks,
                     std::minstd_rand& random);

/// The marks of inputs that have run. They are known only then: the meaning of a byte depends on
/// all before it. Allocates all memory at once, so that libFuzzer reports no leak of an input.
class KnownMarks {
 public:
  /// Replaces an input in the same place. Keeps at most kMarksMax marks.
  void add(std::span<const std::uint8_t> input, const Marks& marks);
  /// Empty if the input has not run or was replaced.
  Marks find(std::span<const std::uint8_t> input) const;

  static constexpr std::size_t kMarksMax = 201;

 private:
  struct Entry {
    std::size_t hash = 0;
    std::size_t num_marks = 0;
    std::array<std::uint32_t, kMarksMax> marks{};
  };
  static constexpr std::size_t kNumEntries = 1 << 13;

  std::vector<Entry> entries_ = std::vector<Entry>(kNumEntries);  ///< by hash of the input
};

/// The marks of the inputs that this program has run.
const KnownMarks& known_marks();

}  // namespace kvfence::fuzz
