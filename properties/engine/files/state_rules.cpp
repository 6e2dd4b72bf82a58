// The state of blocks, slots and files, and that nothing stays for ever.

#include <algorithm>
#include <string>
#include <variant>

#include "properties/engine/files/rule_parts.h"
#include "properties/engine/files/rules.h"

namespace kvfence::engine::files {

using namespace detail;

namespace {

/// Steps of an idle engine behind which whoever waits has to go on.
constexpr std::uint32_t kQuietStepsMax = 3;

}  // namespace

Invariants::Found Invariants::check_state(const Observation& observation) {
  if (!has_state(observation)) return std::nullopt;
  if (auto found = check_gpu_blocks(observation)) return found;
  if (*observation.filled_requests != filled_) {
    return broken(kY8, "filled_requests", filled_, *observation.filled_requests);
  }
  if (auto found = check_files(observation)) return found;
  const std::vector<std::string> folders = ledger_.storage().folders();
  if (*observation.folders != folders) {
    return broken(kY15, "folders", folders, *observation.folders);
  }
  const std::vector<File> files = ledger_.storage().files();
  if (*observation.files != files) return broken(kY15, "files", files, *observation.files);
  if (!knows_slots_) return std::nullopt;
  const kv_cache::BlockLists symbols = ledger_.symbols();
  if (*observation.symbols == symbols) return std::nullopt;
  return broken(kY16, "symbols", symbols, *observation.symbols);
}

Invariants::Found Invariants::check_gpu_blocks(const Observation& observation) {
  std::vector<TableOwner> owners;
  for (const kv_cache::RequestBlocks& table : *observation.tables) {
    const auto at = known_.find(table.request);
    if (at == known_.end()) {
      return broken_phrase(kY3, "tables", "a request of this engine", table.request);
    }
    owners.push_back({&at->second.request, at->second.number, Aliasing::kNone});
  }
  const auto broken_block = [](const BrokenBlockRule& found) {
    return broken_values(kInvariants[kY3], found.mismatch.field, found.mismatch.expected,
                         found.mismatch.actual);
  };
  const BlockState state{*observation.free_queue, *observation.ref_cnts, *observation.keys,
                         *observation.tables};
  if (auto found = block_tables_.check_blocks(state)) return broken_block(*found);
  if (auto found = block_tables_.check_places(state, owners)) return broken_block(*found);
  return std::nullopt;
}

/// Whole ones, whoever wrote them.
Invariants::Found Invariants::check_files(const Observation& observation) const {
  for (std::size_t at = 0; at < observation.files->size(); ++at) {
    const File& file = (*observation.files)[at];
    if (!file.whole) continue;
    const auto named = folder_tokens_.find(file.folder);
    if (named == folder_tokens_.end()) {
      return broken_phrase(kY14, element("files", at), "a folder of tokens that were there",
                           file.folder);
    }
    std::vector<KVSymbol> expected;
    KVSymbol symbol = symbol_before(file.layer);
    for (TokenId token : named->second) {
      expected.push_back(symbol = symbol_behind(symbol, token));
    }
    if (file.symbols == expected) continue;
    return broken(kY14, element("files", at) + ".symbols", expected, file.symbols);
  }
  return std::nullopt;
}

// ---- The end ----

Invariants::Found Invariants::check_end(const Command& command, const Observation& observation) {
  // A pause hides requests.
  const bool is_empty = observation.num_unfinished == 0 && pause_state_ == PauseState::kUnpaused;
  if (is_empty && observation.num_referenced_blocks > 1) {
    return broken(kY18, "num_referenced_blocks", std::uint32_t{1},
                  observation.num_referenced_blocks);
  }
  if (!has_state(observation)) return std::nullopt;
  for (const RequestState& state : *observation.requests) {
    if (!is_finished(state.status) && state.status != RequestStatus::kWaitingForRemoteKVs) continue;
    return broken_phrase(kY18, "requests", "nobody that is held or loads", state.id);
  }
  const bool plans =
      std::holds_alternative<Schedule>(command) && observation.error == ErrorCode::kNone;
  if (!before_ || !plans) return std::nullopt;
  const bool is_idle_engine =
      in_flight_.size() == 1 && before_->running->empty() && pause_state_ == PauseState::kUnpaused;
  const bool waits = observation.num_waiting + observation.num_skipped_waiting > 0;
  const bool goes_on = !observation.scheduled->empty() || observation.never_fits.has_value();
  num_idle_steps_ = is_idle_engine && waits && !goes_on ? num_idle_steps_ + 1 : 0;
  if (num_idle_steps_ < kQuietStepsMax) return std::nullopt;
  return broken_phrase(kY18, "scheduled", "somebody, since nothing is under way", "nobody");
}

}  // namespace kvfence::engine::files
