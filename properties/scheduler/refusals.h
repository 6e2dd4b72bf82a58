#pragma once

/// Which refusals the invariants of targets with a scheduler expect alike: of a request, of a
/// step's update, and of requests that are ended from outside.

#include <string>
#include <vector>

#include "contract/scheduler/scheduler_target.h"

namespace kvfence::detail {

/// Of an engine with a connector: kAlreadyDeclared, kNotInConfig (of several groups in which the
/// GPU's cache is read), kNoTokens or kBeyondModelLength, in this order; or kNone.
template <class AddRequest>
ErrorCode refusal_of_request(const AddRequest& added, const KVCacheManagerConfig& config,
                             const scheduler::World& world) {
  const scheduler::World::Entry* entry = world.find(added.id);
  if (!entry || !entry->is_new) return ErrorCode::kAlreadyDeclared;
  if (config.groups.size() > 1 && !added.skip_reading_prefix_cache) return ErrorCode::kNotInConfig;
  if (added.tokens.empty() || added.max_tokens == 0) return ErrorCode::kNoTokens;
  const bool fits = added.tokens.size() < config.max_model_len;
  return fits ? ErrorCode::kNone : ErrorCode::kBeyondModelLength;
}

/// kUnknownRequest, kNoStepInFlight or kWrongTokenCount, in this order; kNone for an update that
/// the step takes. step: the oldest one in flight; null if there is none.
ErrorCode refusal_of_update(const std::vector<scheduler::Sample>& samples,
                            const std::vector<scheduler::ScheduledRequest>* step,
                            const scheduler::World& world);

/// kUnknownRequest, or kNone.
ErrorCode refusal_of_names(const std::vector<std::string>& names, const scheduler::World& world);

}  // namespace kvfence::detail
