#include "contract/scripted/scripted_child.h"

#include <algorithm>
#include <utility>

namespace kvfence {
namespace {

using multi_connector::ChildCall;

template <class T>
std::vector<T> as_set(std::vector<T> elements) {
  std::sort(elements.begin(), elements.end());
  elements.erase(std::unique(elements.begin(), elements.end()), elements.end());
  return elements;
}

}  // namespace

ScriptedChild::ScriptedChild(std::uint32_t place, bool supports_hma,
                             std::shared_ptr<ChildCalls> calls)
    : place_(place), supports_hma_(supports_hma), calls_(std::move(calls)) {}

void ScriptedChild::on_new_request(std::string_view request) { note("on_new_request", request); }

MatchedTokens ScriptedChild::get_num_new_matched_tokens(std::string_view request,
                                                        std::uint32_t num_computed_tokens) {
  note("get_num_new_matched_tokens", request).num_tokens = num_computed_tokens;
  return {answers_.match.num_tokens, answers_.match.load_async};
}

void ScriptedChild::update_state_after_alloc(std::string_view request, const BlocksByGroup& blocks,
                                             std::uint32_t num_external_tokens) {
  ChildCall& call = note("update_state_after_alloc", request);
  call.num_tokens = num_external_tokens;
  static_cast<BlocksByGroup&>(call.blocks) = blocks;
}

std::string ScriptedChild::build_connector_meta() {
  note("build_connector_meta");
  return answers_.metadata;
}

void ScriptedChild::update_connector_output(const AggregatedOutput& output,
                                            const ScriptedNumbers* metadata) {
  ChildCall& call = note("update_connector_output");
  call.sending = as_set(output.finished_sending);
  call.recving = as_set(output.finished_recving);
  call.invalid = as_set(output.invalid_block_ids);
  if (metadata) call.meta = metadata->numbers;
}

FinishedAnswer ScriptedChild::request_finished(std::string_view request,
                                               std::span<const BlockId> blocks) {
  ChildCall& call = note("request_finished", request);
  call.blocks.emplace_back(blocks.begin(), blocks.end());
  return finished_answer();
}

FinishedAnswer ScriptedChild::request_finished_all_groups(std::string_view request,
                                                          const BlocksByGroup& blocks) {
  static_cast<BlocksByGroup&>(note("request_finished_all_groups", request).blocks) = blocks;
  return finished_answer();
}

void ScriptedChild::take_events(std::vector<Event>& out) {
  note("take_events");
  out.insert(out.end(), answers_.events.begin(), answers_.events.end());
}

std::optional<bool> ScriptedChild::reset_cache() {
  note("reset_cache");
  return answers_.reset_done;
}

ChildCall& ScriptedChild::note(std::string_view method, std::string_view request) {
  ChildCall& call = calls_->emplace_back();
  call.method = method;
  call.child = place_;
  call.request = request;
  return call;
}

FinishedAnswer ScriptedChild::finished_answer() const {
  return {answers_.finish.hold, answers_.finish.params};
}

ScriptedWorkerChild::ScriptedWorkerChild(std::uint32_t place, std::uint32_t rank,
                                         std::string connector_class,
                                         std::shared_ptr<ChildCalls> calls)
    : place_(place),
      rank_(rank),
      connector_class_(std::move(connector_class)),
      calls_(std::move(calls)) {}

void ScriptedWorkerChild::handle_preemptions(const Metadata& metadata) {
  note("handle_preemptions").metadata = metadata;
}

void ScriptedWorkerChild::bind_connector_metadata(const Metadata& metadata) {
  note("bind_connector_metadata").metadata = metadata;
}

void ScriptedWorkerChild::start_load_kv() { note("start_load_kv"); }

void ScriptedWorkerChild::wait_for_layer_load(std::string_view layer) {
  note("wait_for_layer_load").layer = layer;
}

void ScriptedWorkerChild::save_kv_layer(std::string_view layer) {
  note("save_kv_layer").layer = layer;
}

void ScriptedWorkerChild::wait_for_save() { note("wait_for_save"); }

void ScriptedWorkerChild::get_finished(std::span<const std::string> finished_req_ids,
                                       FinishedTransfers& out) {
  std::vector<std::string>& finished = note("get_finished").finished;
  finished.assign(finished_req_ids.begin(), finished_req_ids.end());
  finished = as_set(std::move(finished));
  out.sending = as_set(answers_.sending);
  out.recving = as_set(answers_.recving);
}

void ScriptedWorkerChild::get_block_ids_with_load_errors(std::vector<BlockId>& out) {
  note("get_block_ids_with_load_errors");
  const std::vector<BlockId> blocks = as_set(answers_.invalid);
  out.insert(out.end(), blocks.begin(), blocks.end());
}

std::optional<ScriptedNumbers> ScriptedWorkerChild::get_kv_connector_stats() {
  note("get_kv_connector_stats");
  if (!answers_.stats) return std::nullopt;
  return ScriptedNumbers{*answers_.stats};
}

std::optional<ScriptedNumbers> ScriptedWorkerChild::build_connector_worker_meta() {
  note("build_connector_worker_meta");
  if (!answers_.meta) return std::nullopt;
  return ScriptedNumbers{*answers_.meta};
}

void ScriptedWorkerChild::clear_connector_metadata() { note("clear_connector_metadata"); }

ChildCall& ScriptedWorkerChild::note(std::string_view method) {
  ChildCall& call = calls_->emplace_back();
  call.method = method;
  call.child = place_;
  call.rank = rank_;
  return call;
}

}  // namespace kvfence
