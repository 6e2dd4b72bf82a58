#pragma once

/// The SimpleCPUOffloadConnector in an engine: its command, and what is observed of it.

#include <string>
#include <vector>

#include "contract/connectors/simple/simple_cpu_offload.h"
#include "contract/core/status.h"
#include "contract/engine/engine_target.h"
#include "properties/engine/rank.h"

namespace kvfence::engine::simple {

/// Whether both pools, tables and copies are shown.
inline bool has_state(const Observation& observation) {
  return observation.requests.has_value() && observation.tables.has_value() &&
         observation.ref_cnts.has_value() && observation.keys.has_value() &&
         observation.copies.has_value() && observation.pins.has_value() &&
         observation.cpu_free_queue.has_value() && observation.cpu_ref_cnts.has_value() &&
         observation.cpu_keys.has_value();
}

class Facet {
 public:
  void start(TransferNumbers numbers) { numbers_ = numbers; }

  ErrorCode run(const AdvanceCopy& command, std::vector<EngineRank>& ranks) const;

  static void observe_plan(const SimpleCPUOffloadMetadata& metadata, Observed& observed);
  static void observe_numbers(const SimpleCPUOffloadScheduler& connector, Observed& observed);
  /// names_of(indices, names) fills names. Over a device the copies are the device's.
  template <class NamesOf>
  void observe_state(const SimpleCPUOffloadScheduler& connector,
                     const std::vector<EngineRank>& ranks, NamesOf&& names_of, Observed& observed) {
    observe_copies(ranks, observed);
    connector.pinned_hits(hits_);
    pinning_.clear();
    for (const PinnedHit& hit : hits_) pinning_.push_back(hit.request);
    names_of(pinning_, names_);
    std::vector<Pin>& pins = observed.pins.emplace();
    pins.resize(hits_.size());
    for (std::size_t index = 0; index < pins.size(); ++index) {
      pins[index].request = names_[index];
      pins[index].cpu_blocks = hits_[index].cpu_blocks;
    }
    connector.cpu_pool(cpu_pool_);
    observed.cpu_free_queue.emplace() = cpu_pool_.free_queue;
    observed.cpu_ref_cnts.emplace() = cpu_pool_.ref_cnts;
    observed.cpu_keys.emplace().assign(cpu_pool_.keys.begin(), cpu_pool_.keys.end());
  }

 private:
  void observe_copies(const std::vector<EngineRank>& ranks, Observed& observed) const;

  TransferNumbers numbers_;
  std::vector<PinnedHit> hits_;
  std::vector<RequestIndex> pinning_;
  std::vector<std::string> names_;
  CpuPoolState cpu_pool_;
};

}  // namespace kvfence::engine::simple
