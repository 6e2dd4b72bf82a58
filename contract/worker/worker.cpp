#include "contract/worker/worker.h"

namespace kvfence::worker {

bool counts_fit(const Transfer& transfer, std::uint32_t block_size_factor) {
  const std::size_t num_pages = transfer.gpu_blocks.size();
  if (num_pages == 0) return transfer.cpu_blocks.empty();
  const std::size_t num_places = transfer.block_index % block_size_factor + num_pages;
  return transfer.cpu_blocks.size() == (num_places + block_size_factor - 1) / block_size_factor;
}

std::vector<std::uint32_t> cpu_pages_of(const Transfer& transfer, std::uint32_t block_size_factor) {
  std::vector<std::uint32_t> pages;
  std::uint32_t place = transfer.block_index % block_size_factor;
  for (std::size_t index = 0; index < transfer.gpu_blocks.size(); ++index, ++place) {
    pages.push_back(transfer.cpu_blocks[place / block_size_factor] * block_size_factor +
                    place % block_size_factor);
  }
  return pages;
}

}  // namespace kvfence::worker
