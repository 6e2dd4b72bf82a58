#include "contract/worker/worker_target.h"

#include <tuple>

#include "contract/core/describe.h"

namespace kvfence {

Parsed<worker::Options> make_worker_options(const worker::Config& config, std::string_view file,
                                            Position position) {
  const auto error = errors_at(file, position);
  const auto layout = from_text<worker::Layout>(config.layout);
  if (!layout) {
    return error("layout=" + config.layout, "blocks_first, kv_first, cross_layers, mamba, padded");
  }
  const auto path = from_text<worker::Path>(config.path);
  if (!path) return error("path=" + config.path, "batched, looped, strided, kernel");
  const std::tuple<const char*, std::uint32_t, std::uint32_t> bounds[] = {
      {"num_gpu_blocks", config.num_gpu_blocks, 64},
      {"num_cpu_blocks", config.num_cpu_blocks, 64},
      {"block_size_factor", config.block_size_factor, 8},
      {"num_ranks", config.num_ranks, 4}};
  for (const auto& [name, number, max] : bounds) {
    if (number >= 1 && number <= max) continue;
    return error(std::string(name) + "=" + std::to_string(number), "1 to " + std::to_string(max));
  }
  const auto schedule = from_text<worker::Schedule>(config.schedule);
  if (!schedule) {
    return error("schedule=" + config.schedule, "commanded, eager, lazy, random, priority");
  }
  if (config.batch_entries_max == 0) return error("batch_entries_max=0", "at least one entry");
  return worker::Options{.layout = *layout,
                         .path = *path,
                         .num_gpu_blocks = config.num_gpu_blocks,
                         .num_cpu_blocks = config.num_cpu_blocks,
                         .block_size_factor = config.block_size_factor,
                         .batch_entries_max = config.batch_entries_max,
                         .host_address_differs = config.host_address_differs,
                         .schedule = *schedule,
                         .seed = config.seed,
                         .num_ranks = config.num_ranks};
}

const Target& WorkerTarget::description() { return described<WorkerTarget>(); }

}  // namespace kvfence
