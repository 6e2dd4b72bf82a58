/// `kvfence_gpu_bench`: what copies cost on this machine's GPU. ci/gpu runs it.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <string>

#include "cuda/figures/devices.h"
#include "cuda/figures/gpu_figures.h"

namespace {

constexpr const char* kTables =
    R"(Tables, on the standard output:
  races    id path barrier corrupt early what   the copy worker's races, compute held by a latch;
           the arm without a barrier must be corrupt (M3 may be), the one with it never
  kernels  fill check copy, GB/s   the GPU's own memory: contents written, contents read, and what a
           copy within it reads and writes together
  calibration  microseconds of each path by direction, size and count; * marks the cheapest
  copies   block_bytes num_blocks direction path us GB/s ceiling us_calls wrong
           us: by events, the median of 7; ceiling: GB/s over one large copy's in the same direction;
           us_calls: the host's time in the calls; wrong: the number of wrong bytes

GB are 10^9 bytes. batched_any is the batch in Any order, for loads only; strided gets blocks that
are equally far apart, the others blocks in another order.

Exit codes: 0 measured, nothing wrong; 1 wrong bytes, a race that is not as expected, or an error of
the runtime; 2 usage; 77 no GPU, with the reason.
)";

}  // namespace

int main(int count, char** arguments) {
  using namespace kvfence::cuda;
  FigureOptions options;
  std::string json;
  bool only_calibration = false;
  CLI::App app("What copies cost on this machine's GPU.");
  app.footer(kTables);
  app.add_option("--json", json, "writes every figure to this file too");
  app.add_option("--seconds", options.seconds_max,
                 "begins no row of copies after this many seconds")
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
  app.add_flag("--calibration", only_calibration, "prints only the table that chooses a copy path");
  try {
    app.parse(count, arguments);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }

  const Devices found = find_devices();
  if (found.devices.empty()) {
    std::printf("cannot run here: %s\n", found.none_because.c_str());
    return found.has_failed ? 1 : 77;
  }
  const std::string& name = found.devices[0].name;
  std::printf("%s\n", name.c_str());
  if (only_calibration) {
    CopyCalibration calibration;
    const cudaError_t code = measure_copy_costs(options.calibration, calibration);
    std::printf("%s", code == cudaSuccess ? calibration.to_text().c_str() : cudaGetErrorName(code));
    return code == cudaSuccess ? 0 : 1;
  }
  Figures figures;
  const cudaError_t code = measure_gpu(options, figures);
  std::printf("%s", to_tables(figures).c_str());
  if (code != cudaSuccess) std::printf("ended by %s\n", cudaGetErrorName(code));
  if (!json.empty()) {
    std::ofstream file(json);
    file << to_json(figures, name);
    if (!file.flush()) {
      std::fprintf(stderr, "--json: %s cannot be written\n", json.c_str());
      return 1;
    }
  }
  return code == cudaSuccess && figures.num_failures() == 0 ? 0 : 1;
}
