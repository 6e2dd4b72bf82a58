#pragma once

/// The differences between upstream releases, one named behaviour each.
///
/// Code asks for the behaviour (`rules.free_blocks_prepend`), never for a version; a profile is a
/// preset of the whole struct. A new difference is a new member here, a line in kRuleFields, and a
/// value in each preset.

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace kvfence {

struct Rules {
  /// free_blocks takes `prepend`, which puts the freed blocks at the head of the free queue.
  /// Source: vLLM v0.23.0 v1/core/block_pool.py free_blocks; absent in v0.19.0.
  bool free_blocks_prepend = false;

  /// cache_full_blocks takes a mask; a masked-out block is passed over like a null block.
  /// Source: vLLM v0.23.0 v1/core/block_pool.py cache_full_blocks; absent in v0.19.0.
  bool cache_full_blocks_mask = false;

  /// BlockStored and BlockRemoved carry the group id.
  /// Source: vLLM v0.23.0 distributed/kv_events.py group_idx; absent in v0.19.0.
  bool events_carry_group = false;

  friend bool operator==(const Rules&, const Rules&) = default;
};

struct RuleField {
  std::string_view name;
  bool Rules::*member;
  std::string_view doc;
};

/// Every rule by name: what the config line, `kvfence list` and the documentation iterate.
inline constexpr std::array<RuleField, 3> kRuleFields = {{
    {"free_blocks_prepend", &Rules::free_blocks_prepend,
     "free_blocks takes prepend=true: freed blocks go to the head of the free queue"},
    {"cache_full_blocks_mask", &Rules::cache_full_blocks_mask,
     "cache_full_blocks takes a mask: masked-out blocks are passed over like null blocks"},
    {"events_carry_group", &Rules::events_carry_group,
     "BlockStored and BlockRemoved carry the group id"},
}};

/// A pinned upstream release.
enum class Profile : std::uint8_t { kV019, kV023 };

inline constexpr std::array<Profile, 2> kProfiles = {Profile::kV019, Profile::kV023};

/// The rules of a release.
Rules rules_of(Profile profile);

/// "v0.19", "v0.23".
std::string_view to_text(Profile profile);
std::optional<Profile> profile_from_text(std::string_view text);

}  // namespace kvfence
