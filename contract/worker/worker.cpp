#include "contract/worker/worker.h"

namespace kvfence::worker {

std::size_t num_cpu_blocks_for(std::size_t num_gpu_blocks, std::uint32_t block_index,
                               std::uint32_t block_size_factor) {
  if (num_gpu_blocks == 0) return 0;
  const std::size_t num_places = block_index % block_size_factor + num_gpu_blocks;
  return (num_places + block_size_factor - 1) / block_size_factor;
}

bool counts_fit(const Transfer& transfer, std::uint32_t block_size_factor) {
  return transfer.cpu_blocks.size() ==
         num_cpu_blocks_for(transfer.gpu_blocks.size(), transfer.block_index, block_size_factor);
}

void add_cpu_pages(std::size_t num_gpu_blocks, std::uint32_t block_index,
                   std::span<const std::uint32_t> cpu_blocks, std::uint32_t block_size_factor,
                   std::vector<std::uint32_t>& pages) {
  const std::uint32_t first = block_index % block_size_factor;
  for (std::size_t place = first; place < first + num_gpu_blocks; ++place) {
    pages.push_back(cpu_blocks[place / block_size_factor] * block_size_factor +
                    static_cast<std::uint32_t>(place % block_size_factor));
  }
}

std::vector<std::uint32_t> cpu_pages_of(const Transfer& transfer, std::uint32_t block_size_factor) {
  std::vector<std::uint32_t> pages;
  add_cpu_pages(transfer.gpu_blocks.size(), transfer.block_index, transfer.cpu_blocks,
                block_size_factor, pages);
  return pages;
}

}  // namespace kvfence::worker
