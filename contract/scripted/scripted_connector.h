#pragma once

/// A connector whose answers are commands and whose calls are observed: the world around a
/// scheduler in scenarios and campaigns.

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "contract/connectors/kv_connector.h"

namespace kvfence {

/// One call that a scheduler made, with what was passed and what was answered.
struct ConnectorCall {
  std::string method;   ///< upstream's name
  std::string request;  ///< empty where the call is about none
  std::uint32_t num_tokens =
      0;                 ///< get_num_new_matched_tokens: local hit; update_state_after_alloc:
                         ///< external tokens; build_connector_meta: scheduled tokens
  std::string answer;    ///< "8 async", "8", "again"; request_finished: "hold", "free"
  BlocksByGroup blocks;  ///< of update_state_after_alloc and request_finished
  friend bool operator==(const ConnectorCall&, const ConnectorCall&) = default;
};

class ScriptedConnector final : public KVConnector {
 public:
  /// What is to be answered about a request.
  struct Script {
    std::uint32_t num_external_tokens = 0;  ///< leading tokens that could be loaded
    bool load_async = false;
    std::uint32_t ask_again = 0;  ///< lookups that are answered with "ask again", first
    bool hold_blocks = false;     ///< answer of request_finished
    friend bool operator==(const Script&, const Script&) = default;
  };

  void set_script(const std::string& id, const Script& script) { scripts_[id] = script; }
  void set_reset_fails(bool fails) { reset_fails_ = fails; }

  /// Replaces out by the calls since the last time, oldest first.
  void take_calls(std::vector<ConnectorCall>& out) {
    out.swap(calls_);
    calls_.clear();
  }

  std::unique_ptr<KVConnector> clone() const override {
    return std::make_unique<ScriptedConnector>(*this);
  }
  void on_new_request(const ConnectorRequest& request) override;
  /// The part of num_external_tokens behind the local hit, as far as the call allows; async only if
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
  /// AllBlocksCleared after each reset_cache that succeeded.
  void take_events(std::vector<KVCacheEvent>& out) override;
  bool reset_cache() override;

 private:
  ConnectorCall& note(std::string_view method, std::string_view request = {});

  std::unordered_map<std::string, Script> scripts_;
  bool reset_fails_ = false;
  std::vector<ConnectorCall> calls_;
  std::uint32_t num_events_ = 0;
};

}  // namespace kvfence
