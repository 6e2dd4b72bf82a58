#pragma once

/// The worker's half of NIXL as a KVConnectorWorker, over the transport of its pair.

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "contract/connectors/disaggregated/disaggregated_connector.h"
#include "contract/connectors/disaggregated/transport.h"
#include "contract/connectors/kv_connector_worker.h"

namespace kvfence {

class NixlWorkerHalf final : public Cloning<NixlWorkerHalf, KVConnectorWorker> {
 public:
  /// transport: outlives it.
  NixlWorkerHalf(std::unique_ptr<DisaggregatedWorker> worker, Transport& transport)
      : worker_(std::move(worker)), transport_(&transport) {}

  bool prefer_cross_layer_blocks() const override { return true; }
  std::shared_ptr<const KVConnectorHandshakeMetadata> get_handshake_metadata() override {
    return std::make_shared<NixlHandshake>(*transport_);
  }
  void start_load_kv() override { worker_->start_load_kv(bound_metadata(), *transport_); }
  void get_finished(std::span<const std::string>, KVConnectorWorkerOutput& out) override {
    worker_->get_finished(*transport_, out);
  }
  void add_to(StateHash& hash) const override { hash.add(worker_); }

 private:
  DisaggregatedWorkerHandle worker_;
  Transport* transport_;
};

}  // namespace kvfence
