/// Writes the corpus of <target>_lockstep anew: what a byte means is the generator's to say, so a
/// changed generator wants a new corpus.
///
///     make_corpus TARGET FOLDER
///
/// For each goal of the reach counters an input that leads there, `reaches_<goal>`, and for each
/// planted bug one that catches it, `catches_<bug>`; random bytes, cut down as far as they still
/// do. Decided by no seed but kSeed. Exit status: 1 if some input was not found, 2 for a usage
/// error.

#include <algorithm>
#include <array>
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

#include "fuzz/episodes.h"
#include "properties/core/all_checks.h"
#include "properties/core/choices.h"
#include "properties/core/lockstep.h"
#include "scenarios/targets/implementations.h"

namespace kvfence::fuzz {
namespace {

using Bytes = std::vector<std::uint8_t>;
using Wanted = std::function<bool(const Bytes&)>;

constexpr std::uint64_t kSeed = 1;

/// Random inputs to try.
struct Search {
  int num_tries;
  std::uint32_t max_bytes;
};
/// Short ones are quick; what takes many commands is only reached by long ones.
constexpr std::array<Search, 2> kSearches = {{{20'000, 600}, {20'000, 2400}}};

/// The first random input that is wanted; nothing if there is none.
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

template <class Target>
bool write_corpus(const std::filesystem::path& folder) {
  using Factory = Implementations<Target>;
  using Reach = typename Checks<Target>::Reach;
  const auto reference = Factory::make_reference();
  const auto optimized = Factory::make_optimized();
  Scenario<Target> scenario;
  bool all_found = true;
  for (std::size_t index = 0; index < Reach::num_goals(); ++index) {
    const std::string name(Reach().goal(index).name);
    all_found &= write(folder / ("reaches_" + name), [&](const Bytes& bytes) {
      Lockstep<Target> lockstep(*reference, *optimized);
      return !run_input(lockstep, bytes, scenario) && lockstep.reach().goal(index).reached();
    });
  }
  for (const PlantedBugInfo& bug : Factory::planted_bugs()) {
    const auto planted = Factory::make_planted(bug.name);
    Lockstep<Target> lockstep(*reference, *planted);
    all_found &= write(folder / ("catches_" + std::string(bug.name)), [&](const Bytes& bytes) {
      return run_input(lockstep, bytes, scenario).has_value();
    });
  }
  return all_found;
}

using WriteCorpus = bool (*)(const std::filesystem::path&);

/// Null for an unknown target.
WriteCorpus writer_of(std::string_view target) {
  WriteCorpus writer = nullptr;
  AllTargets::for_each([&](auto type) {
    using Target = typename decltype(type)::type;
    if (target == Target::kName) writer = &write_corpus<Target>;
  });
  return writer;
}

std::string target_names() {
  std::string names;
  AllTargets::for_each([&](auto type) {
    names += (names.empty() ? "" : "|") + std::string(decltype(type)::type::kName);
  });
  return names;
}

}  // namespace
}  // namespace kvfence::fuzz

int main(int argc, char** argv) {
  const auto write_corpus = argc == 3 ? kvfence::fuzz::writer_of(argv[1]) : nullptr;
  if (write_corpus == nullptr) {
    std::fprintf(stderr, "usage: %s %s FOLDER\n", argv[0], kvfence::fuzz::target_names().c_str());
    return 2;
  }
  std::filesystem::create_directories(argv[2]);
  return write_corpus(argv[2]) ? 0 : 1;
}
