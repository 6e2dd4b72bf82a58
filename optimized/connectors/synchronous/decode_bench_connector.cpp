/// Both halves of the DecodeBenchConnector. The rules are in
/// contract/connectors/synchronous/synchronous_connector.h.
///
/// In the scheduler's half a step is O(the fills in its metadata), and each call O(1) plus the
/// blocks of a fill. It allocates only the metadata of steps that have fills.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "contract/connectors/synchronous/synchronous_connector.h"
#include "contract/core/cloned.h"
#include "contract/core/state_digest.h"
#include "contract/scheduler/scheduler.h"
#include "optimized/base/request_list.h"
#include "optimized/connectors/synchronous/synchronous_connector.h"

namespace kvfence::optimized {
namespace {

// ---- The scheduler's half ----

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

// ---- The worker's half ----

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

std::unique_ptr<SynchronousConnectorScheduler> make_decode_bench_connector_scheduler(
    const SynchronousConnectorSpec& spec) {
  return std::make_unique<DecodeBenchConnectorScheduler>(spec);
}

std::unique_ptr<KVConnectorWorker> make_decode_bench_connector_worker(
    ScriptedKVCache& kv_cache, SynchronousWorkerReport& report) {
  return std::make_unique<DecodeBenchConnectorWorker>(kv_cache, report);
}

}  // namespace kvfence::optimized
