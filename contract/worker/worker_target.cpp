#include "contract/worker/worker_target.h"

#include <utility>

#include "contract/core/describe.h"

namespace kvfence {

Parsed<worker::Options> make_worker_options(const worker::Config& config, std::string_view file,
                                            Position position) {
  const auto error = [&](std::string found, std::string expected) {
    return InputError{std::string(file), position, std::move(found), std::move(expected)};
  };
  const auto layout = from_text<worker::Layout>(config.layout);
  if (!layout) {
    return error("layout=" + config.layout, "blocks_first, kv_first, cross_layers, mamba, padded");
  }
  const auto path = from_text<worker::Path>(config.path);
  if (!path) return error("path=" + config.path, "batched, looped, strided, kernel");
  const auto is_within = [](std::uint32_t number, std::uint32_t max) {
    return number >= 1 && number <= max;
  };
  if (!is_within(config.num_gpu_blocks, 64)) {
    return error("num_gpu_blocks=" + std::to_string(config.num_gpu_blocks), "1 to 64");
  }
  if (!is_within(config.num_cpu_blocks, 64)) {
    return error("num_cpu_blocks=" + std::to_string(config.num_cpu_blocks), "1 to 64");
  }
  if (!is_within(config.block_size_factor, 8)) {
    return error("block_size_factor=" + std::to_string(config.block_size_factor), "1 to 8");
  }
  const auto schedule = from_text<worker::Schedule>(config.schedule);
  if (!schedule) {
    return error("schedule=" + config.schedule, "commanded, eager, lazy, random, priority");
  }
  if (!is_within(config.num_ranks, 4)) {
    return error("num_ranks=" + std::to_string(config.num_ranks), "1 to 4");
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

const Target& WorkerTarget::description() {
  static const Target kDescription = describe<WorkerTarget>();
  return kDescription;
}

}  // namespace kvfence
