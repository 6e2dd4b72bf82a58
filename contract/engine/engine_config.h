#pragma once

/// The configuration line of an engine: KV cache, scheduler, ranks, and the connectors as records,
/// as groups are: `connectors=[(offloading num_cpu_blocks=8)]`.

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "contract/connectors/disaggregated/nixl_facet.h"
#include "contract/connectors/offloading/offloading_facet.h"
#include "contract/connectors/simple/simple_facet.h"
#include "contract/connectors/synchronous/files_facet.h"
#include "contract/core/declare.h"
#include "contract/kv_cache/kv_cache_config.h"
#include "contract/scheduler/scheduler.h"
#include "contract/scripted/scripted_connector.h"

namespace kvfence::engine {

using kvfence::operator==;

struct ConnectorRecord;

/// The connector of an engine, none or one; or the children of a connector over several others.
struct ConnectorList : std::vector<ConnectorRecord> {
  using std::vector<ConnectorRecord>::vector;
};
bool from_value(const Value& value, ConnectorList& member, std::string& expected);
bool operator==(const ConnectorList& a, const ConnectorList& b);

/// `(multi children=[(offloading ...) (simple ...)])`: the MultiConnector over real connectors, at
/// most one of each kind, and scripted ones; kNumChildrenMax at most. With (nixl ...) among them
/// there are two engines, each with a MultiConnector over children of its own.
struct MultiRecord {
  static constexpr std::string_view kWord = "multi";
  ConnectorList children;
  std::optional<bool> multi_connector_shares_blocks = {};
  static void declare(auto& fields) {
    fields.add("children", &MultiRecord::children,
               "(offloading ...), (simple ...), (example ...), (decode_bench ...), (nixl ...) or "
               "(scripted ...), in their order");
    fields.optional("multi_connector_shares_blocks", &MultiRecord::multi_connector_shares_blocks,
                    "overrides the profile's rule");
  }
};

/// One connector.
struct ConnectorRecord
    : std::variant<ScriptedRecord, offloading::Record, simple::Record, files::ExampleRecord,
                   files::DecodeBenchRecord, nixl::Record, MultiRecord> {
  using variant::variant;
  const variant& as_variant() const { return *this; }
  variant& as_variant() { return *this; }
};

/// What copies and computes.
///   scripted  copies are marks that commands move, step by step; the update has what is
///             sampled; a step runs when it is taken in
///   symbols   a KV cache of symbols and streams of copies, over which a toy model computes: a step
///             is executed, polled and taken in, and a token comes of what the KV cache holds
///   virtual   the same, where the optimized side runs the copy worker on the virtual device
enum class DeviceKind : std::uint8_t { kScripted, kSymbols, kVirtual };

constexpr auto words_of(DeviceKind) { return words({"scripted", "symbols", "virtual"}); }

/// Each assembly: what it is called, and what it stands for.
enum class Assembly : std::uint8_t {
  kScheduler,           ///< no connector, or the scripted one
  kOffloading,          ///< the OffloadingConnector over scripted copies
  kOffloadingOnDevice,  ///< the same over a device, with a toy model
  kOnDevice,            ///< any other that can be over a device: none, simple, NIXL, several
  kSimple,
  kSynchronous,  ///< the ExampleConnector or the DecodeBenchConnector
  kPrefillDecode,
  kMulti,  ///< the MultiConnector over real and scripted ones
};
struct AssemblyInfo {
  Assembly assembly;
  std::string_view name;
  std::string_view doc;
  std::string_view connectors;  ///< as its configuration has them, where it names no others
  DeviceKind device = DeviceKind::kScripted;
};
inline constexpr AssemblyInfo kAssemblies[] = {
    // in their order
    {Assembly::kScheduler, "scheduler",
     "scheduler alone, or under a scripted connector: steps, preemption, run-ahead, loads, aborts",
     "[]"},
    {Assembly::kOffloading, "offloading",
     "OffloadingConnector over scripted copies: loads, stores, flushes, failures, tiers",
     "[(offloading)]"},
    {Assembly::kOffloadingOnDevice, "offloading_on_device",
     "OffloadingConnector, copy workers and devices with a toy model: tokens as without a cache",
     "[(offloading)]", DeviceKind::kVirtual},
    {Assembly::kOnDevice, "on_device",
     "the same with no connector, SimpleCPUOffloadConnector, both under MultiConnector, or NIXL",
     "[(multi children=[(offloading) (simple)])]", DeviceKind::kVirtual},
    {Assembly::kSimple, "simple",
     "SimpleCPUOffloadConnector over scripted copies: a second block pool", "[(simple)]"},
    {Assembly::kSynchronous, "synchronous",
     "ExampleConnector or DecodeBenchConnector: prompts in files, blocks filled with dummies",
     "[(example)]"},
    {Assembly::kPrefillDecode, "prefill_decode",
     "two engines over NIXL: remote reads, notices, deadlines and leases, failures", "[(nixl)]"},
    {Assembly::kMulti, "multi",
     "MultiConnector over real and scripted connectors: who loads, who saves, who is notified",
     "[(multi children=[(offloading) (simple)])]"},
};

constexpr auto words_of(Assembly) {
  std::array<std::string_view, std::size(kAssemblies)> words;
  std::transform(std::begin(kAssemblies), std::end(kAssemblies), words.begin(),
                 [](const AssemblyInfo& info) { return info.name; });
  return words;
}

struct Config : kv_cache::Config, SchedulerSettings {
  Config() { max_num_seqs = 4; }
  std::optional<Assembly> assembly;
  std::optional<ConnectorList> connectors;  ///< nothing: what the assembly says
  DeviceKind device = DeviceKind::kScripted;
  std::uint32_t engines = 1;
  std::uint32_t ranks = 1;
  std::uint32_t consumer_ranks = 1;
  std::uint32_t consumer_num_gpu_blocks = 0;
  bool tokens_only = false;
  std::optional<bool> priority_victim_shifts_loop;
  std::optional<bool> external_blocks_after_hits;
  static void declare(auto& fields) {
    using S = Config;
    fields.optional("assembly", &S::assembly,
                    "a name for a combination; decides where connectors are left out");
    fields.optional("connectors", &S::connectors,
                    "none, or (scripted), (offloading ...), (simple ...), (example ...), "
                    "(decode_bench ...), (nixl ...), (multi children=[...])");
    fields.optional("device", &S::device, "scripted, symbols or virtual");
    fields.optional("engines", &S::engines, "1, or 2 with (nixl ...): a producer and a consumer");
    fields.optional("ranks", &S::ranks, "workers");
    fields.optional("consumer_ranks", &S::consumer_ranks, "of the consumer");
    fields.optional("consumer_num_gpu_blocks", &S::consumer_num_gpu_blocks,
                    "blocks of the consumer's pool; 0: as many as the producer's");
    fields.optional("tokens_only", &S::tokens_only,
                    "races and pages are not checked: faults show in the tokens");
    kv_cache::Config::declare(fields);
    fields.add("policy", &S::policy, "fcfs or priority");
    fields.add("max_num_seqs", &S::max_num_seqs, "requests that run at once");
    fields.optional("max_num_scheduled_tokens", &S::max_num_scheduled_tokens,
                    "tokens per step; 0: max_num_batched_tokens");
    fields.optional("long_prefill_token_threshold", &S::long_prefill_token_threshold,
                    "tokens of one request per step; 0: no bound");
    fields.optional("enable_chunked_prefill", &S::enable_chunked_prefill,
                    "a prompt may be computed in several steps");
    fields.optional("scheduler_reserve_full_isl", &S::scheduler_reserve_full_isl,
                    "admits only what fits with its full length");
    fields.optional("num_speculative_tokens", &S::num_speculative_tokens,
                    "drafts per request and step");
    fields.optional("draft_model", &S::draft_model, "drafts need slots");
    fields.optional("async_scheduling", &S::async_scheduling,
                    "plans with outputs that are not there yet");
    fields.optional("max_concurrent_batches", &S::max_concurrent_batches,
                    "steps in flight of each engine, 1 or 2");
    fields.optional("kv_load_failure_policy", &S::kv_load_failure_policy, "fail or recompute");
    fields.optional("priority_victim_shifts_loop", &S::priority_victim_shifts_loop,
                    "overrides the profile's rule");
    fields.optional("external_blocks_after_hits", &S::external_blocks_after_hits,
                    "overrides the profile's rule");
  }

  /// The record of that connector, or of the child of that kind; or null.
  template <class Record>
  const Record* connector() const {
    if (!has_connector()) return nullptr;
    if (const auto* record = std::get_if<Record>(&connectors->front().as_variant())) return record;
    const auto* const multi = std::get_if<MultiRecord>(&connectors->front().as_variant());
    for (std::size_t place = 0; multi && place < multi->children.size(); ++place) {
      const auto* record = std::get_if<Record>(&multi->children[place].as_variant());
      if (record) return record;
    }
    return nullptr;
  }
  template <class Record>
  Record& edit_connector() {
    return const_cast<Record&>(*connector<Record>());
  }
  bool has_connector() const { return connectors && !connectors->empty(); }
  /// Whether the engine's own connector is the scripted one.
  bool is_scripted() const {
    return has_connector() &&
           std::holds_alternative<ScriptedRecord>(connectors->front().as_variant());
  }
  bool has_device() const { return device != DeviceKind::kScripted; }
};

/// The assembly of a configuration. Requires: prepare accepted it.
Assembly assembly_of(const Config& config);

/// Sets a configuration's connectors, device and engines to those of the assembly.
void make_assembly(Assembly assembly, Config& config);

}  // namespace kvfence::engine
