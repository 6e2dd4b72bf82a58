#pragma once

/// Draws configurations and commands for the worker target: few blocks, so that transfers meet;
/// arguments that are mostly sensible for the transfers under way and now and then are not.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "contract/worker/worker_target.h"
#include "properties/core/choices.h"
#include "properties/core/swarm.h"

namespace kvfence::worker {

class Generator {
 public:
  /// A small configuration: 2 to 8 GPU blocks, 1 to 6 CPU blocks, every layout, path and
  /// schedule, 1 to 3 ranks.
  static Config draw_config(Choices& choices);

  /// Draws the weights of this episode: some commands often, some hardly ever, some not at all.
  Generator(const Config& config, Choices& choices);

  /// The next command, given what a worker shows.
  Command next(Choices& choices, const Observation& now, const World& world);

 private:
  /// Takes in what became of the last command.
  void see(const Observation& now);
  Command draw(Choices& choices, std::size_t chosen);
  Command draw_transfer(Choices& choices);
  Command draw_forward(Choices& choices);
  Command draw_advance(Choices& choices) const;
  Command draw_fault(Choices& choices) const;
  std::uint32_t draw_rank(Choices& choices) const;
  /// Up to `count` different numbers below the bound, of those that `is_free`, mostly.
  template <class IsFree>
  std::vector<std::uint32_t> some_of(std::uint32_t bound, std::uint32_t count, IsFree is_free,
                                     Choices& choices) const;
  /// Whether a transfer under way in another direction than this one names it.
  bool is_used(std::uint32_t number, bool on_gpu, const std::string& direction) const;

  Config config_;
  VerbSwarm<Command> swarm_;
  std::vector<TransferAsync> jobs_;  ///< taken, not reported
  Command last_;
  std::uint32_t next_job_ = 0;
};

}  // namespace kvfence::worker
