#include "properties/engine/on_device/rules.h"

#include <algorithm>
#include <variant>

#include "contract/engine/toy_model.h"
#include "properties/core/broken_rule.h"
#include "properties/engine/refusals.h"

namespace kvfence::engine::on_device {
namespace {

// The places of kInvariants, so that code names a rule by its id.
enum Rule : std::size_t { kE1, kE2, kE3, kE4, kE5, kE6, kE7, kE8, kE9, kE10, kE11 };

static_assert(kInvariants.size() == kE11 + 1);

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
      if (token != expected) return broken(kE1, "outputs", expected, token);
      sequence.tokens.push_back(token);
    }
  }
  return std::nullopt;
}

const TokenOracle::Sequence* TokenOracle::find(const std::string& request) const {
  const auto found = sequences_.find(request);
  return found == sequences_.end() ? nullptr : &found->second;
}

void Invariants::reset() { *this = Invariants(setup_); }

std::optional<Divergence> Invariants::check(const Command& command, const Observation& observation,
                                            const World& world, std::size_t step) {
  std::optional<Divergence> found = check_refusal(command, observation, world);
  if (!found) found = check_all(command, observation);
  if (found) found->step = step;
  return found;
}

std::optional<Divergence> Invariants::check_all(const Command& command,
                                                const Observation& observation) {
  if (auto found = check_presence(command, observation)) return found;
  if (auto found = tokens_.check(command, observation)) return found;
  if (*observation.num_races != 0) return broken(kE2, "num_races", 0U, *observation.num_races);
  if (*observation.num_misuses != 0)
    return broken(kE3, "num_misuses", 0U, *observation.num_misuses);
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
    if (left != at_rest) return broken(kE9, "num_steps_in_flight", at_rest, left);
  }
  const auto num_in_flight = static_cast<std::uint32_t>(in_flight_.size());
  if (*observation.num_transfers != num_in_flight) {
    return broken(kE6, "num_transfers", num_in_flight, *observation.num_transfers);
  }
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_refusal(const Command& command,
                                                    const Observation& observation,
                                                    const World& world) const {
  const auto foreign = kvfence::detail::refusal_of_foreign(command, setup_, world);
  if (!foreign || observation.error == *foreign) return std::nullopt;
  return broken(kE4, "error", *foreign, observation.error);
}

std::optional<Divergence> Invariants::check_presence(const Command& command,
                                                     const Observation& observation) const {
  const auto is_answered = [&]<class Verb>() {
    return std::holds_alternative<Verb>(command) && observation.error == ErrorCode::kNone;
  };
  const struct {
    std::string_view member;
    bool is_there;
    bool wanted;
  } answers[] = {
      {"scheduled", observation.scheduled.has_value(), is_answered.template operator()<Schedule>()},
      {"jobs_to_flush", observation.jobs_to_flush.has_value(),
       is_answered.template operator()<Schedule>()},
      {"submitted", observation.submitted.has_value(), is_answered.template operator()<Execute>()},
      {"advanced", observation.advanced.has_value(), is_answered.template operator()<Advance>()},
      {"ended", observation.ended.has_value(), is_answered.template operator()<Poll>()},
      {"invalid_blocks", observation.invalid_blocks.has_value(),
       is_answered.template operator()<Poll>()},
      {"outputs", observation.outputs.has_value(), is_answered.template operator()<Update>()},
      {"success", observation.success.has_value(),
       is_answered.template operator()<ResetPrefixCache>()},
      {"num_steps_in_flight", observation.num_steps_in_flight.has_value(), true},
      {"num_transfers", observation.num_transfers.has_value(), true},
      {"num_races", observation.num_races.has_value(), true},
      {"num_misuses", observation.num_misuses.has_value(), true},
  };
  for (const auto& answer : answers) {
    if (answer.is_there == answer.wanted) continue;
    return broken_presence(kInvariants[kE4], answer.member, answer.wanted);
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
  std::set<std::uint32_t> ranks_with_loads;
  for (const EndedTransfer& ended : *observation.ended) {
    // The oldest of its direction: each is in order.
    const auto next =
        std::find_if(in_flight_.begin(), in_flight_.end(), [&](const Submitted& each) {
          return each.transfer.rank == ended.rank && each.transfer.store == ended.store;
        });
    const bool is_right = next != in_flight_.end() && next->transfer.job == ended.job &&
                          !(ended.store && ranks_with_loads.count(ended.rank) > 0) &&
                          ended.succeeded == !next->fails;
    if (!is_right) return broken(kE5, "ended", std::vector<EndedTransfer>{}, {ended});
    if (!ended.store) ranks_with_loads.insert(ended.rank);
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
      return broken(transfer.store ? kE7 : kE8, transfer.store ? "cpu_kv" : "gpu_kv",
                    std::vector<KVPage>{}, {page});
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
    return broken(kE10, "invalid_blocks", invalid_blocks, *observation.invalid_blocks);
  }
  std::vector<Completed> completed;
  for (const auto& [number, job] : jobs) {
    if (fences) completed.push_back(job);
  }
  const std::vector<Completed>& told = *observation.completed_jobs;
  if (told != completed) {
    const bool is_count = std::equal(told.begin(), told.end(), completed.begin(), completed.end(),
                                     [](const auto& a, const auto& b) {
                                       return a.job == b.job && a.num_workers == b.num_workers;
                                     });
    return broken(is_count ? kE10 : kE11, "completed_jobs", completed, told);
  }
  const std::vector<std::string>& received = *observation.finished_recving;
  if (std::set<std::string>(received.begin(), received.end()) != loaded) {
    return broken(kE11, "finished_recving", std::vector<std::string>(loaded.begin(), loaded.end()),
                  received);
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
