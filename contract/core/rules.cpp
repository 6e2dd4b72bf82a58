#include "contract/core/rules.h"

namespace kvfence {

Rules rules_of(Profile profile) {
  switch (profile) {
    case Profile::kV019:
      return {};
    case Profile::kV023:
      return {.free_blocks_prepend = true,
              .cache_full_blocks_mask = true,
              .events_carry_group = true,
              .full_sequence_gate_in_allocate_slots = true,
              .sliding_window_mask = true,
              .unhashed_blocks_first = true,
              .eagle_by_group = true,
              .mamba_align_keeps_blocks = true,
              .sink_groups = false,
              .events_carry_spec = true,
              .priority_victim_shifts_loop = true,
              .lookahead_at_admission = true,
              .reserve_for_prefills = true,
              .connector_learns_new_requests = true,
              .finish_drops_by_computed_tokens = true,
              .held_requests_are_work = true,
              .reset_without_connector_succeeds = true,
              .lookup_by_key = true,
              .offload_reset = true,
              .arc_refuses_with_idle_t1 = true,
              .tiering = true,
              .offload_fences_reuse = true,
              .multi_connector_hma = true,
              .stopped_requests_are_sent = true,
              .kv_lease_heartbeats = true,
              .simple_offload_pins_hits = true,
              .simple_offload_skips_stores_under_way = true,
              .simple_offload_skips_unhashed_blocks = true,
              .simple_offload_aligns_stores = true,
              .decode_bench_hma = true};
  }
  return {};
}

std::string_view to_text(Profile profile) { return profile == Profile::kV019 ? "v0.19" : "v0.23"; }

std::optional<Profile> profile_from_text(std::string_view text) {
  for (Profile profile : kProfiles) {
    if (to_text(profile) == text) return profile;
  }
  return std::nullopt;
}

}  // namespace kvfence
