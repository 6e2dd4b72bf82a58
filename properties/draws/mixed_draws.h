#pragma once

/// Configurations that are mixed of two, so that whatever the contract takes together comes
/// together: a room draws configurations that make it busy, and by itself would never draw some
/// settings beside others.

#include <vector>

#include "contract/core/target.h"
#include "properties/core/checks.h"
#include "properties/draws/choices.h"

namespace kvfence {

class MixedDraws {
 public:
  /// What two factors never have together is left out of mixtures.
  MixedDraws(const Target& target, Config (*draw)(Choices& choices),
             std::vector<NeverTogether> never_together);

  /// As the room draws it. Of one in so many, members and parts of them are those of a second one,
  /// and rules are overridden, as far as the contract takes it.
  Config operator()(Choices& choices) const;

 private:
  const Target* target_;
  Config (*draw_)(Choices& choices);
  std::vector<NeverTogether> never_together_;
};

}  // namespace kvfence
