#include "properties/engine/files/rules.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "properties/engine/files/rule_parts.h"
#include "properties/engine/refusals.h"

namespace kvfence::engine::files {

using namespace detail;
using kvfence::detail::find_table;

namespace {

/// The first entry that differs, as both sides show it; nothing if the lists are alike.
template <class List>
std::optional<Divergence> check_list(Rule rule, std::string_view member, const List& expected,
                                     const List& actual) {
  if (expected == actual) return std::nullopt;
  return broken(rule, member, expected, actual);
}

}  // namespace

Invariants::Invariants(const EngineSetup& setup)
    : setup_(setup), ledger_(*setup.files), block_tables_(setup.files->kv_cache) {
  has_windows_ = std::any_of(groups().begin(), groups().end(),
                             [](const KVCacheSpec& group) { return !group.is_full_attention(); });
}

void Invariants::reset() { *this = Invariants(setup_); }

Invariants::Found Invariants::check(const Command& command, const Observation& observation,
                                    const World& world, std::size_t step) {
  told_.clear();
  Found found;
  const ErrorCode expected = refusal(command, world);
  if (observation.error != expected) found = broken(kY1, "error", expected, observation.error);
  if (!found) found = check_presence(command, observation);
  if (!found) found = check_unchanged(command, observation);
  if (!found && expected == ErrorCode::kNone) found = take_in(command, observation, world);
  if (!found && *observation.num_engine_starts != num_engine_starts_) {
    found = broken(kY2, "num_engine_starts", num_engine_starts_, *observation.num_engine_starts);
  }
  if (!found) found = check_state(observation);
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
  if (const auto refused = kvfence::detail::refusal_of_engine(command, setup_, world, in_flight)) {
    return *refused;
  }
  return refusal_of_storage(command);
}

ErrorCode Invariants::refusal_of_storage(const Command& command) const {
  const StorageBooks& storage = ledger_.storage();
  const std::uint32_t num_layers = keeps_files() ? spec().num_all_layers() : 0;
  const auto error_unless = [](bool is_there) {
    return is_there ? ErrorCode::kNone : ErrorCode::kUnknownKey;
  };
  if (const auto* entry = std::get_if<WriteEntry>(&command)) {
    if (!keeps_files() || entry->num_files > num_layers) return ErrorCode::kNotInConfig;
    const bool is_whole = entry->tokens.size() % block_size() == 0;
    return is_whole ? ErrorCode::kNone : ErrorCode::kBadRange;
  }
  if (const auto* entry = std::get_if<RemoveEntry>(&command)) {
    if (!keeps_files()) return ErrorCode::kNotInConfig;
    return error_unless(storage.has_folder(folder_name(entry->tokens)));
  }
  if (const auto* file = std::get_if<RemoveFile>(&command)) {
    if (file->layer >= num_layers) return ErrorCode::kNotInConfig;
    return error_unless(storage.has_file(folder_name(file->tokens), file->layer));
  }
  if (const auto* file = std::get_if<TruncateFile>(&command)) {
    if (file->layer >= num_layers) return ErrorCode::kNotInConfig;
    return error_unless(storage.has_file(folder_name(file->tokens), file->layer));
  }
  if (const auto* fault = std::get_if<FailNextFile>(&command)) {
    return fault->layer < num_layers ? ErrorCode::kNone : ErrorCode::kNotInConfig;
  }
  return ErrorCode::kNone;
}

Invariants::Found Invariants::check_presence(const Command& command,
                                             const Observation& observation) const {
  const bool accepted = observation.error == ErrorCode::kNone;
  const bool plans = accepted && std::holds_alternative<Schedule>(command);
  const bool updates = accepted && std::holds_alternative<Update>(command);
  const bool resets = accepted && std::holds_alternative<ResetPrefixCache>(command);
  const bool fails = observation.failed.has_value() && !observation.failed->empty();
  Found found;
  const auto want = [&](std::string_view name, const auto& member, bool wanted) {
    if (!found && member.has_value() != wanted) {
      found = broken_presence(kInvariants[kY1], name, wanted);
    }
  };
  want("scheduled", observation.scheduled, plans);
  want("new_reqs", observation.new_reqs, plans);
  want("cached_reqs", observation.cached_reqs, plans);
  want("preempted", observation.preempted, plans);
  want("finished", observation.finished, plans);
  want("new_block_ids", observation.new_block_ids, plans);
  want("file_transfers", observation.file_transfers, plans);
  want("fills", observation.fills, plans);
  want("loaded", observation.loaded, updates);
  want("saved", observation.saved, updates);
  want("filled", observation.filled, updates);
  want("failed", observation.failed, updates);
  want("outputs", observation.outputs, updates && !fails);
  want("events", observation.events, updates && !fails);
  want("success", observation.success, resets);
  want("connector_calls", observation.connector_calls, false);
  want("num_engine_starts", observation.num_engine_starts, true);
  return found;
}

Invariants::Found Invariants::check_unchanged(const Command& command,
                                              const Observation& observation) const {
  if (!before_ || !has_state(observation)) return std::nullopt;
  const bool is_refused = observation.error != ErrorCode::kNone;
  const bool plans = std::holds_alternative<Schedule>(command);
  const bool updates = std::holds_alternative<Update>(command);
  const bool resets = std::holds_alternative<ResetPrefixCache>(command);
  const bool finishes = std::holds_alternative<FinishRequests>(command) ||
                        std::holds_alternative<FinishAllRequests>(command);
  const bool adds = std::holds_alternative<AddRequest>(command);
  Found found;
  const auto keep = [&](bool may_change, std::string_view name, const auto& was, const auto& is) {
    if (found || (may_change && !is_refused) || was == is) return;
    found = broken(kY2, name, was, is);
  };
  const bool moves_blocks = plans || updates || finishes;
  keep(moves_blocks, "tables", *before_->tables, *observation.tables);
  keep(moves_blocks, "ref_cnts", *before_->ref_cnts, *observation.ref_cnts);
  keep(moves_blocks || adds, "requests", *before_->requests, *observation.requests);
  keep(plans || updates || resets, "keys", *before_->keys, *observation.keys);
  return found;
}

// ---- Books ----

void Invariants::add(const AddRequest& added, const World& world) {
  const RequestSpec plain{added.tokens, std::nullopt, std::nullopt, {}};
  const auto num_tokens = static_cast<std::uint32_t>(added.tokens.size());
  Known known{Request(plain, spec().kv_cache.pool.hash), world.find(added.id)->number, num_tokens,
              !added.skip_reading_prefix_cache, BlocksByGroup(groups().size())};
  known_.insert_or_assign(added.id, std::move(known));
  if (!keeps_files()) return;
  name_folders(std::span(added.tokens).first(align_to_block_size(num_tokens, block_size())));
}

void Invariants::name_folders(std::span<const TokenId> tokens) {
  folder_tokens_[folder_name(tokens)].assign(tokens.begin(), tokens.end());
}

void Invariants::write_entry(const WriteEntry& entry) {
  const std::span<const TokenId> tokens = entry.tokens;
  name_folders(tokens);
  const std::string folder = folder_name(tokens);
  ledger_.storage().put_folder(folder);
  for (std::uint32_t layer = 0; layer < entry.num_files; ++layer) {
    std::vector<KVSymbol> symbols;
    KVSymbol symbol = symbol_before(layer);
    for (TokenId token : tokens) symbols.push_back(symbol = symbol_behind(symbol, token));
    ledger_.storage().put_file(folder, layer, std::move(symbols));
  }
}

void Invariants::end_request(const std::string& name) { std::erase(filled_, name); }

Invariants::Found Invariants::take_in(const Command& command, const Observation& observation,
                                      const World& world) {
  StorageBooks& storage = ledger_.storage();
  if (const auto* added = std::get_if<AddRequest>(&command)) {
    add(*added, world);
  } else if (std::holds_alternative<Schedule>(command)) {
    return take_in_step(observation);
  } else if (std::holds_alternative<Update>(command)) {
    return take_in_update(observation);
  } else if (const auto* finish = std::get_if<FinishRequests>(&command)) {
    for (const std::string& name : finish->requests) end_request(name);
  } else if (std::holds_alternative<FinishAllRequests>(command)) {
    filled_.clear();
  } else if (const auto* paused = std::get_if<SetPauseState>(&command)) {
    pause_state_ = paused->state;
  } else if (const auto* entry = std::get_if<WriteEntry>(&command)) {
    write_entry(*entry);
  } else if (const auto* removed = std::get_if<RemoveEntry>(&command)) {
    storage.remove_folder(folder_name(removed->tokens));
  } else if (const auto* lost = std::get_if<RemoveFile>(&command)) {
    storage.remove_file(folder_name(lost->tokens), lost->layer);
  } else if (const auto* cut = std::get_if<TruncateFile>(&command)) {
    storage.truncate_file(folder_name(cut->tokens), cut->layer);
  } else if (const auto* fault = std::get_if<FailNextFile>(&command)) {
    storage.fail_next(fault->layer, fault->operation);
  }
  return std::nullopt;
}

Invariants::Found Invariants::take_in_step(const Observation& observation) {
  PlannedStep step;
  if (auto found = take_in_told(observation)) return found;
  if (auto found = plan_runs(observation, step)) return found;
  if (auto found = check_transfers(observation)) return found;
  if (auto found = check_fills(observation)) return found;
  step.scheduled = *observation.scheduled;
  step.transfers = *observation.file_transfers;
  step.fills = *observation.fills;
  in_flight_.push_back(std::move(step));
  if (observation.never_fits.has_value()) end_request(*observation.never_fits);
  return std::nullopt;
}

/// Who is in the step, and with which blocks.
Invariants::Found Invariants::take_in_told(const Observation& observation) {
  const auto unknown = [](std::string_view member, const std::string& name) {
    return broken_phrase(kY1, member, "a request of this engine", name);
  };
  for (const ScheduledNew& each : *observation.new_reqs) {
    const auto known = known_.find(each.request);
    if (known == known_.end()) return unknown("new_reqs", each.request);
    known->second.told = each.blocks;
    told_.push_back({each.request, each.num_computed_tokens, 0, /*is_new=*/true, false});
  }
  for (const ScheduledCached& each : *observation.cached_reqs) {
    const auto known = known_.find(each.request);
    if (known == known_.end()) return unknown("cached_reqs", each.request);
    told_.push_back({each.request, each.num_computed_tokens, 0, false, each.resumed});
    BlocksByGroup& blocks = known->second.told;
    if (each.resumed) blocks.assign(groups().size(), {});
    if (!each.blocks.has_value()) continue;
    for (std::size_t group = 0; group < groups().size(); ++group) {
      const std::vector<BlockId>& more = (*each.blocks)[group];
      blocks[group].insert(blocks[group].end(), more.begin(), more.end());
    }
  }
  return std::nullopt;
}

/// What the model computes. A window's blocks that are not needed any more are null blocks in the
/// scheduler's table alone.
Invariants::Found Invariants::plan_runs(const Observation& observation, PlannedStep& step) {
  for (const ScheduledRequest& each : *observation.scheduled) {
    const auto told = std::find_if(told_.begin(), told_.end(), [&](const Told& entry) {
      return entry.request == each.request;
    });
    const auto refuse = [&](std::string_view expected) {
      return broken_phrase(kY1, "scheduled", expected, each.request);
    };
    if (told == told_.end()) return refuse("a request that the step tells of");
    told->num_tokens = each.num_tokens;
    const std::span<const TokenId> tokens = tokens_of(each.request);
    const std::uint32_t end = told->num_computed_tokens + each.num_tokens;
    if (end > tokens.size()) return refuse("a request with so many tokens");
    const BlocksByGroup* table = &known_.at(each.request).told;
    if (has_windows_) {
      const BlocksByGroup* shown =
          observation.tables.has_value() ? find_table(*observation.tables, each.request) : nullptr;
      knows_slots_ = knows_slots_ && shown != nullptr;
      if (shown) table = shown;
    }
    const std::size_t num_blocks = (end + block_size() - 1) / block_size();
    const bool has_blocks =
        std::all_of(table->begin(), table->end(), [&](const std::vector<BlockId>& blocks) {
          return blocks.size() >= num_blocks &&
                 std::all_of(blocks.begin(), blocks.end(), [&](BlockId block) {
                   return block < spec().kv_cache.pool.num_gpu_blocks;
                 });
        });
    if (!has_blocks) return refuse("a request with blocks for its tokens");
    step.runs.push_back(
        {each.request, told->num_computed_tokens, {tokens.begin(), tokens.begin() + end}, *table});
  }
  return std::nullopt;
}

Invariants::Found Invariants::take_in_update(const Observation& observation) {
  const PlannedStep step = std::move(in_flight_.front());
  in_flight_.pop_front();
  const Outcome outcome = ledger_.run(step);
  if (auto found = take_in_outcome(outcome, observation)) return found;
  if (!outcome.failed.empty()) return take_in_end_of_engine(observation);
  for (const RequestOutput& output : *observation.outputs) {
    const auto known = known_.find(output.request);
    if (known == known_.end()) {
      return broken_phrase(kY1, "outputs", "a request of this engine", output.request);
    }
    known->second.request.append_output_token_ids(output.tokens);
    if (is_finished(output.status)) end_request(output.request);
  }
  return std::nullopt;
}

Invariants::Found Invariants::take_in_outcome(const Outcome& outcome,
                                              const Observation& observation) const {
  if (outcome.failed != *observation.failed) {
    return broken(kY13, "failed", outcome.failed, *observation.failed);
  }
  if (auto found = check_list(kY10, "loaded", outcome.loaded, *observation.loaded)) return found;
  if (auto found = check_list(kY12, "filled", outcome.filled, *observation.filled)) return found;
  if (const auto& read = outcome.wrong_read) {
    return broken(kY17,
                  "token " + std::to_string(read->token) + " of " + read->request + " in layer " +
                      std::to_string(read->layer),
                  read->expected, read->actual);
  }
  return check_list(kY11, "saved", outcome.saved, *observation.saved);
}

Invariants::Found Invariants::take_in_end_of_engine(const Observation& observation) {
  Found found;
  const auto want = [&](std::string_view name, std::uint32_t wanted, std::uint32_t number) {
    if (!found && number != wanted) found = broken(kY13, name, wanted, number);
  };
  want("num_running", 0, observation.num_running);
  want("num_waiting", 0, observation.num_waiting);
  want("num_skipped_waiting", 0, observation.num_skipped_waiting);
  want("num_unfinished", 0, observation.num_unfinished);
  want("num_cached_blocks", 0, observation.num_cached_blocks);
  want("num_referenced_blocks", 1, observation.num_referenced_blocks);
  ledger_.start_engine();
  block_tables_.reset();
  known_.clear();
  filled_.clear();
  in_flight_.clear();
  ++num_engine_starts_;
  knows_slots_ = true;
  pause_state_ = PauseState::kUnpaused;
  num_idle_steps_ = 0;
  return found;
}

}  // namespace kvfence::engine::files
