#pragma once

/// Digests of observations: what a long recording holds in the place of their texts.

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "contract/core/line.h"
#include "contract/core/observation.h"
#include "contract/core/scenario.h"
#include "contract/core/target.h"
#include "properties/core/divergence.h"

namespace kvfence {

/// The named members in their order, without those that say nothing.
std::vector<Field> recorded_fields(const kvfence::Observation& observation,
                                   const std::vector<std::string>& members);
/// The same as a reader wants them: hashes as symbols.
void symbolize(std::vector<Field>& fields, const World& world);

/// Digests the observations of one episode. A digest is the first 8 bytes of the XXH3 of 128 bits
/// of the digest after the observation before (at first 8 zero bytes) and of the recorded fields as
/// text, each with a blank after it. Hashes stay bytes: what they are called may change.
class ObservationDigest {
 public:
  explicit ObservationDigest(const Digests& form) : members_(form.members) {}

  void add(const kvfence::Observation& observation);
  /// Of all observations so far. What follows is counted from here.
  Bytes take();
  /// Where a step records another digest: what was seen since the one before.
  std::optional<Divergence> check(const Scenario& scenario, std::size_t step, const World& world);

 private:
  std::vector<std::string> members_;
  std::string digest_ = std::string(Digests::kBytes, '\0');
  std::vector<std::vector<Field>> seen_;  ///< since the last take()
};

}  // namespace kvfence
