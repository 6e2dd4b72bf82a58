/// The coverage goals of runs with a synchronous connector. A suite in which no engine ended at a
/// file has not tested that.

#include "properties/engine/rooms.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/lists.h"
#include "contract/engine/engine_setup.h"
#include "contract/engine/engine_target.h"
#include "properties/engine/drafts_in_flight.h"
#include "properties/engine/shown_requests.h"

namespace kvfence::engine::files {
namespace {

constexpr Goal kGoals[] = {
    {"store", "a prompt was written to files"},
    {"load", "files were read for a request"},
    {"load_after_hit", "a load also brought blocks that the GPU's cache had"},
    {"load_of_foreign_file", "a file that another engine had written was read"},
    {"load_of_own_file", "a file that a step had written was read"},
    {"load_of_resumed", "files were read for a resumed request"},
    {"load_of_outputs", "files that hold outputs were read"},
    {"load_of_several", "a step loads for several requests"},
    {"load_beside_store", "a step loads and stores"},
    {"hit_beyond_match", "a match was found, and the GPU's cache had more tokens"},
    {"match_of_nothing", "a prompt without a whole block found the folder of no tokens"},
    {"store_of_nothing", "files of no tokens were written"},
    {"store_of_hit", "a store took what the GPU's cache had"},
    {"store_of_several", "a step stores for several requests"},
    {"folder_stored_twice", "a step stores twice into a folder"},
    {"file_written_again", "a step wrote a file that was there before it"},
    {"part_not_stored", "a prompt was not stored, since its first step did not compute all of it"},
    {"own_folder_not_found",
     "a prompt of whole blocks and one token did not find the folder that it is kept in"},
    {"store_of_gone", "a request that had been ended was stored"},
    {"failed_load", "a file that could not be read ended the engine"},
    {"failed_save", "a file that could not be written ended the engine"},
    {"failed_after_others", "a step ended at a file after it had read or written others"},
    {"failed_on_later_rank", "a rank failed after another rank had succeeded"},
    {"failed_with_step_after", "an engine ended while another step was planned"},
    {"failed_load_of_resumed",
     "a resumed request ended the engine: the files that it loads did not exist"},
    {"folder_made_by_load", "looking for a file made its folder"},
    {"half_file", "a file that is not whole ended the engine"},
    {"started_again", "a restarted engine ended"},
    {"load_by_new_engine", "a file that an earlier engine had written was read"},
    {"partly_written_entry", "another engine wrote the files of some layers"},
    {"entry_removed", "a folder was removed"},
    {"file_removed", "a file was removed"},
    {"file_truncated", "a file lost its end"},
    {"fill", "blocks were filled with dummies"},
    {"fill_after_hit", "a fill had fewer tokens than its request, and wrote the blocks of the hit"},
    {"fill_of_several", "a step fills for several requests"},
    {"fill_of_several_groups", "a fill named blocks of two groups"},
    {"fill_of_resumed", "a request was filled for the first time when it was resumed"},
    {"not_filled_again", "a filled request was resumed and computed what it had lost"},
    {"nothing_to_fill",
     "a request was not filled, since the GPU's cache had all but its last token"},
    {"null_block_filled", "the null block was filled"},
    {"shared_block_filled", "a fill wrote a block that another request has too"},
    {"filled_ends", "a filled request ended"},
    {"chunk", "a step computed a part of a prompt"},
    {"preempted", "a step preempted a request"},
    {"draft_accepted", "a request sampled more than one token in a step"},
    {"draft_rejected", "a draft of a step was not the sampled token"},
    {"two_steps_in_flight", "a step was planned before the one before it came back"},
    {"aborted_in_flight", "a request was ended while its step was planned"},
    {"reset_done", "a reset took keys of the GPU's cache"},
    {"reset_refused", "a reset did not succeed"},
    {"reset_of_connector", "the connector was reset too"},
    {"running_reset", "a reset preempted running requests"},
};

const StoredFile* find_file(const Observation& observation, const std::string& folder,
                            std::uint32_t layer) {
  for (const StoredFile& file : *observation.files) {
    if (file.folder == folder && file.layer == layer) return &file;
  }
  return nullptr;
}

std::uint32_t num_scheduled_tokens(const Observation& observation, std::string_view name) {
  const auto* const found = find_by(*observation.scheduled, &ScheduledRequest::request, name);
  return found ? found->num_tokens : 0;
}

/// Nothing is shown before the first command.
std::uint32_t num_engine_starts(const Observation& observation) {
  return observation.num_engine_starts.has_value() ? *observation.num_engine_starts : 1;
}

class Counter : public GoalCounter<EngineTarget, kGoals> {
 public:
  using GoalCounter::GoalCounter;

  void count_accepted(const Command& command) {
    add("draft_rejected", drafts_.rejects(command, after()));
    if (const auto ended = ended_from_outside(command, before())) count_finish(*ended);
    if (!has_state(before()) || !has_state(after())) return;
    for (const std::string& name : *before().filled_requests) {
      add("filled_ends", !contains(*after().filled_requests, name));
    }
  }

  void count(const AddRequest& command) {
    num_prompt_tokens_[command.id] = static_cast<std::uint32_t>(command.tokens.size());
  }

  void count(const RemoveEntry&) { add("entry_removed"); }
  void count(const RemoveFile&) { add("file_removed"); }
  void count(const TruncateFile&) { add("file_truncated"); }

  void count(const Schedule&) {
    add("two_steps_in_flight", !in_flight_.empty());
    add("preempted", !after().preempted->empty());
    Step& step = in_flight_.emplace_back();
    for (const ScheduledRequest& each : *after().scheduled) step.requests.insert(each.request);
    for (const ScheduledNew& each : *after().new_reqs) {
      const std::uint32_t end =
          each.num_computed_tokens + num_scheduled_tokens(after(), each.request);
      add("chunk", end < num_prompt_tokens_[each.request]);
    }
    if (spec().kind == SynchronousConnectorKind::kExample) {
      count_transfers();
      count_unstored();
    } else {
      count_fills();
    }
  }

  void count(const Update&) {
    const std::uint32_t engine = num_engine_starts(before());
    add("load", !after().loaded->empty());
    add("store", !after().saved->empty());
    for (const FileCopy& file : *after().loaded) {
      const auto prompt = num_prompt_tokens_.find(file.request);
      add("load_of_outputs",
          prompt != num_prompt_tokens_.end() && file.symbols.size() > prompt->second);
      const auto writer = writer_.find(file.folder);
      if (writer == writer_.end()) continue;
      add("load_of_foreign_file", writer->second == 0);
      add("load_of_own_file", writer->second > 0);
      add("load_by_new_engine", writer->second > 0 && writer->second < engine);
    }
    for (const FileCopy& file : *after().saved) {
      writer_[file.folder] = engine;
      if (!has_state(before())) continue;
      add("store_of_gone", !find_state(before(), file.request));
      add("file_written_again", find_file(before(), file.folder, file.layer) != nullptr);
    }
    if (!after().failed->empty()) count_failure(after().failed->front());
    if (!in_flight_.empty()) in_flight_.pop_front();
    for (const RequestOutput& output : after().outputs.or_empty()) {
      add("draft_accepted", output.tokens.size() > 1);
    }
    if (after().failed->empty()) return;
    in_flight_.clear();
    filled_.clear();
  }

  void count(const WriteEntry& entry) {
    const bool is_part = entry.num_files > 0 && entry.num_files < spec().num_all_layers();
    add("partly_written_entry", is_part);
    if (entry.num_files > 0) writer_[folder_name(entry.tokens)] = 0;
  }

  void count(const ResetPrefixCache& command) {
    add("reset_refused", !*after().success);
    add("reset_of_connector", command.reset_connector);
    add("running_reset", command.reset_running_requests && before().num_running > 0);
    if (!has_state(before()) || !has_state(after())) return;
    add("reset_done", *after().success && *before().keys != *after().keys);
  }

 private:
  // ---- A step is planned ----

  void count_transfers() {
    std::size_t num_loads = 0;
    std::size_t num_stores = 0;
    std::set<std::string> folders;
    for (const FileTransfer& transfer : *after().file_transfers) {
      const auto is_it = [&](const auto& each) { return each.request == transfer.request; };
      const auto cached = std::ranges::find_if(*after().cached_reqs, is_it);
      if (transfer.store) {
        ++num_stores;
        add("store_of_nothing", transfer.num_tokens == 0);
        add("folder_stored_twice", !folders.insert(transfer.folder).second);
        const auto added = std::ranges::find_if(*after().new_reqs, is_it);
        add("store_of_hit", transfer.num_tokens > 0 && added != after().new_reqs->end() &&
                                added->num_computed_tokens > 0);
        continue;
      }
      ++num_loads;
      const bool is_resumed = cached != after().cached_reqs->end();
      add("load_of_resumed", is_resumed);
      if (is_resumed) in_flight_.back().resumed_loads.insert(transfer.request);
      if (!has_state(before()) || !has_state(after()) || transfer.blocks.empty()) continue;
      // Its first block had a key before and keeps it: a hit.
      const BlockId first = transfer.blocks.front();
      add("load_after_hit",
          !(*before().keys)[first].empty() && (*before().keys)[first] == (*after().keys)[first]);
    }
    add("load_of_several", num_loads > 1);
    add("store_of_several", num_stores > 1);
    add("load_beside_store", num_loads > 0 && num_stores > 0);
  }

  /// New requests without a transfer.
  void count_unstored() {
    const std::uint32_t size = spec().block_size();
    for (const ScheduledNew& each : *after().new_reqs) {
      const Request* request = world().requests().find(each.request);
      if (!request) continue;
      const std::uint32_t num_tokens = num_prompt_tokens_[each.request];
      const std::uint32_t num_kept = align_to_block_size(num_tokens, size);
      const std::uint32_t num_matched = align_to_block_size(num_tokens - 1, size);
      const std::span<const TokenId> tokens = request->all_token_ids();
      const auto transfer =
          std::ranges::find(*after().file_transfers, each.request, &FileTransfer::request);
      const bool has_none = transfer == after().file_transfers->end();
      const std::uint32_t end =
          each.num_computed_tokens + num_scheduled_tokens(after(), each.request);
      add("part_not_stored", has_none && end < num_kept);
      if (!has_state(before())) continue;
      const bool is_found = contains(*before().folders, folder_name(tokens.first(num_matched)));
      add("hit_beyond_match", is_found && each.num_computed_tokens > num_matched);
      add("match_of_nothing", is_found && num_matched == 0 && has_none);
      add("own_folder_not_found",
          num_kept != num_matched && !is_found &&
              contains(*before().folders, folder_name(tokens.first(num_kept))));
    }
  }

  void count_fills() {
    add("fill", !after().fills->empty());
    add("fill_of_several", after().fills->size() > 1);
    std::set<std::string> filled_now;
    for (const BlockFill& fill : *after().fills) {
      filled_now.insert(fill.request);
      add("fill_of_several_groups", fill.blocks.size() > 1);
      add("null_block_filled", contains(fill.blocks.front(), kNullBlockId));
      for (const ScheduledNew& each : *after().new_reqs) {
        if (each.request != fill.request) continue;
        add("fill_after_hit", fill.num_tokens < each.num_computed_tokens);
      }
      if (!has_state(after())) continue;
      for (const kv_cache::RequestBlocks& table : *after().tables) {
        if (table.request == fill.request) continue;
        add("shared_block_filled", std::ranges::any_of(fill.blocks.front(), [&](BlockId block) {
              return block != kNullBlockId && contains(table.blocks.front(), block);
            }));
      }
    }
    for (const ScheduledNew& each : *after().new_reqs) {
      add("nothing_to_fill", each.num_computed_tokens > 0 && !filled_now.contains(each.request));
    }
    for (const ScheduledCached& each : *after().cached_reqs) {
      if (!each.resumed) continue;
      add("fill_of_resumed", filled_now.contains(each.request));
      add("not_filled_again", filled_.contains(each.request));
    }
    filled_.insert(filled_now.begin(), filled_now.end());
  }

  // ---- A step comes back ----

  void count_failure(const FailedFile& failed) {
    add(failed.store ? Name("failed_save") : Name("failed_load"));
    add("failed_after_others", !after().loaded->empty() || !after().saved->empty());
    add("failed_on_later_rank", failed.layer >= spec().num_layers);
    add("failed_with_step_after", in_flight_.size() > 1);
    add("failed_load_of_resumed", !failed.store && !in_flight_.empty() &&
                                      in_flight_.front().resumed_loads.contains(failed.request));
    add("started_again", num_engine_starts(before()) > 1);
    if (!has_state(before()) || !has_state(after())) return;
    add("folder_made_by_load", !failed.store && !contains(*before().folders, failed.folder) &&
                                   contains(*after().folders, failed.folder));
    const StoredFile* file = find_file(before(), failed.folder, failed.layer);
    add("half_file", !failed.store && file && !file->whole);
  }

  // ---- What comes from outside ----

  void count_finish(const std::vector<std::string>& names) {
    if (!has_state(before())) return;
    for (const std::string& name : names) {
      add("aborted_in_flight",
          find_state(before(), name) && std::ranges::any_of(in_flight_, [&](const Step& step) {
            return step.requests.contains(name);
          }));
    }
  }

  /// What is known of a planned step.
  struct Step {
    std::set<std::string> requests;
    std::set<std::string> resumed_loads;
  };

  const SynchronousConnectorSpec& spec() const { return *setup().files; }

  std::deque<Step> in_flight_;  ///< oldest first
  DraftsInFlight drafts_;
  std::map<std::string, std::uint32_t> num_prompt_tokens_;
  std::set<std::string> filled_;
  /// By folder: which engine wrote its files last, 1, 2, ...; 0: another one.
  std::map<std::string, std::uint32_t> writer_;
};

}  // namespace

GoalSuite goals() { return goal_suite<EngineTarget, kGoals, Counter>(); }

}  // namespace kvfence::engine::files
