#pragma once

/// The manager that an offloading spec asks for: the CPU cache alone, or one above secondary tiers.
/// Both have the interface of a manager with tiers; the CPU cache ignores the calls that only tiers
/// need.
/// Source: vLLM v0.23.0 v1/kv_offload/base.py OffloadingManager; {cpu,tiering}/spec.py get_manager.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "contract/connectors/offloading/offloading_connector.h"
#include "contract/core/state_digest.h"
#include "reference/offload/offloading_manager.h"
#include "reference/tiering/tiering_manager.h"

namespace kvfence::reference {

class SpecOffloadingManager {
 public:
  /// Requires: check_spec(spec) finds nothing wrong; tiers only if spec.has_tiers
  SpecOffloadingManager(const OffloadingSpec& spec, std::vector<SecondaryTierHandle> tiers);

  /// Requires: the CPU cache is asked list by list, as in v0.19.0, where it is always alone.
  ErrorCode lookup(std::span<const OffloadKeyView> keys, std::uint32_t& num_hits);

  LookupResult lookup_key(OffloadKeyView key, const RequestContext& request);
  void touch(std::span<const OffloadKeyView> keys, const RequestContext& request);
  ErrorCode prepare_load(std::span<const OffloadKeyView> keys, std::vector<SlotId>& slots);
  ErrorCode complete_load(std::span<const OffloadKeyView> keys);
  ErrorCode prepare_store(std::span<const OffloadKeyView> keys, const RequestContext& request,
                          bool& stored, PrepareStoreOutput& out);
  void complete_store(std::span<const OffloadKeyView> keys, const RequestContext& request,
                      bool success);
  OffloadPolicy on_new_request(const RequestContext& request);
  void on_request_finished(const RequestContext& request);
  void on_schedule_end();
  void take_events(std::vector<OffloadingEvent>& out);

  /// Requires: no tiers
  void reset_cache();

  /// The CPU cache, also below a manager of tiers.
  const OffloadingManager& cpu() const { return tiering_ ? tiering_->primary() : cpu_; }

  /// Null if the CPU cache is alone.
  TieringOffloadingManager* tiering() { return tiering_ ? &*tiering_ : nullptr; }
  const TieringOffloadingManager* tiering() const { return tiering_ ? &*tiering_ : nullptr; }

  void add_to(StateHash& hash) const { hash.add_all(cpu_, tiering_); }

 private:
  OffloadingManager cpu_;  ///< not used with tiers
  std::optional<TieringOffloadingManager> tiering_;
};

}  // namespace kvfence::reference
