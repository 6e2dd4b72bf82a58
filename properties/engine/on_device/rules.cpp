/// The rules for engines over devices with any connector. The first rule is the oracle: a request
/// samples the tokens that it would sample without any cache.

#include "properties/engine/rooms.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "contract/connectors/multi/multi_connector.h"
#include "contract/connectors/simple/simple_cpu_offload.h"
#include "contract/engine/engine_setup.h"
#include "contract/engine/engine_target.h"
#include "contract/engine/toy_model.h"
#include "contract/pool/block_hash.h"
#include "contract/pool/request.h"
#include "properties/core/broken_rule.h"
#include "properties/core/divergence.h"
#include "properties/engine/on_device/token_oracle.h"
#include "properties/engine/rank_progress.h"
#include "properties/engine/shown_requests.h"

namespace kvfence::engine::on_device {
namespace {

/// Every invariant, for the command line and the documentation.
constexpr Invariant kInvariants[] = {
    {"on_device.1", "tokens_as_without_cache",
     "each output token is the one that the toy model gives for the tokens before it, on all ranks "
     "and on both engines of a pair"},
    {"on_device.2", "nothing_races", "accesses to the same bytes are ordered if one is a write"},
    {"on_device.3", "nothing_is_misused", "no call violates the runtime's documentation"},
    {"on_device.4", "each_transfer_is_reported_once",
     "a rank has each submitted transfer in flight until it reports it once: as failed if it met a "
     "fault other than a late end, else as a success"},
    {"on_device.5", "what_was_copied_is_there",
     "when a copy is reported as a success, each of its pages on that rank holds a whole block of "
     "its request in the group, after a load the one of that place; after a copy of the simple "
     "connector, which has no request, a whole block of any request"},
    {"on_device.6", "a_report_names_what_ended",
     "the ranks' report names the GPU blocks of failed loads and no others, counts the ranks on "
     "which a job ended or failed (rule offload_fences_reuse), and lists a load as received when "
     "all ranks have it; a consumer's reads over NIXL come in addition"},
    {"on_device.7", "a_drained_engine_is_at_rest",
     "after a drain no step, transfer or request is left; no GPU block is held, except for the "
     "other engine or a read, and no CPU block of the simple connector"},
    {"on_device.8", "what_is_cached_is_there",
     "after a drain each GPU block and each CPU block of the simple connector with a key holds, on "
     "each rank, the KV of the tokens that the key names"},
};

constexpr BrokenRuleOf<kInvariants> broken;

/// Whether the report has all of `owed`, and without has_more nothing else.
template <class T>
bool is_reported(const std::set<T>& owed, const std::set<T>& reported, bool has_more) {
  if (!has_more) return owed == reported;
  return std::includes(reported.begin(), reported.end(), owed.begin(), owed.end());
}

bool begins_with(const KVPage& page, const std::vector<std::uint32_t>& symbols) {
  return page.symbols.size() >= symbols.size() &&
         std::equal(symbols.begin(), symbols.end(), page.symbols.begin());
}

/// The content of the blocks that requests have filled, by key.
class BlockContents {
 public:
  explicit BlockContents(const EngineSetup& setup) : setup_(setup.scheduler().kv_cache) {}

  void take_in(const Command& command, const Observation& observation, const World& world) {
    const bool is_taken = observation.error == ErrorCode::kNone;
    const auto* added = std::get_if<AddRequest>(&command);
    const auto* handed_over = std::get_if<HandOver>(&command);
    if (added && is_taken) {
      RequestSpec spec{added->tokens, std::nullopt, added->cache_salt, {}};
      if (added->lora_name) spec.lora = LoraRequest{*added->lora_name, added->lora_id};
      add(added->id, spec);
    } else if (handed_over && is_taken) {
      add(handed_over->id, world.requests().find(handed_over->request)->spec());
    }
    for (const EngineRole role : kEngineRoles) {
      for (const RequestOutput& output : observation.of(role).outputs.or_empty()) {
        const auto request = requests_.find(output.request);
        if (request != requests_.end()) append(request->second, output.tokens);
      }
    }
  }

  /// Null: no request has filled such a block.
  const std::vector<std::uint32_t>* find(const std::string& key) const {
    const auto found = symbols_.find(key);
    return found == symbols_.end() ? nullptr : &found->second;
  }

  /// Whether a page begins with some block's symbols.
  bool has_block_of(const KVPage& page) const {
    return std::ranges::any_of(symbols_,
                               [&](const auto& each) { return begins_with(page, each.second); });
  }

 private:
  void add(const std::string& name, const RequestSpec& spec) {
    RequestSpec without_tokens{{}, spec.lora, spec.cache_salt, {}};
    const auto [request, is_new] =
        requests_.insert_or_assign(name, Request(std::move(without_tokens), setup_.pool.hash));
    append(request->second, spec.tokens);
  }

  void append(Request& request, std::span<const TokenId> tokens) {
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
          symbols.push_back(toy_model::shortened(toy_model::symbol_of_group(all[at], group)));
        }
      }
    }
  }

  KVCacheManagerConfig setup_;
  std::map<std::string, Request> requests_;
  std::map<std::string, std::vector<std::uint32_t>> symbols_;  ///< shortened; by packed key
};

class Invariants final : public Rules {
 public:
  explicit Invariants(const EngineSetup& setup)
      : setup_(setup), tokens_(setup.windows), contents_(setup), engines_(setup.schedulers.size()) {
    for (Engine& engine : engines_) engine = at_rest();
  }

  void check_all(const Command& command) override {
    if (const auto wrong = tokens_.check(command, shown())) {
      broken("tokens_as_without_cache", "outputs", wrong->expected, wrong->actual);
    }
    contents_.take_in(command, shown(), world());
    const EngineRole asked = role_of(command);
    const bool is_taken = shown().error == ErrorCode::kNone;
    for (std::size_t number = 0; number < engines_.size(); ++number) {
      const auto role = static_cast<EngineRole>(number);
      Engine& engine = engines_[number];
      const auto* failing = std::get_if<FailNext>(&command);
      if (failing && is_taken && role == asked) {
        engine.faults[{failing->rank, failing->stream == "store"}] = failing->fault != "late";
      }
      // A new engine starts with empty devices.
      const bool was_drained = std::holds_alternative<Drain>(command) && is_taken && role == asked;
      const bool is_at_rest = was_drained || has_ended(shown());
      if (is_at_rest) engine = at_rest();
      const bool is_asked = is_taken && role == asked;
      check_engine(engine, is_asked ? &command : nullptr, shown().of(role));
      if (is_at_rest) check_rest(shown().of(role));
    }
  }

 private:
  /// A transfer, and whether it met a fault that makes it fail.
  struct Submitted {
    DeviceTransfer transfer;
    bool fails = false;
  };

  struct Engine {
    RankProgress progress;
    std::vector<Submitted> in_flight;  ///< not reported, in order
    /// Faults to come, by rank and whether they are a store's: whether they make a transfer fail.
    std::map<std::pair<std::uint32_t, bool>, bool> faults;
    /// By step in flight for which a rank was polled, oldest first.
    std::deque<std::vector<Submitted>> ended;
    std::map<std::string, std::uint32_t> num_on_ranks;  ///< by request: ranks that have its load
    std::map<JobId, std::vector<std::string>> loads;    ///< simple connector: requests by event
  };

  Engine at_rest() const {
    Engine engine;
    engine.progress = RankProgress(setup_.num_ranks.front());
    return engine;
  }

  /// Checks one engine. command: null if it is for another one.
  void check_engine(Engine& engine, const Command* command, const EngineObservation& own) {
    if (own.load_event.has_value()) engine.loads[*own.load_event] = *own.load_requests;
    broken.unless_equal("nothing_races", "num_races", 0U, *own.num_races);
    broken.unless_equal("nothing_is_misused", "num_misuses", 0U, *own.num_misuses);
    // The next transfer of its rank and direction meets a fault.
    for (const DeviceTransfer& transfer : own.submitted.or_empty()) {
      const auto fault = engine.faults.extract({transfer.rank, transfer.store});
      engine.in_flight.push_back({transfer, fault && fault.mapped()});
    }
    if (command) check_progress(engine, *command, own);
    const auto num_in_flight = static_cast<std::uint32_t>(engine.in_flight.size());
    broken.unless_equal("each_transfer_is_reported_once", "num_transfers", num_in_flight,
                        *own.num_transfers);
  }

  void check_progress(Engine& engine, const Command& command, const EngineObservation& own) {
    if (own.ended.has_value()) check_ended(engine, own);
    const std::uint32_t num_before = engine.progress.num_polled_by_all();
    engine.progress.take_in(command, shown());
    const std::uint32_t num_now = engine.progress.num_polled_by_all();
    if (num_now < num_before) engine.ended.pop_front();
    if (num_now <= num_before) return;
    check_answer(engine, engine.ended[num_before], shown());
  }

  void check_ended(Engine& engine, const EngineObservation& own) const {
    engine.ended.resize(engine.progress.num_executed_by_one());
    for (const EndedTransfer& ended : *own.ended) {
      const auto next = std::ranges::find_if(engine.in_flight, [&](const Submitted& each) {
        const DeviceTransfer& transfer = each.transfer;
        return transfer.rank == ended.rank && transfer.store == ended.store &&
               transfer.job == ended.job;
      });
      if (next == engine.in_flight.end() || ended.succeeded == next->fails) {
        broken("each_transfer_is_reported_once", "ended", std::vector<EndedTransfer>{}, {ended});
      }
      std::vector<Submitted>& of_step = engine.ended[engine.progress.num_polled(ended.rank)];
      of_step.push_back(*next);
      engine.in_flight.erase(next);
      if (!ended.succeeded) continue;
      check_arrival(of_step.back().transfer, own);
    }
  }

  void check_arrival(const DeviceTransfer& transfer, const EngineObservation& own) const {
    if (!own.cpu_kv.has_value()) return;
    const std::vector<std::uint32_t> pages =
        transfer.store
            ? setup_.cpu_pages_of(transfer)
            : std::vector<std::uint32_t>(transfer.gpu_blocks.begin(), transfer.gpu_blocks.end());
    std::size_t at = 0;
    for (std::size_t group = 0; group < transfer.group_sizes.size(); ++group) {
      for (std::uint32_t index = 0; index < transfer.group_sizes[group]; ++index, ++at) {
        const KVPages& pages_there = transfer.store ? *own.cpu_kv : *own.gpu_kv;
        const KVPage page = pages_there.find(transfer.rank, pages[at]);
        if (setup_.is_of_simple(transfer.job) && contents_.has_block_of(page)) continue;
        // A store leaves out blocks that are stored already, so its later places are unknown.
        std::optional<std::uint32_t> place;
        if (!transfer.store) place = transfer.block_indices[group] + index;
        if (is_block_of(transfer.request, group, place, page)) continue;
        broken("what_was_copied_is_there", transfer.store ? "cpu_kv" : "gpu_kv",
               std::vector<KVPage>{}, {page});
      }
    }
  }

  /// Checks the ranks' report of a step for the transfers that ended. The rules of NIXL check the
  /// reads' part of it (properties/engine/nixl).
  void check_answer(Engine& engine, const std::vector<Submitted>& all_ended,
                    const Report& report) const {
    if (!setup_.has_workers()) return;
    const bool fences = setup_.scheduler().kv_cache.pool.rules.offload_fences_reuse;
    std::set<BlockId> invalid;
    std::map<JobId, CompletedJob> jobs;
    std::set<std::string> loaded;
    for (const Submitted& each : all_ended) {
      const DeviceTransfer& transfer = each.transfer;
      const bool is_of_simple = setup_.is_of_simple(transfer.job);
      if (is_of_simple ? transfer.store : fences) {
        CompletedJob& job = jobs[reported_number(transfer.job)];
        ++job.num_workers;
        if (each.fails) ++job.num_failed;
      }
      if (transfer.store) continue;
      if (each.fails) invalid.insert(transfer.gpu_blocks.begin(), transfer.gpu_blocks.end());
      const std::vector<std::string> whose =
          is_of_simple ? engine.loads[event_of(setup_.own_number(transfer.job))]
                       : std::vector<std::string>{transfer.request};
      for (const std::string& request : whose) {
        if (++engine.num_on_ranks[request] < setup_.num_ranks.front()) continue;
        engine.num_on_ranks.erase(request);
        loaded.insert(request);
      }
    }
    const bool has_more = setup_.nixl.has_value();
    const std::set<BlockId> said_invalid(report.invalid_blocks->begin(),
                                         report.invalid_blocks->end());
    if (!is_reported(invalid, said_invalid, has_more)) {
      broken("a_report_names_what_ended", "invalid_blocks",
             std::vector<BlockId>(invalid.begin(), invalid.end()), *report.invalid_blocks);
    }
    std::vector<CompletedJob> completed;
    for (auto& [number, job] : jobs) {
      job.job = number;
      completed.push_back(job);
    }
    broken.unless_equal("a_report_names_what_ended", "completed_jobs", completed,
                        *report.completed_jobs);
    const std::vector<std::string>& received = *report.finished_recving;
    if (!is_reported(loaded, std::set<std::string>(received.begin(), received.end()), has_more)) {
      broken("a_report_names_what_ended", "finished_recving",
             std::vector<std::string>(loaded.begin(), loaded.end()), received);
    }
  }

  /// The simple connector reports events by its own numbers.
  JobId reported_number(JobId transfer) const {
    if (!setup_.is_of_simple(transfer)) return transfer;
    const JobId event = event_of(setup_.own_number(transfer));
    if (setup_.children.empty()) return event;
    const auto num_children = static_cast<std::uint32_t>(setup_.children.size());
    return multi_connector_job({child_job(transfer, num_children).child, event}, num_children);
  }

  void check_rest(const EngineObservation& own) const {
    std::vector<std::uint32_t> left = {*own.num_steps_in_flight, *own.num_transfers,
                                       own.num_unfinished};
    std::vector<std::uint32_t> at_rest = {0, 0, 0};
    // Null blocks are always held. With NIXL blocks may be held for the other engine or its reads.
    if (!setup_.nixl || (own.tables.has_value() && own.tables->empty())) {
      left.push_back(own.num_referenced_blocks);
      at_rest.push_back(1);
    }
    if (setup_.simple) {
      left.push_back(*own.num_referenced_cpu_blocks);
      at_rest.push_back(1);
    }
    broken.unless_equal("a_drained_engine_is_at_rest", "num_steps_in_flight", at_rest, left);
    if (!own.gpu_kv.has_value()) return;
    check_cached(*own.keys, *own.gpu_kv, 0, "gpu_kv");
    if (!setup_.simple) return;
    std::uint32_t first_page = 0;
    for (const ChildSetup& child : setup_.children) {
      if (child.kind == ConnectorKind::kSimple) first_page = child.first_page;
    }
    check_cached(*own.cpu.keys, *own.cpu_kv, first_page, "cpu_kv");
  }

  /// keys: by block; the page of block n is first_page + n.
  void check_cached(const KeyList& keys, const KVPages& pages, std::uint32_t first_page,
                    std::string_view member) const {
    for (std::uint32_t rank = 0; rank < setup_.num_ranks.front(); ++rank) {
      for (std::uint32_t block = 0; block < keys.size(); ++block) {
        if (keys[block].empty()) continue;
        const std::vector<std::uint32_t>* const symbols = contents_.find(std::string(keys[block]));
        const KVPage page = pages.find(rank, first_page + block);
        if (symbols && begins_with(page, *symbols)) continue;
        const KVPage expected{rank, first_page + block,
                              symbols ? *symbols : std::vector<std::uint32_t>()};
        broken("what_is_cached_is_there", member, std::vector<KVPage>{expected}, {page});
      }
    }
  }

  /// Whether a page begins with the symbols of a whole block of the request in a group: the block
  /// at that place of its table, or any block.
  bool is_block_of(const std::string& request, std::size_t group,
                   std::optional<std::uint32_t> place, const KVPage& page) const {
    const std::uint32_t block_size = setup_.scheduler().kv_cache.groups[group].block_size;
    const TokenOracle::Sequence* sequence = tokens_.find(request);
    if (!sequence || page.symbols.size() < block_size) return false;
    const std::vector<Symbol> all = toy_model::symbols_of(sequence->cache_salt, sequence->tokens);
    const auto begin = page.symbols.begin();
    for (std::size_t first = 0; first + block_size <= all.size(); first += block_size) {
      if (place && first != std::size_t{*place} * block_size) continue;
      const bool is_here = std::equal(
          begin, begin + block_size, all.begin() + static_cast<std::ptrdiff_t>(first),
          [group](std::uint32_t shown, Symbol symbol) {
            return shown == toy_model::shortened(toy_model::symbol_of_group(symbol, group));
          });
      if (is_here) return true;
    }
    return false;
  }

  EngineSetup setup_;
  TokenOracle tokens_;
  BlockContents contents_;
  std::vector<Engine> engines_;  ///< by EngineRole
};

}  // namespace

std::optional<TokenOracle::WrongToken> TokenOracle::check(const Command& command,
                                                          const Observation& observation) {
  const bool is_taken = observation.error == ErrorCode::kNone;
  const auto* added = std::get_if<AddRequest>(&command);
  if (added && is_taken) {
    sequences_[added->id] = {added->cache_salt, added->tokens, added->tokens.size()};
  }
  const auto* handed_over = std::get_if<HandOver>(&command);
  if (handed_over && is_taken) {
    Sequence sequence = sequences_[handed_over->request];
    sequence.tokens.resize(sequence.num_prompt_tokens);
    sequences_[handed_over->id] = std::move(sequence);
  }
  for (const EngineRole role : kEngineRoles) {
    for (const RequestOutput& output : observation.of(role).outputs.or_empty()) {
      Sequence& sequence = sequences_[output.request];
      for (const TokenId token : output.tokens) {
        const TokenId expected =
            toy_model::sample_without_cache(sequence.cache_salt, sequence.tokens, windows_);
        if (token != expected) return WrongToken{expected, token};
        sequence.tokens.push_back(token);
      }
    }
  }
  return std::nullopt;
}

const TokenOracle::Sequence* TokenOracle::find(const std::string& request) const {
  const auto found = sequences_.find(request);
  return found == sequences_.end() ? nullptr : &found->second;
}

RuleSuite<EngineTarget> rules() { return rule_suite<Invariants>(kInvariants); }

}  // namespace kvfence::engine::on_device
