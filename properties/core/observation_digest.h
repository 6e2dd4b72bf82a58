#pragma once

/// Digests of observations: a long recording holds them in place of texts.

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

/// The named members in their order, without empty ones.
std::vector<Field> recorded_fields(const kvfence::Observation& observation,
                                   const std::vector<std::string>& members);
/// Replaces hashes by symbols, for readers.
void symbolize(std::vector<Field>& fields, const World& world);

/// Digests the observations of one episode. A digest is the first 8 bytes of the XXH3 of 128 bits
/// of the digest after the previous observation (at first 8 zero bytes) and of the recorded fields
/// as text, each followed by a blank. Hashes stay bytes, because their names may change.
class ObservationDigest {
 public:
  explicit ObservationDigest(const Digests& form) : members_(form.members) {}

  void add(const kvfence::Observation& observation);
  /// The digest of all observations so far.
  Bytes take();
  /// If a step records another digest, reports what was observed since the previous one.
  std::optional<Divergence> check(const Scenario& scenario, std::size_t step, const World& world);

 private:
  std::vector<std::string> members_;
  std::string digest_ = std::string(Digests::kBytes, '\0');
  std::vector<std::vector<Field>> seen_;  ///< since the last take()
};

}  // namespace kvfence
