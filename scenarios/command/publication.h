#pragma once

/// `kvfence replay --publish`: the destination of a replay's KV events, and the report on it.

#include <memory>
#include <string>

#include "contract/core/rules.h"
#include "scenarios/audit/event_stream.h"
#include "scenarios/replay/replay_sides.h"

namespace kvfence {

class Publication {
 public:
  /// Opens what the options name and waits for the subscribers; publishes nothing if they name
  /// nothing. profile, hash_algorithm: of the pool. Throws BadInput: what EventStream cannot open.
  /// Requires: a file, or audit::Publisher::is_available().
  Publication(const audit::EventStreamOptions& options, Profile profile,
              HashAlgorithm hash_algorithm);

  /// Valid during the lifetime of this.
  EventsTap tap() const;
  /// After the replay. Throws BadInput: what went wrong while it ran.
  void finish();

  /// A line, and an object with member "published"; both empty if nothing is published.
  std::string to_text() const;
  std::string to_json() const;

 private:
  std::unique_ptr<audit::EventStream> stream_;
  bool has_truth_ = false;
};

}  // namespace kvfence
