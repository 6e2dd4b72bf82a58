#include "properties/engine/files/goals.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <variant>

#include "contract/core/check.h"
#include "properties/core/invariant_values.h"

namespace kvfence::engine::files {
namespace {

using detail::contains;

bool has_state(const Observation& observation) {
  return observation.requests.has_value() && observation.tables.has_value() &&
         observation.keys.has_value() && observation.ref_cnts.has_value() &&
         observation.folders.has_value() && observation.files.has_value() &&
         observation.filled_requests.has_value();
}

bool has_request(const Observation& observation, std::string_view name) {
  return std::any_of(observation.requests->begin(), observation.requests->end(),
                     [&](const RequestState& state) { return state.id == name; });
}

const File* find_file(const Observation& observation, const std::string& folder,
                      std::uint32_t layer) {
  for (const File& file : *observation.files) {
    if (file.folder == folder && file.layer == layer) return &file;
  }
  return nullptr;
}

std::uint32_t num_scheduled_tokens(const Observation& observation, std::string_view name) {
  for (const ScheduledRequest& each : *observation.scheduled) {
    if (each.request == name) return each.num_tokens;
  }
  return 0;
}

/// Nothing is shown before the first command.
std::uint32_t num_engine_starts(const Observation& observation) {
  return observation.num_engine_starts.has_value() ? *observation.num_engine_starts : 1;
}

}  // namespace

void Reach::start(const Config& config) {
  const Parsed<EngineSetup> parsed = EngineTarget::prepare(config, {}, {});
  KVFENCE_CHECK(parsed, "a run under a configuration that was not validated");
  setup_ = *parsed;
  in_flight_.clear();
  num_prompt_tokens_.clear();
  filled_.clear();
  writer_.clear();
}

void Reach::count(const Command& command, const Observation& before, const Observation& after,
                  const World& world) {
  if (after.error != ErrorCode::kNone) {
    add_error(after.error);
    return;
  }
  if (const auto* added = std::get_if<AddRequest>(&command)) {
    num_prompt_tokens_[added->id] = static_cast<std::uint32_t>(added->tokens.size());
  } else if (std::holds_alternative<Schedule>(command)) {
    count_step(before, after, world);
  } else if (std::holds_alternative<Update>(command)) {
    count_update(before, after);
  } else if (const auto* finish = std::get_if<FinishRequests>(&command)) {
    count_finish(finish->requests, before);
  } else if (std::holds_alternative<FinishAllRequests>(command) && before.requests.has_value()) {
    std::vector<std::string> names;
    for (const RequestState& state : *before.requests) names.push_back(state.id);
    count_finish(names, before);
  } else if (const auto* entry = std::get_if<WriteEntry>(&command)) {
    count_entry(*entry);
  } else if (const auto* reset = std::get_if<ResetPrefixCache>(&command)) {
    count_reset(*reset, before, after);
  }
  add(Reached::kEntryRemoved, std::holds_alternative<RemoveEntry>(command));
  add(Reached::kFileRemoved, std::holds_alternative<RemoveFile>(command));
  add(Reached::kFileTruncated, std::holds_alternative<TruncateFile>(command));
  if (has_state(before) && has_state(after)) {
    for (const std::string& name : *before.filled_requests) {
      add(Reached::kFilledEnds, !contains(*after.filled_requests, name));
    }
  }
}

// ---- A step is planned ----

void Reach::count_step(const Observation& before, const Observation& after, const World& world) {
  add(Reached::kTwoStepsInFlight, !in_flight_.empty());
  add(Reached::kPreempted, !after.preempted->empty());
  Step& step = in_flight_.emplace_back();
  for (const ScheduledRequest& each : *after.scheduled) step.requests.insert(each.request);
  for (const ScheduledNew& each : *after.new_reqs) {
    const std::uint32_t end = each.num_computed_tokens + num_scheduled_tokens(after, each.request);
    add(Reached::kChunk, end < num_prompt_tokens_[each.request]);
  }
  if (spec().kind == SynchronousConnectorKind::kExample) {
    count_transfers(before, after);
    count_unstored(before, after, world);
  } else {
    count_fills(after);
  }
}

void Reach::count_transfers(const Observation& before, const Observation& after) {
  std::size_t num_loads = 0;
  std::size_t num_stores = 0;
  std::set<std::string> folders;
  for (const Transfer& transfer : *after.file_transfers) {
    const auto is_it = [&](const auto& each) { return each.request == transfer.request; };
    const auto cached = std::find_if(after.cached_reqs->begin(), after.cached_reqs->end(), is_it);
    if (transfer.store) {
      ++num_stores;
      add(Reached::kStoreOfNothing, transfer.num_tokens == 0);
      add(Reached::kFolderStoredTwice, !folders.insert(transfer.folder).second);
      const auto added = std::find_if(after.new_reqs->begin(), after.new_reqs->end(), is_it);
      add(Reached::kStoreOfHit, transfer.num_tokens > 0 && added != after.new_reqs->end() &&
                                    added->num_computed_tokens > 0);
      continue;
    }
    ++num_loads;
    const bool is_resumed = cached != after.cached_reqs->end();
    add(Reached::kLoadOfResumed, is_resumed);
    if (is_resumed) in_flight_.back().resumed_loads.insert(transfer.request);
    if (!has_state(before) || !has_state(after) || transfer.blocks.empty()) continue;
    // Its first block had a key, and somebody had it or it was in the queue: a hit.
    const BlockId first = transfer.blocks.front();
    add(Reached::kLoadBehindHit,
        !(*before.keys)[first].empty() && (*before.keys)[first] == (*after.keys)[first]);
  }
  add(Reached::kLoadOfSeveral, num_loads > 1);
  add(Reached::kStoreOfSeveral, num_stores > 1);
  add(Reached::kLoadBesideStore, num_loads > 0 && num_stores > 0);
}

/// New requests without a transfer.
void Reach::count_unstored(const Observation& before, const Observation& after,
                           const World& world) {
  const std::uint32_t size = spec().block_size();
  for (const ScheduledNew& each : *after.new_reqs) {
    const Request* request = world.requests().find(each.request);
    if (!request) continue;
    const std::uint32_t num_tokens = num_prompt_tokens_[each.request];
    const std::uint32_t num_kept = align_to_block_size(num_tokens, size);
    const std::uint32_t num_matched = align_to_block_size(num_tokens - 1, size);
    const std::span<const TokenId> tokens = request->all_token_ids();
    const auto transfer =
        std::find_if(after.file_transfers->begin(), after.file_transfers->end(),
                     [&](const Transfer& entry) { return entry.request == each.request; });
    const bool has_none = transfer == after.file_transfers->end();
    const std::uint32_t end = each.num_computed_tokens + num_scheduled_tokens(after, each.request);
    add(Reached::kPartNotStored, has_none && end < num_kept);
    if (!has_state(before)) continue;
    const bool is_found = contains(*before.folders, folder_name(tokens.first(num_matched)));
    add(Reached::kHitBeyondMatch, is_found && each.num_computed_tokens > num_matched);
    add(Reached::kMatchOfNothing, is_found && num_matched == 0 && has_none);
    add(Reached::kOwnFolderNotFound,
        num_kept != num_matched && !is_found &&
            contains(*before.folders, folder_name(tokens.first(num_kept))));
  }
}

void Reach::count_fills(const Observation& after) {
  add(Reached::kFill, !after.fills->empty());
  add(Reached::kFillOfSeveral, after.fills->size() > 1);
  std::set<std::string> filled_now;
  for (const Fill& fill : *after.fills) {
    filled_now.insert(fill.request);
    add(Reached::kFillOfSeveralGroups, fill.blocks.size() > 1);
    add(Reached::kNullBlockFilled, contains(fill.blocks.front(), kNullBlockId));
    for (const ScheduledNew& each : *after.new_reqs) {
      if (each.request != fill.request) continue;
      add(Reached::kFillBehindHit, fill.num_tokens < each.num_computed_tokens);
    }
    if (!has_state(after)) continue;
    for (const kv_cache::RequestBlocks& table : *after.tables) {
      if (table.request == fill.request) continue;
      add(Reached::kSharedBlockFilled,
          std::any_of(fill.blocks.front().begin(), fill.blocks.front().end(), [&](BlockId block) {
            return block != kNullBlockId && contains(table.blocks.front(), block);
          }));
    }
  }
  for (const ScheduledNew& each : *after.new_reqs) {
    add(Reached::kNothingToFill,
        each.num_computed_tokens > 0 && !filled_now.contains(each.request));
  }
  for (const ScheduledCached& each : *after.cached_reqs) {
    if (!each.resumed) continue;
    add(Reached::kFillOfResumed, filled_now.contains(each.request));
    add(Reached::kNotFilledAgain, filled_.contains(each.request));
  }
  filled_.insert(filled_now.begin(), filled_now.end());
}

// ---- A step comes back ----

void Reach::count_update(const Observation& before, const Observation& after) {
  const std::uint32_t engine = num_engine_starts(before);
  add(Reached::kLoad, !after.loaded->empty());
  add(Reached::kStore, !after.saved->empty());
  for (const FileCopy& file : *after.loaded) {
    const auto prompt = num_prompt_tokens_.find(file.request);
    add(Reached::kLoadOfOutputs,
        prompt != num_prompt_tokens_.end() && file.symbols.size() > prompt->second);
    const auto writer = writer_.find(file.folder);
    if (writer == writer_.end()) continue;
    add(Reached::kLoadOfForeignFile, writer->second == 0);
    add(Reached::kLoadOfOwnFile, writer->second > 0);
    add(Reached::kLoadByNewEngine, writer->second > 0 && writer->second < engine);
  }
  for (const FileCopy& file : *after.saved) {
    writer_[file.folder] = engine;
    if (!has_state(before)) continue;
    add(Reached::kStoreOfGone, !has_request(before, file.request));
    add(Reached::kFileWrittenAgain, find_file(before, file.folder, file.layer) != nullptr);
  }
  if (!after.failed->empty()) count_failure(after.failed->front(), before, after);
  if (!in_flight_.empty()) in_flight_.pop_front();
  if (after.failed->empty()) return;
  in_flight_.clear();
  filled_.clear();
}

void Reach::count_failure(const FailedFile& failed, const Observation& before,
                          const Observation& after) {
  add(failed.store ? Reached::kFailedSave : Reached::kFailedLoad);
  add(Reached::kFailedBehindOthers, !after.loaded->empty() || !after.saved->empty());
  add(Reached::kFailedOnLaterRank, failed.layer >= spec().num_layers);
  add(Reached::kFailedWithStepBehind, in_flight_.size() > 1);
  add(Reached::kFailedLoadOfResumed, !failed.store && !in_flight_.empty() &&
                                         in_flight_.front().resumed_loads.contains(failed.request));
  add(Reached::kStartedAgain, num_engine_starts(before) > 1);
  if (!has_state(before) || !has_state(after)) return;
  add(Reached::kFolderMadeByLoad, !failed.store && !contains(*before.folders, failed.folder) &&
                                      contains(*after.folders, failed.folder));
  const File* file = find_file(before, failed.folder, failed.layer);
  add(Reached::kHalfFile, !failed.store && file && !file->whole);
}

// ---- What comes from outside ----

void Reach::count_finish(const std::vector<std::string>& names, const Observation& before) {
  if (!has_state(before)) return;
  for (const std::string& name : names) {
    add(Reached::kAbortedInFlight,
        has_request(before, name) &&
            std::any_of(in_flight_.begin(), in_flight_.end(),
                        [&](const Step& step) { return step.requests.contains(name); }));
  }
}

void Reach::count_entry(const WriteEntry& entry) {
  const bool is_part = entry.num_files > 0 && entry.num_files < spec().num_all_layers();
  add(Reached::kPartlyWrittenEntry, is_part);
  if (entry.num_files > 0) writer_[folder_name(entry.tokens)] = 0;
}

void Reach::count_reset(const ResetPrefixCache& command, const Observation& before,
                        const Observation& after) {
  add(Reached::kResetRefused, !*after.success);
  add(Reached::kResetOfConnector, command.reset_connector);
  if (!has_state(before) || !has_state(after)) return;
  add(Reached::kResetDone, *after.success && *before.keys != *after.keys);
}

}  // namespace kvfence::engine::files
