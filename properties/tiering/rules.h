#pragma once

/// What must hold of one tiering manager and the file tiers below it, whatever any other
/// implementation says and whatever the release: slots hold what their keys name, transfers pin
/// their blocks, jobs end once, and nothing waits for ever.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "contract/tiering/tiering_target.h"
#include "properties/core/divergence.h"
#include "properties/tiering/file_tier_model.h"

namespace kvfence::tiering {

/// Every invariant: what the command line and the documentation list.
inline constexpr std::array<Invariant, 12> kInvariants = {{
    {"tiering.1", "blocks_and_numbers_add_up",
     "a key stands once in the lists, each block has a slot of its own, and the numbers are those "
     "of the lists"},
    {"tiering.2", "what_is_ready_is_complete",
     "a block is ready, found, loaded or stored further down only while its slot holds its key, "
     "from a store that succeeded or a promotion that its tier reported as done"},
    {"tiering.3", "a_slot_has_one_writer",
     "a slot is given to a block only while no transfer uses it; the blocks that are not ready are "
     "those that stores and promotions write, each in its slot"},
    {"tiering.4", "readers_are_transfers",
     "a block has as many readers as loads and cascades of it are under way, which find it ready "
     "in their slot"},
    {"tiering.5", "each_job_ends_once",
     "the jobs under way are those that were submitted to a tier and that this tier has not "
     "reported, each under a number of its own"},
    {"tiering.6", "what_is_ready_is_found",
     "a lookup hits if and only if the primary tier holds the block ready"},
    {"tiering.7", "an_ask_again_has_a_cause",
     "a lookup is put off only while the block is being written, or if a tier asks for that"},
    {"tiering.8", "steps_go_on",
     "no step ends before each tier was asked for its finished jobs, nor with promotions queued"},
    {"tiering.9", "events_mirror_the_blocks",
     "an index fed by all events holds exactly the blocks that are ready"},
    {"tiering.10", "a_refusal_changes_nothing",
     "a command that is refused without a poll leaves lists, jobs and tiers as they were"},
    {"tiering.11", "slots_hold_their_blocks",
     "the slot of a ready block holds the bytes of its key"},
    {"tiering.12", "files_keep_what_was_stored",
     "a file tier finds what was stored there and nothing else; a store is done if and only if its "
     "files are there; a whole file stays, a temporary one only if it could not be removed; what "
     "could not be loaded or has another size is missed until it is stored again; while nothing "
     "goes wrong in its files each job with what is there succeeds"},
}};

/// Watches one implementation. A value: copyable.
///
/// The model holds which slots are complete and which transfers are under way, by answers and calls
/// on the tiers. An observation without the lists is checked by these alone.
class Invariants {
 public:
  static constexpr auto& kRules = kInvariants;

  Invariants(const Config& config, const OffloadingManagerConfig& primary)
      : Invariants(primary, config.num_tiers, config.file_tiers) {}
  Invariants(const OffloadingManagerConfig& primary, std::uint32_t num_tiers,
             const std::vector<std::uint32_t>& file_tiers = {})
      : capacity_(primary.cache.capacity),
        has_events_(primary.enable_events),
        num_tiers_(num_tiers) {
    for (const std::uint32_t place : file_tiers) file_tiers_[place];
  }

  /// Holds one observation against every invariant; the first that is broken, or nothing. Called
  /// after every command of a run, until one is broken.
  std::optional<Divergence> check(const Command& command, const Observation* before,
                                  const Observation& observation, const World& world,
                                  std::size_t step);

 private:
  using Found = std::optional<Divergence>;
  using Keys = std::vector<std::uint32_t>;

  bool holds(SlotId slot, std::uint32_t key) const;
  void fill(SlotId slot, std::uint32_t key);
  bool is_used(SlotId slot) const;

  Found check_all(const Command& command, const Observation& observation);
  Found take_in(const Command& command, const Observation& observation);
  void take_in_end(const CompleteStore& command);
  Found take_in_call(const TierCallRecord& call, const Observation& observation);
  Found take_in_report(const TierCallRecord& call);
  Found take_in_store(const Observation& observation);
  Found check_complete(std::string_view member, const Keys& keys,
                       const std::vector<SlotId>& slots) const;
  Found check_lookup(const Lookup& command, const Observation& observation) const;
  Found check_step(const Observation& observation);
  Found check_events(const Observation& observation);
  Found check_unchanged(const Observation& observation) const;
  Found check_lists(const Observation& observation) const;
  Found check_blocks(const Observation& observation) const;
  Found check_files(const Observation& observation);

  std::uint32_t capacity_;
  bool has_events_;
  std::uint32_t num_tiers_;
  std::map<std::uint32_t, FileTierModel> file_tiers_;  ///< by place

  std::map<SlotId, std::uint32_t> complete_;      ///< the key whose bytes a slot holds
  std::map<std::uint32_t, SlotId> stores_;        ///< by key: the caller writes it there
  std::map<std::uint32_t, std::uint32_t> loads_;  ///< by key: how often the caller reads it
  std::vector<Transfer> jobs_;                    ///< submitted, not reported
  std::set<std::uint32_t> polled_;                ///< tiers, in this step
  std::set<std::uint32_t> index_;                 ///< fed by events
  const Observation* before_ = nullptr;  ///< of the check at hand: the command before; may be null
};

}  // namespace kvfence::tiering
