/// Writes the corpus of <target>_lockstep anew. The generator decides what a byte means, so a
/// changed generator needs a new corpus.
///
///     make_corpus TARGET FOLDER
///
/// Writes for each coverage goal an input that reaches it, `reaches_<goal>`, and for each planted
/// bug one that catches it, `catches_<bug>`: random bytes, cut down while they still do. kSeed is
/// the only seed. Exit status: 1 if some input was not found, 2 for a usage error.

#include <array>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fuzz/episodes.h"
#include "properties/core/lockstep.h"
#include "properties/draws/choices.h"
#include "scenarios/targets/targets.h"

namespace kvfence::fuzz {
namespace {

using Wanted = std::function<bool(const Bytes&)>;

constexpr std::uint64_t kSeed = 1;

/// Random inputs to try.
struct Search {
  int num_tries;
  std::uint32_t max_bytes;
};
/// Short inputs are fast; only long ones reach goals that need many commands.
constexpr std::array<Search, 2> kSearches = {{{20'000, 600}, {20'000, 2400}}};

/// The first random input that satisfies `wanted`; nothing if there is none.
std::optional<Bytes> find(const Wanted& wanted) {
  Choices choices = Choices::from_seed(kSeed);
  for (const Search& search : kSearches) {
    for (int tries = 0; tries < search.num_tries; ++tries) {
      Bytes bytes(1 + choices.below(search.max_bytes));
      for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(choices.below(256));
      if (wanted(bytes)) return bytes;
    }
  }
  return std::nullopt;
}

/// Removes pieces, longest first, then sets bytes to 0, while the input satisfies `wanted`.
Bytes minimise(Bytes bytes, const Wanted& wanted) {
  for (std::size_t piece = bytes.size() / 2; piece > 0; piece /= 2) {
    for (std::size_t at = 0; at + piece <= bytes.size();) {
      Bytes shorter = bytes;
      const auto begin = shorter.begin() + static_cast<std::ptrdiff_t>(at);
      shorter.erase(begin, begin + static_cast<std::ptrdiff_t>(piece));
      if (wanted(shorter)) {
        bytes = std::move(shorter);
      } else {
        at += piece;
      }
    }
  }
  for (std::uint8_t& byte : bytes) {
    const std::uint8_t kept = byte;
    byte = 0;
    if (kept != 0 && !wanted(bytes)) byte = kept;
  }
  return bytes;
}

bool write(const std::filesystem::path& file, const Wanted& wanted) {
  const std::optional<Bytes> found = find(wanted);
  if (!found) {
    std::fprintf(stderr, "%s: not found\n", file.filename().c_str());
    return false;
  }
  std::ofstream stream(file, std::ios::binary);
  for (std::uint8_t byte : minimise(*found, wanted)) stream.put(static_cast<char>(byte));
  return stream.good();
}

bool write_corpus(const CheckedPart& part, const std::filesystem::path& folder) {
  const TargetSides& sides = *part.sides;
  const auto reference = sides.make_reference();
  const auto optimized = sides.make_optimized();
  const std::vector<Goal>& goals = part.checks->goals;
  Scenario scenario(sides.target());
  bool all_found = true;
  for (std::size_t index = 0; index < goals.size(); ++index) {
    all_found &=
        write(folder / ("reaches_" + std::string(goals[index].name)), [&](const Bytes& bytes) {
          Lockstep lockstep(*part.checks, *reference, *optimized);
          return !run_input(lockstep, bytes, scenario) &&
                 lockstep.goal_counts().count_of(index) > 0;
        });
  }
  for (const PlantedBugInfo& bug : part.planted_bugs) {
    const auto planted = sides.make_planted(bug.name);
    Lockstep lockstep(*part.checks, *reference, *planted);
    all_found &= write(folder / ("catches_" + std::string(bug.name)), [&](const Bytes& bytes) {
      return run_input(lockstep, bytes, scenario).has_value();
    });
  }
  return all_found;
}

}  // namespace
}  // namespace kvfence::fuzz

int main(int argc, char** argv) {
  const kvfence::CheckedPart* part = argc == 3 ? kvfence::find_part(argv[1]) : nullptr;
  if (part == nullptr) {
    std::fprintf(stderr,
                 "usage: %s TARGET FOLDER, with a target of kvfence list or engine.ASSEMBLY\n",
                 argv[0]);
    return 2;
  }
  std::filesystem::create_directories(argv[2]);
  return kvfence::fuzz::write_corpus(*part, argv[2]) ? 0 : 1;
}
