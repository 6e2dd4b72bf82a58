/// The rules for one scheduler with its synchronous connector, workers and storage. They hold for
/// any implementation and release. The core rules, for every assembly, are in
/// properties/engine/rules.cpp.

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
#include <utility>
#include <variant>
#include <vector>

#include "contract/engine/engine_setup.h"
#include "contract/engine/engine_target.h"
#include "properties/core/broken_rule.h"
#include "properties/core/divergence.h"
#include "properties/core/invariant_values.h"
#include "properties/engine/rank_memory.h"

namespace kvfence::engine::files {
namespace {

/// Every invariant, for the command line and the documentation.
constexpr Invariant kInvariants[] = {
    {"files.1", "a_file_holds_its_tokens",
     "a whole file holds the KV of its folder's tokens in its layer"},
    {"files.2", "files_and_slots_agree",
     "a rank loads what the file holds; it saves what the slots hold after the layer, and the file "
     "holds that afterwards"},
    {"files.3", "a_step_reads_its_own",
     "each token that a step attends to holds the KV of its request's tokens up to there, in every "
     "layer (ExampleConnector)"},
    {"files.4", "a_fill_covers_what_counts_as_computed",
     "a step fills only for requests that it admits; if a fill has all tokens that count as "
     "computed, as it must if the request does not read the cache, each of them holds a dummy in "
     "every layer (DecodeBenchConnector)"},
    {"files.5", "slots_change_where_a_step_writes",
     "slots change only when a step comes back, in blocks that it computes, loads or fills"},
    {"files.6", "workers_do_what_was_planned",
     "each rank loads and saves what the step names, once in each of its layers, and nothing else; "
     "it stops only at a file that fails"},
    {"files.7", "a_failure_ends_the_engine",
     "a new, empty engine starts if and only if a file failed"},
    {"files.8", "all_comes_to_an_end",
     "no request waits for a load, and every filled request exists and is unfinished"},
};

constexpr BrokenRuleOf<kInvariants> broken;

std::string name_of(std::string_view member, std::string_view folder, std::uint32_t layer) {
  return std::string(member) + " of " + std::string(folder) + " in layer " + std::to_string(layer);
}

std::vector<KVSymbol> symbols_of(std::uint32_t layer, std::span<const TokenId> tokens) {
  std::vector<KVSymbol> symbols;
  KVSymbol symbol = symbol_before(layer);
  for (TokenId token : tokens) symbols.push_back(symbol = symbol_after(symbol, token));
  return symbols;
}

/// Nothing if it does not exist or is not whole.
std::vector<KVSymbol> symbols_in(const std::vector<StoredFile>& files, const FileCopy& copy) {
  for (const StoredFile& file : files) {
    if (file.folder == copy.folder && file.layer == copy.layer) return file.symbols;
  }
  return {};
}

/// The model keeps tokens, tables and folders, from commands and answers. Contents are read where
/// the state is observed; files.2 and files.5 compare it with the state before the command.
class Invariants final : public Rules {
 public:
  explicit Invariants(const EngineSetup& setup) : setup_(setup) {}

  void check_all(const Command& command) override {
    if (shown().error == ErrorCode::kNone) take_in(command);
    broken.unless_equal("a_failure_ends_the_engine", "num_engine_starts", num_engine_starts_,
                        *shown().num_engine_starts);
    const bool comes_back =
        std::holds_alternative<Update>(command) && shown().error == ErrorCode::kNone;
    if (!comes_back) check_changes(nullptr);
    if (shown().files.has_value()) check_files();
    if (shown().requests.has_value()) check_requests();
  }

 private:
  /// A step's computation for a request.
  struct Run {
    std::string request;
    std::uint32_t begin = 0;
    bool is_admitted = false;     ///< in this step
    std::vector<TokenId> tokens;  ///< up to the last computed one
    BlocksByGroup table;
  };

  struct PlannedStep {
    std::vector<FileTransfer> transfers;
    std::vector<BlockFill> fills;
    std::vector<Run> runs;
  };

  const SynchronousConnectorSpec& spec() const { return *setup_.files; }
  bool keeps_files() const { return spec().kind == SynchronousConnectorKind::kExample; }

  // ---- The model ----

  void take_in(const Command& command) {
    if (const auto* added = std::get_if<AddRequest>(&command)) {
      tokens_[added->id] = added->tokens;
      if (added->skip_reading_prefix_cache) reads_no_cache_.insert(added->id);
    } else if (std::holds_alternative<Schedule>(command)) {
      take_in_step();
    } else if (std::holds_alternative<Update>(command)) {
      take_in_update();
    } else if (const auto* entry = std::get_if<WriteEntry>(&command)) {
      folder_tokens_[folder_name(entry->tokens)] = entry->tokens;
    }
  }

  void take_in_step() {
    PlannedStep& step = in_flight_.emplace_back();
    step.transfers = *shown().file_transfers;
    step.fills = *shown().fills;
    std::set<std::string> admitted;
    for (const ScheduledNew& each : *shown().new_reqs) admitted.insert(each.request);
    for (const ScheduledCached& each : *shown().cached_reqs) {
      if (each.resumed) admitted.insert(each.request);
    }
    StepOnBlocks blocks;
    engine::take_in_step(shown(), setup_.scheduler(), tables_, blocks);
    for (kvfence::Run& each : blocks.runs) {
      const auto known = tokens_.find(each.request);
      if (known == tokens_.end()) continue;
      const std::size_t end = std::min<std::size_t>(each.end, known->second.size());
      Run& run = step.runs.emplace_back();
      run.begin = each.begin;
      run.is_admitted = admitted.contains(each.request);
      run.tokens.assign(known->second.begin(),
                        known->second.begin() + static_cast<std::ptrdiff_t>(end));
      const auto scheduled =
          std::ranges::find(*shown().scheduled, each.request, &ScheduledRequest::request);
      if (scheduled != shown().scheduled->end()) {
        run.tokens.insert(run.tokens.end(), scheduled->spec_tokens.begin(),
                          scheduled->spec_tokens.end());
      }
      run.table = std::move(each.table);
      run.request = std::move(each.request);
    }
    // The files that may exist, by the tokens that name them.
    for (const FileTransfer& transfer : step.transfers) {
      const std::vector<TokenId>& tokens = tokens_[transfer.request];
      const auto named =
          std::span(tokens).first(std::min<std::size_t>(transfer.num_tokens, tokens.size()));
      folder_tokens_[folder_name(named)].assign(named.begin(), named.end());
    }
    for (const BlockFill& fill : step.fills) {
      if (admitted.contains(fill.request)) continue;
      broken("a_fill_covers_what_counts_as_computed", "fills", "of requests that it admits",
             fill.request);
    }
  }

  void take_in_update() {
    if (in_flight_.empty()) return;
    const PlannedStep step = std::move(in_flight_.front());
    in_flight_.pop_front();
    check_copies(step);
    if (!shown().failed->empty()) return take_in_failure();
    for (const RequestOutput& output : *shown().outputs) {
      std::vector<TokenId>& tokens = tokens_[output.request];
      tokens.insert(tokens.end(), output.tokens.begin(), output.tokens.end());
    }
    if (!shown().symbols.has_value() || !shown().files.has_value()) return;
    check_contents_of_copies();
    check_reads(step);
    check_fills(step);
    return check_changes(&step);
  }

  void take_in_failure() {
    ++num_engine_starts_;
    in_flight_.clear();
    const std::vector<std::uint32_t> nothing = {0, 0, 0, 1};
    const std::vector<std::uint32_t> left = {
        shown().num_running + shown().num_waiting + shown().num_skipped_waiting,
        shown().num_unfinished, shown().num_cached_blocks, shown().num_referenced_blocks};
    broken.unless_equal("a_failure_ends_the_engine",
                        "requests, unfinished ones, cached blocks, referenced ones", nothing, left);
    if (!shown().symbols.has_value()) return;
    const auto is_empty = [](const std::vector<KVSymbol>& layer) {
      return std::ranges::all_of(layer, [](KVSymbol symbol) { return symbol == kNothingComputed; });
    };
    if (std::ranges::all_of(*shown().symbols, is_empty)) return;
    broken("a_failure_ends_the_engine", "symbols", "nothing computed", "something");
  }

  // ---- A step comes back ----

  /// The slot of a token in a layer; null: it has none, or one of the null block.
  const KVSymbol* slot(std::uint32_t layer, const std::vector<BlockId>& blocks,
                       std::size_t token) const {
    const std::size_t size = spec().block_size();
    if (layer >= shown().symbols->size() || token / size >= blocks.size()) return nullptr;
    if (blocks[token / size] == kNullBlockId) return nullptr;
    const std::vector<KVSymbol>& slots = (*shown().symbols)[layer];
    const std::size_t index = blocks[token / size] * size + token % size;
    return index < slots.size() ? &slots[index] : nullptr;
  }

  void check_copies(const PlannedStep& step) const {
    for (const bool store : {false, true}) {
      const std::string_view member = store ? "saved" : "loaded";
      const std::vector<FileCopy>& copies = store ? *shown().saved : *shown().loaded;
      const auto num_planned =
          static_cast<std::size_t>(std::ranges::count(step.transfers, store, &FileTransfer::store));
      const std::size_t num_copies = num_planned * spec().num_all_layers();
      if (copies.size() > num_copies || (copies.size() < num_copies && shown().failed->empty())) {
        broken("workers_do_what_was_planned", std::string(member) + ", how many",
               static_cast<std::uint32_t>(num_copies), static_cast<std::uint32_t>(copies.size()));
      }
      for (const FileCopy& copy : copies) {
        const bool is_planned =
            std::ranges::any_of(step.transfers, [&](const FileTransfer& transfer) {
              return transfer.store == store && transfer.request == copy.request &&
                     transfer.folder == copy.folder && transfer.blocks == copy.blocks;
            });
        const auto num_alike = std::ranges::count_if(copies, [&](const FileCopy& other) {
          return other.request == copy.request && other.layer == copy.layer;
        });
        if (is_planned && num_alike == 1) continue;
        broken("workers_do_what_was_planned", member, "what the step names, once",
               name_of("one", copy.folder, copy.layer));
      }
    }
  }

  void check_contents_of_copies() const {
    for (const FileCopy& copy : *shown().loaded) {
      if (!before() || !before()->files.has_value()) break;
      const std::vector<KVSymbol> held = symbols_in(*before()->files, copy);
      if (copy.symbols == held) continue;
      broken("files_and_slots_agree", name_of("loaded", copy.folder, copy.layer), held,
             copy.symbols);
    }
    for (const FileCopy& copy : *shown().saved) {
      std::vector<KVSymbol> held;
      for (std::size_t token = 0; token < copy.symbols.size(); ++token) {
        const KVSymbol* symbol = slot(copy.layer, copy.blocks, token);
        held.push_back(symbol ? *symbol : kNothingComputed);
      }
      if (copy.symbols == held) held = symbols_in(*shown().files, copy);
      if (copy.symbols == held) continue;
      broken("files_and_slots_agree", name_of("saved", copy.folder, copy.layer), held,
             copy.symbols);
    }
  }

  void check_reads(const PlannedStep& step) const {
    if (!keeps_files()) return;
    for (const Run& run : step.runs) {
      for (std::uint32_t layer = 0; layer < spec().num_all_layers(); ++layer) {
        const std::vector<KVSymbol> expected = symbols_of(layer, run.tokens);
        for (std::size_t token = 0; token < expected.size(); ++token) {
          const KVSymbol* actual = slot(layer, run.table.front(), token);
          if (actual && *actual == expected[token]) continue;
          broken("a_step_reads_its_own",
                 "token " + std::to_string(token) + " of " + run.request + " in layer " +
                     std::to_string(layer),
                 expected[token], actual ? *actual : kNothingComputed);
        }
      }
    }
  }

  void check_fills(const PlannedStep& step) const {
    if (keeps_files()) return;
    for (const Run& run : step.runs) {
      if (!run.is_admitted) continue;
      const auto fill = std::ranges::find(step.fills, run.request, &BlockFill::request);
      const bool covers_all = fill != step.fills.end() && fill->num_tokens == run.begin;
      const bool reads_cache =
          spec().kv_cache.pool.enable_caching && !reads_no_cache_.contains(run.request);
      if (reads_cache && !covers_all) continue;
      for (std::uint32_t layer = 0; layer < spec().num_all_layers(); ++layer) {
        for (std::size_t token = 0; token < run.begin; ++token) {
          const KVSymbol* actual = slot(layer, run.table.front(), token);
          if (!actual || *actual == kFilledWithDummies) continue;
          broken("a_fill_covers_what_counts_as_computed",
                 "token " + std::to_string(token) + " of " + run.request + " in layer " +
                     std::to_string(layer),
                 kFilledWithDummies, *actual);
        }
      }
    }
  }

  /// step: the one that came back; null: none.
  void check_changes(const PlannedStep* step) const {
    if (!before() || !(shown().symbols.has_value() && before()->symbols.has_value())) return;
    if (*shown().symbols == *before()->symbols) return;
    const std::uint32_t size = spec().block_size();
    std::set<BlockId> written;
    if (step) {
      for (const Run& run : step->runs) {
        for (const std::vector<BlockId>& blocks : run.table) {
          for (std::size_t place = run.begin / size; place < blocks.size(); ++place) {
            written.insert(blocks[place]);
          }
        }
      }
      for (const FileTransfer& transfer : step->transfers) {
        if (!transfer.store) written.insert(transfer.blocks.begin(), transfer.blocks.end());
      }
      for (const BlockFill& fill : step->fills) {
        for (const std::vector<BlockId>& blocks : fill.blocks) {
          written.insert(blocks.begin(), blocks.end());
        }
      }
    }
    for (std::size_t layer = 0; layer < shown().symbols->size(); ++layer) {
      const std::vector<KVSymbol>& was = (*before()->symbols)[layer];
      const std::vector<KVSymbol>& is = (*shown().symbols)[layer];
      for (std::size_t at = 0; at < is.size(); ++at) {
        if (is[at] == was[at]) continue;
        if (written.contains(static_cast<BlockId>(at / size))) continue;
        broken("slots_change_where_a_step_writes",
               "symbols[" + std::to_string(layer) + "][" + std::to_string(at) + "]", was[at],
               is[at]);
      }
    }
  }

  // ---- The state ----

  /// Checks whole files, of any writer.
  void check_files() const {
    if (before() && before()->files.has_value() && *before()->files == *shown().files) return;
    for (const StoredFile& file : *shown().files) {
      if (!file.whole) continue;
      const auto named = folder_tokens_.find(file.folder);
      if (named == folder_tokens_.end()) {
        broken("a_file_holds_its_tokens", "files", "folders of known tokens", file.folder);
      }
      const std::vector<KVSymbol> expected = symbols_of(file.layer, named->second);
      if (file.symbols == expected) continue;
      broken("a_file_holds_its_tokens", name_of("file", file.folder, file.layer), expected,
             file.symbols);
    }
  }

  void check_requests() const {
    std::set<std::string> there;
    for (const RequestState& state : *shown().requests) {
      if (!is_finished(state.status)) there.insert(state.id);
      if (state.status != RequestStatus::kWaitingForRemoteKVs) continue;
      broken("all_comes_to_an_end", "requests", "no request that waits for a load", state.id);
    }
    for (const std::string& name : *shown().filled_requests) {
      if (there.contains(name)) continue;
      broken("all_comes_to_an_end", "filled_requests", "unfinished requests", name);
    }
  }

  EngineSetup setup_;
  // For all added requests, also those that are gone: steps in flight may still run them.
  std::map<std::string, std::vector<TokenId>> tokens_;
  std::set<std::string> reads_no_cache_;
  WorkerTables tables_;                                        ///< known to the workers
  std::map<std::string, std::vector<TokenId>> folder_tokens_;  ///< by folder
  std::deque<PlannedStep> in_flight_;
  std::uint32_t num_engine_starts_ = 1;
};

}  // namespace

RuleSuite<EngineTarget> rules() { return rule_suite<Invariants>(kInvariants); }

}  // namespace kvfence::engine::files
