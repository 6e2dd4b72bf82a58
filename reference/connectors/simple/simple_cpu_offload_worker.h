#pragma once

/// The worker's half of the simple CPU offload connector. The rules of each function stand in
/// contract/connectors/simple/simple_cpu_offload.h.
/// Source: vLLM v0.19.0 v1/simple_kv_offload/worker.py SimpleCPUOffloadWorker.

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "contract/connectors/simple/simple_cpu_offload.h"
#include "contract/core/state_digest.h"

namespace kvfence::reference {

class SimpleCPUOffloadWorker final : public KVConnectorWorker {
 public:
  std::unique_ptr<KVConnectorWorker> clone() const override;
  void handle_preemptions(const KVConnectorMetadata& metadata) override;
  void start_load_kv() override;
  void wait_for_save() override;
  void get_finished(std::span<const std::string> finished_requests,
                    KVConnectorWorkerOutput& out) override;
  void add_to(StateHash& hash) const override {
    hash.add_all(loads_, stores_, load_mark_, store_mark_);
  }

 private:
  std::map<JobId, std::vector<std::string>> loads_;  ///< by event, not reported; who waits for it
  std::set<JobId> stores_;                           ///< events, not reported
  std::optional<JobId> load_mark_;                   ///< greatest event that ended
  std::optional<JobId> store_mark_;
};

std::unique_ptr<KVConnectorWorker> make_simple_cpu_offload_worker(const SimpleCPUOffloadSpec& spec);

}  // namespace kvfence::reference
