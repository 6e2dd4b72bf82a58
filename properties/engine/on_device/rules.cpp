#include "properties/engine/on_device/rules.h"

#include <algorithm>
#include <variant>

#include "contract/engine/toy_model.h"
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
};

static_assert(kInvariants.size() == kDrainedIsAtRest + 1);

template <class T>
Divergence broken(Rule rule, std::string_view member, const T& expected, const T& actual) {
  return broken_rule(kInvariants[rule], member, expected, actual);
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

std::optional<Divergence> Invariants::check(const Command& command, const Observation& observation,
                                            const World&, std::size_t step) {
  std::optional<Divergence> found = check(command, observation);
  if (found) found->step = step;
  return found;
}

std::optional<Divergence> Invariants::check(const Command& command,
                                            const Observation& observation) {
  if (auto found = tokens_.check(command, observation)) return found;
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
  if (std::holds_alternative<Drain>(command)) {
    in_flight_.clear();
    num_on_ranks_.clear();
    faults_.clear();
    const std::vector<std::uint32_t> left = {*observation.num_steps_in_flight,
                                             *observation.num_transfers, observation.num_unfinished,
                                             observation.num_referenced_blocks};
    // The null block is always held.
    const std::vector<std::uint32_t> at_rest = {0, 0, 0, 1};
    if (left != at_rest) return broken(kDrainedIsAtRest, "num_steps_in_flight", at_rest, left);
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
  const Copy copied{.gpu_blocks = {transfer.gpu_blocks.begin(), transfer.gpu_blocks.end()},
                    .cpu_blocks = {transfer.slots.begin(), transfer.slots.end()},
                    .group_sizes = transfer.group_sizes,
                    .block_indices = transfer.block_indices};
  const std::vector<std::uint32_t> pages =
      transfer.store ? cpu_pages_of(copied, setup_.device->block_size_factor) : copied.gpu_blocks;
  std::size_t at = 0;
  for (std::size_t group = 0; group < transfer.group_sizes.size(); ++group) {
    for (std::uint32_t index = 0; index < transfer.group_sizes[group]; ++index, ++at) {
      const KVPages& shown = transfer.store ? *observation.cpu_kv : *observation.gpu_kv;
      const KVPage page = shown.find(transfer.rank, pages[at]);
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
  const bool fences = setup_.offloading->spec.manager.rules.offload_fences_reuse;
  std::set<BlockId> invalid;
  std::map<JobId, Completed> jobs;
  std::set<std::string> loaded;
  for (const Submitted& each : ended_) {
    const DeviceTransfer& transfer = each.transfer;
    Completed& job = jobs[transfer.job];
    job.job = transfer.job;
    ++job.num_workers;
    if (each.fails) ++job.num_failed;
    if (transfer.store) continue;
    if (each.fails) invalid.insert(transfer.gpu_blocks.begin(), transfer.gpu_blocks.end());
    if (++num_on_ranks_[transfer.request] < setup_.offloading->spec.num_workers) continue;
    num_on_ranks_.erase(transfer.request);
    loaded.insert(transfer.request);
  }
  const std::vector<BlockId> invalid_blocks(invalid.begin(), invalid.end());
  if (*observation.invalid_blocks != invalid_blocks) {
    return broken(kReportNamesWhatEnded, "invalid_blocks", invalid_blocks,
                  *observation.invalid_blocks);
  }
  std::vector<Completed> completed;
  for (const auto& [number, job] : jobs) {
    if (fences) completed.push_back(job);
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
