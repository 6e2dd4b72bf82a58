#include "properties/engine/on_device/remote_reads.h"

#include <cstddef>

#include "contract/engine/engine_device.h"
#include "contract/engine/toy_model.h"

namespace kvfence::engine::on_device {

void RemoteReads::start(std::vector<EngineRank>& producer, std::vector<EngineRank>& consumer,
                        std::uint32_t block_size) {
  producer_ = &producer;
  consumer_ = &consumer;
  block_size_ = block_size;
  begun_.clear();
}

void RemoteReads::begin(ReadId read, const ReadSpec& spec) {
  begun_[read] = {spec, /*has_ended=*/false};
  (*producer_)[spec.remote_rank].device->begin_remote(read, spec.remote_blocks, /*writes=*/false);
  (*consumer_)[spec.rank].device->begin_remote(read, spec.local_blocks, /*writes=*/true);
}

void RemoteReads::end(ReadId read, bool success) {
  const auto found = begun_.find(read);
  if (found == begun_.end()) return;
  found->second.has_ended = true;
  const ReadSpec& spec = found->second.spec;
  const KVCells& from = *(*producer_)[spec.remote_rank].device;
  KVCells& to = *(*consumer_)[spec.rank].device;
  for (std::size_t block = 0; block < spec.local_blocks.size(); ++block) {
    for (std::uint32_t at = 0; at < block_size_; ++at) {
      const Symbol symbol = success ? from.read({spec.remote_blocks[block], at}) : toy_model::kTorn;
      to.write({spec.local_blocks[block], at}, symbol);
    }
  }
}

void RemoteReads::reader_knows(ReadId read) {
  for (EngineRank& rank : *consumer_) rank.device->know_remote(read);
}

void RemoteReads::owner_knows(std::uint32_t remote_rank, const std::string& remote_request) {
  std::erase_if(begun_, [&](const auto& each) {
    const auto& [read, begun] = each;
    const bool is_of_it = begun.has_ended && begun.spec.remote_rank == remote_rank &&
                          begun.spec.remote_request == remote_request;
    if (is_of_it) (*producer_)[remote_rank].device->know_remote(read);
    return is_of_it;
  });
}

}  // namespace kvfence::engine::on_device
