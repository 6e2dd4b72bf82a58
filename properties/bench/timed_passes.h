#pragma once

/// What the benchmarks share: the clock over one pass, and a main that refuses builds with useless
/// figures.
///
/// Requires: KVFENCE_BENCH_SANITIZE, the build's sanitizers as a string.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <string>
#include <string_view>
#include <vector>

namespace kvfence {

/// The CPU time of this process. For passes longer than a time slice: interruptions do not count.
struct CpuClock {
  using duration = std::chrono::duration<double>;
  using time_point = std::chrono::time_point<CpuClock, duration>;
  static time_point now() {
    return time_point(duration(static_cast<double>(std::clock()) / CLOCKS_PER_SEC));
  }
};

template <class Clock = std::chrono::steady_clock, class Call>
double seconds_of(Call call) {
  const typename Clock::time_point begin = Clock::now();
  call();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// One pass per iteration. `restore` runs before it; `holds`, after it, says whether the pass did
/// what it should. timed_pass() returns the seconds that it measured. The counters are
/// ns_per_<unit> (the median pass), ns_per_<unit>_min and passes; a pass has num_units units.
template <class Restore, class TimedPass, class Holds>
void report_passes(benchmark::State& state, const std::string& unit, std::size_t num_units,
                   Restore restore, TimedPass timed_pass, Holds holds) {
  std::vector<double> seconds;
  for (auto _ : state) {
    restore();
    seconds.push_back(timed_pass());
    state.SetIterationTime(seconds.back());
    if (!holds()) {
      state.SkipWithError("the timed pass did not do what it should");
      return;
    }
  }
  std::ranges::sort(seconds);
  const double ns_per_unit_and_second = 1e9 / static_cast<double>(num_units);
  state.counters["ns_per_" + unit] = seconds[seconds.size() / 2] * ns_per_unit_and_second;
  state.counters["ns_per_" + unit + "_min"] = seconds.front() * ns_per_unit_and_second;
  state.counters["passes"] = static_cast<double>(seconds.size());
}

/// The same with the whole pass timed.
template <class Clock = std::chrono::steady_clock, class Restore, class Pass, class Holds>
void time_passes(benchmark::State& state, const std::string& unit, std::size_t num_units,
                 Restore restore, Pass pass, Holds holds) {
  report_passes(
      state, unit, num_units, restore,
      [&] {
        benchmark::ClobberMemory();
        return seconds_of<Clock>([&] {
          pass();
          benchmark::ClobberMemory();
        });
      },
      holds);
}

/// BM_<name> runs time(state), which reports passes.
template <class Time>
benchmark::internal::Benchmark* add_benchmark(const std::string& name, benchmark::TimeUnit unit,
                                              Time time) {
  return benchmark::RegisterBenchmark(("BM_" + name).c_str(), time)->UseManualTime()->Unit(unit);
}

/// The hash for shuffling and drawing, as in the benchmarks in Python.
inline std::uint64_t splitmix64(std::uint64_t value) {
  value += 0x9E37'79B9'7F4A'7C15;
  value = (value ^ (value >> 30)) * 0xBF58'476D'1CE4'E5B9;
  value = (value ^ (value >> 27)) * 0x94D0'49BB'1331'11EB;
  return value ^ (value >> 31);
}

/// Why the figures of this build are useless; empty if they are not.
inline std::string_view refusal() {
  if (!std::string_view(KVFENCE_BENCH_SANITIZE).empty()) {
    return "built with sanitizers (" KVFENCE_BENCH_SANITIZE ")";
  }
#if !defined(NDEBUG) || !defined(__OPTIMIZE__)
  return "built without optimization or with debug checks";
#else
  return {};
#endif
}

/// Runs what is registered. Returns the exit code of the program: 2 for an unsuitable build or
/// invalid arguments.
inline int run_benchmarks(const char* program, int argc, char** argv) {
  if (const std::string_view why = refusal(); !why.empty()) {
    std::fprintf(stderr, "%s: %.*s; configure with --preset release\n", program,
                 static_cast<int>(why.size()), why.data());
    return 2;
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace kvfence
