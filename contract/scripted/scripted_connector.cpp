#include "contract/scripted/scripted_connector.h"

#include <algorithm>

#include "contract/core/joined.h"
#include "contract/core/lists.h"
#include "contract/scheduler/scheduler.h"

namespace kvfence {
namespace {

template <class T>
std::vector<T> each_once(std::vector<T> elements) {
  keep_each_once(elements);
  return elements;
}

std::vector<std::string> names_of(const ConnectorHost& host,
                                  const std::vector<RequestIndex>& requests) {
  std::vector<std::string> names;
  for (const RequestIndex request : requests) names.emplace_back(host.request(request).id);
  return each_once(std::move(names));
}

}  // namespace

ConnectorCall& ScriptedConnector::note(std::string_view method, std::string_view request) {
  ConnectorCall& call = children_ ? children_->calls.emplace_back() : calls_.emplace_back();
  call.method = method;
  call.request = request;
  call.child = place_;
  return call;
}

void ScriptedConnector::set_xfer_handshake_metadata(const HandshakesByRank& handshakes) {
  std::vector<std::string> texts;
  for (const auto& handshake : handshakes) {
    if (!handshake) continue;
    const auto* const scripted = dynamic_cast<const ScriptedHandshake*>(handshake.get());
    texts.push_back(scripted ? scripted->text : "of another kind");
  }
  note("set_xfer_handshake_metadata").metadata = joined(texts, " ");
}

void ScriptedConnector::on_new_request(const ConnectorRequest& request) {
  note("on_new_request", request.id);
}

MatchedTokens ScriptedConnector::get_num_new_matched_tokens(const ConnectorRequest& request,
                                                            std::uint32_t num_local_tokens) {
  ConnectorCall& call = note("get_num_new_matched_tokens", request.id);
  call.num_tokens = num_local_tokens;
  ConnectorScript& script = scripts_[std::string(request.id)];
  if (script.ask_again > 0) {
    --script.ask_again;
    call.answer = "again";
    return {};
  }
  const auto num_tokens = static_cast<std::uint32_t>(request.request.all_token_ids().size());
  const bool can_be_whole = script.load_async && num_tokens > 1;
  const std::uint32_t loadable =
      std::min(script.external_tokens, can_be_whole ? num_tokens : num_tokens - 1);
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
  ConnectorCall& call = note("build_connector_meta");
  call.num_tokens = output.total_num_scheduled_tokens;
  if (!place_) return nullptr;
  auto metadata = std::make_shared<ScriptedMetadata>();
  metadata->text = std::to_string(*place_) + "." + std::to_string(num_steps_++);
  call.metadata = metadata->text;
  return metadata;
}

void ScriptedConnector::update_connector_output(ConnectorHost& host,
                                                const KVConnectorOutput& output) {
  ConnectorCall& call = note("update_connector_output");
  if (!place_) return;
  call.sending = names_of(host, output.finished_sending);
  call.recving = names_of(host, output.finished_recving);
  call.invalid = each_once(output.invalid_block_ids);
  for (const CompletedJob& job : output.completed_jobs) {
    call.jobs.insert(call.jobs.end(), job.num_workers, job.job);
  }
}

bool ScriptedConnector::request_finished(ConnectorHost&, const ConnectorRequest& request,
                                         const BlocksByGroup& blocks) {
  ConnectorCall& call = note("request_finished", request.id);
  const ConnectorScript& script = scripts_[std::string(request.id)];
  call.answer = script.hold_blocks ? "hold" : "free";
  if (script.params) call.answer += " " + *script.params;
  call.blocks = blocks;
  client_params_ = script.params;
  return script.hold_blocks;
}

void ScriptedConnector::take_events(std::vector<KVCacheEvent>& out) {
  for (; num_events_ > 0; --num_events_) out.emplace_back(AllBlocksCleared{});
}

bool ScriptedConnector::reset_cache() {
  if (reset_ == Reset::kDone) ++num_events_;
  ConnectorCall& call = note("reset_cache");
  if (reset_ != Reset::kSaysNothing) call.answer = reset_ == Reset::kDone ? "done" : "failed";
  return reset_ == Reset::kDone;
}

bool ScriptedConnector::shutdown() {
  note("shutdown").answer = record_.shutdown_fails ? "failed" : "done";
  return !record_.shutdown_fails;
}

ConnectorCall& ScriptedConnectorWorker::note(std::string_view method) {
  ConnectorCall& call = children_->calls.emplace_back();
  call.method = method;
  call.child = place_;
  call.rank = rank_;
  return call;
}

ConnectorCall& ScriptedConnectorWorker::note(std::string_view method,
                                             const KVConnectorMetadata& metadata) {
  ConnectorCall& call = note(method);
  const auto* const own = dynamic_cast<const ScriptedMetadata*>(&metadata);
  call.metadata = own ? own->text : "of another kind";
  return call;
}

std::shared_ptr<const KVConnectorHandshakeMetadata>
ScriptedConnectorWorker::get_handshake_metadata() {
  ConnectorCall& call = note("get_handshake_metadata");
  if (!record_.handshake) return nullptr;
  auto handshake = std::make_shared<ScriptedHandshake>();
  handshake->text = std::to_string(place_) + "." + std::to_string(rank_);
  call.answer = handshake->text;
  return handshake;
}

bool ScriptedConnectorWorker::shutdown() {
  note("shutdown").answer = record_.shutdown_fails ? "failed" : "done";
  return !record_.shutdown_fails;
}

void ScriptedConnectorWorker::get_finished(std::span<const std::string> finished_requests,
                                           KVConnectorWorkerOutput& out) {
  note("get_finished", bound_metadata()).finished =
      each_once(std::vector<std::string>(finished_requests.begin(), finished_requests.end()));
  out = {};
  const auto found = children_->reports.find({place_, rank_});
  if (found == children_->reports.end()) return;
  const engine::multi::ChildReport& report = found->second;
  out.finished_sending = each_once(report.sending);
  out.finished_recving = each_once(report.recving);
  out.invalid_block_ids = each_once(report.invalid);
  for (const JobId job : report.jobs) out.completed_jobs.push_back({.job = job});
  if (report.stats.empty()) return;
  TransferOperations& operations = out.stats.emplace_back();
  operations.transfer_type = "scripted";
  for (const std::uint32_t size : report.stats) operations.ops.push_back({size, 0});
}

}  // namespace kvfence
