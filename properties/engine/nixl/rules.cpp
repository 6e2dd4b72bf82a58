/// The rules for a pair of engines with its transport and clock. They hold for any implementation
/// and release: blocks under a read stay, loads bring the request's own prompt, reports agree with
/// the reads, and no block is held for ever. The core rules, for every engine, are in
/// properties/engine/rules.cpp.

#include "properties/engine/rooms.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "contract/core/lists.h"
#include "contract/engine/engine_setup.h"
#include "contract/engine/engine_target.h"
#include "properties/core/broken_rule.h"
#include "properties/core/divergence.h"
#include "properties/core/invariant_values.h"
#include "properties/core/left_out.h"
#include "properties/core/named_place.h"
#include "properties/engine/nixl/facet.h"
#include "properties/engine/rank_memory.h"
#include "properties/engine/shown_requests.h"

namespace kvfence::engine::nixl {
namespace {

const LeftOut kBesideOthers(
    LeftOut::By::kRule, "nixl.3, 7, 8, 9 and 11: other children",
    "other children also decide the content of blocks, waits and holds, and they show other "
    "members",
    "engine/multi/pairs/nixl_loads_offloading_saves.kvs");

const LeftOut kWindowOfWholePrompt(
    LeftOut::By::kRule, "nixl.9: the last token of a prompt that was read, with a window",
    "upstream computes it again with the blocks of the next token's window, which may lack the "
    "first token of its own",
    "engine/prefill_decode/left_out/a_window_short_of_a_token.kvs");

/// Every invariant, for the command line and the documentation.
constexpr Invariant kInvariants[] = {
    {"nixl.1", "what_is_read_stays",
     "a held request keeps the blocks that were reported to the router; a block under a read stays "
     "with its request at the producer"},
    {"nixl.2", "what_is_written_stays",
     "a block into which a read writes stays with the consumer's request until the read has ended"},
    {"nixl.3", "a_load_brings_its_own_prompt",
     "after a successful read each of its local blocks holds the KV of its place in the prompt on "
     "that rank"},
    {"nixl.4", "only_held_requests_are_sent",
     "finished_sending names requests whose blocks are held, each only once; no scheduler refuses "
     "its ranks' report"},
    {"nixl.5", "what_is_unread_is_held",
     "a request is given back only after a notice of each of its readers, or at its deadline"},
    {"nixl.6", "nothing_is_held_beyond_its_lease",
     "a request is given back by the first step that is planned after its end and comes back after "
     "the notices of all its readers, or a deadline after its end and its last heartbeat"},
    {"nixl.7", "received_once_after_its_last_read",
     "finished_recving names a request once, in the step in which the last of its reads ends, and "
     "not before"},
    {"nixl.8", "failed_reads_are_reported",
     "the step in which a failed read ends reports all of its local blocks as invalid, and no "
     "others"},
    {"nixl.9", "a_step_reads_its_own",
     "every token that a step attends to is that of its request, computed, read or shared by a "
     "common prefix: none comes from a failed read or another request"},
    {"nixl.10", "a_notice_follows_its_read",
     "a consumer's step sends a notice from each reader for requests with nothing to read, and for "
     "no others; reqs_to_recv names a request once, so that nothing is read after its notice"},
    {"nixl.11", "holds_are_explained",
     "a finished request has blocks only while the producer holds them for readers, or until its "
     "own reads have ended"},
    {"nixl.12", "loads_come_to_an_end",
     "a request that waits for a load has one; a request that runs, or ended without a load, is in "
     "reqs_to_recv by the next plan, so that its producer gets a notice"},
};

using Rule = NamedPlace<kInvariants>;
constexpr BrokenRuleOf<kInvariants> broken;

using detail::find_table;
using detail::phrase;

/// The group of the table that has the block, and its place there; nothing: none has it.
std::optional<std::pair<GroupId, std::uint32_t>> place_of(const BlocksByGroup* table,
                                                          BlockId block) {
  for (GroupId group = 0; table && group < table->size(); ++group) {
    const std::vector<BlockId>& blocks = (*table)[group];
    const auto place = std::ranges::find(blocks, block);
    if (place == blocks.end()) continue;
    return std::pair(group, static_cast<std::uint32_t>(place - blocks.begin()));
  }
  return std::nullopt;
}

std::string block_of(BlockId block, const std::string& request) {
  return "block " + std::to_string(block) + " of " + request;
}

/// Other children of a MultiConnector may hold, load and report requests too. Beside them the rules
/// cover only what NIXL itself reads and holds. The content of blocks (nixl.3, nixl.9), nixl.11,
/// and the waiting requests of nixl.12 are checked only where NIXL alone loads.
///
/// The model keeps the content of each block of each rank, and which requests are held or read. It
/// takes reads, notices and tables from the shown state, so it checks nothing after a command that
/// did not show the state.
class Invariants final : public Rules {
 public:
  /// Requires: a setup with NIXL.
  explicit Invariants(const EngineSetup& setup)
      : setup_(setup), spec_(*setup.nixl), is_alone_(!kBesideOthers(setup.children.size() > 1)) {
    restart();
  }

  void check_all(const Command& command) override {
    is_blind_ |= !has_state(shown());
    if (is_blind_) return;
    if (has_ended(shown())) {
      restart();
    } else if (shown().error == ErrorCode::kNone) {
      take_in(command);
    } else if (shown().finished_sending.has_value()) {
      broken("only_held_requests_are_sent", "error", to_text(ErrorCode::kNone),
             to_text(shown().error));
    }
    check_state();
  }

 private:
  /// The progress of a request's only load.
  enum class Load : std::uint8_t { kNone, kPlanned, kReading, kOver };

  /// An added request. It is kept when it is gone, since steps in flight may still run it.
  struct Known {
    std::uint32_t num_prompt_tokens = 0;
    std::string remote_request;  ///< if it was handed over
    Load load = Load::kNone;
    bool is_to_run = false;  ///< its first run after the load is to come
  };

  /// A finished request of the producer, until it is given back.
  struct Held {
    std::vector<BlockId> blocks;
    Seconds expires = 0;      ///< unless renewed; unused without a deadline
    Seconds expires_max = 0;  ///< with all renewals
    std::set<std::pair<std::uint32_t, std::uint32_t>> done;  ///< rank, remote rank
    bool is_shared = false;                                  ///< another child holds it too
  };

  /// A step in flight, as the workers get it.
  struct Step : StepOnBlocks {
    std::vector<Receive> receives;
    std::vector<std::string> held;  ///< the held requests when it was planned
  };

  struct Engine {
    std::vector<std::vector<Content>> parts;  ///< by rank and, at a consumer, by remote rank
    std::deque<Step> in_flight;               ///< oldest first
  };

  /// Both engines are new, with no requests.
  void restart() {
    known_.clear();
    sequences_.clear();
    tables_.clear();
    held_.clear();
    engines_.clear();
    const std::uint32_t producers = spec_.producer_world_size;
    const std::uint32_t consumers = spec_.consumer_world_size;
    for (const EngineRole role : kEngineRoles) {
      const std::size_t index = static_cast<std::size_t>(role);
      const std::uint32_t num_blocks = setup_.schedulers[index].kv_cache.pool.num_gpu_blocks;
      // All ranks of a producer have the same content.
      const std::uint32_t num_parts =
          role == EngineRole::kProducer ? 1 : consumers * std::max(1U, producers / consumers);
      engines_.push_back({{num_parts, std::vector<Content>(num_blocks)}, {}});
    }
  }

  Engine& engine_of(EngineRole role) { return engines_[static_cast<std::size_t>(role)]; }
  bool has_expired(Seconds expires, Seconds now) const { return spec_.deadline && now >= expires; }

  const std::vector<KVCacheSpec>& groups_of(EngineRole role) const {
    return setup_.schedulers[static_cast<std::size_t>(role)].kv_cache.groups;
  }

  std::uint32_t num_readers() const {
    return std::max(spec_.producer_world_size, spec_.consumer_world_size);
  }

  void take_in(const Command& command) {
    if (const auto* added = std::get_if<AddRequest>(&command)) {
      add(added->id, {});
    } else if (const auto* handed_over = std::get_if<HandOver>(&command)) {
      add(handed_over->id, handed_over->request);
    } else if (const auto* planned = std::get_if<Schedule>(&command)) {
      take_in_plan(planned->engine);
    } else if (const auto* update = std::get_if<Update>(&command)) {
      take_in_update(update->engine);
    } else if (const auto* advance = std::get_if<AdvanceRead>(&command)) {
      take_in_read(*advance);
    } else if (const auto* delivered = std::get_if<DeliverNotice>(&command)) {
      take_in_delivery(*delivered);
    }
  }

  void add(const std::string& name, const std::string& remote_request) {
    const RequestSpec& spec = world().requests().find(name)->spec();
    Known known;
    Prefixes& prefixes = sequences_[name];
    prefixes = Prefixes(spec);
    for (const TokenId token : spec.tokens) prefixes.append(token);
    known.num_prompt_tokens = prefixes.num_tokens();
    known.remote_request = remote_request;
    known_.insert_or_assign(name, std::move(known));
  }

  // ---- A step is planned ----

  void take_in_plan(EngineRole role) {
    const SchedulerObservation& engine = shown().of(role);
    const SchedulerConfig& config = setup_.schedulers[static_cast<std::size_t>(role)];
    Step step;
    take_in_step(engine, config, tables_, step);
    if (role == EngineRole::kConsumer) take_in_receives(step);
    if (!step.victims.empty()) {
      std::vector<BlockId> read;
      for (const Receive& receive : step.receives) {
        read.insert(read.end(), receive.local_blocks.begin(), receive.local_blocks.end());
      }
      step.lost = lost_blocks(engine, config.kv_cache, read);
    }
    for (const auto& [name, held] : held_) step.held.push_back(name);
    engine_of(role).in_flight.push_back(std::move(step));
  }

  void take_in_receives(Step& step) {
    step.receives = *shown().reqs_to_recv;
    for (const Receive& receive : step.receives) {
      Known& known = known_[receive.request];
      if (known.load != Load::kNone) {
        broken("a_notice_follows_its_read", "reqs_to_recv", "requests that were not read before",
               receive.request);
      }
      known.load = receive.local_blocks.empty() ? Load::kOver : Load::kPlanned;
    }
    for (const ScheduledRequest& each : *shown().consumer.scheduled) {
      const Known& known = known_[each.request];
      if (known.remote_request.empty() || known.load != Load::kNone) continue;
      broken("loads_come_to_an_end", "reqs_to_recv", each.request + ", which runs", "others");
    }
    for (const auto& [name, known] : known_) {
      if (known.remote_request.empty() || known.load != Load::kNone || !before()) continue;
      if (is_unfinished(before()->of(EngineRole::kConsumer), name)) continue;
      broken("loads_come_to_an_end", "reqs_to_recv", name + ", which ended", "others");
    }
  }

  // ---- A step comes back ----

  void take_in_update(EngineRole role) {
    std::deque<Step>& in_flight = engine_of(role).in_flight;
    if (in_flight.empty()) return;
    Step step = std::move(in_flight.front());
    in_flight.pop_front();
    const std::vector<RequestOutput>& outputs = *shown().of(role).outputs;
    for (const RequestOutput& output : outputs) {
      for (const TokenId token : output.tokens) sequences_[output.request].append(token);
    }
    settle(step.runs, setup_.scheduler(), sequences_, outputs);
    run(role, step);
    if (role == EngineRole::kProducer) return check_sent(step);
    check_received(step);
    check_invalid(step);
    check_new_notices(step);
  }

  /// Requests that compute the last token of their prompt for the first time since the read.
  std::set<std::string> take_loaded(const Step& step) {
    std::set<std::string> loaded;
    for (const Run& run : step.runs) {
      const auto at = known_.find(run.request);
      if (at == known_.end() || !std::exchange(at->second.is_to_run, false)) continue;
      if (run.begin + 1 == at->second.num_prompt_tokens) loaded.insert(run.request);
    }
    return loaded;
  }

  /// With windows shorter by one token: what the next token attends to.
  static std::vector<KVCacheSpec> of_next_token(std::vector<KVCacheSpec> groups) {
    for (KVCacheSpec& group : groups) {
      if (kWindowOfWholePrompt(group.sliding_window > 0)) --group.sliding_window;
    }
    return groups;
  }

  /// On each part: new blocks are zeroed, reads start, then all runs write and read.
  void run(EngineRole role, const Step& step) {
    if (!is_alone_) return;
    const std::vector<KVCacheSpec>& groups = groups_of(role);
    const std::set<std::string> loaded = take_loaded(step);
    const auto next_groups = loaded.empty() ? std::vector<KVCacheSpec>() : of_next_token(groups);
    for (std::vector<Content>& blocks : engine_of(role).parts) {
      for (const BlockId block : step.zeroed) {
        if (!contains(step.lost, block)) blocks[block] = {};
      }
      forgive_victims(step.victims, step.lost, sequences_, groups, blocks);
      for (const Receive& receive : step.receives) {
        for (const BlockId block : receive.local_blocks) blocks[block] = {};
      }
      for (const Run& run : step.runs) {
        for (const Filled& filled : filled_by(run, sequences_.at(run.request), groups, blocks)) {
          const bool is_forgiven = passes_over(run, groups[filled.group]);
          blocks[filled.block] = is_forgiven ? kAnything : filled.content;
        }
      }
      for (const Run& run : step.runs) {
        const Prefixes& prefixes = sequences_.at(run.request);
        if (run.end > prefixes.num_tokens()) continue;
        const bool is_loaded = loaded.count(run.request) > 0;
        const auto wrong = wrong_read(run, prefixes, is_loaded ? next_groups : groups, blocks);
        if (wrong && !passes_over(run, groups[wrong->expected.group])) {
          broken("a_step_reads_its_own",
                 std::string(to_text(role)) + "'s " + block_of(wrong->block, run.request),
                 to_text(wrong->expected), to_text(wrong->actual));
        }
      }
    }
  }

  void check_sent(const Step& step) {
    const Seconds now = *shown().now;
    for (const NoticeState& notice : *before()->notices) {
      if (!notice.is_heartbeat || !notice.delivered || !spec_.deadline) continue;
      for (const std::string& name : notice.requests) {
        if (const auto at = held_.find(name); at != held_.end()) {
          at->second.expires_max = std::max(at->second.expires_max, now + *spec_.deadline);
        }
      }
    }
    for (const std::string& name : *shown().finished_sending) {
      const auto at = held_.find(name);
      if (at == held_.end()) {
        if (!is_alone_) continue;
        broken("only_held_requests_are_sent", "finished_sending", "requests that are held", name);
      }
      const bool is_read = at->second.done.size() >= num_readers();
      if (!is_read && !has_expired(at->second.expires, now)) {
        broken("what_is_unread_is_held", "finished_sending", "requests that all readers have read",
               name);
      }
      held_.erase(at);
    }
    for (const std::string& name : step.held) {
      const auto at = held_.find(name);
      if (at == held_.end() || at->second.is_shared) continue;
      const bool is_read = at->second.done.size() >= num_readers();
      if (!is_read && !has_expired(at->second.expires_max, now)) continue;
      broken("nothing_is_held_beyond_its_lease", "finished_sending", name + " among them",
             "others");
    }
    for (const FinishedPrefill& prefill : *shown().finished_prefills) {
      const Seconds expires = now + spec_.deadline.value_or(0);
      const bool is_shared = find_by(shown().extra_saves.or_empty(), &multi::Extra::request,
                                     prefill.request) != nullptr;
      held_[prefill.request] = {prefill.blocks, expires, expires, {}, is_shared};
    }
  }

  void check_received(const Step& step) {
    for (const Receive& receive : step.receives) {
      if (!receive.local_blocks.empty()) known_.at(receive.request).load = Load::kReading;
    }
    const auto is_read = [&](const std::string& name) {
      return contains(*shown().reads, name, &ReadState::request);
    };
    for (const std::string& name : *shown().finished_recving) {
      const auto at = known_.find(name);
      const bool is_load = at != known_.end() && at->second.load == Load::kReading;
      if (!is_load && !is_alone_) continue;
      if (!is_load || is_read(name)) {
        broken("received_once_after_its_last_read", "finished_recving",
               "requests whose last read has ended", name);
      }
      at->second.load = Load::kOver;
      at->second.is_to_run = true;
    }
    for (const auto& [name, known] : known_) {
      if (known.load != Load::kReading || is_read(name)) continue;
      broken("received_once_after_its_last_read", "finished_recving", name + " among them",
             "others");
    }
  }

  /// Reads of this step that are no longer shown failed at once: their request was given back.
  void check_invalid(const Step& step) const {
    std::set<BlockId> failed;
    for (const ReadState& read : *before()->reads) {
      if (read.progress != TransferProgress::kFailed) continue;
      failed.insert(read.local_blocks.begin(), read.local_blocks.end());
    }
    std::set<BlockId> may_have_failed = failed;
    for (const Receive& receive : step.receives) {
      const std::vector<BlockId>& blocks = receive.local_blocks;
      may_have_failed.insert(blocks.begin(), blocks.end());
      if (!contains(*shown().finished_recving, receive.request)) continue;
      failed.insert(blocks.begin(), blocks.end());
    }
    const std::vector<BlockId>& reported = *shown().invalid_blocks;
    for (const BlockId block : failed) {
      if (contains(reported, block)) continue;
      broken("failed_reads_are_reported", "invalid_blocks", "block " + std::to_string(block),
             "others");
    }
    for (const BlockId block : reported) {
      if (!is_alone_ || may_have_failed.count(block) > 0) continue;
      broken("failed_reads_are_reported", "invalid_blocks", "blocks of failed reads",
             "block " + std::to_string(block));
    }
  }

  void check_new_notices(const Step& step) const {
    std::map<std::string, std::set<std::pair<std::uint32_t, std::uint32_t>>> readers;
    for (const Receive& receive : step.receives) {
      if (receive.local_blocks.empty()) readers[receive.remote_request];
    }
    for (const NoticeState& notice : *shown().notices) {
      const bool is_new = !contains(*before()->notices, notice.notice, &NoticeState::notice);
      if (!is_new || notice.is_heartbeat) continue;
      for (const std::string& name : notice.requests) {
        const auto at = readers.find(name);
        if (at == readers.end()) {
          broken("a_notice_follows_its_read", "notices", "requests with nothing to read", name);
        }
        at->second.insert({notice.rank, notice.remote_rank});
      }
    }
    for (const auto& [name, senders] : readers) {
      if (senders.size() == num_readers()) continue;
      broken("a_notice_follows_its_read", "notices", "one of each reader for " + name, "fewer");
    }
  }

  // ---- The transport ----

  /// A read copies the producer's blocks as they are when it ends.
  void take_in_read(const AdvanceRead& command) {
    const auto read = std::ranges::find(*shown().reads, command.read, &ReadState::read);
    if (read == shown().reads->end() || read->progress != TransferProgress::kFinished) return;
    const auto num_shares = std::max(1U, spec_.producer_world_size / spec_.consumer_world_size);
    std::vector<Content>& local =
        engine_of(EngineRole::kConsumer)
            .parts[read->rank * num_shares + read->remote_rank % num_shares];
    const std::vector<Content>& remote = engine_of(EngineRole::kProducer).parts.front();
    const Known& known = known_[read->request];
    if (!is_alone_) return;
    const Prefixes& source = sequences_[read->remote_request];
    const BlocksByGroup* const table =
        find_table(*shown().of(EngineRole::kConsumer).tables, read->request);
    const std::uint32_t size = groups_of(EngineRole::kConsumer).front().block_size;
    for (std::size_t index = 0; index < read->local_blocks.size(); ++index) {
      const BlockId block = read->local_blocks[index];
      Content content = remote[read->remote_blocks[index]];
      local[block] = content;
      const auto at = place_of(table, block);
      if (!at) continue;
      const auto [group, place] = *at;
      const std::uint32_t begin = place * size;
      const std::uint32_t end = std::min(begin + size, known.num_prompt_tokens);
      if (begin >= end) continue;
      // The producer may have computed tokens after the prompt.
      const bool is_longer = content.end > end && content.end <= source.num_tokens() &&
                             content.id == source.id(content.end);
      if (is_longer) content = {source.id(end), content.begin, end, content.group};
      local[block] = content;
      const Content wanted{sequences_[read->request].id(end), begin, end, group};
      if (passes_for(content, wanted)) continue;
      broken("a_load_brings_its_own_prompt", "consumer's " + block_of(block, read->request),
             to_text(wanted), to_text(content));
    }
  }

  void take_in_delivery(const DeliverNotice& command) {
    for (const NoticeState& notice : *shown().notices) {
      if (notice.notice != command.notice || notice.is_heartbeat) continue;
      for (const std::string& name : notice.requests) {
        if (const auto at = held_.find(name); at != held_.end()) {
          at->second.done.insert({notice.rank, notice.remote_rank});
        }
      }
    }
  }

  // ---- The state ----

  void check_state() const {
    const auto& remote_tables = *shown().of(EngineRole::kProducer).tables;
    const auto& local_tables = *shown().of(EngineRole::kConsumer).tables;
    for (const auto& [name, held] : held_) {
      const BlocksByGroup* const table = find_table(remote_tables, name);
      const auto blocks = table ? blocks_of(*table) : std::vector<BlockId>();
      if (blocks == held.blocks) continue;
      broken("what_is_read_stays", "tables[" + name + "]", held.blocks, blocks);
    }
    for (const ReadState& read : *shown().reads) {
      if (!read.is_under_way()) continue;
      const std::string under = " under read " + std::to_string(read.read);
      for (const BlockId block : read.local_blocks) {
        if (place_of(find_table(local_tables, read.request), block)) continue;
        broken("what_is_written_stays", "consumer_tables", block_of(block, read.request) + under,
               "elsewhere");
      }
      for (const BlockId block : read.remote_blocks) {
        if (place_of(find_table(remote_tables, read.remote_request), block)) continue;
        broken("what_is_read_stays", "tables", block_of(block, read.remote_request) + under,
               "elsewhere");
      }
    }
    if (!is_alone_) return;
    for (const EngineRole role : kEngineRoles) {
      const bool produces = role == EngineRole::kProducer;
      const std::string member = produces ? "requests" : "consumer_requests";
      for (const RequestState& state : *shown().of(role).requests) {
        const auto known = known_.find(state.id);
        const Load load = known == known_.end() ? Load::kNone : known->second.load;
        if (state.status == RequestStatus::kWaitingForRemoteKVs && load == Load::kNone) {
          broken("loads_come_to_an_end", member, "a load for " + state.id, "none");
        }
        const bool is_explained =
            produces ? held_.count(state.id) > 0 : load == Load::kPlanned || load == Load::kReading;
        if (is_finished(state.status) && !is_explained) {
          broken("holds_are_explained", member, "readers or reads of " + state.id, "none");
        }
      }
    }
  }

  EngineSetup setup_;
  DisaggregatedSpec spec_;
  bool is_alone_;                ///< no other child loads or holds
  std::vector<Engine> engines_;  ///< by EngineRole
  std::map<std::string, Known> known_;
  Sequences sequences_;  ///< of the same requests
  WorkerTables tables_;
  std::map<std::string, Held> held_;
  bool is_blind_ = false;  ///< some command did not show the state
};

}  // namespace

RuleSuite<EngineTarget> rules() { return rule_suite<Invariants>(kInvariants); }

}  // namespace kvfence::engine::nixl
