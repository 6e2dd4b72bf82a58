#pragma once

/// `kvfence replay --publish`: where the KV events of a replay go, and what is said of it.

#include <memory>
#include <optional>
#include <string>

#include "contract/core/line.h"
#include "contract/core/rules.h"
#include "scenarios/audit/event_stream.h"
#include "scenarios/replay/replay_sides.h"

namespace kvfence {

class Publication {
 public:
  /// Opens what the options name and waits for the subscribers; where they name nothing, nobody
  /// publishes. profile, hash_algorithm: of the pool. Errors: what EventStream cannot open.
  /// Requires: a file, or audit::Publisher::is_available().
  static Parsed<Publication> open(const audit::EventStreamOptions& options, Profile profile,
                                  HashAlgorithm hash_algorithm);

  /// Holds as long as this.
  EventsTap tap() const;
  /// After the replay. Errors: what went wrong while it ran.
  std::optional<InputError> finish();

  /// A line, or nothing where nobody publishes; an object with member "published", or an empty one.
  std::string to_text() const;
  std::string to_json() const;

 private:
  std::unique_ptr<audit::EventStream> stream_;
  bool has_truth_ = false;
};

}  // namespace kvfence
