#include "properties/engine_invariants.h"

#include <algorithm>
#include <variant>

#include "contract/toy_model.h"
#include "properties/broken_rule.h"

namespace kvfence::engine {
namespace {

// The places of kInvariants, so that code names a rule by its id.
enum Rule : std::size_t { kE1, kE2, kE3, kE4, kE5, kE6, kE7, kE8, kE9 };

static_assert(kInvariants.size() == kE9 + 1);

template <class T>
Divergence broken(Rule rule, std::string_view member, const T& expected, const T& actual) {
  return broken_rule(kInvariants[rule], member, expected, actual);
}

/// What a page holds; nothing at all if it is not listed.
KVPage page_at(const std::vector<KVPage>& pages, std::uint32_t number) {
  for (const KVPage& page : pages) {
    if (page.number == number) return page;
  }
  return {number, {}};
}

}  // namespace

void Invariants::reset() {
  sequences_.clear();
  in_flight_.clear();
}

std::optional<Divergence> Invariants::check(const Command& command, const Observation& observation,
                                            const World&, std::size_t step) {
  std::optional<Divergence> found = check_all(command, observation);
  if (found) found->step = step;
  return found;
}

std::optional<Divergence> Invariants::check_all(const Command& command,
                                                const Observation& observation) {
  if (auto found = check_presence(command, observation)) return found;
  const auto* added = std::get_if<AddRequest>(&command);
  if (added && observation.error == ErrorCode::kNone) {
    sequences_[added->id] = {added->cache_salt, added->tokens};
  }
  if (auto found = check_tokens(observation)) return found;
  if (observation.num_races != 0) return broken(kE2, "num_races", 0U, observation.num_races);
  if (observation.num_misuses != 0) return broken(kE3, "num_misuses", 0U, observation.num_misuses);
  if (observation.submitted.has_value()) {
    in_flight_.insert(in_flight_.end(), observation.submitted->begin(),
                      observation.submitted->end());
  }
  if (auto found = check_reports(observation)) return found;
  if (std::holds_alternative<Drain>(command)) {
    in_flight_.clear();
    const std::vector<std::uint32_t> left = {observation.num_steps_in_flight,
                                             observation.num_transfers, observation.num_unfinished,
                                             observation.num_referenced_blocks};
    // The null block is always held.
    const std::vector<std::uint32_t> at_rest = {0, 0, 0, 1};
    if (left != at_rest) return broken(kE9, "num_steps_in_flight", at_rest, left);
  }
  const auto num_in_flight = static_cast<std::uint32_t>(in_flight_.size());
  if (observation.num_transfers != num_in_flight) {
    return broken(kE6, "num_transfers", num_in_flight, observation.num_transfers);
  }
  return std::nullopt;
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
      {"outputs", observation.outputs.has_value(), is_answered.template operator()<Update>()},
      {"success", observation.success.has_value(),
       is_answered.template operator()<ResetPrefixCache>()},
  };
  for (const auto& answer : answers) {
    if (answer.is_there == answer.wanted) continue;
    return broken_presence(kInvariants[kE4], answer.member, answer.wanted);
  }
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_tokens(const Observation& observation) {
  if (!observation.outputs.has_value()) return std::nullopt;
  for (const scheduler::RequestOutput& output : *observation.outputs) {
    Sequence& sequence = sequences_[output.request];
    for (const TokenId token : output.tokens) {
      const TokenId expected =
          toy_model::sample_without_cache(sequence.cache_salt, sequence.tokens);
      if (token != expected) return broken(kE1, "outputs", expected, token);
      sequence.tokens.push_back(token);
    }
  }
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_reports(const Observation& observation) {
  if (!observation.ended.has_value()) return std::nullopt;
  bool has_load = false;
  for (const EndedTransfer& ended : *observation.ended) {
    // The oldest of its direction: each is in order.
    const auto next = std::find_if(in_flight_.begin(), in_flight_.end(),
                                   [&](const Transfer& each) { return each.store == ended.store; });
    const bool is_right = next != in_flight_.end() && next->job == ended.job &&
                          !(ended.store && has_load) && ended.succeeded;
    if (!is_right) return broken(kE5, "ended", std::vector<EndedTransfer>{}, {ended});
    has_load |= !ended.store;
    const Transfer transfer = *next;
    in_flight_.erase(next);
    if (auto found = check_arrival(transfer, observation)) return found;
  }
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_arrival(const Transfer& transfer,
                                                    const Observation& observation) const {
  if (!observation.cpu_kv.has_value()) return std::nullopt;
  const worker::Transfer copied{
      .gpu_blocks = {transfer.gpu_blocks.begin(), transfer.gpu_blocks.end()},
      .cpu_blocks = {transfer.slots.begin(), transfer.slots.end()},
      .block_index = transfer.block_index};
  const std::vector<std::uint32_t> pages =
      transfer.store ? worker::cpu_pages_of(copied, block_size_factor_) : copied.gpu_blocks;
  for (const std::uint32_t number : pages) {
    const KVPage page = page_at(transfer.store ? *observation.cpu_kv : *observation.gpu_kv, number);
    if (is_block_of(transfer.request, page.symbols)) continue;
    return broken(transfer.store ? kE7 : kE8, transfer.store ? "cpu_kv" : "gpu_kv",
                  std::vector<KVPage>{}, {page});
  }
  return std::nullopt;
}

bool Invariants::is_block_of(const std::string& request,
                             const std::vector<std::uint32_t>& symbols) const {
  const auto found = sequences_.find(request);
  if (found == sequences_.end() || symbols.size() != block_size_) return false;
  const std::vector<Symbol> all =
      toy_model::symbols_of(found->second.cache_salt, found->second.tokens);
  for (std::size_t first = 0; first + block_size_ <= all.size(); first += block_size_) {
    const bool is_here =
        std::equal(symbols.begin(), symbols.end(), all.begin() + static_cast<std::ptrdiff_t>(first),
                   [](std::uint32_t shown, Symbol symbol) { return shown == shortened(symbol); });
    if (is_here) return true;
  }
  return false;
}

}  // namespace kvfence::engine
