#pragma once

/// Reads over the network between the devices of a pair, rank by rank. Whole blocks are copied when
/// a read ends. A failed read leaves content of no request in the blocks that it writes.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "contract/connectors/disaggregated/transport.h"
#include "contract/core/state_digest.h"
#include "contract/scripted/scripted_transport.h"
#include "properties/engine/rank.h"

namespace kvfence::engine::on_device {

class RemoteReads final : public ReadCarrier {
 public:
  /// Starts without reads. The ranks outlive it, or the next start. block_size: tokens of a block.
  void start(std::vector<EngineRank>& producer, std::vector<EngineRank>& consumer,
             std::uint32_t block_size);

  void begin(ReadId read, const ReadSpec& spec) override;
  void end(ReadId read, bool success) override;
  void reader_knows(ReadId read) override;
  void owner_knows(std::uint32_t remote_rank, const std::string& remote_request) override;

  void add_to(StateHash& hash) const { hash.add(begun_); }

 private:
  struct Begun {
    ReadSpec spec;
    bool has_ended = false;
  };

  std::vector<EngineRank>* producer_ = nullptr;
  std::vector<EngineRank>* consumer_ = nullptr;
  std::uint32_t block_size_ = 0;
  std::map<ReadId, Begun> begun_;  ///< the owner does not know their end yet
};

}  // namespace kvfence::engine::on_device
