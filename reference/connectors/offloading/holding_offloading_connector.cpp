#include "reference/connectors/offloading/offloading_connector.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "contract/core/check.h"
#include "contract/core/lists.h"
#include "contract/core/state_digest.h"

namespace kvfence::reference {
namespace {

// The scheduler's half that holds the blocks of a finished request until its stores are done. The
// rules of each function are in contract/connectors/offloading/offloading_connector.h under
// "hold".
// Source: vLLM v0.19.0 distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py
// OffloadingConnectorScheduler.

constexpr std::size_t kGroup = 0;  // the only one

class HoldingOffloadingConnector final
    : public Cloning<HoldingOffloadingConnector, OffloadingConnectorBase> {
 public:
  using Cloning::Cloning;

  // Source: vLLM v0.19.0 v1/.../offloading/scheduler.py get_num_new_matched_tokens
  MatchedTokens get_num_new_matched_tokens(const ConnectorRequest& request,
                                           std::uint32_t num_local_tokens) override {
    const MatchedTokens nothing = {.num_tokens = 0, .load_async = false};
    const std::uint32_t block_size = offloaded_block_size(kGroup);
    const std::vector<OffloadKey> keys = offload_keys(request, kGroup);
    manager_.touch(views(keys), {request.id});
    if (keys.size() * block_size < std::size_t{num_local_tokens} + block_size) return nothing;

    const std::uint32_t start = num_local_tokens / block_size;
    std::uint32_t num_hits = 0;
    must(manager_.lookup(views(key_range(keys, start, keys.size())), num_hits),
         "the manager counts leading blocks in this profile");
    if (num_hits == 0) return nothing;
    const std::uint32_t num_hit_tokens = block_size * (start + num_hits) - num_local_tokens;
    if (num_hit_tokens < block_size) return nothing;

    const std::span<const OffloadKey> found = key_range(keys, start, start + num_hits);
    const bool must_wait =
        spec_.kv_cache.pool.enable_caching &&
        std::ranges::any_of(found, [this](const OffloadKey& key) { return is_being_loaded(key); });
    if (must_wait) return {.num_tokens = std::nullopt, .load_async = false};
    return {.num_tokens = num_hit_tokens, .load_async = true};
  }

  // Source: vLLM v0.19.0 v1/.../offloading/scheduler.py update_state_after_alloc
  void update_state_after_alloc(ConnectorHost& host, const ConnectorRequest& request,
                                const BlocksByGroup& blocks,
                                std::uint32_t num_external_tokens) override {
    const std::string id(request.id);
    RequestState& state = requests_[id];
    state.block_ids.clear();
    if (num_external_tokens == 0) return;

    const std::vector<BlockId>& block_ids = blocks[kGroup];
    const auto num_computed_blocks = static_cast<std::uint32_t>(
        std::ranges::count_if(block_ids, [&host](BlockId block) { return host.is_cached(block); }));
    const std::uint32_t block_size = offloaded_block_size(kGroup);
    const std::uint32_t num_computed_tokens = num_computed_blocks * gpu_block_size(kGroup);
    const std::uint32_t num_tokens = num_computed_tokens + num_external_tokens;
    const auto num_pending_blocks =
        static_cast<std::uint32_t>(block_ids.size()) - num_computed_blocks;
    KVFENCE_CHECK(num_tokens % block_size == 0, "a load ends with an offloaded block");
    KVFENCE_CHECK(num_external_tokens == num_pending_blocks * gpu_block_size(kGroup),
                  "the blocks without a key are those to load");

    const std::vector<OffloadKey> keys = offload_keys(request, kGroup);
    const std::uint32_t end = num_tokens / block_size;
    KVFENCE_CHECK(keys.size() >= end, "what is loaded has hashes");
    const std::span<const OffloadKey> to_load =
        key_range(keys, num_computed_tokens / block_size, end);

    TransferJob load;
    load.request = id;
    load.spec.gpu_blocks.assign(block_ids.begin() + num_computed_blocks, block_ids.end());
    load.spec.group_sizes = {num_pending_blocks};
    load.spec.block_indices = {num_computed_blocks};
    load.spec.slots = prepare_load(to_load);
    loads_.push_back(std::move(load));

    std::vector<OffloadKey>& being_loaded = being_loaded_[id];
    KVFENCE_CHECK(being_loaded.empty(), "a request has one load at a time");
    being_loaded.assign(to_load.begin(), to_load.end());
    state.next_stored_block = end;

    // Its load alone holds it from now on; upstream remembers the stores.
    const auto stores = being_stored_.find(id);
    if (stores == being_stored_.end()) return;
    KVFENCE_CHECK(stores->second.empty(), "what a preempted request stored is complete");
    being_stored_.erase(stores);
  }

  // What is pending for a preempted request is ready at once: the workers wait for it before they
  // do anything of this step.
  // Source: vLLM v0.19.0 v1/.../offloading/scheduler.py build_connector_meta
  std::shared_ptr<const KVConnectorMetadata> build_connector_meta(
      ConnectorHost& host, const SchedulerOutput& output) override {
    auto metadata = std::make_shared<OffloadingConnectorMetadata>();
    metadata->loads = std::exchange(loads_, {});
    for (const RequestData& data : request_data(host, output, num_groups())) {
      plan_store(data, output, metadata->stores);
    }
    for (const RequestIndex preempted : output.preempted) {
      const std::string id(host.request(preempted).id);
      metadata->requests_to_flush.push_back(id);
      const auto pending = being_stored_.find(id);
      if (pending != being_stored_.end()) complete_stores(pending->second);
    }
    return metadata;
  }

  // Source: vLLM v0.19.0 v1/.../offloading/scheduler.py update_connector_output
  void update_connector_output(ConnectorHost& host, const KVConnectorOutput& output) override {
    for (const RequestIndex index : output.finished_sending) {
      const auto pending = being_stored_.find(std::string(host.request(index).id));
      if (pending == being_stored_.end()) continue;
      complete_stores(pending->second);
      being_stored_.erase(pending);
    }
    for (const RequestIndex index : output.finished_recving) {
      const auto load = being_loaded_.find(std::string(host.request(index).id));
      if (load == being_loaded_.end()) continue;
      must(manager_.complete_load(views(load->second)), "what is being loaded stays held");
      being_loaded_.erase(load);
    }
  }

  // Source: vLLM v0.19.0 v1/.../offloading/scheduler.py request_finished
  bool request_finished(ConnectorHost& /*host*/, const ConnectorRequest& request,
                        const BlocksByGroup& /*blocks*/) override {
    const std::string id(request.id);
    requests_.erase(id);
    return being_stored_.contains(id);
  }

  void add_to(StateHash& hash) const override {
    OffloadingConnectorBase::add_to(hash);
    hash.add_all(requests_, being_loaded_, being_stored_, loads_);
  }

 private:
  struct RequestState {
    std::vector<BlockId> block_ids;       ///< as the steps reported them
    std::uint32_t next_stored_block = 0;  ///< the cursor, in offloaded blocks
  };

  bool is_being_loaded(OffloadKeyView key) const {
    return std::ranges::any_of(
        being_loaded_, [key](const auto& load) { return contains(views(load.second), key); });
  }

  // Source: vLLM v0.19.0 v1/.../offloading/scheduler.py _get_reqs_to_store
  void plan_store(const RequestData& data, const SchedulerOutput& output,
                  std::vector<TransferJob>& stores) {
    const std::string id(data.request.id);
    const auto known = requests_.find(id);
    KVFENCE_CHECK(known != requests_.end(), "a scheduled request got its blocks");
    RequestState& state = known->second;
    if (data.resumed) state.block_ids.clear();
    const std::vector<BlockId>& new_blocks = data.new_blocks[kGroup];
    state.block_ids.insert(state.block_ids.end(), new_blocks.begin(), new_blocks.end());

    const std::uint32_t start = state.next_stored_block;
    const std::uint32_t end =
        num_tokens_after_step(data.request, output) / offloaded_block_size(kGroup);
    if (end <= start) return;
    const std::vector<OffloadKey> keys = offload_keys(data.request, kGroup);
    KVFENCE_CHECK(keys.size() >= end, "what is computed has hashes");

    bool stored = false;
    PrepareStoreOutput prepared;
    must(manager_.prepare_store(views(key_range(keys, start, end)), {id}, stored, prepared),
         "hashes of a request differ");
    if (!stored) return;
    state.next_stored_block = end;
    if (prepared.keys_to_store.empty()) return;
    manager_.touch(views(key_range(keys, 0, end)), {id});

    const std::uint32_t factor = spec_.block_size_factor;
    KVFENCE_CHECK(state.block_ids.size() >= std::size_t{end} * factor,
                  "what is computed has blocks");
    TransferJob store;
    store.request = id;
    store.spec.is_store = true;
    for (std::uint32_t block = start; block < end; ++block) {
      if (!contains(prepared.keys_to_store, keys[block])) continue;
      const auto first = state.block_ids.begin() + std::ptrdiff_t{block} * factor;
      store.spec.gpu_blocks.insert(store.spec.gpu_blocks.end(), first, first + factor);
      being_stored_[id].push_back(keys[block]);
    }
    store.spec.group_sizes = {static_cast<std::uint32_t>(store.spec.gpu_blocks.size())};
    store.spec.slots = prepared.slots;
    stores.push_back(std::move(store));
  }

  void complete_stores(std::vector<OffloadKey>& keys) {
    if (!keys.empty()) manager_.complete_store(views(keys), /*request=*/{}, /*success=*/true);
    keys.clear();
  }

  // By request id.
  std::map<std::string, RequestState> requests_;  ///< from the first allocation to the finish
  std::map<std::string, std::vector<OffloadKey>> being_loaded_;
  /// Pending stores; a request that ever had one stays, with no key, until finished_sending.
  std::map<std::string, std::vector<OffloadKey>> being_stored_;

  std::vector<TransferJob> loads_;  ///< for the next metadata
};

}  // namespace

std::unique_ptr<OffloadingConnectorScheduler> make_holding_connector(const OffloadingSpec& spec) {
  return std::make_unique<HoldingOffloadingConnector>(spec);
}

}  // namespace kvfence::reference
