#include "contract/scripted/scripted_connector.h"

#include <algorithm>

#include "contract/scheduler/scheduler.h"

namespace kvfence {

ConnectorCall& ScriptedConnector::note(std::string_view method, std::string_view request) {
  ConnectorCall& call = calls_.emplace_back();
  call.method = method;
  call.request = request;
  return call;
}

void ScriptedConnector::on_new_request(const ConnectorRequest& request) {
  note("on_new_request", request.id);
}

MatchedTokens ScriptedConnector::get_num_new_matched_tokens(const ConnectorRequest& request,
                                                            std::uint32_t num_local_tokens) {
  ConnectorCall& call = note("get_num_new_matched_tokens", request.id);
  call.num_tokens = num_local_tokens;
  Script& script = scripts_[std::string(request.id)];
  if (script.ask_again > 0) {
    --script.ask_again;
    call.answer = "again";
    return {};
  }
  const auto num_tokens = static_cast<std::uint32_t>(request.request.all_token_ids().size());
  const bool can_be_whole = script.load_async && num_tokens > 1;
  const std::uint32_t loadable =
      std::min(script.num_external_tokens, can_be_whole ? num_tokens : num_tokens - 1);
  const std::uint32_t num_matched = loadable - std::min(loadable, num_local_tokens);
  const bool load_async = script.load_async && num_matched > 0;
  call.answer = std::to_string(num_matched) + (load_async ? " async" : "");
  return {num_matched, load_async};
}

void ScriptedConnector::update_state_after_alloc(ConnectorHost&, const ConnectorRequest& request,
                                                 const BlocksByGroup& blocks,
                                                 std::uint32_t num_external_tokens) {
  ConnectorCall& call = note("update_state_after_alloc", request.id);
  call.num_tokens = num_external_tokens;
  call.blocks = blocks;
}

std::shared_ptr<const KVConnectorMetadata> ScriptedConnector::build_connector_meta(
    ConnectorHost&, const SchedulerOutput& output) {
  note("build_connector_meta").num_tokens = output.total_num_scheduled_tokens;
  return nullptr;
}

void ScriptedConnector::update_connector_output(ConnectorHost&, const KVConnectorOutput&) {
  note("update_connector_output");
}

bool ScriptedConnector::request_finished(ConnectorHost&, const ConnectorRequest& request,
                                         const BlocksByGroup& blocks) {
  ConnectorCall& call = note("request_finished", request.id);
  const bool hold = scripts_[std::string(request.id)].hold_blocks;
  call.answer = hold ? "hold" : "free";
  call.blocks = blocks;
  return hold;
}

void ScriptedConnector::take_events(std::vector<KVCacheEvent>& out) {
  for (; num_events_ > 0; --num_events_) out.emplace_back(AllBlocksCleared{});
}

bool ScriptedConnector::reset_cache() {
  note("reset_cache").answer = reset_fails_ ? "failed" : "done";
  if (!reset_fails_) ++num_events_;
  return !reset_fails_;
}

}  // namespace kvfence
