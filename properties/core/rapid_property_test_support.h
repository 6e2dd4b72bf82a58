#pragma once

/// What the property suites use of rapidcheck, compiled once: each instance of rc::check takes up
/// to a second to build, and each suite and type would have one. With a seed in RC_PARAMS, as under
/// ctest, a suite is deterministic.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <rapidcheck.h>  // RC_ASSERT and the like

namespace kvfence {

/// Whether the property holds for every drawn case. It fails by RC_ASSERT and RC_FAIL; the findings
/// of rapidcheck go to standard error.
bool holds(const std::string& description, const std::function<void()>& property);

/// The same if something rare has to occur: draws more cases, up to ten times as many, until it
/// has. Returns whether the property holds and the rare case occurred.
bool holds(const std::string& description, const std::function<bool()>& has_come_about,
           const std::function<void()>& property);

/// Bytes for Choices::from_bytes, 0 to bytes_max of them. They shrink to a shorter episode of
/// plainer commands. For use inside a property.
std::vector<std::uint8_t> draw_episode_bytes(int bytes_max);

/// For use inside a property.
std::uint64_t draw_seed();

}  // namespace kvfence
