/// Writes the corpus of block_pool_lockstep anew: what a byte means is the generator's to say, so a
/// changed generator wants a new corpus.
///
///     make_corpus FOLDER
///
/// For each goal of the reach counters an input that leads there, `reaches_<goal>`, and for each
/// planted bug one that catches it, `catches_<bug>`; random bytes, cut down as far as they still
/// do. Decided by no seed but kSeed. Exit status: 1 if some input was not found.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/block_pool_episodes.h"
#include "properties/block_pool_checks.h"
#include "properties/campaign.h"
#include "properties/choices.h"
#include "properties/lockstep.h"
#include "scenarios/implementations.h"

namespace kvfence::fuzz {
namespace {

using Bytes = std::vector<std::uint8_t>;
using Wanted = std::function<bool(const Bytes&)>;

constexpr std::uint64_t kSeed = 1;
constexpr std::size_t kBytesMax = 600;
constexpr int kTriesMax = 200'000;

/// The first random input that is wanted; nothing if there is none among kTriesMax.
std::optional<Bytes> find(const Wanted& wanted) {
  Choices choices = Choices::from_seed(kSeed);
  for (int tries = 0; tries < kTriesMax; ++tries) {
    Bytes bytes(1 + choices.below(kBytesMax));
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(choices.below(256));
    if (wanted(bytes)) return bytes;
  }
  return std::nullopt;
}

/// Cuts pieces out, longest first, then sets bytes to 0, as long as the input stays wanted.
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

/// Runs one input against an implementation.
struct Run {
  std::optional<Divergence> divergence;
  block_pool::Reach reach;
};

Run run(Implementation<BlockPoolTarget>& reference, Implementation<BlockPoolTarget>& actual,
        const Bytes& bytes) {
  Lockstep<BlockPoolTarget> lockstep(reference, actual);
  Choices choices = Choices::from_bytes(bytes);
  Scenario<BlockPoolTarget> scenario;
  Run result;
  result.divergence = run_episode(lockstep, choices, BlockPoolEpisodes::kCommandsMax, scenario);
  result.reach = lockstep.reach();
  return result;
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

bool write_corpus(const std::filesystem::path& folder) {
  using Factory = Implementations<BlockPoolTarget>;
  const auto reference = Factory::make_reference();
  const auto optimized = Factory::make_optimized();
  bool all_found = true;
  for (std::size_t index = 0; index < block_pool::Reach::num_goals(); ++index) {
    const std::string name(block_pool::Reach().goal(index).name);
    all_found &= write(folder / ("reaches_" + name), [&](const Bytes& bytes) {
      return run(*reference, *optimized, bytes).reach.goal(index).reached();
    });
  }
  for (const PlantedBugInfo& bug : Factory::planted_bugs()) {
    const auto planted = Factory::make_planted(bug.name);
    all_found &= write(folder / ("catches_" + std::string(bug.name)), [&](const Bytes& bytes) {
      return run(*reference, *planted, bytes).divergence.has_value();
    });
  }
  return all_found;
}

}  // namespace
}  // namespace kvfence::fuzz

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  std::filesystem::create_directories(argv[1]);
  return kvfence::fuzz::write_corpus(argv[1]) ? 0 : 1;
}
