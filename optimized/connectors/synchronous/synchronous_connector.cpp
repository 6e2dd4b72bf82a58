#include "optimized/connectors/synchronous/synchronous_connector.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/connectors/synchronous/synchronous_connector.h"
#include "contract/core/check.h"
#include "contract/core/cloned.h"
#include "contract/core/state_digest.h"
#include "contract/scheduler/scheduler.h"
#include "optimized/base/request_list.h"

namespace kvfence::optimized {
namespace {

// ---- The ExampleConnector ----

/// A step is O(its new requests + those that are resumed to load + the blocks in its metadata);
/// requests that decode cost nothing. A prompt's folder name is hashed once per request. It
/// allocates only the metadata of steps that have transfers, and the names of requests that are
/// asked for the first time.
class ExampleConnectorScheduler final
    : public Cloning<ExampleConnectorScheduler, SynchronousConnectorScheduler> {
 public:
  /// Requires: check_spec(spec) finds nothing; storage outlives this and its clones.
  ExampleConnectorScheduler(const SynchronousConnectorSpec& spec, const SharedStorage& storage)
      : block_size_(spec.block_size()),
        storage_(&storage),
        empty_metadata_(std::make_shared<const SynchronousConnectorMetadata>()) {}

  MatchedTokens get_num_new_matched_tokens(const ConnectorRequest& request,
                                           std::uint32_t num_local_tokens) override {
    if (!is_found(request)) return {0, false};
    const std::uint32_t num_found = num_match_tokens(request.num_prompt_tokens);
    if (num_found < num_local_tokens) return {0, false};
    return {num_found - num_local_tokens, false};
  }

  void update_state_after_alloc(ConnectorHost&, const ConnectorRequest& request,
                                const BlocksByGroup&, std::uint32_t num_external_tokens) override {
    if (num_external_tokens == 0) return;
    Tracked& tracked = track(request.index);
    if (tracked.needs_load) return;
    tracked.needs_load = true;
    ++num_needing_load_;
  }

  std::shared_ptr<const KVConnectorMetadata> build_connector_meta(
      ConnectorHost& host, const SchedulerOutput& output) override {
    const std::vector<SchedulerOutput::Cached>& cached = output.scheduled_cached_reqs;
    std::size_t first_resumed = cached.size();
    while (first_resumed > 0 && cached[first_resumed - 1].resumed) --first_resumed;
    const std::size_t num_joining =
        output.scheduled_new_reqs.size() + (cached.size() - first_resumed);
    const std::size_t first_joining =
        output.scheduled.size() - std::min(num_joining, output.scheduled.size());

    place_ = first_joining;
    for (const SchedulerOutput::New& data : output.scheduled_new_reqs) {
      plan_new(host.request(data.request), data, output);
    }
    place_ = first_joining;
    for (std::size_t k = first_resumed; k < cached.size() && num_needing_load_ > 0; ++k) {
      plan_resumed(host.request(cached[k].request), cached[k], output);
    }
    KVFENCE_CHECK(num_needing_load_ == 0, "a request that needs a load is not in the step");
    if (transfers_.empty()) return empty_metadata_;
    auto metadata = std::make_shared<SynchronousConnectorMetadata>();
    metadata->transfers = std::move(transfers_);
    transfers_.clear();
    return metadata;
  }

  bool request_finished(ConnectorHost&, const ConnectorRequest& request,
                        const BlocksByGroup&) override {
    if (request.index < tracked_.size()) tracked_[request.index].has_match = false;
    return false;
  }

  void filled_requests(std::vector<RequestIndex>& out) const override { out.clear(); }
  void add_to(StateHash& hash) const override { hash.add_kept(tracked_); }

 private:
  using FolderName = std::array<char, 32>;

  /// The record of a request, in a place that the next request of its index reuses.
  struct Tracked {
    FolderName match{};  ///< with has_match
    bool has_match = false;
    bool needs_load = false;

    void add_to(StateHash& hash) const {
      hash.add_all(has_match, needs_load);
      if (has_match) hash.add(match);
    }
  };

  Tracked& track(RequestIndex request) {
    if (request >= tracked_.size()) tracked_.resize(std::size_t{request} + 1);
    return tracked_[request];
  }

  // ---- Tokens and folders ----

  // In tokens, for a prompt of n.
  std::uint32_t num_match_tokens(std::uint32_t n) const {
    return n == 0 ? 0 : align_to_block_size(n - 1, block_size_);
  }

  std::string_view match_of(const ConnectorRequest& request) {
    Tracked& tracked = track(request.index);
    if (!tracked.has_match) {
      const RequestSpec& spec = request.request.spec();
      const std::string name =
          folder_name(std::span(spec.tokens).first(num_match_tokens(request.num_prompt_tokens)),
                      spec.mm_features);
      KVFENCE_CHECK(name.size() == tracked.match.size(), "a folder name that is no MD5");
      std::copy(name.begin(), name.end(), tracked.match.begin());
      tracked.has_match = true;
    }
    return {tracked.match.data(), tracked.match.size()};
  }

  bool is_found(const ConnectorRequest& request) {
    return storage_->folder_exists(match_of(request));
  }

  /// The folder of a transfer, which is most often the match.
  std::string folder_of(const ConnectorRequest& request, std::uint32_t num_tokens) {
    if (num_tokens == num_match_tokens(request.num_prompt_tokens)) {
      return std::string(match_of(request));
    }
    const RequestSpec& spec = request.request.spec();
    return folder_name(std::span(spec.tokens).first(num_tokens), spec.mm_features);
  }

  void plan_new(const ConnectorRequest& request, const SchedulerOutput::New& data,
                const SchedulerOutput& output) {
    Tracked& tracked = track(request.index);
    const std::span<const BlockId> blocks = output.block_lists[data.first_list];
    const std::uint32_t num_tokens = align_to_block_size(request.num_prompt_tokens, block_size_);
    if (tracked.needs_load) {
      tracked.needs_load = false;
      --num_needing_load_;
      plan(request, /*is_store=*/false, num_tokens, blocks);
      return;
    }
    if (is_found(request)) return;
    const std::uint32_t num_computed_tokens =
        data.num_computed_tokens + num_step_tokens(output, request.index);
    if (num_computed_tokens < num_tokens) return;
    plan(request, /*is_store=*/true, num_tokens, blocks);
  }

  void plan_resumed(const ConnectorRequest& request, const SchedulerOutput::Cached& data,
                    const SchedulerOutput& output) {
    Tracked& tracked = track(request.index);
    if (!tracked.needs_load) return;
    tracked.needs_load = false;
    --num_needing_load_;
    const std::uint32_t num_tokens =
        data.num_computed_tokens + num_step_tokens(output, request.index);
    plan(request, /*is_store=*/false, align_to_block_size(num_tokens, block_size_),
         output.block_lists[data.first_list]);
  }

  void plan(const ConnectorRequest& request, bool is_store, std::uint32_t num_tokens,
            std::span<const BlockId> blocks) {
    const std::size_t num_blocks = num_tokens / block_size_;
    KVFENCE_CHECK(num_blocks <= blocks.size(),
                  "a transfer of blocks that the request does not have");
    blocks = blocks.first(num_blocks);
    transfers_.push_back({std::string(request.id), is_store, folder_of(request, num_tokens),
                          num_tokens, std::vector<BlockId>(blocks.begin(), blocks.end())});
  }

  /// The request's tokens in the step. Requests that join the running ones are the last entries, in
  /// the order of the calls, so all calls together cost O(their number).
  std::uint32_t num_step_tokens(const SchedulerOutput& output, RequestIndex request) {
    const std::size_t size = output.scheduled.size();
    for (std::size_t k = 0; k < size; ++k) {
      if (place_ >= size) place_ = 0;
      const SchedulerOutput::Scheduled& entry = output.scheduled[place_++];
      if (entry.request == request) return entry.num_tokens;
    }
    KVFENCE_CHECK(false, "nothing is scheduled for a request of the step");
    return 0;
  }

  std::uint32_t block_size_;
  const SharedStorage* storage_;

  std::vector<Tracked> tracked_;  ///< by RequestIndex
  std::uint32_t num_needing_load_ = 0;

  // Of the step under way.
  std::vector<FileTransfer> transfers_;
  std::size_t place_ = 0;  ///< in output.scheduled: where num_step_tokens looks next
  std::shared_ptr<const SynchronousConnectorMetadata> empty_metadata_;
};

/// The worker's half of one rank. A call is O(symbols of its files).
class ExampleConnectorWorker final
    : public Cloning<ExampleConnectorWorker, SynchronousConnectorWorker> {
 public:
  /// Requires: check_spec(spec) finds nothing; storage outlives this.
  ExampleConnectorWorker(SharedStorage& storage, ScriptedKVCache& kv_cache,
                         SynchronousWorkerReport& report)
      : Cloning(kv_cache, report), storage_(storage) {}

  void start_load_kv() override {
    const std::uint32_t first_layer = kv_cache_.first_layer();
    const std::uint32_t end_layer = first_layer + kv_cache_.num_layers();
    for (const FileTransfer& transfer : step_metadata().transfers) {
      if (transfer.store) continue;
      for (std::uint32_t layer = first_layer; layer < end_layer; ++layer) {
        if (!load(transfer, layer)) return;
      }
    }
  }

  void save_kv_layer(std::uint32_t layer) override {
    for (const FileTransfer& transfer : step_metadata().transfers) {
      if (transfer.store && !save(transfer, layer)) return;
    }
  }

 private:
  /// False: the file failed, and report says so.
  bool load(const FileTransfer& transfer, std::uint32_t layer) {
    const std::uint32_t block_size = kv_cache_.block_size();
    const std::vector<BlockId>& blocks = transfer.blocks;
    std::vector<KVSymbol> symbols(blocks.size() * block_size, kNothingComputed);
    if (!storage_.load(transfer.folder, layer, symbols)) {
      report_.failed = {transfer.request, /*store=*/false, layer, transfer.folder};
      return false;
    }
    for (std::size_t k = 0; k < blocks.size(); ++k) {
      const std::span<const KVSymbol> from = std::span(symbols).subspan(k * block_size, block_size);
      std::copy(from.begin(), from.end(), kv_cache_.block(layer, blocks[k]).begin());
    }
    report_.loaded.push_back(
        {transfer.request, layer, transfer.folder, blocks, std::move(symbols)});
    return true;
  }

  bool save(const FileTransfer& transfer, std::uint32_t layer) {
    std::vector<KVSymbol> symbols;
    symbols.reserve(transfer.blocks.size() * kv_cache_.block_size());
    for (const BlockId block : transfer.blocks) {
      const std::span<const KVSymbol> from = kv_cache_.block(layer, block);
      symbols.insert(symbols.end(), from.begin(), from.end());
    }
    if (!storage_.save(transfer.folder, layer, symbols)) {
      report_.failed = {transfer.request, /*store=*/true, layer, transfer.folder};
      return false;
    }
    report_.saved.push_back(
        {transfer.request, layer, transfer.folder, transfer.blocks, std::move(symbols)});
    return true;
  }

  SharedStorage& storage_;
};

// ---- The DecodeBenchConnector ----

/// A step is O(the fills in its metadata), and each call O(1) plus the blocks of a fill. It
/// allocates only the metadata of steps that have fills.
class DecodeBenchConnectorScheduler final
    : public Cloning<DecodeBenchConnectorScheduler, SynchronousConnectorScheduler> {
 public:
  /// Requires: check_spec(spec) finds nothing.
  explicit DecodeBenchConnectorScheduler(const SynchronousConnectorSpec& spec)
      : block_size_(spec.block_size()),
        empty_metadata_(std::make_shared<const SynchronousConnectorMetadata>()) {}

  MatchedTokens get_num_new_matched_tokens(const ConnectorRequest& request,
                                           std::uint32_t num_local_tokens) override {
    if (filled_.contains(request.index)) return {0, false};
    const auto num_tokens = static_cast<std::uint32_t>(request.request.all_token_ids().size());
    if (num_tokens <= num_local_tokens + 1) return {0, false};
    return {num_tokens - num_local_tokens - 1, false};
  }

  void update_state_after_alloc(ConnectorHost&, const ConnectorRequest& request,
                                const BlocksByGroup& blocks,
                                std::uint32_t num_external_tokens) override {
    if (num_external_tokens == 0) return;
    if (!filled_.contains(request.index)) filled_.push_back(request.index);
    const std::size_t num_blocks = (num_external_tokens + block_size_ - 1) / block_size_;
    BlockFill& fill = fills_.emplace_back();
    fill.request = request.id;
    fill.num_tokens = num_external_tokens;
    fill.blocks.reserve(blocks.size());
    for (const std::vector<BlockId>& group : blocks) {
      const std::span<const BlockId> all = group;
      const std::span<const BlockId> filled = all.first(std::min(num_blocks, all.size()));
      fill.blocks.emplace_back(filled.begin(), filled.end());
    }
  }

  std::shared_ptr<const KVConnectorMetadata> build_connector_meta(ConnectorHost&,
                                                                  const SchedulerOutput&) override {
    if (fills_.empty()) return empty_metadata_;
    auto metadata = std::make_shared<SynchronousConnectorMetadata>();
    metadata->fills = std::move(fills_);
    fills_.clear();
    return metadata;
  }

  bool request_finished(ConnectorHost&, const ConnectorRequest& request,
                        const BlocksByGroup&) override {
    filled_.erase(request.index);
    return false;
  }

  void filled_requests(std::vector<RequestIndex>& out) const override { filled_.copy_to(out); }
  void add_to(StateHash& hash) const override { hash.add_all(filled_, fills_); }

 private:
  std::uint32_t block_size_;
  RequestList filled_;
  std::vector<BlockFill> fills_;  ///< in no metadata yet
  std::shared_ptr<const SynchronousConnectorMetadata> empty_metadata_;
};

/// The worker's half of one rank. A call is O(slots that it fills).
class DecodeBenchConnectorWorker final
    : public Cloning<DecodeBenchConnectorWorker, SynchronousConnectorWorker> {
 public:
  using Cloning::Cloning;

  void start_load_kv() override {
    for (const BlockFill& fill : step_metadata().fills) {
      for (std::uint32_t i = 0; i < kv_cache_.num_layers(); ++i) {
        const std::uint32_t layer = kv_cache_.first_layer() + i;
        FilledBlocks& filled = report_.filled.emplace_back();
        filled.request = fill.request;
        filled.layer = layer;
        filled.blocks = fill.blocks.front();
        for (const BlockId block : filled.blocks) {
          const std::span<KVSymbol> slots = kv_cache_.block(layer, block);
          std::fill(slots.begin(), slots.end(), kFilledWithDummies);
        }
      }
    }
  }
};

}  // namespace

std::unique_ptr<SynchronousConnectorScheduler> make_synchronous_connector_scheduler(
    const SynchronousConnectorSpec& spec, SharedStorage& storage) {
  if (spec.kind == SynchronousConnectorKind::kExample) {
    return std::make_unique<ExampleConnectorScheduler>(spec, storage);
  }
  return std::make_unique<DecodeBenchConnectorScheduler>(spec);
}

std::unique_ptr<KVConnectorWorker> make_synchronous_connector_worker(
    const SynchronousConnectorSpec& spec, SharedStorage& storage, ScriptedKVCache& kv_cache,
    SynchronousWorkerReport& report) {
  if (spec.kind == SynchronousConnectorKind::kExample) {
    return std::make_unique<ExampleConnectorWorker>(storage, kv_cache, report);
  }
  return std::make_unique<DecodeBenchConnectorWorker>(kv_cache, report);
}

}  // namespace kvfence::optimized
