#include "reference/connectors/disaggregated/disaggregated_connector.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "contract/connectors/disaggregated/disaggregated_connector.h"
#include "contract/core/check.h"
#include "contract/core/lists.h"
#include "contract/core/state_digest.h"

namespace kvfence::reference {
namespace {

// The ranks of the other engine with which a rank of an engine of that size communicates.
// Source: vLLM v0.19.0 distributed/kv_transfer/kv_connector/utils.py get_target_remote_ranks; from
// the producer's side: v1/nixl_connector.py _get_new_notifs
std::vector<std::uint32_t> remote_ranks(std::uint32_t rank, std::uint32_t world_size,
                                        std::uint32_t remote_world_size) {
  if (world_size >= remote_world_size) return {rank / (world_size / remote_world_size)};
  std::vector<std::uint32_t> ranks(remote_world_size / world_size);
  std::iota(ranks.begin(), ranks.end(), rank * static_cast<std::uint32_t>(ranks.size()));
  return ranks;
}

/// Source: vLLM v0.19.0 distributed/kv_transfer/kv_connector/v1/nixl_connector.py
/// NixlConnectorWorker, what a producer does; leases: v0.23.0 v1/nixl/worker.py.
class DisaggregatedProducerWorker final
    : public Cloning<DisaggregatedProducerWorker, DisaggregatedWorker> {
 public:
  /// Requires: check_spec(spec) finds nothing wrong, rank < spec.producer_world_size
  DisaggregatedProducerWorker(const DisaggregatedSpec& spec, std::uint32_t rank,
                              Transport& transport)
      : Cloning(transport), spec_(spec), rank_(rank) {
    KVFENCE_CHECK(!check_spec(spec) && rank < spec.producer_world_size, "a rank of the producer");
  }

  // Source: vLLM v0.19.0 v1/nixl_connector.py NixlConnectorWorker.start_load_kv
  void start_load_kv() override {
    const auto& metadata = metadata_of<ProducerMetadata>(bound_metadata());
    for (const std::string& request : metadata.reqs_in_batch) {
      if (find(request) == nullptr) expected_.emplace_back().request = request;
    }
    for (const std::string& request : metadata.reqs_not_processed) {
      std::erase_if(expected_,
                    [&](const Expected& expected) { return expected.request == request; });
    }
    for (const ProducerMetadata::Send& send : metadata.reqs_to_send) {
      Expected* const expected = find(send.request);
      if (expected != nullptr) expected->expires = send.expires;
    }
  }

  // Notices come before the deadlines: what both name is finished once.
  // Source: vLLM v0.19.0 v1/nixl_connector.py get_finished, _get_new_notifs; ranks instead of
  // notices, and deadlines after one that is not over: ours
  void get_finished(std::span<const std::string>, KVConnectorWorkerOutput& out) override {
    out = {};
    const std::vector<std::uint32_t> readers =
        remote_ranks(rank_, spec_.producer_world_size, spec_.consumer_world_size);
    std::vector<Notice> notices;
    transport().get_new_notices(rank_, notices);
    for (const Notice& notice : notices) {
      if (notice.is_heartbeat) {
        extend(notice, transport().now());
        continue;
      }
      const std::string& request = notice.requests.front();
      Expected* const expected = find(request);
      if (expected == nullptr || !contains(readers, notice.rank)) continue;
      expected->done_ranks.insert(notice.rank);
      if (expected->done_ranks.size() == readers.size()) finish(request, out);
    }
    std::vector<std::string> over;
    for (const Expected& expected : expected_) {
      if (expected.expires && *expected.expires <= transport().now())
        over.push_back(expected.request);
    }
    for (const std::string& request : over) finish(request, out);
  }

  void add_to(StateHash& hash) const override { hash.add_all(expected_); }

 private:
  /// A request that a consumer may read.
  struct Expected {
    std::string request;
    std::optional<Seconds> expires;
    std::set<std::uint32_t> done_ranks;  ///< the consumer's that said so
  };

  Expected* find(const std::string& request) {
    const auto found = std::ranges::find(expected_, request, &Expected::request);
    return found == expected_.end() ? nullptr : &*found;
  }

  // Source: vLLM v0.23.0 v1/nixl/worker.py _handle_heartbeat
  void extend(const Notice& heartbeat, Seconds now) {
    KVFENCE_CHECK(spec_.deadline.has_value(), "a heartbeat renews a deadline");
    const Seconds expires = now + *spec_.deadline * 2 / 3;
    for (const std::string& request : heartbeat.requests) {
      Expected* const expected = find(request);
      if (expected == nullptr || !expected->expires) continue;
      expected->expires = std::max(*expected->expires, expires);
    }
  }

  // Source: vLLM v0.19.0 v1/nixl_connector.py get_finished, _get_new_notifs; closing: ours
  void finish(const std::string& request, KVConnectorWorkerOutput& out) {
    transport().close(rank_, request);
    out.finished_sending.push_back(request);
    std::erase_if(expected_, [&](const Expected& expected) { return expected.request == request; });
  }

  DisaggregatedSpec spec_;
  std::uint32_t rank_;
  std::vector<Expected> expected_;  ///< in the order in which they came
};

/// Source: vLLM v0.19.0 distributed/kv_transfer/kv_connector/v1/nixl_connector.py
/// NixlConnectorWorker, what a consumer does; leases: v0.23.0 v1/nixl/worker.py.
class DisaggregatedConsumerWorker final
    : public Cloning<DisaggregatedConsumerWorker, DisaggregatedWorker> {
 public:
  /// Requires: check_spec(spec) finds nothing wrong, rank < spec.consumer_world_size
  DisaggregatedConsumerWorker(const DisaggregatedSpec& spec, std::uint32_t rank,
                              Transport& transport)
      : Cloning(transport), spec_(spec), rank_(rank) {
    KVFENCE_CHECK(!check_spec(spec) && rank < spec.consumer_world_size, "a rank of the consumer");
  }

  // Source: vLLM v0.19.0 v1/nixl_connector.py start_load_kv, _read_blocks_for_req, _read_blocks;
  // heartbeats: v0.23.0 v1/nixl/worker.py _send_heartbeats
  void start_load_kv() override {
    const auto& metadata = metadata_of<ConsumerMetadata>(bound_metadata());
    const std::vector<std::uint32_t> producers =
        remote_ranks(rank_, spec_.consumer_world_size, spec_.producer_world_size);
    for (const ConsumerMetadata::Receive& receive : metadata.reqs_to_recv) {
      for (const std::uint32_t remote_rank : producers) {
        if (receive.local_blocks.empty()) {
          transport().send_notice(
              {rank_, remote_rank, /*is_heartbeat=*/false, {receive.remote_request}});
          continue;
        }
        const ReadId read =
            transport().read({rank_, remote_rank, receive.request, receive.remote_request,
                              receive.local_blocks, receive.remote_blocks});
        under_way_[read] = {receive.request, receive.local_blocks};
      }
    }
    if (metadata.heartbeats.empty()) return;
    for (const std::uint32_t remote_rank : producers) {
      transport().send_notice({rank_, remote_rank, /*is_heartbeat=*/true, metadata.heartbeats});
    }
  }

  // Source: vLLM v0.19.0 v1/nixl_connector.py get_finished, _pop_done_transfers,
  // _handle_failed_transfer
  void get_finished(std::span<const std::string>, KVConnectorWorkerOutput& out) override {
    out = {};
    std::vector<ReadResult> results;
    transport().get_finished_reads(rank_, results);
    for (const ReadResult& result : results) {
      const auto ended = under_way_.find(result.read);
      KVFENCE_CHECK(ended != under_way_.end(), "a read of this rank");
      const Read read = ended->second;
      under_way_.erase(ended);
      if (!result.success) {
        for (const BlockId block : read.local_blocks) {
          std::vector<BlockId>& all = out.invalid_block_ids;
          if (!contains(all, block)) all.push_back(block);
        }
      }
      const bool is_last = std::ranges::none_of(
          under_way_, [&](const auto& other) { return other.second.request == read.request; });
      if (is_last) out.finished_recving.push_back(read.request);
    }
  }

  void add_to(StateHash& hash) const override { hash.add_all(under_way_); }

 private:
  struct Read {
    std::string request;
    std::vector<BlockId> local_blocks;
  };

  DisaggregatedSpec spec_;
  std::uint32_t rank_;
  std::map<ReadId, Read> under_way_;
};

}  // namespace

std::unique_ptr<KVConnectorWorker> make_disaggregated_producer_worker(const DisaggregatedSpec& spec,
                                                                      std::uint32_t rank,
                                                                      Transport& transport) {
  return std::make_unique<DisaggregatedProducerWorker>(spec, rank, transport);
}

std::unique_ptr<KVConnectorWorker> make_disaggregated_consumer_worker(const DisaggregatedSpec& spec,
                                                                      std::uint32_t rank,
                                                                      Transport& transport) {
  return std::make_unique<DisaggregatedConsumerWorker>(spec, rank, transport);
}

}  // namespace kvfence::reference
