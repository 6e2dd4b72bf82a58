/// The rules of target tiering. They hold for any correct tiering manager and the file tiers below
/// it, of any release: slots hold the bytes of their keys, transfers pin their blocks, jobs end
/// once, and nothing waits for ever.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "contract/core/lists.h"
#include "contract/tiering/tiering_target.h"
#include "properties/core/broken_rule.h"
#include "properties/core/divergence.h"
#include "properties/core/invariant_values.h"
#include "properties/eviction/policy_lists.h"
#include "properties/targets/rooms.h"
#include "properties/tiering/file_tier_model.h"

namespace kvfence::tiering {
namespace {

/// Every invariant: what the command line and the documentation list.
constexpr Invariant kInvariants[] = {
    {"tiering.1", "blocks_and_numbers_add_up",
     "a key occurs once in the lists, each block has a slot of its own, and the numbers are those "
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
     "files are there; a whole file stays, a temporary one only if it could not be removed or is "
     "another writer's; what could not be loaded or has another size is missed until it is stored "
     "again; while nothing goes wrong in its files each job with what is there succeeds"},
};

using detail::has_repeats;
using eviction::Entry;

constexpr BrokenRuleOf<kInvariants> broken;

using Places = std::vector<std::pair<std::uint32_t, SlotId>>;  ///< key, slot

bool shows_lists(const Observation& shown) {
  return shown.t1.has_value() && shown.t2.has_value() && shown.b1.has_value() &&
         shown.b2.has_value() && shown.jobs.has_value() && shown.pending.has_value() &&
         shown.tiers.has_value();
}

const TierState* tier_of(const Observation& shown, std::uint32_t place) {
  const bool is_shown = shown.tiers.has_value() && place < shown.tiers->size();
  return is_shown ? &(*shown.tiers)[place] : nullptr;
}

void add_places(const Transfer& transfer, Places& places) {
  for (std::size_t index = 0; index < transfer.keys.size(); ++index) {
    places.emplace_back(transfer.keys[index], transfer.slots[index]);
  }
}

std::string text_of(const Places& places) {
  std::string text;
  for (const auto& [key, slot] : places) {
    text += (text.empty() ? "block " : ", block ") + std::to_string(key) + " in slot " +
            std::to_string(slot);
  }
  return text.empty() ? "none" : text;
}

/// The tier of a tier_* command.
std::optional<std::uint32_t> tier_of(const Command& command) {
  return std::visit(
      [](const auto& typed) -> std::optional<std::uint32_t> {
        if constexpr (requires { typed.tier; }) return typed.tier;
        return std::nullopt;
      },
      command);
}

/// The model holds which slots are complete and which transfers are under way, from answers and
/// calls on the tiers. An observation without the lists is checked by these alone.
class Invariants final : public RulesFor<TieringTarget> {
 public:
  explicit Invariants(const Setup& setup)
      : capacity_(setup.as<OffloadingManagerConfig>().cache.capacity),
        has_events_(setup.as<OffloadingManagerConfig>().enable_events),
        num_tiers_(setup.config().as<Config>().num_tiers) {
    for (const std::uint32_t place : setup.config().as<Config>().file_tiers) file_tiers_[place];
  }

  void check_all(const Command& command) override {
    const bool is_accepted = shown().error == ErrorCode::kNone;
    // Blocks of a store cascade in the same command; all other calls come after the poll.
    const auto* const ended = std::get_if<CompleteStore>(&command);
    if (is_accepted && ended) take_in_end(*ended);
    if (shown().tier_calls.has_value()) {
      for (const TierCallRecord& call : *shown().tier_calls) take_in_call(call);
    }
    if (is_accepted) {
      take_in(command);
    } else if (!shown().tier_calls.has_value()) {
      broken.if_changed("a_refusal_changes_nothing", before(), shown());
    }
    check_files();
    if (!shows_lists(shown())) return;
    check_lists();
    check_blocks();
  }

 private:
  using Keys = std::vector<std::uint32_t>;

  bool holds(SlotId slot, std::uint32_t key) const {
    const auto at = complete_.find(slot);
    return at != complete_.end() && at->second == key;
  }

  void fill(SlotId slot, std::uint32_t key) {
    // A queued promotion may have got the slot where the key was before.
    std::erase_if(complete_, [key](const auto& each) { return each.second == key; });
    complete_[slot] = key;
  }

  /// Whether a transfer under way uses the slot.
  bool is_used(SlotId slot) const {
    const auto at = complete_.find(slot);
    const auto load = at == complete_.end() ? loads_.end() : loads_.find(at->second);
    return (load != loads_.end() && load->second > 0) ||
           std::ranges::any_of(stores_, [&](const auto& store) { return store.second == slot; }) ||
           std::ranges::any_of(jobs_,
                               [&](const Transfer& job) { return contains(job.slots, slot); });
  }

  // ---- Commands that were accepted ----

  void take_in(const Command& command) {
    if (const auto* lookup = std::get_if<Lookup>(&command)) {
      return check_lookup(*lookup);
    }
    if (const auto* load = std::get_if<PrepareLoad>(&command)) {
      for (const std::uint32_t key : load->keys) ++loads_[key];
      return check_complete("slots", load->keys, *shown().slots);
    }
    if (const auto* load = std::get_if<CompleteLoad>(&command)) {
      for (const std::uint32_t key : load->keys) {
        if (loads_[key] > 0) --loads_[key];
      }
    }
    if (std::holds_alternative<PrepareStore>(command)) return take_in_store();
    if (std::holds_alternative<OnScheduleEnd>(command)) return check_step();
    if (std::holds_alternative<TakeEvents>(command)) return check_events();
    const auto place = tier_of(command);
    const auto tier = place ? file_tiers_.find(*place) : file_tiers_.end();
    if (tier == file_tiers_.end()) return;
    tier->second.take_in(command);
    if (const auto* finished = std::get_if<TierFinish>(&command)) {
      for (const Transfer& job : jobs_) {
        if (job.job != finished->job || job.tier != *place) continue;
        tier->second.finish(job, finished->success, tier_of(shown(), *place));
      }
    }
  }

  void take_in_end(const CompleteStore& command) {
    for (const std::uint32_t key : command.keys) {
      const auto store = stores_.find(key);
      if (store == stores_.end()) continue;
      if (command.success) fill(store->second, key);
      stores_.erase(store);
    }
  }

  // ---- Calls on tiers ----

  void take_in_call(const TierCallRecord& call) {
    const auto file_tier = file_tiers_.find(call.tier);
    if (call.method == "get_finished_jobs") {
      polled_.insert(call.tier);
      return take_in_report(call);
    }
    if (call.method == "lookup" && file_tier != file_tiers_.end()) {
      const TierState* const state = tier_of(shown(), call.tier);
      if (file_tier->second.may_answer(call.keys.front(), call.answer, state)) return;
      broken("files_keep_what_was_stored", "tier_calls", "what its files hold of the key",
             call.answer);
    }
    const bool is_load = call.method == "submit_load";
    if (!is_load && call.method != "submit_store") return;
    const Transfer job{call.job, call.tier, is_load, call.request, call.keys, call.slots};
    if (!is_load) check_complete("tier_calls", job.keys, job.slots);
    for (const SlotId slot : job.slots) {
      if (!is_load) break;
      if (is_used(slot)) {
        broken("a_slot_has_one_writer", "tier_calls", "a slot that no transfer uses",
               "slot " + std::to_string(slot));
      }
      complete_.erase(slot);
    }
    for (const Transfer& other : jobs_) {
      if (other.job != job.job) continue;
      broken("each_job_ends_once", "tier_calls", "a number of its own", std::to_string(*job.job));
    }
    jobs_.push_back(job);
  }

  void take_in_report(const TierCallRecord& call) {
    const auto file_tier = file_tiers_.find(call.tier);
    std::istringstream words(call.answer);
    std::uint32_t number = 0;
    std::string end;
    while (words >> number >> end) {
      const bool is_done = end == "done";
      const auto job = std::ranges::find_if(jobs_, [&](const Transfer& each) {
        return each.job == number && each.tier == call.tier;
      });
      if (job == jobs_.end()) continue;
      if (file_tier != file_tiers_.end() && !file_tier->second.report(number, is_done)) {
        broken("files_keep_what_was_stored", "tier_calls", "what its files show of the job",
               call.answer);
      }
      for (std::size_t index = 0; job->promotion && is_done && index < job->keys.size(); ++index) {
        fill(job->slots[index], job->keys[index]);
      }
      jobs_.erase(job);
    }
  }

  void take_in_store() {
    if (!*shown().stored) return;
    for (const eviction::Victim& victim : *shown().evicted) {
      if (is_used(victim.slot)) {
        broken("a_slot_has_one_writer", "evicted", "a slot that no transfer uses",
               text_of({{victim.key, victim.slot}}));
      }
      complete_.erase(victim.slot);
    }
    for (std::size_t index = 0; index < shown().keys_to_store->size(); ++index) {
      const std::uint32_t key = (*shown().keys_to_store)[index];
      const SlotId slot = (*shown().slots)[index];
      if (is_used(slot)) {
        broken("a_slot_has_one_writer", "slots", "a slot that no transfer uses",
               text_of({{key, slot}}));
      }
      complete_.erase(slot);
      stores_[key] = slot;
    }
  }

  /// Checks that each key can be read in its slot.
  void check_complete(std::string_view member, const Keys& keys,
                      const std::vector<SlotId>& slots) const {
    for (std::size_t index = 0; index < keys.size(); ++index) {
      if (index < slots.size() && holds(slots[index], keys[index])) continue;
      broken("what_is_ready_is_complete", member,
             "a slot that holds block " + std::to_string(keys[index]),
             index < slots.size() ? "slot " + std::to_string(slots[index]) : "none");
    }
  }

  void check_lookup(const Lookup& command) const {
    const LookupResult result = *shown().result;
    if (!shows_lists(shown())) {
      const bool is_complete = std::ranges::any_of(
          complete_, [&](const auto& each) { return each.second == command.key; });
      if (result != LookupResult::kHit || is_complete) return;
      broken("what_is_ready_is_complete", "result", LookupResult::kMiss, result);
    }
    const Entry* const block = eviction::find_block(shown(), command.key);
    const bool is_ready = block && block->ready;
    if (is_ready != (result == LookupResult::kHit)) {
      broken("what_is_ready_is_found", "result",
             is_ready ? LookupResult::kHit : LookupResult::kMiss, result);
    }
    const bool is_asked_for =
        shown().tier_calls.has_value() &&
        std::ranges::any_of(*shown().tier_calls,
                            [](const TierCallRecord& call) { return call.answer == "pending"; });
    if (result != LookupResult::kPending || block || is_asked_for) return;
    broken("an_ask_again_has_a_cause", "result", LookupResult::kMiss, result);
  }

  void check_step() {
    const std::size_t num_polled = polled_.size();
    polled_.clear();
    if (num_polled < num_tiers_) {
      broken("steps_go_on", "tier_calls", "get_finished_jobs of each tier in a step",
             "of " + std::to_string(num_polled));
    }
    broken.unless_equal("steps_go_on", "num_pending", 0U, shown().num_pending);
  }

  void check_events() {
    if (!has_events_) return;
    for (const offload::Event& event : *shown().events) {
      for (const std::uint32_t key : event.keys) {
        if (!event.removed) {
          index_.insert(key);
        } else if (index_.erase(key) == 0) {
          broken("events_mirror_the_blocks", "events", "keys that the index holds",
                 std::to_string(key));
        }
      }
    }
    if (!shows_lists(shown())) return;
    Keys ready;
    for (const Entry* block : shown().blocks()) {
      if (block->ready) ready.push_back(block->key);
    }
    std::ranges::sort(ready);
    const Keys index(index_.begin(), index_.end());
    broken.unless_equal("events_mirror_the_blocks", "events", ready, index);
  }

  void check_lists() const {
    const std::vector<const Entry*> blocks = shown().blocks();
    Keys keys;
    std::vector<SlotId> slots;
    for (const Entry* block : blocks) {
      keys.push_back(block->key);
      slots.push_back(block->slot);
      if (block->slot >= capacity_) {
        broken("blocks_and_numbers_add_up", "t1", "slots that there are",
               text_of({{block->key, block->slot}}));
      }
    }
    keys.insert(keys.end(), shown().b1->begin(), shown().b1->end());
    keys.insert(keys.end(), shown().b2->begin(), shown().b2->end());
    if (has_repeats(keys)) broken("blocks_and_numbers_add_up", "t1", "each key once", "one twice");
    if (has_repeats(slots))
      broken("blocks_and_numbers_add_up", "t1", "each slot once", "one twice");

    std::uint32_t num_pending = 0;
    for (const Transfer& transfer : *shown().pending) {
      num_pending += static_cast<std::uint32_t>(transfer.keys.size());
    }
    const auto add_up = [](std::string_view name, std::size_t expected, std::uint32_t number) {
      broken.unless_equal("blocks_and_numbers_add_up", name, static_cast<std::uint32_t>(expected),
                          number);
    };
    add_up("size", blocks.size(), shown().size);
    add_up("num_free_slots", capacity_ - blocks.size(), shown().num_free_slots);
    add_up("num_jobs", shown().jobs->size(), shown().num_jobs);
    add_up("num_pending", num_pending, shown().num_pending);
    const auto by_number = [](const Transfer& a, const Transfer& b) { return a.job < b.job; };
    std::vector<Transfer> jobs = jobs_;
    std::ranges::sort(jobs, by_number);
    std::vector<Transfer> shown_jobs = *shown().jobs;
    std::ranges::sort(shown_jobs, by_number);
    broken.unless_equal("each_job_ends_once", "jobs", jobs, shown_jobs);
  }

  void check_blocks() const {
    Places written(stores_.begin(), stores_.end());
    Places read;
    for (const Transfer& job : jobs_) add_places(job, job.promotion ? written : read);
    for (const Transfer& promotion : *shown().pending) add_places(promotion, written);

    std::ranges::sort(written);
    std::map<std::uint32_t, std::uint32_t> loads = loads_;
    Places not_ready;
    for (const Entry* block : shown().blocks()) {
      const std::pair place(block->key, block->slot);
      const auto num_cascades = static_cast<std::uint32_t>(std::ranges::count(read, place));
      const std::uint32_t num_readers = num_cascades + std::exchange(loads[block->key], 0);
      std::erase(read, place);
      if (block->readers != num_readers) {
        broken("readers_are_transfers", "t1",
               std::to_string(num_readers) + " readers of " + text_of({place}),
               std::to_string(block->readers));
      }
      if (!block->ready) not_ready.push_back(place);
      if (block->ready && !holds(block->slot, block->key)) {
        broken("what_is_ready_is_complete", "t1", "slots that hold what is ready",
               text_of({place}));
      }
    }
    std::ranges::sort(not_ready);
    if (not_ready != written) {
      broken("a_slot_has_one_writer", "t1", text_of(written), text_of(not_ready));
    }
    for (const auto& [key, num_readers] : loads) {
      if (num_readers > 0) broken("readers_are_transfers", "t1", std::to_string(key), "gone");
    }
    if (!read.empty()) broken("readers_are_transfers", "t1", text_of(read), "gone");
  }

  // ---- The state ----

  void check_files() {
    for (auto& [place, tier] : file_tiers_) {
      if (const auto wrong = tier.check(tier_of(shown(), place))) {
        broken("files_keep_what_was_stored", "tiers[" + std::to_string(place) + "]",
               "what was stored", *wrong);
      }
    }
    if (!shown().damaged.has_value() || shown().damaged->empty()) return;
    broken("slots_hold_their_blocks", "damaged", Keys(), *shown().damaged);
  }

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
};

}  // namespace

RuleSuite<TieringTarget, Setup> rules() { return rule_suite<Invariants, Setup>(kInvariants); }

}  // namespace kvfence::tiering
