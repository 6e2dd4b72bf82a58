#include "contract/core/status.h"

#include <array>

#include "contract/core/check.h"

namespace kvfence {
namespace {

constexpr std::array<std::string_view, kNumErrorCodes> kNames = {
    "none",
    "unknown_request",
    "unknown_block",
    "no_free_blocks",
    "not_in_profile",
    "caching_disabled",
    "bad_block_size",
    "bad_range",
    "bad_mask",
    "missing_hash",
    "already_hashed",
    "double_free",
    "queue_empty",
    "not_queued",
    "already_queued",
    "already_declared",
    "already_allocated",
    "not_allocated",
    "no_tokens",
    "beyond_model_length",
    "table_shrinks",
    "not_in_config",
    "no_step_in_flight",
    "steps_in_flight",
    "wrong_token_count",
    "single_group_only",
    "not_loading",
    "not_finished",
    "unknown_key",
    "already_stored",
    "not_ready",
    "already_ready",
    "not_reading",
    "unknown_job",
    "listed_twice",
    "several_params",
    "shut_down",
    "job_in_flight",
    "counts_differ",
    "block_in_flight",
    "not_ordered",
};

}  // namespace

std::string_view to_text(ErrorCode code) {
  const auto index = static_cast<std::size_t>(code);
  KVFENCE_CHECK(index < kNames.size(), "an ErrorCode outside its enumeration");
  return kNames[index];
}

std::optional<ErrorCode> error_code_from_text(std::string_view text) {
  for (std::size_t index = 0; index < kNames.size(); ++index) {
    if (kNames[index] == text) return static_cast<ErrorCode>(index);
  }
  return std::nullopt;
}

}  // namespace kvfence
