#include "properties/engine/offloading/rules.h"

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "properties/core/broken_rule.h"
#include "properties/core/invariant_values.h"
#include "properties/engine/refusals.h"

namespace kvfence::engine::offloading {
namespace {

using detail::contains;
using detail::find_table;
using detail::phrase;

// The places of kInvariants, so that code names a rule by its id.
enum Rule : std::size_t {
  kC1,
  kC2,
  kC3,
  kC4,
  kC5,
  kC6,
  kC7,
  kC8,
  kC9,
  kC10,
  kC11,
  kC12,
  kC13,
  kC14,
  kC15,
  kC16,
  kC17,
  kC18,
  kC19,
  kC20,
  kC21,
  kC22,
  kC23,
  kC24
};

static_assert(kInvariants.size() == kC24 + 1);

/// Steps without anything under way behind which whoever waits has to go on.
constexpr std::uint32_t kQuietStepsMax = 3;

using Found = std::optional<Divergence>;

template <class T>
Divergence broken(Rule rule, std::string_view member, const T& expected, const T& actual) {
  return broken_rule(kInvariants[rule], member, expected, actual);
}

Divergence broken_phrase(Rule rule, std::string_view member, std::string_view expected,
                         std::string_view actual) {
  return broken_values(kInvariants[rule], member, phrase(expected), phrase(actual));
}

Rule rule_of(CopyRule rule) {
  switch (rule) {
    case CopyRule::kReuseUnderACopy:
      return kC6;
    case CopyRule::kSlotHasOneWriter:
      return kC7;
    case CopyRule::kLoadReadsWhatIsComplete:
      return kC8;
    case CopyRule::kCopiesAreTheRequestsOwn:
      return kC9;
    case CopyRule::kStepReadsItsOwn:
      return kC10;
  }
  return kC1;
}

Rule rule_of(TierRule rule) {
  switch (rule) {
    case TierRule::kTiersAreTold:
      return kC20;
    case TierRule::kStoresGoDown:
      return kC21;
    case TierRule::kPromotionsComeWhole:
      return kC22;
    case TierRule::kStoredIsKept:
      return kC24;
  }
  return kC1;
}

Divergence broken_tiers(const BrokenTierRule& found) {
  return broken_phrase(rule_of(found.rule), found.where, found.expected, found.actual);
}

std::uint32_t ceil_div(std::uint32_t number, std::uint32_t divisor) {
  return (number + divisor - 1) / divisor;
}

bool has_state(const Observation& observation) {
  return observation.requests.has_value() && observation.tables.has_value() &&
         observation.ref_cnts.has_value() && observation.keys.has_value() &&
         observation.free_queue.has_value() && observation.running.has_value() &&
         observation.waiting.has_value() && observation.skipped_waiting.has_value() &&
         observation.transfers.has_value() && observation.t1.has_value() &&
         observation.t2.has_value() && observation.b1.has_value() && observation.b2.has_value();
}

const RequestState* find_state(const Observation& observation, std::string_view name) {
  for (const RequestState& state : *observation.requests) {
    if (state.id == name) return &state;
  }
  return nullptr;
}

const OffloadedBlock* find_block(const Observation& observation, const std::string& key) {
  for (const auto* list : {&*observation.t1, &*observation.t2}) {
    for (const OffloadedBlock& block : *list) {
      if (block.key.bytes == key) return &block;
    }
  }
  return nullptr;
}

const Transfer* find_transfer(const std::vector<Transfer>& transfers, std::string_view name) {
  for (const Transfer& transfer : transfers) {
    if (transfer.request == name) return &transfer;
  }
  return nullptr;
}

/// What a step zeroes and tells nobody of.
std::vector<BlockId> new_blocks_of_nobody(const Observation& observation, const PlannedStep& step) {
  std::set<BlockId> told;
  const auto add = [&](const BlocksByGroup& table) {
    for (const std::vector<BlockId>& blocks : table) told.insert(blocks.begin(), blocks.end());
  };
  for (const ScheduledNew& each : *observation.new_reqs) add(each.blocks);
  for (const ScheduledCached& each : *observation.cached_reqs) {
    if (each.blocks.has_value()) add(*each.blocks);
  }
  for (const Copy& load : step.loads) {
    for (const CopyPart& part : load.parts) told.insert(part.block);
  }
  std::vector<BlockId> lost;
  for (BlockId block : step.zeroed) {
    if (told.count(block) == 0) lost.push_back(block);
  }
  return lost;
}

bool any_has_files(const ConnectorSetup& setup) {
  bool any = false;
  for (std::uint32_t tier = 0; tier < setup.num_tiers(); ++tier) any |= setup.has_files(tier);
  return any;
}

}  // namespace

Invariants::Invariants(const EngineSetup& setup, bool transfers_may_fail)
    : engine_setup_(setup),
      setup_(*setup.offloading),
      may_fail_(transfers_may_fail),
      fences_(setup_.spec.manager.rules.offload_fences_reuse),
      has_files_(any_has_files(setup_)),
      copies_(setup_),
      tiers_(setup_),
      block_tables_(setup_.scheduler.kv_cache) {}

void Invariants::reset() { *this = Invariants(engine_setup_, may_fail_); }

Found Invariants::check(const Command& command, const Observation& observation, const World& world,
                        std::size_t step) {
  Found found;
  const ErrorCode expected = refusal(command, world);
  // What the scheduler refuses of a report shows where the report is made.
  const bool has_run = std::holds_alternative<Update>(command) && expected == ErrorCode::kNone;
  if (observation.error != expected && !has_run) {
    found = broken(kC1, "error", expected, observation.error);
  }
  if (!found) found = check_presence(command, observation, has_run);
  if (!found) found = check_unchanged(command, observation, has_run);
  if (!found) {
    ErrorCode refused = ErrorCode::kNone;
    const std::vector<OffloadKey> keys = keys_below(command, world, refused);
    if (auto wrong = tiers_.take_in(command, observation, keys)) found = broken_tiers(*wrong);
  }
  if (!found) found = take_in_promotions();
  if (!found && (observation.error == ErrorCode::kNone || has_run)) {
    found = take_in(command, observation, world);
  }
  if (!found && has_state(observation)) found = check_state(observation);
  if (!found) found = check_end(command, observation);
  if (has_state(observation)) {
    before_ = observation;
  } else {
    before_.reset();
  }
  if (found) found->step = step;
  return found;
}

// ---- Answers ----

ErrorCode Invariants::refusal(const Command& command, const World& world) const {
  const kvfence::detail::InFlight in_flight[] = {kvfence::detail::in_flight_of(in_flight_)};
  if (const auto refused =
          kvfence::detail::refusal_of_engine(command, engine_setup_, world, in_flight)) {
    return *refused;
  }
  if (const auto* finish = std::get_if<TierFinish>(&command)) {
    return refusal_of_tier(finish->tier);
  }
  if (const auto* faults = std::get_if<TierFaults>(&command)) {
    if (!setup_.has_files(faults->tier)) return ErrorCode::kNotInConfig;
    const bool can_be = std::all_of(
        faults->faults.begin(), faults->faults.end(),
        [](const tiering::Fault& fault) { return tiering::file_fault_of(fault).has_value(); });
    return can_be ? ErrorCode::kNone : ErrorCode::kBadRange;
  }
  ErrorCode refused_below = ErrorCode::kNone;
  keys_below(command, world, refused_below);
  if (refused_below != ErrorCode::kNone) return refused_below;
  if (const auto* advance = std::get_if<AdvanceTransfer>(&command)) {
    Copies copies = copies_;
    return copies.advance(*advance, may_fail_);
  }
  if (const auto* again = std::get_if<ReportTransferAgain>(&command)) {
    return copies_.report_again(again->rank, again->job);
  }
  return ErrorCode::kNone;
}

std::vector<OffloadKey> Invariants::keys_below(const Command& command, const World& world,
                                               ErrorCode& refused) const {
  std::vector<OffloadKey> keys;
  const auto find = [&](const auto& on_tier, const std::vector<std::uint32_t>& blocks) {
    refused = refusal_of_tier(on_tier.tier);
    if (on_tier.group >= setup_.spec.kv_cache.groups.size()) refused = ErrorCode::kNotInConfig;
    if (refused != ErrorCode::kNone) return;
    const Request* prompt = world.requests().find(on_tier.request);
    if (!prompt) refused = ErrorCode::kUnknownRequest;
    for (std::size_t index = 0; prompt && index < blocks.size(); ++index) {
      auto key = key_of_prompt_block(setup_.spec, *prompt, on_tier.group, blocks[index]);
      if (!key) refused = ErrorCode::kBadRange;
      if (!key) return;
      keys.push_back(std::move(*key));
    }
  };
  if (const auto* again = std::get_if<TierAskAgain>(&command)) {
    find(*again, {again->block});
  } else if (const auto* added = std::get_if<TierAdd>(&command)) {
    find(*added, added->blocks);
  } else if (const auto* dropped = std::get_if<TierDrop>(&command)) {
    find(*dropped, dropped->blocks);
  } else if (const auto* damage = std::get_if<TierDamage>(&command)) {
    const bool replaces = damage->damage == FileDamage::kReplace;
    find(*damage, replaces ? std::vector{damage->block, damage->at} : std::vector{damage->block});
    if (!setup_.has_files(damage->tier)) refused = ErrorCode::kNotInConfig;
  }
  return keys;
}

Found Invariants::check_presence(const Command& command, const Observation& observation,
                                 bool has_run) const {
  const bool accepted = observation.error == ErrorCode::kNone;
  const bool plans = accepted && std::holds_alternative<Schedule>(command);
  const bool updates = accepted && std::holds_alternative<Update>(command);
  const bool resets = accepted && std::holds_alternative<ResetPrefixCache>(command);
  Found found;
  const auto want = [&](std::string_view name, const auto& member, bool wanted) {
    if (!found && member.has_value() != wanted) {
      found = broken_presence(kInvariants[kC1], name, wanted);
    }
  };
  want("scheduled", observation.scheduled, plans);
  want("new_reqs", observation.new_reqs, plans);
  want("cached_reqs", observation.cached_reqs, plans);
  want("preempted", observation.preempted, plans);
  want("finished", observation.finished, plans);
  want("new_block_ids", observation.new_block_ids, plans);
  want("loads", observation.loads, plans);
  want("stores", observation.stores, plans);
  want("requests_to_flush", observation.requests_to_flush, plans);
  want("jobs_to_flush", observation.jobs_to_flush, plans);
  want("outputs", observation.outputs, updates);
  want("events", observation.events, updates);
  // What the scheduler refuses of a report is reported none the less.
  want("finished_recving", observation.finished_recving, has_run);
  want("finished_sending", observation.finished_sending, has_run);
  want("invalid_blocks", observation.invalid_blocks, has_run);
  want("completed_jobs", observation.completed_jobs, has_run);
  want("transfer_stats", observation.transfer_stats, has_run);
  want("success", observation.success, resets);
  want("connector_calls", observation.connector_calls, false);
  want("num_free_slots", observation.num_free_slots, true);
  want("target_t1_size", observation.target_t1_size, true);
  const bool has_tiers = setup_.spec.has_tiers;
  want("num_tier_jobs", observation.num_tier_jobs, has_tiers);
  want("num_pending_promotions", observation.num_pending_promotions, has_tiers);
  if (has_state(observation)) {
    want("tier_jobs", observation.tier_jobs, has_tiers);
    want("pending_promotions", observation.pending_promotions, has_tiers);
    want("tiers", observation.tiers, has_tiers);
    want("damaged", observation.damaged, has_files_);
  }
  return found;
}

Found Invariants::check_unchanged(const Command& command, const Observation& observation,
                                  bool has_run) const {
  if (!before_ || !has_state(observation)) return std::nullopt;
  const bool is_refused = observation.error != ErrorCode::kNone;
  const bool plans = std::holds_alternative<Schedule>(command);
  const bool updates = std::holds_alternative<Update>(command);
  const bool resets = std::holds_alternative<ResetPrefixCache>(command);
  const bool finishes = std::holds_alternative<FinishRequests>(command) ||
                        std::holds_alternative<FinishAllRequests>(command);
  const bool copies = std::holds_alternative<AdvanceTransfer>(command);
  const bool concerns_requests = std::holds_alternative<AddRequest>(command) ||
                                 std::holds_alternative<UpdateDraftTokenIds>(command) ||
                                 std::holds_alternative<GrammarCompiled>(command);
  Found found;
  const auto keep = [&](bool may_change, std::string_view name, const auto& was, const auto& is) {
    if (found || (may_change && !is_refused) || was == is) return;
    found = broken(kC2, name, was, is);
  };
  keep(plans || updates || finishes, "tables", *before_->tables, *observation.tables);
  keep(plans || updates || finishes, "ref_cnts", *before_->ref_cnts, *observation.ref_cnts);
  keep(plans || updates || resets, "keys", *before_->keys, *observation.keys);
  keep(plans || updates || finishes || concerns_requests, "requests", *before_->requests,
       *observation.requests);
  const bool cache_may_change = plans || updates || (resets && fences_);
  keep(cache_may_change, "t1", *before_->t1, *observation.t1);
  keep(cache_may_change, "t2", *before_->t2, *observation.t2);
  keep(cache_may_change, "b1", *before_->b1, *observation.b1);
  keep(cache_may_change, "b2", *before_->b2, *observation.b2);
  keep(cache_may_change, "num_free_slots", *before_->num_free_slots, *observation.num_free_slots);
  if (!has_run) keep(copies, "transfers", *before_->transfers, *observation.transfers);
  if (!setup_.spec.has_tiers || !before_->tiers.has_value()) return found;
  const bool changes_tiers =
      std::holds_alternative<TierFinish>(command) || std::holds_alternative<TierAdd>(command) ||
      std::holds_alternative<TierDrop>(command) || std::holds_alternative<TierDamage>(command);
  keep(plans || updates, "tier_jobs", *before_->tier_jobs, *observation.tier_jobs);
  keep(changes_tiers, "tiers", *before_->tiers, *observation.tiers);
  return found;
}

// ---- Books ----

std::uint32_t Invariants::offloaded_size(GroupId group) const {
  return setup_.scheduler.kv_cache.groups[group].block_size * setup_.spec.block_size_factor;
}

bool Invariants::is_full_attention(GroupId group) const {
  return setup_.scheduler.kv_cache.groups[group].is_full_attention();
}

std::string Invariants::key(const Known& known, GroupId group, std::uint32_t block) const {
  const std::uint32_t hash_block_size = setup_.scheduler.kv_cache.pool.hash.hash_block_size;
  const BlockHashListView hashes = known.request.block_hashes(hash_block_size);
  const std::uint32_t index = (block + 1) * offloaded_size(group) / hash_block_size - 1;
  return fences_ ? make_block_hash_with_group_id(hashes[index], group) : std::string(hashes[index]);
}

void Invariants::add(const AddRequest& added, const World& world) {
  RequestSpec spec{{}, std::nullopt, added.cache_salt, {}};
  if (added.lora_name) spec.lora = LoraRequest{*added.lora_name, added.lora_id};
  const auto num_groups = setup_.scheduler.kv_cache.groups.size();
  Known known{Request(spec, setup_.scheduler.kv_cache.pool.hash),
              static_cast<std::uint32_t>(added.tokens.size()),
              added.max_offload_tokens,
              BlocksByGroup(num_groups),
              std::vector<std::uint32_t>(num_groups),
              world.find(added.id)->number};
  known_.insert_or_assign(added.id, std::move(known));
  const bool has_salt = added.cache_salt && !added.cache_salt->empty();
  std::optional<std::string> salt = has_salt ? added.cache_salt : std::nullopt;
  if (added.lora_name) salt = "lora " + *added.lora_name + '\n' + salt.value_or("");
  sequences_.insert_or_assign(added.id, Prefixes(salt));
  append(added.id, added.tokens);
}

/// Tokens of a request, and the keys of the blocks that they complete.
void Invariants::append(const std::string& name, const std::vector<TokenId>& tokens) {
  Known& known = known_.at(name);
  Prefixes& prefixes = sequences_.at(name);
  const std::uint32_t num_before = prefixes.num_tokens();
  known.request.append_output_token_ids(tokens);
  for (TokenId token : tokens) prefixes.append(token);
  const std::uint32_t factor = setup_.spec.block_size_factor;
  for (GroupId group = 0; group < known.told.size(); ++group) {
    const std::uint32_t size = offloaded_size(group);
    for (std::uint32_t block = num_before / size; (block + 1) * size <= prefixes.num_tokens();
         ++block) {
      Key entry{group, (block + 1) * size, {}};
      for (std::uint32_t sub = 0; sub < factor; ++sub) {
        const std::uint32_t begin = block * size + sub * (size / factor);
        const std::uint32_t end = begin + size / factor;
        entry.parts.push_back({prefixes.id(end), begin, end, group});
      }
      keys_.insert_or_assign(key(known, group, block), std::move(entry));
    }
  }
}

Found Invariants::take_in(const Command& command, const Observation& observation,
                          const World& world) {
  if (const auto* added = std::get_if<AddRequest>(&command)) {
    add(*added, world);
  } else if (std::holds_alternative<Schedule>(command)) {
    return take_in_step(observation);
  } else if (std::holds_alternative<Update>(command)) {
    return take_in_update(observation, world);
  } else if (const auto* advance = std::get_if<AdvanceTransfer>(&command)) {
    if (advance->progress == TransferProgress::kFailed) {
      copies_.for_each_under_way([&](std::size_t rank, const Copy& copy) {
        if (rank != advance->rank || copy.job != advance->job || !copy.is_store) return;
        for (const CopyPart& part : copy.parts) failed_slots_.insert(part.slot);
      });
    }
    copies_.advance(*advance, may_fail_);
  } else if (const auto* paused = std::get_if<SetPauseState>(&command)) {
    pause_state_ = paused->state;
  } else if (const auto* reset = std::get_if<ResetPrefixCache>(&command)) {
    if (!reset->reset_connector || !fences_) return std::nullopt;
    for (auto& [name, known] : known_) known.cursor.assign(known.cursor.size(), 0);
    if (has_state(observation) && (!observation.t1->empty() || !observation.t2->empty())) {
      return broken_phrase(kC2, "t1", "an empty CPU cache behind its reset", "blocks");
    }
  }
  return std::nullopt;
}

/// What tiers have brought up, and what they are about to overwrite.
Found Invariants::take_in_promotions() {
  const auto fill = [this](const EndedPromotion& promotion) {
    const auto key = keys_.find(promotion.key);
    const bool is_known = promotion.success && key != keys_.end();
    copies_.fill_slot(promotion.slot, is_known ? key->second.parts : std::vector<Content>());
    failed_slots_.erase(promotion.slot);
  };
  for (const EndedPromotion& promotion : tiers_.ended_promotions()) {
    if (!tiers_.has_begun(promotion.key)) fill(promotion);
  }
  for (SlotId slot : tiers_.begun_promotions()) {
    bool is_in_use = false;
    const auto look_at = [&](const Copy& copy) {
      for (const CopyPart& part : copy.parts) is_in_use = is_in_use || part.slot == slot;
    };
    copies_.for_each_under_way([&](std::size_t, const Copy& copy) { look_at(copy); });
    for (const PlannedStep& step : in_flight_) {
      for (const auto* planned : {&step.loads, &step.stores}) {
        for (const Copy& copy : *planned) look_at(copy);
      }
    }
    if (is_in_use) {
      return broken_phrase(kC7, "slot " + std::to_string(slot), "no copy under way",
                           "one, under a promotion");
    }
    copies_.fill_slot(slot, {});
    failed_slots_.erase(slot);
  }
  for (const EndedPromotion& promotion : tiers_.ended_promotions()) {
    if (tiers_.has_begun(promotion.key)) fill(promotion);
  }
  return std::nullopt;
}

Found Invariants::take_in_step(const Observation& observation) {
  const auto unknown = [&](std::string_view member, const std::string& name) -> Found {
    if (known_.count(name) > 0) return std::nullopt;
    return broken_phrase(kC1, member, "a request that was added", name);
  };
  PlannedStep step;
  std::map<std::string, std::uint32_t> num_computed;
  for (const ScheduledNew& each : *observation.new_reqs) {
    if (auto found = unknown("new_reqs", each.request)) return found;
    known_.at(each.request).told = each.blocks;
    num_computed[each.request] = each.num_computed_tokens;
  }
  for (const ScheduledCached& each : *observation.cached_reqs) {
    if (auto found = unknown("cached_reqs", each.request)) return found;
    BlocksByGroup& told = known_.at(each.request).told;
    num_computed[each.request] = each.num_computed_tokens;
    if (each.resumed) told.assign(told.size(), {});
    if (!each.blocks.has_value()) continue;
    for (std::size_t group = 0; group < told.size(); ++group) {
      const std::vector<BlockId>& blocks = (*each.blocks)[group];
      told[group].insert(told[group].end(), blocks.begin(), blocks.end());
    }
  }
  for (const ScheduledRequest& each : *observation.scheduled) {
    if (num_computed.count(each.request) == 0) {
      return broken_phrase(kC1, "scheduled", "a request that the step tells of", each.request);
    }
    const std::uint32_t begin = num_computed[each.request];
    step.runs.push_back(
        {each.request, begin, begin + each.num_tokens, known_.at(each.request).told});
  }
  step.scheduled = *observation.scheduled;
  step.zeroed = *observation.new_block_ids;
  if (setup_.scheduler.policy == SchedulingPolicy::kPriority) {
    for (const std::string& name : *observation.preempted) {
      if (auto found = unknown("preempted", name)) return found;
      step.victims.push_back(known_.at(name).told);
    }
  }
  step.finished = *observation.finished;
  step.requests_to_flush = *observation.requests_to_flush;
  step.jobs_to_flush = *observation.jobs_to_flush;
  for (std::size_t index = 0; index < observation.loads->size(); ++index) {
    const Transfer& load = (*observation.loads)[index];
    if (auto found = plan("loads[" + std::to_string(index) + "]", load, false, observation,
                          step.loads.emplace_back())) {
      return found;
    }
  }
  for (std::size_t index = 0; index < observation.stores->size(); ++index) {
    const Transfer& store = (*observation.stores)[index];
    if (auto found = plan("stores[" + std::to_string(index) + "]", store, true, observation,
                          step.stores.emplace_back())) {
      return found;
    }
    for (SlotId slot : store.slots) failed_slots_.erase(slot);
  }
  if (!step.victims.empty()) step.lost = new_blocks_of_nobody(observation, step);
  in_flight_.push_back(std::move(step));
  if (!has_state(observation)) {
    knows_cursors_ = false;
    return std::nullopt;
  }
  if (auto found = check_loads(observation)) return found;
  if (auto found = check_cursors(observation)) return found;
  if (auto found = check_found(observation)) return found;
  return check_put_off(observation);
}

/// A planned transfer as a copy. With hold every worker has its own numbers.
Found Invariants::plan(const std::string& member, const Transfer& transfer, bool is_store,
                       const Observation& observation, Copy& copy) {
  const std::vector<KVCacheSpec>& groups = setup_.scheduler.kv_cache.groups;
  const std::uint32_t factor = setup_.spec.block_size_factor;
  const auto wrong = [&](std::string_view what, std::string_view expected,
                         std::string_view actual) {
    return broken_phrase(kC4, member + "." + std::string(what), expected, actual);
  };
  if (known_.count(transfer.request) == 0) {
    return wrong("request", "a request that was added", transfer.request);
  }
  const JobId job = fences_ ? static_cast<JobId>(next_serial_) : 0;
  if (transfer.job != job) return broken(kC4, member + ".job", job, transfer.job);
  copy.serial = next_serial_++;
  copy.job = transfer.job;
  copy.request = transfer.request;
  copy.is_store = is_store;

  std::uint32_t sum = 0;
  for (std::uint32_t size : transfer.group_sizes) sum += size;
  // With hold a store starts with a whole slot and does not say where.
  const std::size_t num_indices = is_store && !fences_ ? 0 : groups.size();
  const bool has_groups = transfer.group_sizes.size() == groups.size() &&
                          transfer.block_indices.size() == num_indices &&
                          sum == transfer.gpu_blocks.size();
  if (!has_groups) return wrong("group_sizes", "blocks of every group", "other ones");

  const Known& known = known_.at(transfer.request);
  const Prefixes& prefixes = sequences_.at(transfer.request);
  const BlocksByGroup* table = &known.told;
  if (!is_store) {
    table = nullptr;
    if (has_state(observation)) {
      table = find_table(*observation.tables, transfer.request);
      if (!table) return wrong("gpu_blocks", "blocks of the request", "a request without any");
    }
  }
  std::size_t at = 0;
  std::size_t num_slots = 0;
  for (GroupId group = 0; group < groups.size(); ++group) {
    const bool knows_place = num_indices > 0;
    std::uint32_t place = knows_place ? transfer.block_indices[group] : 0;
    std::uint32_t last_slot = UINT32_MAX;
    for (std::uint32_t index = 0; index < transfer.group_sizes[group]; ++index, ++at) {
      const BlockId block = transfer.gpu_blocks[at];
      // A store leaves out what is held already.
      // What left a window may stand in the table again, further behind: that is where it is now.
      const auto has_block = [&] {
        if (!table) return true;
        const std::vector<BlockId>& blocks = (*table)[group];
        if (place >= blocks.size() || blocks[place] != block) return false;
        return std::find(blocks.begin() + place + 1, blocks.end(), block) == blocks.end();
      };
      const bool may_skip = is_store && (index > 0 || !knows_place);
      while (may_skip && place < (*table)[group].size() && !has_block()) ++place;
      if (block == kNullBlockId || !has_block()) {
        return wrong(
            "gpu_blocks[" + std::to_string(at) + "]",
            "the block at place " + std::to_string(place) + " of group " + std::to_string(group),
            std::to_string(block));
      }
      if (place / factor != last_slot) {
        last_slot = place / factor;
        ++num_slots;
      }
      const std::uint32_t size = groups[group].block_size;
      const std::uint32_t end = (place + 1) * size;
      if (num_slots > transfer.slots.size() || end > prefixes.num_tokens()) {
        return wrong("gpu_blocks[" + std::to_string(at) + "]", "a full block with a slot",
                     "place " + std::to_string(place) + " of group " + std::to_string(group));
      }
      copy.parts.push_back({block,
                            transfer.slots[num_slots - 1],
                            place % factor,
                            {prefixes.id(end), end - size, end, group}});
      ++place;
    }
  }
  std::vector<SlotId> slots = transfer.slots;
  std::sort(slots.begin(), slots.end());
  const bool are_sound = num_slots == slots.size() &&
                         std::adjacent_find(slots.begin(), slots.end()) == slots.end() &&
                         (slots.empty() || slots.back() < setup_.spec.manager.cache.capacity);
  if (!are_sound) return wrong("slots", "a slot of its own for each offloaded block", "other ones");
  return std::nullopt;
}

Found Invariants::take_in_update(const Observation& observation, const World& world) {
  Copies copies = copies_;
  OwedReport owed;
  if (auto broken_copy = copies.run(in_flight_.front(), sequences_, owed)) {
    return broken_phrase(rule_of(broken_copy->rule), broken_copy->where, broken_copy->expected,
                         broken_copy->actual);
  }
  const bool is_beyond_scheduler =
      !owed.invalid_blocks.empty() && setup_.scheduler.kv_cache.groups.size() > 1;
  const ErrorCode error = is_beyond_scheduler ? ErrorCode::kSingleGroupOnly : ErrorCode::kNone;
  if (observation.error != error) return broken(kC1, "error", error, observation.error);
  copies_ = std::move(copies);
  if (error != ErrorCode::kNone) return std::nullopt;
  in_flight_.pop_front();

  for (auto* names : {&owed.finished_recving, &owed.finished_sending}) {
    std::sort(names->begin(), names->end(), [&](const std::string& left, const std::string& right) {
      return world.find(left)->number < world.find(right)->number;
    });
  }
  std::vector<Completed> completed;
  for (const auto& [job, each] : owed.completed_jobs) completed.push_back(each);
  if (*observation.finished_recving != owed.finished_recving) {
    return broken(kC13, "finished_recving", owed.finished_recving, *observation.finished_recving);
  }
  if (*observation.finished_sending != owed.finished_sending) {
    return broken(kC13, "finished_sending", owed.finished_sending, *observation.finished_sending);
  }
  if (*observation.invalid_blocks != owed.invalid_blocks) {
    return broken(kC12, "invalid_blocks", owed.invalid_blocks, *observation.invalid_blocks);
  }
  if (*observation.completed_jobs != completed) {
    std::vector<Completed> without_failures = completed;
    for (Completed& each : without_failures) each.num_failed = 0;
    std::vector<Completed> shown = *observation.completed_jobs;
    for (Completed& each : shown) each.num_failed = 0;
    return broken(shown == without_failures ? kC12 : kC13, "completed_jobs", completed,
                  *observation.completed_jobs);
  }
  if (*observation.transfer_stats != owed.stats) {
    return broken(kC19, "transfer_stats", owed.stats, *observation.transfer_stats);
  }
  for (const RequestOutput& output : *observation.outputs) {
    if (known_.count(output.request) == 0) {
      return broken_phrase(kC1, "outputs", "a request that was added", output.request);
    }
    append(output.request, output.tokens);
  }
  return std::nullopt;
}

// ---- A step against the state ----

Found Invariants::check_loads(const Observation& observation) const {
  for (const Transfer& load : *observation.loads) {
    const RequestState* state = find_state(observation, load.request);
    if (!state || state->status != RequestStatus::kWaitingForRemoteKVs) {
      return broken_phrase(kC16, "loads", "a load of a request that waits for it", load.request);
    }
    const BlocksByGroup& table = *find_table(*observation.tables, load.request);
    for (GroupId group = 0; group < load.group_sizes.size(); ++group) {
      if (load.group_sizes[group] == 0) continue;
      const std::uint32_t size = setup_.scheduler.kv_cache.groups[group].block_size;
      const std::uint32_t end = ceil_div(state->num_computed_tokens, size);
      const std::uint32_t first = load.block_indices[group];
      if (first + load.group_sizes[group] != end) {
        return broken(kC16, "loads." + load.request + ".group_sizes[" + std::to_string(group) + "]",
                      end - std::min(end, first), load.group_sizes[group]);
      }
      for (std::uint32_t place = 0; place < first; ++place) {
        const BlockId block = table[group][place];
        if (block == kNullBlockId || !(*observation.keys)[block].empty()) continue;
        return broken_phrase(kC16, detail::place_name(load.request, group, place),
                             "a block that is loaded, or was found here", "neither");
      }
    }
  }
  if (!before_) return std::nullopt;
  for (const RequestState& state : *observation.requests) {
    if (state.status != RequestStatus::kWaitingForRemoteKVs) continue;
    const RequestState* before = find_state(*before_, state.id);
    const bool waited = before && before->status == RequestStatus::kWaitingForRemoteKVs;
    if (!waited && !find_transfer(*observation.loads, state.id)) {
      return broken_phrase(kC16, "loads", "a load for " + state.id, "none");
    }
  }
  return std::nullopt;
}

/// Moves the cursors as the step does, by what is held before and behind it.
Found Invariants::check_cursors(const Observation& observation) {
  if (!knows_cursors_) return std::nullopt;
  for (const Transfer& load : *observation.loads) {
    if (setup_.spec.request_level_policy && fences_) continue;
    if (tiers_.is_request_level(load.request)) continue;
    const std::uint32_t num_tokens = find_state(observation, load.request)->num_computed_tokens;
    Known& known = known_.at(load.request);
    known.knows_cursor = true;
    for (GroupId group = 0; group < known.cursor.size(); ++group) {
      known.cursor[group] = ceil_div(num_tokens, offloaded_size(group));
    }
  }
  const bool has_filter = setup_.spec.manager.store_threshold >= 2;
  if (!before_ || has_filter) {
    knows_cursors_ = false;
    return std::nullopt;
  }
  std::size_t num_taken = tiers_.begun_promotions().size();
  for (const Transfer& store : *observation.stores) num_taken += store.slots.size();
  for (const Run& run : in_flight_.back().runs) {
    Known& known = known_.at(run.request);
    if (!known.knows_cursor) continue;
    std::uint32_t num_tokens = std::min(run.end, sequences_.at(run.request).num_tokens());
    if (fences_) {
      num_tokens = std::min(num_tokens, known.max_offload_tokens.value_or(num_tokens));
      if (setup_.spec.offload_prompt_only) {
        num_tokens = std::min(num_tokens, known.num_prompt_tokens);
      }
    }
    const bool stores = find_transfer(*observation.stores, run.request) != nullptr;
    std::size_t num_missing = 0;
    std::string missing;
    for (GroupId group = 0; group < known.cursor.size(); ++group) {
      if (!is_full_attention(group)) continue;
      for (std::uint32_t block = known.cursor[group]; block < num_tokens / offloaded_size(group);
           ++block) {
        const std::string bytes = key(known, group, block);
        if (find_block(observation, bytes)) continue;
        if (find_block(*before_, bytes)) {
          // What a promotion of this step evicted may have been offered, and refused.
          if (setup_.spec.has_tiers) known.knows_cursor = false;
          continue;
        }
        ++num_missing;
        missing = detail::place_name(run.request, group, block);
      }
    }
    if (!known.knows_cursor) continue;
    if (num_missing > 0 && stores) {
      return broken_phrase(kC14, missing, "stored with the others of its request", "left out");
    }
    if (num_missing > 0) {
      const bool is_all = known.cursor.size() == 1;
      if (is_all && num_missing + num_taken <= *before_->num_free_slots) {
        return broken_phrase(kC15, missing, "a store, since enough slots are free", "none");
      }
      continue;
    }
    for (GroupId group = 0; group < known.cursor.size(); ++group) {
      const std::uint32_t end = num_tokens / offloaded_size(group);
      known.cursor[group] = fences_ ? end : std::max(known.cursor[group], end);
    }
  }
  return std::nullopt;
}

Found Invariants::check_found(const Observation& observation) const {
  if (!before_ || setup_.scheduler.kv_cache.groups.size() > 1 || !is_full_attention(0)) {
    return std::nullopt;
  }
  const std::uint32_t size = offloaded_size(0);
  const auto check = [&](const std::string& name, std::uint32_t num_computed_tokens) -> Found {
    const RequestState* before = find_state(*before_, name);
    if (!before || before->num_computed_tokens > 0 ||
        before->status == RequestStatus::kWaitingForRemoteKVs) {
      return std::nullopt;
    }
    const Known& known = known_.at(name);
    const std::uint32_t num_blocks = sequences_.at(name).num_tokens() / size;
    std::uint32_t block = num_computed_tokens / size;
    while (block < num_blocks) {
      const std::string bytes = key(known, 0, block);
      const OffloadedBlock* held = find_block(*before_, bytes);
      if (!held || !held->ready) break;
      // A promotion takes slots in the middle of a step.
      if (setup_.spec.has_tiers) held = find_block(observation, bytes);
      if (!held || !held->ready) break;
      ++block;
    }
    if (block * size < num_computed_tokens + size) return std::nullopt;
    return broken_phrase(kC17, "loads",
                         "a load of " + name + " up to token " + std::to_string(block * size),
                         "computed behind token " + std::to_string(num_computed_tokens));
  };
  for (const ScheduledNew& each : *observation.new_reqs) {
    if (auto found = check(each.request, each.num_computed_tokens)) return found;
  }
  for (const ScheduledCached& each : *observation.cached_reqs) {
    if (!each.resumed) continue;
    if (auto found = check(each.request, each.num_computed_tokens)) return found;
  }
  return std::nullopt;
}

/// Who was looked up and did not get on was put off; the last one may have found no blocks.
Found Invariants::check_put_off(const Observation& observation) const {
  if (!before_ || !setup_.spec.has_tiers || observation.never_fits.has_value()) return std::nullopt;
  const auto has_reason = [&](const std::string& name) {
    if (tiers_.is_put_off_by_tier(name) || tiers_.has_copies(name)) return true;
    const Known& known = known_.at(name);
    for (GroupId group = 0; group < known.told.size(); ++group) {
      const std::uint32_t num_blocks = sequences_.at(name).num_tokens() / offloaded_size(group);
      for (std::uint32_t block = 0; block < num_blocks; ++block) {
        const std::string bytes = key(known, group, block);
        if (tiers_.has_begun(bytes)) return true;
        for (const Observation* each : {&*before_, &observation}) {
          const OffloadedBlock* held = find_block(*each, bytes);
          if (held && (!held->ready || tiers_.is_being_loaded(held->slot))) return true;
        }
      }
    }
    return false;
  };
  for (const std::string& name : *observation.skipped_waiting) {
    if (!tiers_.was_asked_for(name) || tiers_.last_asked() == name) continue;
    const RequestState* state = find_state(observation, name);
    if (!state || state->status == RequestStatus::kWaitingForRemoteKVs) continue;
    if (!has_reason(name)) {
      return broken_phrase(kC23, "skipped_waiting", "a reason to put off " + name, "none");
    }
  }
  return std::nullopt;
}

// ---- The state ----

Found Invariants::check_state(const Observation& observation) {
  if (auto found = check_blocks(observation)) return found;
  const std::vector<EngineTransfer> transfers = copies_.transfers();
  if (*observation.transfers != transfers) {
    return broken(kC5, "transfers", transfers, *observation.transfers);
  }
  if (auto found = check_copied_blocks(observation)) return found;
  if (auto wrong = tiers_.check_state(observation)) return broken_tiers(*wrong);
  return check_slots(observation);
}

Found Invariants::check_blocks(const Observation& observation) {
  const BlockState state{*observation.free_queue, *observation.ref_cnts, *observation.keys,
                         *observation.tables};
  const auto broken_block = [](const BrokenBlockRule& found) {
    return broken_values(kInvariants[kC3], found.mismatch.field, found.mismatch.expected,
                         found.mismatch.actual);
  };
  if (auto found = block_tables_.check_blocks(state)) return broken_block(*found);
  std::vector<TableOwner> owners;
  for (const kv_cache::RequestBlocks& table : *observation.tables) {
    const auto at = known_.find(table.request);
    if (at == known_.end()) {
      return broken_phrase(kC3, "tables", "a request that was added", table.request);
    }
    owners.push_back({&at->second.request, at->second.number, Aliasing::kUnknown});
  }
  if (auto found = block_tables_.check_places(state, owners)) return broken_block(*found);
  return std::nullopt;
}

/// Whether a step in flight, from that one on, tells the workers to wait for a request's stores.
bool Invariants::is_flushed(const std::string& request, std::size_t first_step) const {
  for (std::size_t step = first_step; step < in_flight_.size(); ++step) {
    if (contains(in_flight_[step].requests_to_flush, request)) return true;
  }
  return false;
}

/// A load's blocks are its request's alone until it is over on all ranks; with hold a store's are
/// its request's until the workers are told to wait for it.
Found Invariants::check_copied_blocks(const Observation& observation) const {
  const auto check = [&](const Copy& copy) -> Found {
    if (copy.is_store && (fences_ || is_flushed(copy.request, 0))) return std::nullopt;
    const BlocksByGroup* table = find_table(*observation.tables, copy.request);
    for (const CopyPart& part : copy.parts) {
      const std::uint32_t ref_cnt = (*observation.ref_cnts)[part.block];
      const bool is_held = table && contains((*table)[part.content.group], part.block) &&
                           (copy.is_store || ref_cnt == 1);
      if (is_held) continue;
      return broken_phrase(kC6, "tables[" + copy.request + "]",
                           "block " + std::to_string(part.block) + ", which a " +
                               (copy.is_store ? "store reads" : "load writes"),
                           ref_cnt == 0 ? "a free block" : "a block of somebody else too");
    }
    return std::nullopt;
  };
  Found found;
  copies_.for_each_under_way([&](std::size_t, const Copy& copy) {
    if (!found) found = check(copy);
  });
  for (const PlannedStep& step : in_flight_) {
    for (const Copy& copy : step.loads) {
      if (!found) found = check(copy);
    }
  }
  return found;
}

Found Invariants::check_slots(const Observation& observation) const {
  // With hold what is flushed counts as written at once: the step that flushes comes before all
  // that could read it.
  std::map<SlotId, CopyPart> flushed;
  const auto add_flushed = [&](const Copy& copy, std::size_t first_step) {
    if (fences_ || !copy.is_store || !is_flushed(copy.request, first_step)) return;
    // Its last part tells a slot's key from others with the same beginning.
    for (const CopyPart& part : copy.parts) flushed.insert_or_assign(part.slot, part);
  };
  copies_.for_each_under_way([&](std::size_t, const Copy& copy) { add_flushed(copy, 0); });
  for (std::size_t step = 0; step < in_flight_.size(); ++step) {
    for (const Copy& copy : in_flight_[step].stores) add_flushed(copy, step + 1);
  }
  for (const auto* list : {&*observation.t1, &*observation.t2}) {
    for (const OffloadedBlock& block : *list) {
      const auto at = keys_.find(block.key.bytes);
      if (const auto part = flushed.find(block.slot); part != flushed.end()) {
        const bool is_its_key =
            at != keys_.end() && at->second.parts[part->second.sub_block] == part->second.content;
        if (block.ready || !is_its_key) continue;
        return broken_phrase(kC17, "slot " + std::to_string(block.slot),
                             "ready, since its store is flushed", "being written");
      }
      if (!block.ready) continue;
      if (at == keys_.end() || block.slot >= setup_.spec.manager.cache.capacity) {
        return broken_phrase(kC11, "slot " + std::to_string(block.slot), "a key of some request",
                             "another one");
      }
      for (std::size_t rank = 0; rank < copies_.num_ranks(); ++rank) {
        const std::vector<Content>& parts = at->second.parts;
        for (std::uint32_t sub = 0; sub < parts.size(); ++sub) {
          const Content& content = copies_.slot(rank, block.slot, sub);
          // Of a block of Mamba states only the last one has to be there.
          const KVCacheSpec& spec = setup_.scheduler.kv_cache.groups[at->second.group];
          const bool may_lack = spec.kind == KVCacheSpecKind::kMamba && sub + 1 < parts.size();
          if (passes_for(content, parts[sub]) || (may_lack && content.id == 0)) continue;
          const bool has_failed = content.id == 0 && failed_slots_.count(block.slot) > 0;
          return broken_phrase(
              has_failed ? kC12 : kC11,
              "slot " + std::to_string(block.slot) + " on rank " + std::to_string(rank),
              to_text(parts[sub]), to_text(content));
        }
      }
    }
  }
  return std::nullopt;
}

Found Invariants::check_end(const Command& command, const Observation& observation) {
  const bool is_quiet = copies_.is_idle() && in_flight_.empty() && tiers_.is_idle();
  if (std::holds_alternative<Update>(command) && observation.error == ErrorCode::kNone) {
    const bool ends_requests =
        std::any_of(observation.outputs->begin(), observation.outputs->end(),
                    [](const RequestOutput& output) { return is_finished(output.status); });
    num_quiet_updates_ = is_quiet && !ends_requests ? num_quiet_updates_ + 1 : 0;
  } else if (std::holds_alternative<FinishRequests>(command) ||
             std::holds_alternative<FinishAllRequests>(command)) {
    num_quiet_updates_ = 0;
  }
  if (!before_ || !has_state(observation)) return std::nullopt;

  if (std::holds_alternative<Schedule>(command) && observation.error == ErrorCode::kNone) {
    const bool plans_copies = !observation.loads->empty() || !observation.stores->empty();
    if (plans_copies || observation.never_fits.has_value()) num_quiet_updates_ = 0;
    // One that does not fit yet may stand before a loaded one, for ever: as upstream.
    const bool may_be_stuck = before_->num_referenced_blocks > 1;
    const bool is_idle_engine = !may_be_stuck && copies_.is_idle() && in_flight_.size() == 1 &&
                                before_->running->empty() &&
                                pause_state_ == PauseState::kUnpaused && tiers_.is_idle() &&
                                !tiers_.is_anyone_put_off_by_tier();
    const auto num_for_grammar = static_cast<std::uint32_t>(std::count_if(
        observation.requests->begin(), observation.requests->end(), [](const RequestState& state) {
          return state.status == RequestStatus::kWaitingForGrammar;
        }));
    const bool waits = observation.num_waiting + observation.num_skipped_waiting > num_for_grammar;
    const bool goes_on = plans_copies || !observation.scheduled->empty() ||
                         observation.never_fits.has_value() || !observation.preempted->empty();
    num_idle_steps_ = is_idle_engine && waits && !goes_on ? num_idle_steps_ + 1 : 0;
    if (num_idle_steps_ >= kQuietStepsMax) {
      return broken_phrase(kC18, "scheduled", "somebody, since nothing is under way", "nobody");
    }
  }
  if (!is_quiet || num_quiet_updates_ < kQuietStepsMax) return std::nullopt;
  for (const RequestState& state : *observation.requests) {
    if (!is_finished(state.status)) continue;
    return broken_phrase(kC18, "requests", "no blocks held, since nothing is under way", state.id);
  }
  // With hold a store is completed with its request.
  const bool may_write = !fences_ && !observation.requests->empty();
  for (const auto* list : {&*observation.t1, &*observation.t2}) {
    for (const OffloadedBlock& block : *list) {
      if ((block.ready || may_write) && block.readers == 0) continue;
      return broken_phrase(kC18, "slot " + std::to_string(block.slot),
                           "no reader or writer, since nothing is under way",
                           block.ready ? "readers" : "a writer");
    }
  }
  if (observation.requests->empty() && observation.num_referenced_blocks > 1) {
    return broken(kC18, "num_referenced_blocks", std::uint32_t{1},
                  observation.num_referenced_blocks);
  }
  return std::nullopt;
}

}  // namespace kvfence::engine::offloading
