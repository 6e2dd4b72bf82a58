#include "properties/engine/on_device/rules.h"

#include <algorithm>
#include <variant>

#include "contract/connectors/multi/multi_connector.h"
#include "contract/connectors/simple/simple_cpu_offload.h"
#include "contract/engine/toy_model.h"
#include "contract/pool/block_hash.h"
#include "properties/core/broken_rule.h"

namespace kvfence::engine::on_device {
namespace {

// Places in kInvariants.
enum Rule : std::size_t {
  kTokens,
  kNothingRaces,
  kNothingIsMisused,
  kReportedOnce,
  kCopiedIsThere,
  kReportNamesWhatEnded,
  kDrainedIsAtRest,
  kCachedIsThere,
};

static_assert(kInvariants.size() == kCachedIsThere + 1);

template <class T>
Divergence broken(Rule rule, std::string_view member, const T& expected, const T& actual) {
  return broken_rule(kInvariants[rule], member, expected, actual);
}

bool begins_with(const KVPage& page, const std::vector<std::uint32_t>& symbols) {
  return page.symbols.size() >= symbols.size() &&
         std::equal(symbols.begin(), symbols.end(), page.symbols.begin());
}

}  // namespace

std::optional<Divergence> TokenOracle::check(const Command& command,
                                             const Observation& observation) {
  const auto* added = std::get_if<AddRequest>(&command);
  if (added && observation.error == ErrorCode::kNone) {
    sequences_[added->id] = {added->cache_salt, added->tokens};
  }
  if (!observation.outputs.has_value()) return std::nullopt;
  for (const RequestOutput& output : *observation.outputs) {
    Sequence& sequence = sequences_[output.request];
    for (const TokenId token : output.tokens) {
      const TokenId expected =
          toy_model::sample_without_cache(sequence.cache_salt, sequence.tokens, windows_);
      if (token != expected) return broken(kTokens, "outputs", expected, token);
      sequence.tokens.push_back(token);
    }
  }
  return std::nullopt;
}

const TokenOracle::Sequence* TokenOracle::find(const std::string& request) const {
  const auto found = sequences_.find(request);
  return found == sequences_.end() ? nullptr : &found->second;
}

void BlockContents::take_in(const Command& command, const Observation& observation) {
  const auto* added = std::get_if<AddRequest>(&command);
  if (added && observation.error == ErrorCode::kNone) {
    RequestSpec spec{{}, std::nullopt, added->cache_salt, {}};
    if (added->lora_name) spec.lora = LoraRequest{*added->lora_name, added->lora_id};
    const auto [request, is_new] =
        requests_.insert_or_assign(added->id, Request(std::move(spec), setup_.pool.hash));
    append(request->second, added->tokens);
  }
  if (!observation.outputs.has_value()) return;
  for (const RequestOutput& output : *observation.outputs) {
    const auto request = requests_.find(output.request);
    if (request != requests_.end()) append(request->second, output.tokens);
  }
}

void BlockContents::append(Request& request, std::span<const TokenId> tokens) {
  const std::size_t num_before = request.all_token_ids().size();
  request.append_output_token_ids(tokens);
  const std::vector<Symbol> all =
      toy_model::symbols_of(request.spec().cache_salt, request.all_token_ids());
  for (GroupId group = 0; group < setup_.groups.size(); ++group) {
    const std::uint32_t size = setup_.groups[group].block_size;
    const BlockHashListView hashes = request.block_hashes(size);
    for (std::size_t place = num_before / size; place < hashes.size(); ++place) {
      std::vector<std::uint32_t>& symbols =
          symbols_[make_block_hash_with_group_id(hashes[place], group)];
      symbols.clear();
      for (std::size_t at = place * size; at < (place + 1) * size; ++at) {
        symbols.push_back(shortened(toy_model::symbol_of_group(all[at], group)));
      }
    }
  }
}

const std::vector<std::uint32_t>* BlockContents::find(const std::string& key) const {
  const auto found = symbols_.find(key);
  return found == symbols_.end() ? nullptr : &found->second;
}

bool BlockContents::has_block_of(const KVPage& page) const {
  return std::any_of(symbols_.begin(), symbols_.end(),
                     [&](const auto& each) { return begins_with(page, each.second); });
}

std::optional<Divergence> Invariants::check(const Command& command, const Observation& observation,
                                            const World&, std::size_t step) {
  std::optional<Divergence> found = check(command, observation);
  if (found) found->step = step;
  return found;
}

std::optional<Divergence> Invariants::check(const Command& command,
                                            const Observation& observation) {
  if (auto found = tokens_.check(command, observation)) return found;
  contents_.take_in(command, observation);
  if (observation.load_event.has_value()) {
    loads_[*observation.load_event] = *observation.load_requests;
  }
  if (*observation.num_races != 0) {
    return broken(kNothingRaces, "num_races", 0U, *observation.num_races);
  }
  if (*observation.num_misuses != 0) {
    return broken(kNothingIsMisused, "num_misuses", 0U, *observation.num_misuses);
  }
  const auto* failing = std::get_if<FailNext>(&command);
  if (failing && observation.error == ErrorCode::kNone) {
    faults_.insert({failing->rank, failing->stream == "store"});
  }
  if (observation.submitted.has_value()) take_in_submitted(*observation.submitted);
  if (auto found = check_reports(observation)) return found;
  // Another engine starts with empty devices.
  if (std::holds_alternative<Drain>(command) || has_ended(observation)) {
    in_flight_.clear();
    num_on_ranks_.clear();
    faults_.clear();
    loads_.clear();
    if (auto found = check_rest(observation)) return found;
  }
  const auto num_in_flight = static_cast<std::uint32_t>(in_flight_.size());
  if (*observation.num_transfers != num_in_flight) {
    return broken(kReportedOnce, "num_transfers", num_in_flight, *observation.num_transfers);
  }
  return std::nullopt;
}

/// A fault is met by the next transfer of its rank and direction.
void Invariants::take_in_submitted(const std::vector<DeviceTransfer>& submitted) {
  for (const DeviceTransfer& transfer : submitted) {
    const bool fails = faults_.erase({transfer.rank, transfer.store}) > 0;
    in_flight_.push_back({transfer, fails});
  }
}

std::optional<Divergence> Invariants::check_reports(const Observation& observation) {
  if (!observation.ended.has_value()) return std::nullopt;
  ended_.clear();
  for (const EndedTransfer& ended : *observation.ended) {
    const auto next =
        std::find_if(in_flight_.begin(), in_flight_.end(), [&](const Submitted& each) {
          const DeviceTransfer& transfer = each.transfer;
          return transfer.rank == ended.rank && transfer.store == ended.store &&
                 transfer.job == ended.job;
        });
    if (next == in_flight_.end() || ended.succeeded == next->fails) {
      return broken(kReportedOnce, "ended", std::vector<EndedTransfer>{}, {ended});
    }
    ended_.push_back(*next);
    in_flight_.erase(next);
    if (!ended.succeeded) continue;
    if (auto found = check_arrival(ended_.back().transfer, observation)) return found;
  }
  return check_answer(observation);
}

std::optional<Divergence> Invariants::check_arrival(const DeviceTransfer& transfer,
                                                    const Observation& observation) const {
  if (!observation.cpu_kv.has_value()) return std::nullopt;
  const std::vector<std::uint32_t> pages =
      transfer.store
          ? setup_.cpu_pages_of(transfer)
          : std::vector<std::uint32_t>(transfer.gpu_blocks.begin(), transfer.gpu_blocks.end());
  std::size_t at = 0;
  for (std::size_t group = 0; group < transfer.group_sizes.size(); ++group) {
    for (std::uint32_t index = 0; index < transfer.group_sizes[group]; ++index, ++at) {
      const KVPages& shown = transfer.store ? *observation.cpu_kv : *observation.gpu_kv;
      const KVPage page = shown.find(transfer.rank, pages[at]);
      if (setup_.is_of_simple(transfer.job) && contents_.has_block_of(page)) continue;
      // A store leaves out what is stored already, so that nothing is known of its later blocks.
      std::optional<std::uint32_t> place;
      if (!transfer.store) place = transfer.block_indices[group] + index;
      if (is_block_of(transfer.request, group, place, page)) continue;
      return broken(kCopiedIsThere, transfer.store ? "cpu_kv" : "gpu_kv", std::vector<KVPage>{},
                    {page});
    }
  }
  return std::nullopt;
}

/// What the ranks' report says of the transfers that have just ended.
std::optional<Divergence> Invariants::check_answer(const Observation& observation) {
  if (!setup_.has_workers()) return std::nullopt;
  const bool fences = setup_.scheduler().kv_cache.pool.rules.offload_fences_reuse;
  std::set<BlockId> invalid;
  std::map<JobId, Completed> jobs;
  std::set<std::string> loaded;
  for (const Submitted& each : ended_) {
    const DeviceTransfer& transfer = each.transfer;
    const bool is_of_simple = setup_.is_of_simple(transfer.job);
    if (is_of_simple ? transfer.store : fences) {
      Completed& job = jobs[reported_number(transfer.job)];
      ++job.num_workers;
      if (each.fails) ++job.num_failed;
    }
    if (transfer.store) continue;
    if (each.fails) invalid.insert(transfer.gpu_blocks.begin(), transfer.gpu_blocks.end());
    const std::vector<std::string> whose = is_of_simple
                                               ? loads_[event_of(setup_.own_number(transfer.job))]
                                               : std::vector<std::string>{transfer.request};
    for (const std::string& request : whose) {
      if (++num_on_ranks_[request] < setup_.num_ranks.front()) continue;
      num_on_ranks_.erase(request);
      loaded.insert(request);
    }
  }
  const std::vector<BlockId> invalid_blocks(invalid.begin(), invalid.end());
  if (*observation.invalid_blocks != invalid_blocks) {
    return broken(kReportNamesWhatEnded, "invalid_blocks", invalid_blocks,
                  *observation.invalid_blocks);
  }
  std::vector<Completed> completed;
  for (auto& [number, job] : jobs) {
    job.job = number;
    completed.push_back(job);
  }
  if (*observation.completed_jobs != completed) {
    return broken(kReportNamesWhatEnded, "completed_jobs", completed, *observation.completed_jobs);
  }
  const std::vector<std::string>& received = *observation.finished_recving;
  if (std::set<std::string>(received.begin(), received.end()) != loaded) {
    return broken(kReportNamesWhatEnded, "finished_recving",
                  std::vector<std::string>(loaded.begin(), loaded.end()), received);
  }
  return std::nullopt;
}

/// The simple connector reports its events by their own numbers.
JobId Invariants::reported_number(JobId transfer) const {
  if (!setup_.is_of_simple(transfer)) return transfer;
  const JobId event = event_of(setup_.own_number(transfer));
  if (setup_.children.empty()) return event;
  const auto num_children = static_cast<std::uint32_t>(setup_.children.size());
  return multi_connector_job({child_job(transfer, num_children).child, event}, num_children);
}

std::optional<Divergence> Invariants::check_rest(const Observation& observation) const {
  std::vector<std::uint32_t> left = {*observation.num_steps_in_flight, *observation.num_transfers,
                                     observation.num_unfinished, observation.num_referenced_blocks};
  // Null blocks are always held.
  std::vector<std::uint32_t> at_rest = {0, 0, 0, 1};
  if (setup_.simple) {
    left.push_back(*observation.num_referenced_cpu_blocks);
    at_rest.push_back(1);
  }
  if (left != at_rest) return broken(kDrainedIsAtRest, "num_steps_in_flight", at_rest, left);
  if (!observation.gpu_kv.has_value()) return std::nullopt;
  if (auto found = check_cached(*observation.keys, *observation.gpu_kv, 0, "gpu_kv")) return found;
  if (!setup_.simple) return std::nullopt;
  std::uint32_t first_page = 0;
  for (const ChildSetup& child : setup_.children) {
    if (child.kind == ConnectorKind::kSimple) first_page = child.first_page;
  }
  return check_cached(*observation.cpu_keys, *observation.cpu_kv, first_page, "cpu_kv");
}

/// keys: by block, whose page has the number behind first_page.
std::optional<Divergence> Invariants::check_cached(const KeyList& keys, const KVPages& pages,
                                                   std::uint32_t first_page,
                                                   std::string_view member) const {
  for (std::uint32_t rank = 0; rank < setup_.num_ranks.front(); ++rank) {
    for (std::uint32_t block = 0; block < keys.size(); ++block) {
      if (keys[block].empty()) continue;
      const std::vector<std::uint32_t>* const symbols = contents_.find(std::string(keys[block]));
      const KVPage page = pages.find(rank, first_page + block);
      if (symbols && begins_with(page, *symbols)) continue;
      const KVPage expected{rank, first_page + block,
                            symbols ? *symbols : std::vector<std::uint32_t>()};
      return broken(kCachedIsThere, member, std::vector<KVPage>{expected}, {page});
    }
  }
  return std::nullopt;
}

bool Invariants::is_block_of(const std::string& request, std::size_t group,
                             std::optional<std::uint32_t> place, const KVPage& page) const {
  const std::uint32_t block_size = setup_.scheduler().kv_cache.groups[group].block_size;
  const TokenOracle::Sequence* sequence = tokens_.find(request);
  if (!sequence || page.symbols.size() < block_size) return false;
  const std::vector<Symbol> all = toy_model::symbols_of(sequence->cache_salt, sequence->tokens);
  const auto begin = page.symbols.begin();
  for (std::size_t first = 0; first + block_size <= all.size(); first += block_size) {
    if (place && first != std::size_t{*place} * block_size) continue;
    const bool is_here =
        std::equal(begin, begin + block_size, all.begin() + static_cast<std::ptrdiff_t>(first),
                   [group](std::uint32_t shown, Symbol symbol) {
                     return shown == shortened(toy_model::symbol_of_group(symbol, group));
                   });
    if (is_here) return true;
  }
  return false;
}

}  // namespace kvfence::engine::on_device
