#pragma once

/// A rank's copy engine as the children of a MultiConnector see it: each child submits jobs and
/// gets their results under its own numbers. A result for another child is kept until that child
/// asks.

#include <cstdint>
#include <memory>

#include "contract/connectors/transfer_engine.h"
#include "contract/core/state_digest.h"

namespace kvfence {

/// Copies share the engines, as they share the rank's.
class ChildEngines {
 public:
  explicit ChildEngines(std::uint32_t num_children);

  /// From now on these are views of that engine, which outlives them.
  void lend(TransferEngine& copies);

  /// Requires: one was lent.
  TransferEngine& of_child(std::uint32_t child);

  void add_to(StateHash& hash) const;

 private:
  class EngineOfChild;
  struct Shared;

  std::shared_ptr<Shared> shared_;
};

}  // namespace kvfence
