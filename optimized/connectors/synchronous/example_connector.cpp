#include "optimized/connectors/synchronous/example_connector.h"

#include <algorithm>
#include <utility>

#include "contract/core/check.h"

namespace kvfence::optimized {

using Bug = PlantedSynchronousConnectorBug;

template <class Instrumentation>
BasicExampleConnectorScheduler<Instrumentation>::BasicExampleConnectorScheduler(
    const SynchronousConnectorSpec& spec, const SharedStorage& storage,
    Instrumentation instrumentation)
    : instrumentation_(instrumentation),
      block_size_(spec.block_size()),
      storage_(&storage),
      nothing_to_tell_(std::make_shared<const SynchronousConnectorMetadata>()) {}

template <class Instrumentation>
typename BasicExampleConnectorScheduler<Instrumentation>::Tracked&
BasicExampleConnectorScheduler<Instrumentation>::track(RequestIndex request) {
  if (request >= tracked_.size()) tracked_.resize(std::size_t{request} + 1);
  return tracked_[request];
}

// ---- Tokens and folders ----

template <class Instrumentation>
std::uint32_t BasicExampleConnectorScheduler<Instrumentation>::num_match_tokens(
    std::uint32_t n) const {
  if (planted(Bug::kLookupUnderStoreKey)) return align_to_block_size(n, block_size_);
  return n == 0 ? 0 : align_to_block_size(n - 1, block_size_);
}

template <class Instrumentation>
std::uint32_t BasicExampleConnectorScheduler<Instrumentation>::num_loaded_tokens(
    std::uint32_t n) const {
  if (planted(Bug::kLoadUnderLookupKey)) return num_match_tokens(n);
  return align_to_block_size(n, block_size_);
}

template <class Instrumentation>
std::uint32_t BasicExampleConnectorScheduler<Instrumentation>::num_stored_tokens(
    std::uint32_t n) const {
  if (planted(Bug::kStoreUnderLookupKey)) return num_match_tokens(n);
  if (planted(Bug::kStoreNotAligned)) return n / block_size_ * block_size_;
  return align_to_block_size(n, block_size_);
}

template <class Instrumentation>
std::string_view BasicExampleConnectorScheduler<Instrumentation>::match_of(
    const ConnectorRequest& request) {
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

template <class Instrumentation>
bool BasicExampleConnectorScheduler<Instrumentation>::is_found(const ConnectorRequest& request) {
  instrumentation_.on_requests(1);
  if (planted(Bug::kMatchNotLookedFor)) return true;
  const std::string_view match = match_of(request);
  Tracked& tracked = track(request.index);
  if (planted(Bug::kMatchRemembered) && tracked.was_found) return true;
  tracked.was_found = storage_->folder_exists(match);
  return tracked.was_found;
}

/// Most often, the folder of what is loaded or stored is the match.
template <class Instrumentation>
std::string BasicExampleConnectorScheduler<Instrumentation>::folder_of(
    const ConnectorRequest& request, std::uint32_t num_tokens) {
  if (num_tokens == num_match_tokens(request.num_prompt_tokens)) {
    return std::string(match_of(request));
  }
  const RequestSpec& spec = request.request.spec();
  return folder_name(std::span(spec.tokens).first(num_tokens), spec.mm_features);
}

// ---- The scheduler's half ----

template <class Instrumentation>
MatchedTokens BasicExampleConnectorScheduler<Instrumentation>::get_num_new_matched_tokens(
    const ConnectorRequest& request, std::uint32_t num_local_tokens) {
  if (!is_found(request)) return {0, false};
  const std::uint32_t num_found = num_match_tokens(request.num_prompt_tokens);
  const auto num_tokens = static_cast<std::uint32_t>(request.request.all_token_ids().size());
  const std::uint32_t num_most = num_tokens - num_local_tokens - 1;
  if (planted(Bug::kHitNotAligned)) return {num_most, false};
  if (planted(Bug::kLocalHitNotSubtracted)) return {std::min(num_found, num_most), false};
  if (num_found < num_local_tokens) {
    if (!planted(Bug::kNegativeHitNotClamped)) return {0, false};
    return {std::min(num_local_tokens - num_found, num_most), false};
  }
  return {num_found - num_local_tokens, false};
}

template <class Instrumentation>
void BasicExampleConnectorScheduler<Instrumentation>::update_state_after_alloc(
    ConnectorHost&, const ConnectorRequest& request, const BlocksByGroup&,
    std::uint32_t num_external_tokens) {
  instrumentation_.on_requests(1);
  if (num_external_tokens == 0 && !planted(Bug::kLoadWithoutHit)) return;
  Tracked& tracked = track(request.index);
  if (tracked.needs_load) return;
  tracked.needs_load = true;
  ++num_needing_load_;
}

template <class Instrumentation>
std::shared_ptr<const KVConnectorMetadata>
BasicExampleConnectorScheduler<Instrumentation>::build_connector_meta(
    ConnectorHost& host, const SchedulerOutput& output) {
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
  KVFENCE_CHECK(Instrumentation::kPlants || num_needing_load_ == 0,
                "a request that needs a load is not in the step");
  if (transfers_.empty()) return nothing_to_tell_;
  auto told = std::make_shared<SynchronousConnectorMetadata>();
  told->transfers = std::move(transfers_);
  transfers_.clear();
  return told;
}

template <class Instrumentation>
void BasicExampleConnectorScheduler<Instrumentation>::plan_new(const ConnectorRequest& request,
                                                               const SchedulerOutput::New& data,
                                                               const SchedulerOutput& output) {
  Tracked& tracked = track(request.index);
  const std::span<const BlockId> blocks = output.block_lists[data.first_list];
  if (tracked.needs_load) {
    if (!planted(Bug::kNeedLoadKept)) {
      tracked.needs_load = false;
      --num_needing_load_;
    }
    plan(request, /*is_store=*/false, num_loaded_tokens(request.num_prompt_tokens), blocks);
    return;
  }
  if (is_found(request) && !planted(Bug::kStoredAgain)) return;
  const std::uint32_t num_tokens = num_stored_tokens(request.num_prompt_tokens);
  const std::uint32_t num_computed_tokens =
      data.num_computed_tokens +
      (planted(Bug::kStepTokensNotCounted) ? 0 : num_step_tokens(output, request.index));
  if (num_computed_tokens < num_tokens && !planted(Bug::kStoreNotComputedYet)) return;
  plan(request, /*is_store=*/true, num_tokens, blocks);
}

template <class Instrumentation>
void BasicExampleConnectorScheduler<Instrumentation>::plan_resumed(
    const ConnectorRequest& request, const SchedulerOutput::Cached& data,
    const SchedulerOutput& output) {
  instrumentation_.on_requests(1);
  Tracked& tracked = track(request.index);
  if (!tracked.needs_load) return;
  if (!planted(Bug::kNeedLoadKept)) {
    tracked.needs_load = false;
    --num_needing_load_;
  }
  if (planted(Bug::kResumedNotLoaded)) return;
  std::uint32_t num_tokens = data.num_computed_tokens;
  if (!planted(Bug::kResumedStepNotCounted)) num_tokens += num_step_tokens(output, request.index);
  if (planted(Bug::kResumedOutputsNotLoaded)) {
    num_tokens = std::min(num_tokens, request.num_prompt_tokens);
  }
  plan(request, /*is_store=*/false, align_to_block_size(num_tokens, block_size_),
       output.block_lists[data.first_list]);
}

/// A planted bug may ask for more blocks than there are.
template <class Instrumentation>
void BasicExampleConnectorScheduler<Instrumentation>::plan(const ConnectorRequest& request,
                                                           bool is_store, std::uint32_t num_tokens,
                                                           std::span<const BlockId> blocks) {
  const std::size_t num_blocks = num_tokens / block_size_;
  KVFENCE_CHECK(Instrumentation::kPlants || num_blocks <= blocks.size(),
                "a transfer of blocks that the request does not have");
  const std::size_t num_told = std::min(num_blocks, blocks.size());
  blocks = planted(Bug::kBlocksOfTableEnd) ? blocks.last(num_told) : blocks.first(num_told);
  instrumentation_.on_table_entries(num_told);
  transfers_.push_back({request.index, is_store, folder_of(request, num_tokens), num_tokens,
                        std::vector<BlockId>(blocks.begin(), blocks.end())});
}

template <class Instrumentation>
std::uint32_t BasicExampleConnectorScheduler<Instrumentation>::num_step_tokens(
    const SchedulerOutput& output, RequestIndex request) {
  const std::size_t size = output.scheduled.size();
  for (std::size_t k = 0; k < size; ++k) {
    if (place_ >= size) place_ = 0;
    instrumentation_.on_requests(1);
    const SchedulerOutput::Scheduled& entry = output.scheduled[place_++];
    if (entry.request == request) return entry.num_tokens;
  }
  KVFENCE_CHECK(false, "a request of the step of which nothing is scheduled");
  return 0;
}

template <class Instrumentation>
bool BasicExampleConnectorScheduler<Instrumentation>::request_finished(
    ConnectorHost&, const ConnectorRequest& request, const BlocksByGroup&) {
  if (request.index < tracked_.size()) tracked_[request.index].has_match = false;
  return false;
}

template class BasicExampleConnectorScheduler<NoInstrumentation>;
template class BasicExampleConnectorScheduler<CountingInstrumentation>;
template class BasicExampleConnectorScheduler<PlantedInstrumentation>;

// ---- The worker's half ----

template <class Instrumentation>
void BasicExampleConnectorWorker<Instrumentation>::start_load_kv(
    const SynchronousConnectorMetadata& metadata, ScriptedKVCache& kv_cache,
    SynchronousWorkerReport& report) {
  const std::uint32_t first_layer = kv_cache.first_layer();
  const std::uint32_t end_layer = first_layer + kv_cache.num_layers();
  const bool loads = !planted(Bug::kFirstRankLoadsAlone) || first_layer == 0;
  for (const Transfer& transfer : metadata.transfers) {
    if (transfer.is_store || !loads) continue;
    for (std::uint32_t layer = first_layer; layer < end_layer; ++layer) {
      if (!load(transfer, layer, kv_cache, report)) return;
    }
  }
  if (!planted(Bug::kSavedBeforeComputed)) return;
  for (const Transfer& transfer : metadata.transfers) {
    if (!transfer.is_store) continue;
    for (std::uint32_t layer = first_layer; layer < end_layer; ++layer) {
      if (!save(transfer, layer, kv_cache, report)) return;
    }
  }
}

template <class Instrumentation>
void BasicExampleConnectorWorker<Instrumentation>::save_kv_layer(
    const SynchronousConnectorMetadata& metadata, std::uint32_t layer,
    const ScriptedKVCache& kv_cache, SynchronousWorkerReport& report) {
  if (planted(Bug::kSavedBeforeComputed)) return;
  for (const Transfer& transfer : metadata.transfers) {
    if (transfer.is_store && !save(transfer, layer, kv_cache, report)) return;
  }
}

template <class Instrumentation>
bool BasicExampleConnectorWorker<Instrumentation>::load(const Transfer& transfer,
                                                        std::uint32_t layer,
                                                        ScriptedKVCache& kv_cache,
                                                        SynchronousWorkerReport& report) {
  const std::uint32_t block_size = kv_cache.block_size();
  const std::vector<BlockId>& blocks = transfer.blocks;
  std::vector<KVSymbol> symbols(blocks.size() * block_size, kNothingComputed);
  std::uint32_t file_layer = layer;
  if (planted(Bug::kLayersSwapped)) {
    const std::uint32_t first_layer = kv_cache.first_layer();
    file_layer = first_layer + (layer - first_layer + 1) % kv_cache.num_layers();
  }
  if (!storage_.load(transfer.folder, file_layer, symbols)) {
    if (planted(Bug::kLoadFailureNotReported)) return true;
    report.failed = {transfer.request, layer, transfer.folder, /*is_store=*/false};
    return false;
  }
  std::size_t num_copied = blocks.size();
  if (planted(Bug::kLastBlockNotLoaded) && num_copied > 0) --num_copied;
  for (std::size_t k = 0; k < num_copied; ++k) {
    const BlockId block = planted(Bug::kSlotsReversed) ? blocks[blocks.size() - 1 - k] : blocks[k];
    const std::span<const KVSymbol> from = std::span(symbols).subspan(k * block_size, block_size);
    std::copy(from.begin(), from.end(), kv_cache.block(layer, block).begin());
  }
  report.loaded.push_back({transfer.request, layer, transfer.folder, blocks, std::move(symbols)});
  return true;
}

template <class Instrumentation>
bool BasicExampleConnectorWorker<Instrumentation>::save(const Transfer& transfer,
                                                        std::uint32_t layer,
                                                        const ScriptedKVCache& kv_cache,
                                                        SynchronousWorkerReport& report) {
  const std::uint32_t from_layer =
      planted(Bug::kFirstLayerSavedForAll) ? kv_cache.first_layer() : layer;
  std::vector<KVSymbol> symbols;
  symbols.reserve(transfer.blocks.size() * kv_cache.block_size());
  for (const BlockId block : transfer.blocks) {
    const std::span<const KVSymbol> from = kv_cache.block(from_layer, block);
    symbols.insert(symbols.end(), from.begin(), from.end());
  }
  if (!storage_.save(transfer.folder, layer, symbols) && !planted(Bug::kSaveFailureNotReported)) {
    report.failed = {transfer.request, layer, transfer.folder, /*is_store=*/true};
    return false;
  }
  report.saved.push_back(
      {transfer.request, layer, transfer.folder, transfer.blocks, std::move(symbols)});
  return true;
}

template class BasicExampleConnectorWorker<NoInstrumentation>;
template class BasicExampleConnectorWorker<PlantedInstrumentation>;

}  // namespace kvfence::optimized
