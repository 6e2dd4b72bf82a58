#include "reference/connectors/synchronous/synchronous_connector.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "contract/connectors/synchronous/synchronous_connector.h"
#include "contract/core/check.h"
#include "contract/core/lists.h"
#include "contract/core/state_digest.h"
#include "contract/scheduler/scheduler.h"

namespace kvfence::reference {
namespace {

// The ExampleConnector, both halves: the executable specification. The rules of each function
// are in contract/connectors/synchronous/synchronous_connector.h.
// Source: vLLM v0.19.0 and v0.23.0
// distributed/kv_transfer/kv_connector/v1/example_connector.py.

std::span<const TokenId> first_tokens(const ConnectorRequest& request, std::uint32_t num_tokens) {
  return std::span(request.request.all_token_ids()).first(num_tokens);
}

std::uint32_t num_scheduled_tokens(const SchedulerOutput& output, RequestIndex request) {
  const auto scheduled =
      std::ranges::find(output.scheduled, request, &SchedulerOutput::Scheduled::request);
  KVFENCE_CHECK(scheduled != output.scheduled.end(), "a request of the step that is not scheduled");
  return scheduled->num_tokens;
}

class ExampleConnector final : public Cloning<ExampleConnector, SynchronousConnectorScheduler> {
 public:
  /// Requires: check_spec(spec) finds nothing wrong; storage outlives this and its copies
  ExampleConnector(const SynchronousConnectorSpec& spec, const SharedStorage& storage)
      : spec_(spec), storage_(&storage) {
    KVFENCE_CHECK(!check_spec(spec), "no connector can be built from this spec");
  }

  // Source: vLLM v0.19.0 example_connector.py get_num_new_matched_tokens; not below 0: ours
  MatchedTokens get_num_new_matched_tokens(const ConnectorRequest& request,
                                           std::uint32_t num_local_tokens) override {
    if (!found_match_for_request(request)) return {0, /*load_async=*/false};
    const std::uint32_t num_found =
        align_to_block_size(request.num_prompt_tokens - 1, spec_.block_size());
    return {num_found - std::min(num_found, num_local_tokens), /*load_async=*/false};
  }

  void update_state_after_alloc(ConnectorHost& /*host*/, const ConnectorRequest& request,
                                const BlocksByGroup& /*blocks*/,
                                std::uint32_t num_external_tokens) override {
    if (num_external_tokens > 0) requests_need_load_.insert(request.index);
  }

  // Source: vLLM v0.19.0 example_connector.py build_connector_meta; no store of what this step does
  // not compute: ours
  std::shared_ptr<const KVConnectorMetadata> build_connector_meta(
      ConnectorHost& host, const SchedulerOutput& output) override {
    auto metadata = std::make_shared<SynchronousConnectorMetadata>();
    for (const SchedulerOutput::New& data : output.scheduled_new_reqs) {
      const ConnectorRequest request = host.request(data.request);
      const std::uint32_t num_prompt_tokens = request.num_prompt_tokens;
      const std::span<const BlockId> blocks = output.block_lists[data.first_list];
      if (requests_need_load_.erase(data.request) > 0) {
        metadata->transfers.push_back(
            transfer_of(request, /*store=*/false, num_prompt_tokens, blocks));
        continue;
      }
      const bool is_computed =
          data.num_computed_tokens + num_scheduled_tokens(output, data.request) >=
          align_to_block_size(num_prompt_tokens, spec_.block_size());
      if (is_computed && !found_match_for_request(request)) {
        metadata->transfers.push_back(
            transfer_of(request, /*store=*/true, num_prompt_tokens, blocks));
      }
    }
    for (const SchedulerOutput::Cached& data : output.scheduled_cached_reqs) {
      if (!data.resumed || requests_need_load_.erase(data.request) == 0) continue;
      const std::uint32_t num_tokens =
          data.num_computed_tokens + num_scheduled_tokens(output, data.request);
      metadata->transfers.push_back(transfer_of(host.request(data.request), /*store=*/false,
                                                num_tokens, output.block_lists[data.first_list]));
    }
    KVFENCE_CHECK(requests_need_load_.empty(), "a load of a request that is not in the step");
    return metadata;
  }

  bool request_finished(ConnectorHost& /*host*/, const ConnectorRequest& /*request*/,
                        const BlocksByGroup& /*blocks*/) override {
    return false;
  }

  void filled_requests(std::vector<RequestIndex>& out) const override { out.clear(); }

  void add_to(StateHash& hash) const override { hash.add_all(requests_need_load_); }

 private:
  // Source: vLLM v0.19.0 example_connector.py _found_match_for_request, _found_match_for_prompt
  bool found_match_for_request(const ConnectorRequest& request) const {
    const std::uint32_t num_tokens_to_check =
        align_to_block_size(std::max(request.num_prompt_tokens, 1u) - 1, spec_.block_size());
    return storage_->folder_exists(folder_name(first_tokens(request, num_tokens_to_check),
                                               request.request.spec().mm_features));
  }

  /// What is kept of the first num_tokens tokens, in the first blocks of the request.
  // Source: vLLM v0.19.0 example_connector.py ReqMeta.make_meta
  FileTransfer transfer_of(const ConnectorRequest& request, bool store, std::uint32_t num_tokens,
                           std::span<const BlockId> blocks) const {
    FileTransfer transfer;
    transfer.request = request.id;
    transfer.store = store;
    transfer.num_tokens = align_to_block_size(num_tokens, spec_.block_size());
    transfer.folder =
        folder_name(first_tokens(request, transfer.num_tokens), request.request.spec().mm_features);
    const std::size_t num_blocks = transfer.num_tokens / spec_.block_size();
    KVFENCE_CHECK(num_blocks <= blocks.size(), "a transfer of tokens without blocks");
    transfer.blocks.assign(blocks.begin(),
                           blocks.begin() + static_cast<std::ptrdiff_t>(num_blocks));
    return transfer;
  }

  SynchronousConnectorSpec spec_;
  const SharedStorage* storage_;
  std::set<RequestIndex> requests_need_load_;
};

/// The worker's half of one rank.
class ExampleConnectorWorker final
    : public Cloning<ExampleConnectorWorker, SynchronousConnectorWorker> {
 public:
  /// Requires: storage outlives this
  ExampleConnectorWorker(SharedStorage& storage, ScriptedKVCache& kv_cache,
                         SynchronousWorkerReport& report)
      : Cloning(kv_cache, report), storage_(storage) {}

  // Source: vLLM v0.19.0 example_connector.py start_load_kv; upstream raises where this one reports
  void start_load_kv() override {
    for (const FileTransfer& request : step_metadata().transfers) {
      if (request.store) continue;
      for (std::uint32_t i = 0; i < kv_cache_.num_layers(); ++i) {
        const std::uint32_t layer = kv_cache_.first_layer() + i;
        std::vector<KVSymbol> symbols(request.blocks.size() * kv_cache_.block_size());
        if (!storage_.load(request.folder, layer, symbols)) {
          report_.failed = {request.request, /*store=*/false, layer, request.folder};
          return;
        }
        for (std::size_t k = 0; k < symbols.size(); ++k) {
          const BlockId block = request.blocks[k / kv_cache_.block_size()];
          kv_cache_.block(layer, block)[k % kv_cache_.block_size()] = symbols[k];
        }
        report_.loaded.push_back({request.request, layer, request.folder, request.blocks, symbols});
      }
    }
  }

  // Source: vLLM v0.19.0 example_connector.py save_kv_layer; upstream raises where this one reports
  void save_kv_layer(std::uint32_t layer) override {
    for (const FileTransfer& request : step_metadata().transfers) {
      if (!request.store) continue;
      std::vector<KVSymbol> symbols;
      for (const BlockId block : request.blocks) {
        for (const KVSymbol symbol : kv_cache_.block(layer, block)) symbols.push_back(symbol);
      }
      if (!storage_.save(request.folder, layer, symbols)) {
        report_.failed = {request.request, /*store=*/true, layer, request.folder};
        return;
      }
      report_.saved.push_back({request.request, layer, request.folder, request.blocks, symbols});
    }
  }

 private:
  SharedStorage& storage_;
};

// The DecodeBenchConnector, both halves: the executable specification. The rules of each function
// are in contract/connectors/synchronous/synchronous_connector.h.
// Source: vLLM v0.19.0 and v0.23.0
// distributed/kv_transfer/kv_connector/v1/decode_bench_connector.py.

class DecodeBenchConnector final
    : public Cloning<DecodeBenchConnector, SynchronousConnectorScheduler> {
 public:
  /// Requires: check_spec(spec) finds nothing wrong
  explicit DecodeBenchConnector(const SynchronousConnectorSpec& spec) : spec_(spec) {
    KVFENCE_CHECK(!check_spec(spec), "no connector can be built from this spec");
  }

  // Source: vLLM v0.19.0 decode_bench_connector.py
  // DecodeBenchConnectorScheduler.get_num_new_matched_tokens
  MatchedTokens get_num_new_matched_tokens(const ConnectorRequest& request,
                                           std::uint32_t num_local_tokens) override {
    const bool is_filled = contains(filled_requests_, request.index);
    const auto num_tokens = static_cast<std::uint32_t>(request.request.all_token_ids().size());
    if (is_filled || num_tokens <= num_local_tokens + 1) return {0, /*load_async=*/false};
    return {num_tokens - num_local_tokens - 1, /*load_async=*/false};
  }

  // Source: vLLM v0.19.0 decode_bench_connector.py
  // DecodeBenchConnectorScheduler.update_state_after_alloc
  void update_state_after_alloc(ConnectorHost& /*host*/, const ConnectorRequest& request,
                                const BlocksByGroup& blocks,
                                std::uint32_t num_external_tokens) override {
    if (num_external_tokens == 0) return;
    const std::size_t num_blocks_to_fill =
        (num_external_tokens + spec_.block_size() - 1) / spec_.block_size();
    BlockFill fill{std::string(request.id), num_external_tokens, blocks};
    for (std::vector<BlockId>& group : fill.blocks) {
      group.resize(std::min(group.size(), num_blocks_to_fill));
    }
    pending_fills_.push_back(std::move(fill));
    filled_requests_.push_back(request.index);
  }

  std::shared_ptr<const KVConnectorMetadata> build_connector_meta(
      ConnectorHost& /*host*/, const SchedulerOutput& /*output*/) override {
    auto metadata = std::make_shared<SynchronousConnectorMetadata>();
    metadata->fills.swap(pending_fills_);
    return metadata;
  }

  bool request_finished(ConnectorHost& /*host*/, const ConnectorRequest& request,
                        const BlocksByGroup& /*blocks*/) override {
    std::erase(filled_requests_, request.index);
    return false;
  }

  void filled_requests(std::vector<RequestIndex>& out) const override { out = filled_requests_; }
  void add_to(StateHash& hash) const override { hash.add_all(filled_requests_, pending_fills_); }

 private:
  SynchronousConnectorSpec spec_;
  std::vector<RequestIndex> filled_requests_;  ///< in the order of their fills
  std::vector<BlockFill> pending_fills_;
};

/// The worker's half of one rank.
class DecodeBenchConnectorWorker final
    : public Cloning<DecodeBenchConnectorWorker, SynchronousConnectorWorker> {
 public:
  using Cloning::Cloning;

  // Source: vLLM v0.19.0 decode_bench_connector.py DecodeBenchConnectorWorker.start_fill_kv,
  // _fill_blocks, register_kv_caches
  void start_load_kv() override {
    for (const BlockFill& fill : step_metadata().fills) {
      const std::vector<BlockId>& blocks_of_group_0 = fill.blocks.front();
      for (std::uint32_t i = 0; i < kv_cache_.num_layers(); ++i) {
        const std::uint32_t layer = kv_cache_.first_layer() + i;
        for (const BlockId block : blocks_of_group_0) {
          const std::span<KVSymbol> slots = kv_cache_.block(layer, block);
          std::fill(slots.begin(), slots.end(), kFilledWithDummies);
        }
        report_.filled.push_back({fill.request, layer, blocks_of_group_0});
      }
    }
  }
};

}  // namespace

std::unique_ptr<SynchronousConnectorScheduler> make_synchronous_connector_scheduler(
    const SynchronousConnectorSpec& spec, const SharedStorage& storage) {
  if (spec.kind == SynchronousConnectorKind::kExample) {
    return std::make_unique<ExampleConnector>(spec, storage);
  }
  return std::make_unique<DecodeBenchConnector>(spec);
}

std::unique_ptr<KVConnectorWorker> make_synchronous_connector_worker(
    const SynchronousConnectorSpec& spec, SharedStorage& storage, ScriptedKVCache& kv_cache,
    SynchronousWorkerReport& report) {
  if (spec.kind == SynchronousConnectorKind::kExample) {
    return std::make_unique<ExampleConnectorWorker>(storage, kv_cache, report);
  }
  return std::make_unique<DecodeBenchConnectorWorker>(kv_cache, report);
}

}  // namespace kvfence::reference
