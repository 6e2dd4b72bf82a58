#pragma once

/// The worker's half of a synchronous connector as a KVConnectorWorker, over the KV cache of its
/// rank. It keeps nothing between two calls, so copies share it.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "contract/connectors/kv_connector_worker.h"
#include "contract/connectors/synchronous/synchronous_connector.h"
#include "contract/scripted/scripted_kv_cache.h"

namespace kvfence {

class FilesWorkerHalf final : public Cloning<FilesWorkerHalf, KVConnectorWorker> {
 public:
  /// kv_cache, report: outlive it. The report gets what each call did; once it has a failed file,
  /// nothing is called any more.
  FilesWorkerHalf(std::shared_ptr<SynchronousConnectorWorker> worker, ScriptedKVCache& kv_cache,
                  SynchronousWorkerReport& report)
      : worker_(std::move(worker)), kv_cache_(&kv_cache), report_(&report) {}

  void start_load_kv() override {
    worker_->start_load_kv(own(bound_metadata()), *kv_cache_, *report_);
  }
  void save_kv_layer(std::uint32_t layer) override {
    worker_->save_kv_layer(own(bound_metadata()), layer, *kv_cache_, *report_);
  }
  void get_finished(std::span<const std::string>, KVConnectorWorkerOutput& out) override {
    out = {};
  }
  /// The workers of such connectors keep nothing from one step to the next; storage and KV cache
  /// are around them.
  void add_to(StateHash&) const override {}

 private:
  static const SynchronousConnectorMetadata& own(const KVConnectorMetadata& metadata) {
    return static_cast<const SynchronousConnectorMetadata&>(metadata);
  }

  std::shared_ptr<SynchronousConnectorWorker> worker_;
  ScriptedKVCache* kv_cache_;
  SynchronousWorkerReport* report_;
};

}  // namespace kvfence
