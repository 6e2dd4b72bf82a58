#include "contract/worker/worker_target.h"

#include <tuple>

#include "contract/core/describe.h"

namespace kvfence {

Parsed<worker::Options> make_worker_options(const worker::Config& config, std::string_view file,
                                            Position position) {
  const auto error = errors_at(file, position);
  const std::tuple<const char*, std::uint32_t, std::uint32_t> bounds[] = {
      {"num_gpu_blocks", config.num_gpu_blocks, 64},
      {"num_cpu_blocks", config.num_cpu_blocks, 64},
      {"block_size_factor", config.block_size_factor, 8},
      {"num_ranks", config.num_ranks, 4}};
  for (const auto& [name, number, max] : bounds) {
    if (number >= 1 && number <= max) continue;
    return error(std::string(name) + "=" + std::to_string(number), "1 to " + std::to_string(max));
  }
  if (config.batch_entries_max == 0) return error("batch_entries_max=0", "at least one entry");
  return config;
}

const Target& WorkerTarget::description() { return described<WorkerTarget>(); }

}  // namespace kvfence
