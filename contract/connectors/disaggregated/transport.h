#pragma once

/// The transport that carries KV between two engines, as the workers of both see it: a consumer's
/// rank reads blocks of a producer's rank, and notifies it when it no longer needs them.
/// Source: vLLM v0.19.0 distributed/kv_transfer/kv_connector/v1/nixl_connector.py, what
/// NixlConnectorWorker asks of its nixl_wrapper and of the clock; listen: NixlConnectorScheduler
/// _nixl_handshake_listener; close: ours.

#include <cstdint>
#include <string>
#include <vector>

#include "contract/core/types.h"

namespace kvfence {

/// The longest time or span, so that the sum of two fits.
inline constexpr Seconds kSecondsMax = 1'000'000'000;

/// One rank of a consumer reads from one rank of the producer. The block lists are equally long:
/// remote_blocks[i] is read into local_blocks[i].
struct ReadSpec {
  std::uint32_t rank = 0;         ///< the consumer's, which reads
  std::uint32_t remote_rank = 0;  ///< the producer's, which is read
  std::string request;            ///< the consumer's
  std::string remote_request;     ///< the producer's
  std::vector<BlockId> local_blocks;
  std::vector<BlockId> remote_blocks;
  friend bool operator==(const ReadSpec&, const ReadSpec&) = default;
};

struct ReadResult {
  ReadId read = 0;
  bool success = true;
  friend bool operator==(const ReadResult&, const ReadResult&) = default;
};

/// A notice from a rank of the consumer to a rank of the producer.
struct Notice {
  std::uint32_t rank = 0;             ///< the sender, the consumer's
  std::uint32_t remote_rank = 0;      ///< the receiver, the producer's
  bool is_heartbeat = false;          ///< keep them; else they are no longer needed
  std::vector<std::string> requests;  ///< the producer's; one, unless a heartbeat
  friend bool operator==(const Notice&, const Notice&) = default;
};

class Transport {
 public:
  /// Never decreases.
  virtual Seconds now() const = 0;

  /// From now on that producer's rank can be read; earlier reads fail at once.
  virtual void listen(std::uint32_t remote_rank) = 0;

  /// Starts a read. Once it succeeds, and only then, a notice that its blocks are no longer needed
  /// goes to the producer's rank.
  virtual ReadId read(const ReadSpec& spec) = 0;

  /// Replaces out by the reads of that consumer's rank that ended since the last call, in the order
  /// of their ends.
  virtual void get_finished_reads(std::uint32_t rank, std::vector<ReadResult>& out) = 0;

  /// Sends a notice without a read.
  virtual void send_notice(const Notice& notice) = 0;

  /// Replaces out by the notices that reached that producer's rank since the last call, in order of
  /// arrival.
  virtual void get_new_notices(std::uint32_t remote_rank, std::vector<Notice>& out) = 0;

  /// Closes that request of the producer on that rank: reads of its blocks that are under way fail
  /// now, later ones when they start.
  virtual void close(std::uint32_t remote_rank, const std::string& remote_request) = 0;

 protected:
  ~Transport() = default;
};

}  // namespace kvfence
