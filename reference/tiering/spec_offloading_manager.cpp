#include "reference/tiering/spec_offloading_manager.h"

#include <utility>

#include "contract/core/check.h"

namespace kvfence::reference {

SpecOffloadingManager::SpecOffloadingManager(const OffloadingSpec& spec,
                                             std::vector<SecondaryTierHandle> tiers)
    : cpu_(spec.manager) {
  KVFENCE_CHECK(spec.has_tiers || tiers.empty(),
                "tiers below a CPU cache without a tiering manager");
  if (spec.has_tiers) tiering_.emplace(spec.manager, std::move(tiers));
}

ErrorCode SpecOffloadingManager::lookup(std::span<const OffloadKeyView> keys,
                                        std::uint32_t& num_hits) {
  return cpu_.lookup(keys, num_hits);
}

LookupResult SpecOffloadingManager::lookup_key(OffloadKeyView key, const RequestContext& request) {
  if (tiering_) return tiering_->lookup(key, request);
  LookupResult result = LookupResult::kMiss;
  must(cpu_.lookup_key(key, result), "the manager is asked key by key in this profile");
  return result;
}

void SpecOffloadingManager::touch(std::span<const OffloadKeyView> keys,
                                  const RequestContext& request) {
  tiering_ ? tiering_->touch(keys, request) : cpu_.touch(keys);
}

ErrorCode SpecOffloadingManager::prepare_load(std::span<const OffloadKeyView> keys,
                                              std::vector<SlotId>& slots) {
  return tiering_ ? tiering_->prepare_load(keys, slots) : cpu_.prepare_load(keys, slots);
}

ErrorCode SpecOffloadingManager::complete_load(std::span<const OffloadKeyView> keys) {
  return tiering_ ? tiering_->complete_load(keys) : cpu_.complete_load(keys);
}

ErrorCode SpecOffloadingManager::prepare_store(std::span<const OffloadKeyView> keys,
                                               const RequestContext& request, bool& stored,
                                               PrepareStoreOutput& out) {
  return tiering_ ? tiering_->prepare_store(keys, request, stored, out)
                  : cpu_.prepare_store(keys, stored, out);
}

void SpecOffloadingManager::complete_store(std::span<const OffloadKeyView> keys,
                                           const RequestContext& request, bool success) {
  if (!tiering_) return cpu_.complete_store(keys, success);
  must(tiering_->complete_store(keys, request, success),
       "what is being stored is held, and not promoted");
}

OffloadPolicy SpecOffloadingManager::on_new_request(const RequestContext& request) {
  return tiering_ ? tiering_->on_new_request(request) : OffloadPolicy::kBlockLevel;
}

void SpecOffloadingManager::on_request_finished(const RequestContext& request) {
  if (tiering_) tiering_->on_request_finished(request);
}

void SpecOffloadingManager::on_schedule_end() {
  if (tiering_) tiering_->on_schedule_end();
}

void SpecOffloadingManager::take_events(std::vector<OffloadingEvent>& out) {
  tiering_ ? tiering_->take_events(out) : cpu_.take_events(out);
}

void SpecOffloadingManager::reset_cache() {
  KVFENCE_CHECK(!tiering_, "a manager of tiers cannot be reset");
  must(cpu_.reset_cache(), "the manager can be reset in this profile");
}

}  // namespace kvfence::reference
