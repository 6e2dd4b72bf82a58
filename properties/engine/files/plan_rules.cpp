// What a step plans to load, to store and to fill.

#include <algorithm>
#include <string>

#include "properties/engine/files/rule_parts.h"
#include "properties/engine/files/rules.h"

namespace kvfence::engine::files {

using namespace detail;

// ---- ExampleConnector ----

/// Of a request of the step: what a lookup of its prompt asks for.
std::uint32_t Invariants::num_matched_tokens(const Told& told) const {
  return align_to_block_size(known_.at(told.request).num_prompt_tokens - 1, block_size());
}

bool Invariants::is_match_found(const Told& told) const {
  return ledger_.storage().has_folder(
      folder_name(tokens_of(told.request).first(num_matched_tokens(told))));
}

bool Invariants::reads_cache(const Told& told) const {
  return spec().kv_cache.pool.enable_caching && known_.at(told.request).reads_cache;
}

Invariants::Found Invariants::check_transfers(const Observation& observation) const {
  const std::vector<Transfer>& transfers = *observation.file_transfers;
  std::size_t at = 0;
  for (const Told& told : told_) {
    if (!keeps_files() || !told.is_admitted()) continue;
    const bool is_next = at < transfers.size() && transfers[at].request == told.request;
    const bool loads = is_next && !transfers[at].store;
    const bool stores = is_next && transfers[at].store;
    if (auto found = loads ? check_load(at, told, observation) : check_no_load(told)) return found;
    if (auto found = check_store(told, stores, at, observation)) return found;
    at += is_next;
  }
  if (at == transfers.size()) return std::nullopt;
  return broken_phrase(
      transfers[at].store ? kY6 : kY4, element("file_transfers", at),
      "no more transfers, in this order",
      (transfers[at].store ? "a store for " : "a load for ") + transfers[at].request);
}

Invariants::Found Invariants::check_load(std::size_t at, const Told& told,
                                         const Observation& observation) const {
  if (!is_match_found(told)) {
    return broken_phrase(kY4, element("file_transfers", at), "a match in storage", "none");
  }
  const std::uint32_t num_matched = num_matched_tokens(told);
  if (num_matched == 0 || told.num_computed_tokens != num_matched) {
    return broken(kY4, "num_computed_tokens of " + told.request, num_matched,
                  told.num_computed_tokens);
  }
  const std::uint32_t num_prompt_tokens = known_.at(told.request).num_prompt_tokens;
  return check_names(at, told,
                     told.is_new ? num_prompt_tokens : told.num_computed_tokens + told.num_tokens,
                     observation);
}

Invariants::Found Invariants::check_no_load(const Told& told) const {
  const std::string member = "num_computed_tokens of " + told.request;
  const std::uint32_t num_matched = is_match_found(told) ? num_matched_tokens(told) : 0;
  if (told.num_computed_tokens < num_matched) {
    return broken(kY5, member, num_matched, told.num_computed_tokens);
  }
  if (!reads_cache(told) && num_matched > 0) {
    return broken_phrase(kY5, "file_transfers", "a load for " + told.request, "none");
  }
  const bool is_local = reads_cache(told) ? told.num_computed_tokens % block_size() == 0
                                          : told.num_computed_tokens == 0;
  if (is_local) return std::nullopt;
  return broken_phrase(kY5, member, "what the GPU's cache has",
                       std::to_string(told.num_computed_tokens));
}

/// stores: transfers[at] is a store for this request.
Invariants::Found Invariants::check_store(const Told& told, bool stores, std::size_t at,
                                          const Observation& observation) const {
  const std::vector<Transfer>& transfers = *observation.file_transfers;
  const bool loads = !stores && at < transfers.size() && transfers[at].request == told.request;
  const std::uint32_t num_prompt_tokens = known_.at(told.request).num_prompt_tokens;
  const bool is_computed = told.num_computed_tokens + told.num_tokens >=
                           align_to_block_size(num_prompt_tokens, block_size());
  const bool is_stored = told.is_new && !loads && is_computed && !is_match_found(told);
  if (stores != is_stored) {
    const std::string store = "a store for " + told.request;
    return broken_phrase(kY6, element("file_transfers", at), is_stored ? store : "no store",
                         stores ? store : "no store");
  }
  return stores ? check_names(at, told, num_prompt_tokens, observation) : std::nullopt;
}

/// num_tokens: of those, what is kept in files.
Invariants::Found Invariants::check_names(std::size_t at, const Told& told,
                                          std::uint32_t num_tokens,
                                          const Observation& observation) const {
  const std::uint32_t num_kept = align_to_block_size(num_tokens, block_size());
  std::vector<Transfer> all = *observation.file_transfers;
  Transfer& expected = all[at];
  expected.num_tokens = num_kept;
  expected.folder = folder_name(tokens_of(told.request).first(num_kept));
  const std::vector<BlockId>& blocks = known_.at(told.request).told.front();
  const std::size_t num_blocks = std::min<std::size_t>(num_kept / block_size(), blocks.size());
  expected.blocks.assign(blocks.begin(), blocks.begin() + static_cast<std::ptrdiff_t>(num_blocks));
  if (all == *observation.file_transfers) return std::nullopt;
  return broken(kY7, "file_transfers", all, *observation.file_transfers);
}

// ---- DecodeBenchConnector ----

Invariants::Found Invariants::check_fills(const Observation& observation) {
  const std::vector<Fill>& fills = *observation.fills;
  std::size_t at = 0;
  // Requests are admitted in the order in which they stand in the step.
  for (const ScheduledRequest& each : *observation.scheduled) {
    const auto told = std::find_if(told_.begin(), told_.end(), [&](const Told& entry) {
      return entry.request == each.request;
    });
    if (keeps_files() || !told->is_admitted()) continue;
    const bool is_next = at < fills.size() && fills[at].request == told->request;
    const bool was_filled =
        std::find(filled_.begin(), filled_.end(), told->request) != filled_.end();
    if (was_filled && is_next) {
      return broken_phrase(kY8, element("fills", at), "a request that is not filled",
                           told->request);
    }
    if (was_filled) continue;
    const auto num_but_one = static_cast<std::uint32_t>(tokens_of(told->request).size()) - 1;
    if (told->num_computed_tokens != num_but_one) {
      return broken(kY9, "num_computed_tokens of " + told->request, num_but_one,
                    told->num_computed_tokens);
    }
    if (is_next) {
      if (auto found = check_fill(at, *told, observation)) return found;
      filled_.push_back(told->request);
      ++at;
    } else if (num_but_one % block_size() != 0 || (!reads_cache(*told) && num_but_one > 0)) {
      return broken_phrase(kY9, "fills", "a fill for " + told->request, "none");
    }
  }
  if (at == fills.size()) return std::nullopt;
  return broken_phrase(kY8, element("fills", at), "no more fills, in this order",
                       "one for " + fills[at].request);
}

Invariants::Found Invariants::check_fill(std::size_t at, const Told& told,
                                         const Observation& observation) const {
  const Fill& fill = (*observation.fills)[at];
  const std::uint32_t num_local =
      told.num_computed_tokens - std::min(told.num_computed_tokens, fill.num_tokens);
  const bool is_behind_hit = fill.num_tokens > 0 &&
                             (reads_cache(told) ? num_local % block_size() == 0 : num_local == 0) &&
                             fill.num_tokens <= told.num_computed_tokens;
  if (!is_behind_hit) {
    return broken_phrase(kY9, element("fills", at), "the tokens behind the local hit",
                         std::to_string(fill.num_tokens) + " tokens");
  }
  std::vector<Fill> all = *observation.fills;
  BlocksByGroup& expected = all[at].blocks;
  expected = known_.at(told.request).told;
  const std::size_t num_blocks = (fill.num_tokens + block_size() - 1) / block_size();
  for (std::vector<BlockId>& blocks : expected) {
    blocks.resize(std::min(blocks.size(), num_blocks));
  }
  if (all == *observation.fills) return std::nullopt;
  return broken(kY9, "fills", all, *observation.fills);
}

}  // namespace kvfence::engine::files
