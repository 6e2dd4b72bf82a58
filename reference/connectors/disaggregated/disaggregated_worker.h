#pragma once

/// The workers' halves of a disaggregated pair, one object a rank. The rules stand in
/// contract/connectors/disaggregated/disaggregated_connector.h.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "contract/connectors/disaggregated/disaggregated_connector.h"
#include "contract/core/state_digest.h"

namespace kvfence::reference {

/// Source: vLLM v0.19.0 distributed/kv_transfer/kv_connector/v1/nixl_connector.py
/// NixlConnectorWorker, what a producer does; leases: v0.23.0 v1/nixl/worker.py.
class DisaggregatedProducerWorker final : public DisaggregatedWorker {
 public:
  /// Requires: check_spec(spec) finds nothing wrong, rank < spec.producer_world_size
  DisaggregatedProducerWorker(const DisaggregatedSpec& spec, std::uint32_t rank);

  std::unique_ptr<DisaggregatedWorker> clone() const override;
  void start_load_kv(const KVConnectorMetadata& metadata, Transport& transport) override;
  void get_finished(Transport& transport, KVConnectorWorkerOutput& out) override;
  void add_to(StateHash& hash) const override { hash.add_all(expected_); }

 private:
  /// A request that a consumer may read.
  struct Expected {
    std::string request;
    std::optional<Seconds> expires;
    std::set<std::uint32_t> done_ranks;  ///< the consumer's that said so
    void add_to(StateHash& hash) const { hash.add_all(request, expires, done_ranks); }
  };

  Expected* find(const std::string& request);
  std::size_t num_readers() const;
  bool is_reader(std::uint32_t rank) const;
  void extend(const Notice& heartbeat, Seconds now);
  void finish(const std::string& request, Transport& transport, KVConnectorWorkerOutput& out);

  DisaggregatedSpec spec_;
  std::uint32_t rank_;
  std::vector<Expected> expected_;  ///< in the order in which they came
};

/// Source: vLLM v0.19.0 distributed/kv_transfer/kv_connector/v1/nixl_connector.py
/// NixlConnectorWorker, what a consumer does; leases: v0.23.0 v1/nixl/worker.py.
class DisaggregatedConsumerWorker final : public DisaggregatedWorker {
 public:
  /// Requires: check_spec(spec) finds nothing wrong, rank < spec.consumer_world_size
  DisaggregatedConsumerWorker(const DisaggregatedSpec& spec, std::uint32_t rank);

  std::unique_ptr<DisaggregatedWorker> clone() const override;
  void start_load_kv(const KVConnectorMetadata& metadata, Transport& transport) override;
  void get_finished(Transport& transport, KVConnectorWorkerOutput& out) override;
  void add_to(StateHash& hash) const override { hash.add_all(under_way_); }

 private:
  struct Read {
    std::string request;
    std::vector<BlockId> local_blocks;
    void add_to(StateHash& hash) const { hash.add_all(request, local_blocks); }
  };

  std::vector<std::uint32_t> remote_ranks() const;

  DisaggregatedSpec spec_;
  std::uint32_t rank_;
  std::map<ReadId, Read> under_way_;
};

}  // namespace kvfence::reference
