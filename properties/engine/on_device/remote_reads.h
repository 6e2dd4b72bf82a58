#pragma once

/// Reads over the network between the devices of a pair, rank by rank: whole blocks, which are
/// copied when a read ends. What a read that fails leaves in the blocks that it was to write is
/// nobody's.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "contract/connectors/disaggregated/transport.h"
#include "contract/scripted/scripted_transport.h"
#include "properties/engine/rank.h"

namespace kvfence::engine::on_device {

class RemoteReads final : public ReadCarrier {
 public:
  /// Nothing is read. The ranks outlive it, or the next start; block_size: tokens of a block.
  void start(std::vector<EngineRank>& producer, std::vector<EngineRank>& consumer,
             std::uint32_t block_size);

  void begin(ReadId read, const ReadSpec& spec) override;
  void end(ReadId read, bool success) override;
  void tell_reader(ReadId read) override;
  void tell_owner(std::uint32_t remote_rank, const std::string& remote_request) override;

 private:
  struct Begun {
    ReadSpec spec;
    bool has_ended = false;
  };

  std::vector<EngineRank>* producer_ = nullptr;
  std::vector<EngineRank>* consumer_ = nullptr;
  std::uint32_t block_size_ = 0;
  std::map<ReadId, Begun> begun_;  ///< of which the owner does not know that they are over
};

}  // namespace kvfence::engine::on_device
