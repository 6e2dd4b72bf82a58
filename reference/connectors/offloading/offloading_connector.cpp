#include "reference/connectors/offloading/offloading_connector.h"

#include <algorithm>
#include <utility>

#include "contract/core/check.h"

namespace kvfence::reference {
namespace {

// Source: vLLM v0.19.0 v1/kv_offload/mediums.py CPULoadStoreSpec.medium
constexpr const char* kMedium = "CPU";

BlocksByGroup blocks_at(const SchedulerOutput& output, std::uint32_t first_list,
                        std::size_t num_groups) {
  BlocksByGroup blocks(num_groups);
  if (first_list == SchedulerOutput::kNoLists) return blocks;
  for (std::size_t group = 0; group < num_groups; ++group) {
    const std::span<const BlockId> list = output.block_lists[first_list + group];
    blocks[group].assign(list.begin(), list.end());
  }
  return blocks;
}

}  // namespace

std::span<const OffloadKey> key_range(std::span<const OffloadKey> keys, std::size_t begin,
                                      std::size_t end) {
  end = std::min(end, keys.size());
  begin = std::min(begin, end);
  return keys.subspan(begin, end - begin);
}

std::vector<OffloadKeyView> views(std::span<const OffloadKey> keys) {
  return {keys.begin(), keys.end()};
}

std::vector<RequestData> request_data(const ConnectorHost& host, const SchedulerOutput& output,
                                      std::size_t num_groups) {
  std::vector<RequestData> all;
  for (const SchedulerOutput::New& entry : output.scheduled_new_reqs) {
    all.push_back({host.request(entry.request), /*resumed=*/false,
                   blocks_at(output, entry.first_list, num_groups)});
  }
  for (const SchedulerOutput::Cached& entry : output.scheduled_cached_reqs) {
    all.push_back({host.request(entry.request), entry.resumed,
                   blocks_at(output, entry.first_list, num_groups)});
  }
  return all;
}

// Source: vLLM v0.19.0 v1/.../offloading/scheduler.py _get_reqs_to_store
std::uint32_t num_tokens_after_step(const ConnectorRequest& request,
                                    const SchedulerOutput& output) {
  const auto entry =
      std::ranges::find(output.scheduled, request.index, &SchedulerOutput::Scheduled::request);
  KVFENCE_CHECK(entry != output.scheduled.end(), "a scheduled request has tokens");
  const auto num_tokens = static_cast<std::uint32_t>(request.request.all_token_ids().size());
  return std::min(request.num_computed_tokens + entry->num_tokens, num_tokens);
}

OffloadingConnectorBase::OffloadingConnectorBase(const OffloadingSpec& spec,
                                                 std::vector<SecondaryTierHandle> tiers)
    : spec_(spec), manager_(spec, std::move(tiers)) {
  KVFENCE_CHECK(!check_spec(spec), "no connector can be built from this spec");
}

std::uint32_t OffloadingConnectorBase::gpu_block_size(std::size_t group) const {
  return spec_.kv_cache.groups[group].block_size;
}

std::uint32_t OffloadingConnectorBase::offloaded_block_size(std::size_t group) const {
  return gpu_block_size(group) * spec_.block_size_factor;
}

// Source: vLLM v0.19.0 v1/.../offloading/scheduler.py _get_block_hashes; v0.23.0
// update_offload_keys, v1/kv_offload/base.py make_offload_key
std::vector<OffloadKey> OffloadingConnectorBase::offload_keys(const ConnectorRequest& request,
                                                              std::size_t group) const {
  const std::uint32_t hash_block_size = spec_.kv_cache.pool.hash.hash_block_size;
  const std::uint32_t factor = offloaded_block_size(group) / hash_block_size;
  const BlockHashListView hashes = request.request.block_hashes(hash_block_size);
  std::vector<OffloadKey> keys;
  for (std::size_t last = factor - 1; last < hashes.size(); last += factor) {
    keys.push_back(spec_.manager.rules.offload_fences_reuse
                       ? make_block_hash_with_group_id(hashes[last], static_cast<GroupId>(group))
                       : OffloadKey(hashes[last]));
  }
  return keys;
}

std::vector<SlotId> OffloadingConnectorBase::prepare_load(std::span<const OffloadKey> keys) {
  std::vector<SlotId> slots;
  must(manager_.prepare_load(views(keys), slots), "what a lookup found is held and ready");
  return slots;
}

// Source: vLLM v0.19.0 and v0.23.0 v1/.../offloading/scheduler.py take_events
void OffloadingConnectorBase::take_events(std::vector<KVCacheEvent>& out) {
  const bool fences = spec_.manager.rules.offload_fences_reuse;
  std::vector<OffloadingEvent> events;
  manager_.take_events(events);
  for (const OffloadingEvent& event : events) {
    std::vector<BlockHash> hashes;
    for (const OffloadKey& key : event.keys) {
      hashes.emplace_back(fences ? get_block_hash(key) : BlockHashView(key));
    }
    if (event.removed) {
      for (const BlockHash& hash : hashes) {
        BlockRemoved removed;
        removed.block_hash = hash;
        removed.medium = kMedium;
        out.emplace_back(std::move(removed));
      }
    } else {
      BlockStored stored;
      stored.block_hashes = std::move(hashes);
      stored.block_size = fences ? 0 : offloaded_block_size(0);
      stored.medium = kMedium;
      out.emplace_back(std::move(stored));
    }
  }
}

void OffloadingConnectorBase::policy_lists(PolicyLists& out) const {
  manager_.cpu().policy().lists(out);
}

std::uint32_t OffloadingConnectorBase::num_free_slots() const {
  return manager_.cpu().num_free_slots();
}

std::unique_ptr<OffloadingConnectorScheduler> make_offloading_connector_scheduler(
    const OffloadingSpec& spec, std::vector<SecondaryTierHandle> tiers) {
  if (spec.manager.rules.offload_fences_reuse) {
    return make_fencing_connector(spec, std::move(tiers));
  }
  return make_holding_connector(spec);
}

}  // namespace kvfence::reference
