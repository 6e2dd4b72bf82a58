#pragma once

/// The planted bugs: edits of product sources (properties/planted/*.edits), as ci/plant.py lists
/// them.

#include <span>
#include <string_view>

#include "contract/core/check.h"
#include "properties/planted/switches.h"

namespace kvfence::planted {

struct Bug {
  int number;  ///< for planted::plant
  std::string_view name;
  std::string_view doc;         ///< one sentence
  std::string_view thread;      ///< the public thread of a bug of this shape, or "ours"
  std::string_view also_of[2];  ///< assemblies that list it, besides that of its room
};

/// The bugs of <room>.edits, in its order; none for an unknown room.
std::span<const Bug> bugs_of(std::string_view room);

/// Switches the bug of that name on until its destructor; empty name: none.
class SwitchedOn {
 public:
  SwitchedOn(std::string_view room, std::string_view name) {
    plant(kSound);
    for (const Bug& bug : bugs_of(room)) {
      if (bug.name == name) plant(bug.number);
    }
    KVFENCE_CHECK(name.empty() || switched_on != kSound,
                  "a planted bug that the room does not have");
  }
  ~SwitchedOn() { plant(kSound); }
  SwitchedOn(const SwitchedOn&) = delete;
  SwitchedOn& operator=(const SwitchedOn&) = delete;
};

}  // namespace kvfence::planted
