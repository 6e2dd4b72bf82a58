#pragma once

/// A connector whose answers are commands and whose calls are observed: the world around a
/// scheduler, or a child of a MultiConnector, in scenarios and campaigns.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "contract/connectors/kv_connector.h"
#include "contract/connectors/kv_connector_worker.h"
#include "contract/connectors/multi/multi_facet.h"
#include "contract/core/declare.h"
#include "contract/core/state_digest.h"

namespace kvfence {

/// One call that a scheduler made, or a MultiConnector on a child, with what was passed and what
/// was answered. A call on a child also has the lists that it was passed.
struct ConnectorCall {
  static constexpr std::string_view kWord = "call";
  std::string method;   ///< upstream's name
  std::string request;  ///< empty where the call is about none
  std::uint32_t num_tokens =
      0;                 ///< get_num_new_matched_tokens: local hit; update_state_after_alloc:
                         ///< external tokens; build_connector_meta: scheduled tokens
  std::string answer;    ///< "8 async", "8", "again"; request_finished: "hold", "free", either
                         ///< with its params after it
  BlocksByGroup blocks;  ///< of update_state_after_alloc and request_finished

  // Of a child.
  std::optional<std::uint32_t> child = {};  ///< its place
  std::optional<std::uint32_t> rank = {};   ///< of its worker's half
  std::string metadata = {};                ///< of a step: what it built, or is called with;
                                            ///< set_xfer_handshake_metadata: of the ranks
  std::vector<std::string> finished = {};   ///< get_finished
  std::vector<std::string> sending = {};    ///< update_connector_output, as what follows
  std::vector<std::string> recving = {};
  std::vector<BlockId> invalid = {};
  std::vector<JobId> jobs = {};  ///< one for each worker that reports it
  static void declare(auto& fields) {
    using S = ConnectorCall;
    fields.add("method", &S::method, "upstream's name");
    fields.optional("child", &S::child, "of which child");
    fields.optional("rank", &S::rank, "of which worker of a child");
    fields.optional("request", &S::request, "its request");
    fields.optional("num_tokens", &S::num_tokens, "what was passed");
    fields.optional("answer", &S::answer, "what was answered");
    fields.optional("blocks", &S::blocks, "what was passed");
    fields.optional("metadata", &S::metadata, "of a step");
    fields.optional("finished", &S::finished, "requests, ascending");
    fields.optional("sending", &S::sending, "sent, ascending");
    fields.optional("recving", &S::recving, "received, ascending");
    fields.optional("invalid", &S::invalid, "whose load failed, ascending");
    fields.optional("jobs", &S::jobs, "its own, one per worker");
  }
};

/// What the scripted connector, or a scripted child of a MultiConnector, answers about a request.
struct ConnectorScript {
  std::uint32_t external_tokens = 0;
  bool load_async = false;
  std::uint32_t ask_again = 0;
  bool hold_blocks = false;
  std::uint32_t child = 0;
  std::optional<std::string> params = {};
  static void declare(auto& fields) {
    using S = ConnectorScript;
    fields.optional("external_tokens", &S::external_tokens, Domain::kTokenCount,
                    "leading tokens that the connector could load");
    fields.optional("load_async", &S::load_async, Domain::kFlag, "loads while the request waits");
    fields.optional("ask_again", &S::ask_again, Domain::kCount,
                    "lookups answered with ask again, first");
    fields.optional("hold_blocks", &S::hold_blocks, Domain::kFlag,
                    "at its end its blocks stay until finished_sending");
    fields.optional("child", &S::child, Domain::kCount, "its place under (multi ...)");
    fields.optional("params", &S::params, Domain::kText, "of a child at its end, for the client");
  }
  void add_to(StateHash& hash) const {
    hash.add_all(external_tokens, load_async, ask_again, hold_blocks, params);
  }
};

namespace engine {

using kvfence::operator==;

/// `(scripted)` in the configuration. Alone the connector has no workers: the update has what they
/// would report. Under (multi ...) it may occur several times, and has workers; the update has
/// their reports as well.
struct ScriptedRecord {
  static constexpr std::string_view kWord = "scripted";
  std::string connector_class = "a";
  bool hma = true;
  bool cross_layers = false;
  bool handshake = false;
  bool shutdown_fails = false;
  static void declare(auto& fields) {
    using S = ScriptedRecord;
    fields.optional("class", &S::connector_class, "of a child: names its statistics");
    fields.optional("hma", &S::hma, "of a child: takes several groups");
    fields.optional("cross_layers", &S::cross_layers,
                    "of a child: prefers the blocks of all layers together");
    fields.optional("handshake", &S::handshake, "of a child: its workers have handshake metadata");
    fields.optional("shutdown_fails", &S::shutdown_fails, "of a child: both halves'");
  }
};

}  // namespace engine

/// The handshake of a rank of a scripted child.
struct ScriptedHandshake final : KVConnectorHandshakeMetadata {
  std::string text;  ///< "2.0": child 2, rank 0
};

/// What the halves of all scripted children of an engine share.
struct ScriptedChildren {
  std::vector<ConnectorCall> calls;  ///< on all of them, oldest first
  /// By child and rank; those that are left out have nothing to report.
  std::map<std::pair<std::uint32_t, std::uint32_t>, engine::multi::ChildReport> reports;
};

/// What the worker's half of a scripted child gets for a step.
struct ScriptedMetadata final : KVConnectorMetadata {
  std::string text;  ///< "2.5": child 2, its sixth step
  void add_to(StateHash& hash) const override { hash.add(text); }
};

class ScriptedConnector final : public Cloning<ScriptedConnector, KVConnector> {
 public:
  /// The result of reset_cache.
  enum class Reset : std::uint8_t { kDone, kFails, kSaysNothing };

  ScriptedConnector() = default;
  /// A child of a MultiConnector: its calls are those of all children, which copies share.
  ScriptedConnector(std::uint32_t place, const engine::ScriptedRecord& record,
                    std::shared_ptr<ScriptedChildren> children)
      : place_(place), record_(record), children_(std::move(children)) {}

  void set_script(const std::string& id, const ConnectorScript& script) { scripts_[id] = script; }
  void set_reset(Reset reset) { reset_ = reset; }

  /// Replaces out by the calls since the last time, oldest first.
  void take_calls(std::vector<ConnectorCall>& out) {
    out.swap(calls_);
    calls_.clear();
  }

  void set_xfer_handshake_metadata(const HandshakesByRank& handshakes) override;
  void on_new_request(const ConnectorRequest& request) override;
  /// The part of num_external_tokens after the local hit, as far as the call allows; async only if
  /// that is more than 0.
  MatchedTokens get_num_new_matched_tokens(const ConnectorRequest& request,
                                           std::uint32_t num_local_tokens) override;
  void update_state_after_alloc(ConnectorHost& host, const ConnectorRequest& request,
                                const BlocksByGroup& blocks,
                                std::uint32_t num_external_tokens) override;
  std::shared_ptr<const KVConnectorMetadata> build_connector_meta(
      ConnectorHost& host, const SchedulerOutput& output) override;
  void update_connector_output(ConnectorHost& host, const KVConnectorOutput& output) override;
  bool request_finished(ConnectorHost& host, const ConnectorRequest& request,
                        const BlocksByGroup& blocks) override;
  std::optional<std::string> take_client_params() override {
    return std::exchange(client_params_, std::nullopt);
  }
  /// AllBlocksCleared after each reset_cache that is said to be done.
  void take_events(std::vector<KVCacheEvent>& out) override;
  bool reset_cache() override;
  bool says_how_reset_went() const override { return reset_ != Reset::kSaysNothing; }
  bool supports_hma() const override { return record_.hma; }
  bool shutdown() override;
  /// Excludes calls that were not taken.
  void add_to(StateHash& hash) const override {
    hash.add_kept(scripts_, reset_, client_params_, num_events_, num_steps_);
  }

 private:
  ConnectorCall& note(std::string_view method, std::string_view request = {});

  std::optional<std::uint32_t> place_;  ///< nothing: it is no child
  engine::ScriptedRecord record_;
  std::shared_ptr<ScriptedChildren> children_;  ///< null likewise
  std::unordered_map<std::string, ConnectorScript> scripts_;
  Reset reset_ = Reset::kDone;
  std::vector<ConnectorCall> calls_;  ///< unless it is a child
  std::optional<std::string> client_params_;
  std::uint32_t num_events_ = 0;
  std::uint32_t num_steps_ = 0;
};

/// The worker's half of a scripted child. It reports what is listed under its place and rank.
class ScriptedConnectorWorker final : public Cloning<ScriptedConnectorWorker, KVConnectorWorker> {
 public:
  ScriptedConnectorWorker(std::uint32_t place, std::uint32_t rank,
                          const engine::ScriptedRecord& record,
                          std::shared_ptr<ScriptedChildren> children)
      : place_(place), rank_(rank), record_(record), children_(std::move(children)) {}

  bool prefer_cross_layer_blocks() const override { return record_.cross_layers; }
  void register_kv_caches(TransferEngine&) override { note("register_kv_caches"); }
  void register_cross_layers_kv_cache(TransferEngine&) override {
    note("register_cross_layers_kv_cache");
  }
  std::shared_ptr<const KVConnectorHandshakeMetadata> get_handshake_metadata() override;
  void handle_preemptions(const KVConnectorMetadata& metadata) override {
    note("handle_preemptions", metadata);
  }
  void bind_connector_metadata(const KVConnectorMetadata& metadata) override {
    KVConnectorWorker::bind_connector_metadata(metadata);
    note("bind_connector_metadata", metadata);
  }
  void start_load_kv() override { note("start_load_kv", bound_metadata()); }
  void wait_for_save() override { note("wait_for_save", bound_metadata()); }
  void get_finished(std::span<const std::string> finished_requests,
                    KVConnectorWorkerOutput& out) override;
  void clear_connector_metadata() override {
    note("clear_connector_metadata", bound_metadata());
    KVConnectorWorker::clear_connector_metadata();
  }
  bool shutdown() override;
  /// It keeps nothing from one step to the next.
  void add_to(StateHash&) const override {}

 private:
  ConnectorCall& note(std::string_view method);
  ConnectorCall& note(std::string_view method, const KVConnectorMetadata& metadata);

  std::uint32_t place_;
  std::uint32_t rank_;
  engine::ScriptedRecord record_;
  std::shared_ptr<ScriptedChildren> children_;
};

}  // namespace kvfence
