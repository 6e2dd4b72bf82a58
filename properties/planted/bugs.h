#pragma once

/// The planted bugs: edits of product sources (properties/planted/*.edits), as ci/plant.py lists
/// them.

#include <span>
#include <string_view>

namespace kvfence::planted {

struct Bug {
  int number;  ///< what planted::plant takes
  std::string_view name;
  std::string_view doc;     ///< one sentence
  std::string_view thread;  ///< the public thread of a bug of this shape, or "ours"
};

/// The bugs of <room>.edits, in its order; none for an unknown room.
std::span<const Bug> bugs_of(std::string_view room);

}  // namespace kvfence::planted
