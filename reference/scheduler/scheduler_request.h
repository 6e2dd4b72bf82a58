#pragma once

/// A request as the scheduler knows it: what it was added with, and how far it has come.

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/pool/request.h"
#include "contract/scheduler/scheduler.h"

namespace kvfence::reference {

/// What the priority policy orders requests by; the least is served first.
/// Source: vLLM v0.19.0 v1/request.py Request.__lt__.
struct PriorityKey {
  std::uint32_t priority = 0;
  std::uint32_t arrival_time = 0;
  std::string id;
  friend auto operator<=>(const PriorityKey&, const PriorityKey&) = default;
};

/// Source: vLLM v0.19.0 v1/request.py Request.
struct SchedulerRequest {
  SchedulerRequest(RequestIndex given_index, const NewRequest& new_request,
                   const HashConfig& hash_config)
      : index(given_index),
        added(new_request),
        request(new_request.spec, hash_config),
        status(new_request.needs_grammar ? RequestStatus::kWaitingForGrammar
                                         : RequestStatus::kWaiting) {}

  std::uint32_t num_prompt_tokens() const {
    return static_cast<std::uint32_t>(added.spec.tokens.size());
  }
  std::uint32_t num_tokens() const {
    return static_cast<std::uint32_t>(request.all_token_ids().size());
  }
  std::uint32_t num_output_tokens() const { return num_tokens() - num_prompt_tokens(); }
  PriorityKey priority_key() const { return {added.priority, added.arrival_time, added.id}; }

  /// A load is under way and was not reported as finished.
  bool is_loading() const {
    return status == RequestStatus::kWaitingForRemoteKVs && !load_is_finished;
  }

  RequestIndex index;
  NewRequest added;
  Request request;  ///< prompt and output tokens
  RequestStatus status;
  std::uint32_t num_computed_tokens = 0;
  std::uint32_t num_output_placeholders = 0;
  std::uint32_t num_preemptions = 0;
  std::vector<TokenId> spec_token_ids;
  bool is_prefill_chunk = false;      ///< the last step that had it does not sample
  bool grammar_is_compiled = false;   ///< kWaitingForGrammar
  bool load_is_finished = false;      ///< kWaitingForRemoteKVs: reported, well or badly
  bool load_has_failed = false;       ///< kWaitingForRemoteKVs: some block is invalid
  bool is_inflight_prefill = false;   ///< Rules::reserve_for_prefills
  std::uint64_t last_stale_step = 0;  ///< steps up to this one are stale for it

  void add_to(StateHash& hash) const {
    hash.add_all(index, added, request, status, num_computed_tokens, num_output_placeholders,
                 num_preemptions, spec_token_ids, is_prefill_chunk, grammar_is_compiled,
                 load_is_finished, load_has_failed, is_inflight_prefill, last_stale_step);
  }
};

}  // namespace kvfence::reference
