#pragma once

/// Draws configurations and commands for the tiering target: few slots, no to three tiers, now and
/// then some that are file tiers, runs of keys as requests have them, swarm weights, arguments that
/// are mostly sensible in the state that the manager and its tiers show and now and then are not.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "contract/tiering/file_fault.h"
#include "contract/tiering/tiering_target.h"
#include "properties/core/choices.h"
#include "properties/core/swarm.h"
#include "properties/eviction/keys.h"

namespace kvfence::tiering {

class Generator {
 public:
  /// A small configuration: 1 to 10 slots, both policies, 0 to 3 tiers, half of them with file
  /// tiers.
  static Config draw_config(Choices& choices);

  /// Draws the weights of this episode: some commands often, some hardly ever, some not at all.
  Generator(const Config& config, Choices& choices);

  /// The next command, given what a manager shows.
  Command next(Choices& choices, const Observation& now, const World& world);

 private:
  using Keys = std::vector<std::uint32_t>;

  void see(const Observation& now);
  void see_failed_promotions(const Keys& promoted);
  /// Whether that command would find nothing to work on.
  bool is_idle(std::size_t chosen) const;
  Command draw(Choices& choices, std::size_t chosen);
  Keys doubted_below() const;
  std::uint32_t draw_key_to_look_up(Choices& choices) const;
  Keys draw_keys_to_store(Choices& choices) const;
  TierFinish draw_finish(Choices& choices);
  std::uint32_t draw_tier(Choices& choices) const;
  std::uint32_t draw_file_tier(Choices& choices) const;
  FileOperation draw_operation(std::uint32_t tier, Choices& choices) const;
  TierFaults draw_faults(Choices& choices) const;
  TierDamage draw_damage(Choices& choices) const;

  std::uint32_t num_tiers_;
  Keys file_tiers_;  ///< places
  VerbSwarm<Command> swarm_;
  bool ends_jobs_;  ///< before many are under way
  eviction::DrawnKeys keys_;
  std::vector<Transfer> jobs_;
  std::vector<TierState> tiers_;
  Keys below_;              ///< in a tier and not in the primary one
  Keys storing_;            ///< being written by a store
  Keys loading_;            ///< being read by a load
  std::string looking_up_;  ///< the request of the last lookup
  Keys looked_up_;          ///< lately, the last at the end
  Keys promoted_;           ///< waiting for a promotion or under way in one
  Keys doubted_;            ///< missed lately, or not promoted, although a tier holds them
  Keys finished_;           ///< jobs, lately
};

}  // namespace kvfence::tiering
