#include "reference/connectors/synchronous/example_connector.h"

#include <algorithm>
#include <span>

#include "contract/core/check.h"
#include "contract/scheduler/scheduler.h"

namespace kvfence::reference {
namespace {

std::span<const TokenId> first_tokens(const ConnectorRequest& request, std::uint32_t num_tokens) {
  return std::span(request.request.all_token_ids()).first(num_tokens);
}

std::uint32_t num_scheduled_tokens(const SchedulerOutput& output, RequestIndex request) {
  const auto scheduled = std::find_if(
      output.scheduled.begin(), output.scheduled.end(),
      [request](const SchedulerOutput::Scheduled& each) { return each.request == request; });
  KVFENCE_CHECK(scheduled != output.scheduled.end(), "a request of the step that is not scheduled");
  return scheduled->num_tokens;
}

}  // namespace

ExampleConnector::ExampleConnector(const SynchronousConnectorSpec& spec,
                                   const SharedStorage& storage)
    : spec_(spec), storage_(&storage) {
  KVFENCE_CHECK(!check_spec(spec), "no connector can be built from this spec");
}

std::unique_ptr<KVConnector> ExampleConnector::clone() const {
  return std::make_unique<ExampleConnector>(*this);
}

void ExampleConnector::on_new_request(const ConnectorRequest& /*request*/) {}

// Source: vLLM v0.19.0 example_connector.py _found_match_for_request, _found_match_for_prompt
bool ExampleConnector::found_match_for_request(const ConnectorRequest& request) const {
  const std::uint32_t num_tokens_to_check =
      align_to_block_size(std::max(request.num_prompt_tokens, 1u) - 1, spec_.block_size());
  return storage_->folder_exists(
      folder_name(first_tokens(request, num_tokens_to_check), request.request.spec().mm_features));
}

// Source: vLLM v0.19.0 example_connector.py get_num_new_matched_tokens; not below 0: ours
MatchedTokens ExampleConnector::get_num_new_matched_tokens(const ConnectorRequest& request,
                                                           std::uint32_t num_local_tokens) {
  if (!found_match_for_request(request)) return {0, /*load_async=*/false};
  const std::uint32_t num_found =
      align_to_block_size(request.num_prompt_tokens - 1, spec_.block_size());
  return {num_found - std::min(num_found, num_local_tokens), /*load_async=*/false};
}

void ExampleConnector::update_state_after_alloc(ConnectorHost& /*host*/,
                                                const ConnectorRequest& request,
                                                const BlocksByGroup& /*blocks*/,
                                                std::uint32_t num_external_tokens) {
  if (num_external_tokens > 0) requests_need_load_.insert(request.index);
}

// Source: vLLM v0.19.0 example_connector.py ReqMeta.make_meta
SynchronousConnectorMetadata::Transfer ExampleConnector::transfer_of(
    const ConnectorRequest& request, bool is_store, std::uint32_t num_tokens,
    std::span<const BlockId> blocks) const {
  SynchronousConnectorMetadata::Transfer transfer;
  transfer.request = request.index;
  transfer.is_store = is_store;
  transfer.num_tokens = align_to_block_size(num_tokens, spec_.block_size());
  transfer.folder =
      folder_name(first_tokens(request, transfer.num_tokens), request.request.spec().mm_features);
  const std::size_t num_blocks = transfer.num_tokens / spec_.block_size();
  KVFENCE_CHECK(num_blocks <= blocks.size(), "a transfer of tokens without blocks");
  transfer.blocks.assign(blocks.begin(), blocks.begin() + static_cast<std::ptrdiff_t>(num_blocks));
  return transfer;
}

// Source: vLLM v0.19.0 example_connector.py build_connector_meta; no store of what this step does
// not compute: ours
std::shared_ptr<const KVConnectorMetadata> ExampleConnector::build_connector_meta(
    ConnectorHost& host, const SchedulerOutput& output) {
  auto metadata = std::make_shared<SynchronousConnectorMetadata>();
  for (const SchedulerOutput::New& data : output.scheduled_new_reqs) {
    const ConnectorRequest request = host.request(data.request);
    const std::uint32_t num_prompt_tokens = request.num_prompt_tokens;
    const std::span<const BlockId> blocks = output.block_lists[data.first_list];
    if (requests_need_load_.erase(data.request) > 0) {
      metadata->transfers.push_back(
          transfer_of(request, /*is_store=*/false, num_prompt_tokens, blocks));
      continue;
    }
    const bool is_computed =
        data.num_computed_tokens + num_scheduled_tokens(output, data.request) >=
        align_to_block_size(num_prompt_tokens, spec_.block_size());
    if (is_computed && !found_match_for_request(request)) {
      metadata->transfers.push_back(
          transfer_of(request, /*is_store=*/true, num_prompt_tokens, blocks));
    }
  }
  for (const SchedulerOutput::Cached& data : output.scheduled_cached_reqs) {
    if (!data.resumed || requests_need_load_.erase(data.request) == 0) continue;
    const std::uint32_t num_tokens =
        data.num_computed_tokens + num_scheduled_tokens(output, data.request);
    metadata->transfers.push_back(transfer_of(host.request(data.request), /*is_store=*/false,
                                              num_tokens, output.block_lists[data.first_list]));
  }
  KVFENCE_CHECK(requests_need_load_.empty(), "a load of a request that is not in the step");
  return metadata;
}

void ExampleConnector::update_connector_output(ConnectorHost& /*host*/,
                                               const KVConnectorOutput& /*output*/) {}

bool ExampleConnector::request_finished(ConnectorHost& /*host*/,
                                        const ConnectorRequest& /*request*/,
                                        const BlocksByGroup& /*blocks*/) {
  return false;
}

void ExampleConnector::take_events(std::vector<KVCacheEvent>& /*out*/) {}

// Source: vLLM v0.19.0 kv_connector/v1/base.py reset_cache, v1/core/sched/scheduler.py
// reset_connector_cache
bool ExampleConnector::reset_cache() { return true; }

void ExampleConnector::filled_requests(std::vector<RequestIndex>& out) const { out.clear(); }

// Source: vLLM v0.19.0 example_connector.py start_load_kv; upstream raises where this one reports
void ExampleConnectorWorker::start_load_kv(const SynchronousConnectorMetadata& metadata,
                                           ScriptedKVCache& kv_cache,
                                           SynchronousWorkerReport& report) {
  for (const SynchronousConnectorMetadata::Transfer& request : metadata.transfers) {
    if (request.is_store) continue;
    for (std::uint32_t i = 0; i < kv_cache.num_layers(); ++i) {
      const std::uint32_t layer = kv_cache.first_layer() + i;
      std::vector<KVSymbol> symbols(request.blocks.size() * kv_cache.block_size());
      if (!storage_.load(request.folder, layer, symbols)) {
        report.failed = {request.request, layer, request.folder, /*is_store=*/false};
        return;
      }
      for (std::size_t k = 0; k < symbols.size(); ++k) {
        const BlockId block = request.blocks[k / kv_cache.block_size()];
        kv_cache.block(layer, block)[k % kv_cache.block_size()] = symbols[k];
      }
      report.loaded.push_back({request.request, layer, request.folder, request.blocks, symbols});
    }
  }
}

// Source: vLLM v0.19.0 example_connector.py save_kv_layer; upstream raises where this one reports
void ExampleConnectorWorker::save_kv_layer(const SynchronousConnectorMetadata& metadata,
                                           std::uint32_t layer, const ScriptedKVCache& kv_cache,
                                           SynchronousWorkerReport& report) {
  for (const SynchronousConnectorMetadata::Transfer& request : metadata.transfers) {
    if (!request.is_store) continue;
    std::vector<KVSymbol> symbols;
    for (const BlockId block : request.blocks) {
      for (const KVSymbol symbol : kv_cache.block(layer, block)) symbols.push_back(symbol);
    }
    if (!storage_.save(request.folder, layer, symbols)) {
      report.failed = {request.request, layer, request.folder, /*is_store=*/true};
      return;
    }
    report.saved.push_back({request.request, layer, request.folder, request.blocks, symbols});
  }
}

}  // namespace kvfence::reference
