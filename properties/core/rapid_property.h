#pragma once

/// What the property suites use of rapidcheck, compiled once: each instance of rc::check takes up
/// to a second to build, and there is one for each suite and type.
/// Where RC_PARAMS fixes a seed, as ctest does, a suite is deterministic.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <rapidcheck.h>  // RC_ASSERT and the like

namespace kvfence {

/// Whether the property holds of every case drawn. It fails by RC_ASSERT and RC_FAIL; what
/// rapidcheck found goes to standard error.
bool holds(const std::string& description, const std::function<void()>& property);

/// The same where something rare has to come about: of more cases, up to ten times as many, until
/// it has. Whether it holds and has.
bool holds(const std::string& description, const std::function<bool()>& has_come_about,
           const std::function<void()>& property);

/// Bytes for Choices::from_bytes, 0 to bytes_max of them. They shrink to a shorter episode of
/// plainer commands. For use inside a property.
std::vector<std::uint8_t> draw_episode_bytes(int bytes_max);

/// For use inside a property.
std::uint64_t draw_seed();

}  // namespace kvfence
