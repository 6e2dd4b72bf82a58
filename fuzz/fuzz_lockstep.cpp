/// Bytes -> configuration and commands -> reference against optimized, with every rule.
///
/// One program for all targets; the environment selects one:
///   KVFENCE_FUZZ_TARGET       a target's name, or engine.ASSEMBLY; without it, a program that is
///                             called PART_lockstep fuzzes that part
///   KVFENCE_FUZZ_PLANTED_BUG  one of its planted bugs, in the optimized side; unset for none. Such
///                             a run has to abort with a report on the corpus of the target, which
///                             proves that a run without findings means something.
///   KVFENCE_FUZZ_ORACLES      the oracles that judge, as in --oracles of kvfence; unset for all

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fuzz/command_mutator.h"
#include "fuzz/corpus_goals.h"
#include "fuzz/episodes.h"
#include "scenarios/targets/targets.h"

namespace kvfence::fuzz {
namespace {

std::string_view setting(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

/// Commands so far. When the program prints it, the episodes have been destroyed.
std::uint64_t num_commands = 0;

/// A replay of a corpus needs the goals; libFuzzer does not.
bool counts_goals = true;

/// The part in the name of the program.
std::string& part_of_program() {
  static std::string part;
  return part;
}

Episodes& episodes() {
  static Episodes instance = [] {
    std::string_view target = setting("KVFENCE_FUZZ_TARGET");
    if (target.empty()) target = part_of_program();
    const CheckedPart* part = find_part(target);
    const std::string_view bug = setting("KVFENCE_FUZZ_PLANTED_BUG");
    if (!part || (!bug.empty() && !part->sides->make_planted(bug))) {
      std::fprintf(stderr,
                   "KVFENCE_FUZZ_TARGET=%s KVFENCE_FUZZ_PLANTED_BUG=%s: expected a target "
                   "of kvfence list, or engine.ASSEMBLY, and, if any, a planted bug of it\n",
                   std::string(target).c_str(), std::string(bug).c_str());
      std::exit(2);
    }
    LockstepOptions options;
    options.counts_goals = counts_goals;
    if (const auto oracles = setting("KVFENCE_FUZZ_ORACLES"); !oracles.empty()) {
      const Parsed<Oracles> chosen = oracles_of(oracles, "KVFENCE_FUZZ_ORACLES");
      if (!chosen) {
        std::fprintf(stderr, "%s\n", chosen.error().to_text().c_str());
        std::exit(2);
      }
      options.oracles = *chosen;
    }
    return Episodes(*part, bug, options);
  }();
  return instance;
}

}  // namespace

std::vector<CorpusGoal> corpus_goals() { return episodes().goals(); }
CorpusGoal corpus_size() { return episodes().size(); }
const KnownMarks& known_marks() { return episodes().known_marks(); }

}  // namespace kvfence::fuzz

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  std::string name = std::filesystem::path(**argv).filename();
  if (name.ends_with("_lockstep")) name.resize(name.size() - std::strlen("_lockstep"));
  kvfence::fuzz::part_of_program() = std::move(name);
  kvfence::fuzz::counts_goals = false;
  // If episodes reach thousands of features, libFuzzer's schedule of rare ones takes most of the
  // time; and how often code runs depends on the length of an input, not on what it reaches. Options
  // on the command line come later and override these.
  static char without_entropy[] = "-entropic=0";
  static char without_counters[] = "-use_counters=0";
  static std::vector<char*> arguments(*argv, *argv + *argc);
  arguments.insert(arguments.begin() + 1, {without_entropy, without_counters});
  *argc = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);
  *argv = arguments.data();
  // In addition to the output of libFuzzer with -print_final_stats=1.
  std::atexit([] {
    std::fprintf(stderr, "stat::number_of_commands:       %llu\n",
                 static_cast<unsigned long long>(kvfence::fuzz::num_commands));
  });
  return 0;
}

/// Defaults of the address sanitizer. Freed memory is kept for longer than an input runs. A second
/// run of a failing input can show where it was allocated.
extern "C" const char* __asan_default_options() {
  return "malloc_context_size=0:quarantine_size_mb=16";
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kvfence::fuzz;
  episodes().run({data, size});
  num_commands = episodes().size().count;
  return 0;
}
