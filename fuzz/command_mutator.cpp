#include "fuzz/command_mutator.h"

#include <algorithm>
#include <functional>
#include <string_view>

namespace kvfence::fuzz {
namespace {

constexpr std::size_t kNewCommandMax = 12;
constexpr std::size_t kNewEndMax = 2048;

std::size_t hash_of(std::span<const std::uint8_t> input) {
  return std::hash<std::string_view>()({reinterpret_cast<const char*>(input.data()), input.size()});
}

std::size_t below(std::size_t bound, std::minstd_rand& random) { return random() % bound; }

/// At least one.
Bytes random_bytes(std::size_t count_max, std::minstd_rand& random) {
  Bytes bytes(1 + below(count_max, random));
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
  return bytes;
}

}  // namespace

Bytes mutate_commands(std::span<const std::uint8_t> input, const Marks& marks,
                      std::minstd_rand& random) {
  Bytes mutated(input.begin(), input.end());
  if (marks.size() < 2) return mutated;
  const std::size_t num_commands = marks.size() - 1;
  const std::size_t command = below(num_commands, random);
  const auto at = [&](std::size_t index) {
    return mutated.begin() + static_cast<std::ptrdiff_t>(marks[index]);
  };
  const std::size_t later = command + 1 + below(num_commands - command, random);
  switch (below(5, random)) {
    case 0:
      mutated.erase(at(command), at(command + 1));
      break;
    case 1: {
      const Bytes copy(at(command), at(command + 1));
      mutated.insert(at(later), copy.begin(), copy.end());
      break;
    }
    case 2:
      if (command + 1 < num_commands) std::rotate(at(command), at(command + 1), at(command + 2));
      break;
    case 3:
      std::rotate(at(command), at(command + 1), at(later));
      break;
    default: {
      const Bytes added = random_bytes(kNewCommandMax, random);
      mutated.insert(at(command), added.begin(), added.end());
    }
  }
  return mutated;
}

Bytes replace_end(std::span<const std::uint8_t> input, const Marks& marks,
                  std::minstd_rand& random) {
  if (marks.empty()) return {input.begin(), input.end()};
  const std::size_t kept = marks[below(marks.size(), random)];
  Bytes replaced(input.begin(), input.begin() + static_cast<std::ptrdiff_t>(kept));
  const Bytes end = random_bytes(kNewEndMax, random);
  replaced.insert(replaced.end(), end.begin(), end.end());
  return replaced;
}

Bytes cross_commands(std::span<const std::uint8_t> first, const Marks& first_marks,
                     std::span<const std::uint8_t> second, const Marks& second_marks,
                     std::minstd_rand& random) {
  const std::size_t end = first_marks[below(first_marks.size(), random)];
  const std::size_t begin = second_marks[below(second_marks.size(), random)];
  Bytes crossed(first.begin(), first.begin() + static_cast<std::ptrdiff_t>(end));
  crossed.insert(crossed.end(), second.begin() + static_cast<std::ptrdiff_t>(begin), second.end());
  return crossed;
}

void KnownMarks::add(std::span<const std::uint8_t> input, const Marks& marks) {
  const std::size_t hash = hash_of(input);
  Entry& entry = entries_[hash % kNumEntries];
  entry.hash = hash;
  entry.num_marks = std::min(marks.size(), kMarksMax);
  std::transform(marks.begin(), marks.begin() + static_cast<std::ptrdiff_t>(entry.num_marks),
                 entry.marks.begin(),
                 [](std::size_t mark) { return static_cast<std::uint32_t>(mark); });
}

Marks KnownMarks::find(std::span<const std::uint8_t> input) const {
  const std::size_t hash = hash_of(input);
  const Entry& entry = entries_[hash % kNumEntries];
  if (entry.hash != hash) return {};
  return {entry.marks.begin(), entry.marks.begin() + static_cast<std::ptrdiff_t>(entry.num_marks)};
}

}  // namespace kvfence::fuzz
