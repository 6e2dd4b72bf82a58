/// FencingConnectorScheduler: the scheduler's half of an offloading connector under
/// Rules::offload_fences_reuse. The rules are in
/// contract/connectors/offloading/offloading_connector.h under "fence".
///
/// A step is O(its requests + their new blocks + the jobs that it flushes). The block's id leads to
/// the jobs that watch a block, and to its places in the tables of windowed groups.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "contract/connectors/offloading/offloading_connector.h"
#include "contract/core/check.h"
#include "contract/core/cloned.h"
#include "contract/core/state_digest.h"
#include "contract/scheduler/scheduler.h"
#include "optimized/base/block_lists.h"
#include "optimized/base/ceil_div.h"
#include "optimized/base/open_table.h"
#include "optimized/base/request_list.h"
#include "optimized/base/slots.h"
#include "optimized/connectors/offloading/offloaded_blocks.h"
#include "optimized/connectors/offloading/offloading_connector.h"
#include "optimized/offload/offload_keys.h"

namespace kvfence::optimized {
namespace {

/// Offloaded blocks that a lookup needs at its end; 0: all.
std::uint32_t window_of(const KVCacheSpec& spec, std::uint32_t offloaded_block_size) {
  if (spec.kind == KVCacheSpecKind::kMamba) return 1;
  if (spec.kind != KVCacheSpecKind::kSlidingWindow) return 0;
  return ceil_div(spec.sliding_window, offloaded_block_size);
}

/// How many of the last GPU blocks of an offloaded block a load may want: Mamba's last state, and
/// where each token has a state, also that before the last token of a prompt.
std::uint32_t num_needed_of(const KVCacheSpec& spec, std::uint32_t block_size_factor) {
  if (spec.kind != KVCacheSpecKind::kMamba) return block_size_factor;
  return std::min(block_size_factor, spec.block_size == 1 ? 2U : 1U);
}

class FencingConnectorScheduler final
    : public Cloning<FencingConnectorScheduler, OffloadingConnectorScheduler> {
 public:
  /// Requires: check_spec(spec) finds nothing, and the rule offload_fences_reuse; tiers only if
  /// spec.has_tiers.
  explicit FencingConnectorScheduler(const OffloadingSpec& spec,
                                     std::vector<SecondaryTierHandle> tiers = {})
      : block_size_factor_(spec.block_size_factor),
        num_workers_(spec.num_workers),
        offload_prompt_only_(spec.offload_prompt_only),
        request_level_policy_(spec.request_level_policy),
        shares_blocks_(spec.manager.rules.multi_connector_shares_blocks),
        offloaded_(spec, std::move(tiers)),
        watches_(spec.kv_cache.pool.num_gpu_blocks),
        places_(spec.kv_cache.pool.num_gpu_blocks),
        empty_metadata_(std::make_shared<OffloadingConnectorMetadata>()) {
    const HashConfig& hash = spec.kv_cache.pool.hash;
    std::set<std::uint32_t> full_sizes;
    std::vector<GroupId> windowed;
    for (GroupId id = 0; id < spec.kv_cache.groups.size(); ++id) {
      const KVCacheSpec& kv_cache_spec = spec.kv_cache.groups[id];
      Group& group = groups_.emplace_back();
      group.block_size = kv_cache_spec.block_size;
      group.offloaded_block_size = group.block_size * block_size_factor_;
      group.window = window_of(kv_cache_spec, group.offloaded_block_size);
      group.num_needed = num_needed_of(kv_cache_spec, block_size_factor_);
      group.key_shape.hash_bytes = hash_bytes(hash.algorithm);
      group.key_shape.hashes_per_key = group.offloaded_block_size / hash.hash_block_size;
      group.key_shape.hash_of_key = group.key_shape.hashes_per_key - 1;
      group.key_shape.group = id;
      (group.is_windowed() ? windowed : lookup_order_).push_back(id);
      if (!group.is_windowed()) full_sizes.insert(group.offloaded_block_size);
    }
    num_full_groups_ = lookup_order_.size();
    std::ranges::stable_sort(windowed, [this](GroupId left, GroupId right) {
      return groups_[left].window > groups_[right].window;
    });
    lookup_order_.insert(lookup_order_.end(), windowed.begin(), windowed.end());
    if (full_sizes.size() != 1) return;
    for (GroupId id : windowed) {
      const std::uint32_t alignment = *full_sizes.begin() / groups_[id].offloaded_block_size;
      if (*full_sizes.begin() > groups_[id].offloaded_block_size &&
          groups_[id].window < alignment) {
        groups_[id].alignment = alignment;
      }
    }
  }

  void on_new_request(const ConnectorRequest& request) override {
    if (request.index >= slot_of_request_.size()) slot_of_request_.resize(request.index + 1, kNone);
    const std::uint32_t slot = tracked_.take();
    slot_of_request_[request.index] = slot;
    Tracked& tracked = tracked_[slot];
    tracked.tables.resize(groups_.size());
    tracked.id = request.id;
    tracked.num_local_tokens = 0;
    tracked.num_cached_tokens = 0;
    tracked.max_offload_tokens = request.params.max_offload_tokens;
    const OffloadPolicy policy = offloaded_.on_new_request({request.id});
    tracked.is_request_level = request_level_policy_ || policy == OffloadPolicy::kRequestLevel;
    tracked.is_finished = false;
    ++num_known_;
    ++num_unfinished_;
  }

  MatchedTokens get_num_new_matched_tokens(const ConnectorRequest& request,
                                           std::uint32_t num_local_tokens) override {
    const std::uint32_t slot = slot_of(request.index);
    KVFENCE_CHECK(slot != kNone, "a lookup for a request that was not added");
    Tracked& tracked = tracked_[slot];
    forget_block_ids(tracked);
    if (tracked.first_job != kNone) return {std::nullopt, false};
    update_keys(tracked, request.request);
    tracked.num_local_tokens = num_local_tokens;
    const auto num_tokens = static_cast<std::uint32_t>(request.request.all_token_ids().size());
    const std::optional<std::uint32_t> hit = lookup(tracked, num_tokens);
    tracked.num_cached_tokens = num_local_tokens + hit.value_or(0);
    touch(tracked);
    return {hit, hit.value_or(0) > 0};
  }

  void update_state_after_alloc(ConnectorHost& host, const ConnectorRequest& request,
                                const BlocksByGroup& blocks,
                                std::uint32_t num_external_tokens) override {
    if (num_external_tokens == 0 && !shares_blocks_) return;
    for (const std::vector<BlockId>& table : blocks) {
      for (BlockId block : table) note_allocated(block);
    }
    if (num_external_tokens == 0) return;
    const std::uint32_t slot = slot_of(request.index);
    KVFENCE_CHECK(slot != kNone, "a load for a request that was not added");
    Tracked& tracked = tracked_[slot];
    const std::uint32_t num_tokens = tracked.num_local_tokens + num_external_tokens;
    const std::uint32_t at = add_job(slot, /*is_store=*/false);
    Job& job = jobs_[at];
    TransferJob& load = metadata_.loads.emplace_back();
    load.job = job.id;
    load.request = request.id;
    std::size_t num_blocks_max = 0;
    for (const std::vector<BlockId>& table : blocks) num_blocks_max += table.size();
    load.spec.gpu_blocks.reserve(num_blocks_max);
    load.spec.group_sizes.reserve(groups_.size());
    load.spec.block_indices.reserve(groups_.size());
    for (GroupId id = 0; id < num_groups(); ++id) {
      const Group& group = groups_[id];
      const std::vector<BlockId>& table = blocks[id];
      const auto end = static_cast<std::uint32_t>(
          std::min<std::size_t>(ceil_div(num_tokens, group.block_size), table.size()));
      std::uint32_t begin = 0;
      while (begin < end && (table[begin] == kNullBlockId || host.is_cached(table[begin]))) ++begin;
      const std::uint32_t num_blocks = ceil_div(num_tokens, group.offloaded_block_size);
      load.spec.gpu_blocks.insert(load.spec.gpu_blocks.end(), table.begin() + begin,
                                  table.begin() + end);
      load.spec.group_sizes.push_back(end - begin);
      load.spec.block_indices.push_back(begin);
      if (begin < end) {
        const std::uint32_t num_keys = std::min(num_blocks, tracked.tables[id].keys.size());
        for (std::uint32_t index = begin / block_size_factor_; index < num_keys; ++index) {
          job.keys.push_back({id, index});
        }
      }
      if (!tracked.is_request_level) tracked.tables[id].cursor = num_blocks;
    }
    view_keys(job);
    load.spec.slots.reserve(views_.size());
    offloaded_.prepare_load(views_, load.spec.slots);
  }

  std::shared_ptr<const KVConnectorMetadata> build_connector_meta(
      ConnectorHost& host, const SchedulerOutput& output) override {
    update_requests(host, output);
    offloaded_.on_schedule_end();
    flush_jobs(output);
    for (const SchedulerOutput::Scheduled& scheduled : output.scheduled) {
      const std::uint32_t slot = slot_of(scheduled.request);
      if (slot == kNone) continue;
      const ConnectorRequest request = host.request(scheduled.request);
      plan_store(slot, request, num_storable_tokens(tracked_[slot], request, scheduled.num_tokens));
    }
    allocated_.clear();
    ++step_;
    if (metadata_.loads.empty() && metadata_.stores.empty() && metadata_.jobs_to_flush.empty()) {
      return empty_metadata_;
    }
    return std::make_shared<OffloadingConnectorMetadata>(std::exchange(metadata_, {}));
  }

  void update_connector_output(ConnectorHost&, const KVConnectorOutput& output) override {
    for (const CompletedJob& completed : output.completed_jobs) {
      const std::uint32_t at = jobs_.find(completed.job);
      if (at == kNone) continue;  // from before a reset
      Job& job = jobs_[at];
      job.has_failed = job.has_failed || completed.num_failed > 0;
      if (completed.num_workers < job.num_pending) {
        job.num_pending -= completed.num_workers;
        continue;
      }
      complete(job);
      end_job(at);
    }
  }

  bool request_finished(ConnectorHost&, const ConnectorRequest& request,
                        const BlocksByGroup&) override {
    const std::uint32_t slot = slot_of(request.index);
    if (slot == kNone) return false;
    offloaded_.on_request_finished({request.id});
    slot_of_request_[request.index] = kNone;
    Tracked& tracked = tracked_[slot];
    tracked.is_finished = true;
    --num_unfinished_;
    if (tracked.first_job == kNone) {
      forget(slot);
      return false;
    }
    for (std::uint32_t at = tracked.first_job; at != kNone; at = jobs_[at].next_of_request) {
      watch(at);
    }
    return false;
  }

  void take_events(std::vector<KVCacheEvent>& out) override {
    offloaded_.take_events(/*block_size=*/0, /*has_groups=*/true, out);
  }

  /// Cost: O(capacity + blocks + known requests + jobs).
  bool reset_cache() override {
    if (!offloaded_.reset_cache()) return false;
    while (!jobs_in_order_.empty()) {
      const std::uint32_t at = jobs_in_order_.front();
      metadata_.jobs_to_flush.push_back(jobs_[at].id);
      end_job(at);
    }
    watches_.clear();
    for (std::uint32_t slot = 0; slot < tracked_.size(); ++slot) set_cursors(tracked_[slot], 0);
    return true;
  }

  void policy_lists(PolicyLists& out) const override { offloaded_.cpu().policy().lists(out); }
  std::uint32_t num_free_slots() const override { return offloaded_.cpu().num_free_slots(); }
  TieringView* tiering() override { return offloaded_.tiering(); }

  void add_to(StateHash& hash) const override {
    hash.add_all(offloaded_, jobs_in_order_, next_job_id_, step_, allocated_, tracked_, jobs_);
    hash.add_kept(slot_of_request_, watches_, places_);  // stale entries drop out on allocation
    metadata_.add_to(hash);
  }

 private:
  static constexpr std::uint32_t kNone = OpenTable<JobId>::kNone;

  /// The constants of a group.
  struct Group {
    std::uint32_t block_size = 0;            ///< tokens of a GPU block
    std::uint32_t offloaded_block_size = 0;  ///< tokens
    std::uint32_t window = 0;                ///< offloaded blocks; 0: not windowed
    std::uint32_t alignment = 0;             ///< offloaded blocks a segment; 0: all are stored
    std::uint32_t num_needed = 0;            ///< GPU blocks, the last of an offloaded one
    OffloadKeyShape key_shape;

    bool is_windowed() const { return window > 0; }
  };

  /// A request in one group.
  struct Table {
    OffloadKeys keys;
    std::vector<BlockId> block_ids;  ///< 0: not there, or allocated again
    std::uint32_t cursor = 0;        ///< the next offloaded block to store
  };

  /// A known request, in a slot that another one reuses later.
  struct Tracked {
    std::string id;                       ///< for the tiers, also once another one has its index
    std::vector<Table> tables;            ///< by group
    std::uint32_t num_local_tokens = 0;   ///< of the last lookup
    std::uint32_t num_cached_tokens = 0;  ///< of the last lookup: local and found
    std::optional<std::uint32_t> max_offload_tokens;
    std::uint32_t first_job = kNone;
    bool is_request_level = false;  ///< a loaded prefix is stored again
    bool is_finished = false;
  };

  struct KeyRef {
    GroupId group = 0;
    std::uint32_t index = 0;
  };

  /// A job under way, in a list of its request.
  struct Job {
    JobId id = 0;
    std::uint32_t tracked = 0;
    std::uint32_t num_pending = 0;  ///< workers
    bool is_store = false;
    bool has_failed = false;
    std::uint64_t flushed_in = 0;  ///< the step
    std::uint32_t previous_of_request = kNone;
    std::uint32_t next_of_request = kNone;
    std::vector<KeyRef> keys;
    std::vector<BlockId> unwatched;  ///< blocks to watch once the request is finished
  };

  /// A place in a table of a windowed group.
  struct Place {
    std::uint32_t tracked = 0;
    GroupId group = 0;
    std::uint32_t index = 0;
  };

  std::uint32_t num_groups() const { return static_cast<std::uint32_t>(groups_.size()); }

  // ---- Known requests ----

  std::uint32_t slot_of(RequestIndex request) const {
    return request < slot_of_request_.size() ? slot_of_request_[request] : kNone;
  }

  /// Requires: finished, and without jobs.
  void forget(std::uint32_t slot) {
    Tracked& tracked = tracked_[slot];
    forget_block_ids(tracked);
    for (Table& table : tracked.tables) {
      table.keys.clear();
      table.cursor = 0;
    }
    tracked_.give_back(slot);
    --num_known_;
  }

  static void forget_block_ids(Tracked& tracked) {
    for (Table& table : tracked.tables) table.block_ids.clear();
  }

  void update_keys(Tracked& tracked, const Request& request) {
    for (GroupId group = 0; group < num_groups(); ++group) {
      tracked.tables[group].keys.update(request, groups_[group].key_shape);
    }
  }

  void set_cursors(Tracked& tracked, std::uint32_t num_tokens) {
    for (GroupId group = 0; group < num_groups(); ++group) {
      tracked.tables[group].cursor = num_tokens / groups_[group].offloaded_block_size;
    }
  }

  /// Whether the GPU has every part of an offloaded block that a load may want.
  bool is_whole(const Group& group, const Table& table, std::uint32_t index) const {
    const std::size_t end = std::size_t{index + 1} * block_size_factor_;
    for (std::size_t place = end - group.num_needed; place < end; ++place) {
      if (block_at(table, place) == kNullBlockId) return false;
    }
    return true;
  }

  static BlockId block_at(const Table& table, std::size_t index) {
    return index < table.block_ids.size() ? table.block_ids[index] : kNullBlockId;
  }

  // ---- Lookup ----

  struct Hit {
    std::uint32_t num_blocks = 0;
    bool is_deferred = false;
  };

  /// Tokens to load after the local ones; nothing: ask again.
  std::optional<std::uint32_t> lookup(const Tracked& tracked, std::uint32_t num_tokens) {
    const std::uint32_t num_local = tracked.num_local_tokens;
    const bool has_windowed = num_full_groups_ < groups_.size();
    std::uint32_t limit = has_windowed && num_tokens > 0 ? num_tokens - 1 : num_tokens;
    std::uint32_t total = 0;
    bool is_deferred = false;
    std::size_t first = 0;  // the first group, in the order of lookup, that the pass asks
    for (bool has_pass = true; has_pass;) {
      has_pass = false;
      std::size_t next_first = 0;
      bool met_windowed = false;
      for (std::size_t at = first; at < lookup_order_.size(); ++at) {
        const Group& group = groups_[lookup_order_[at]];
        const OffloadKeys& keys = tracked.tables[lookup_order_[at]].keys;
        const std::uint32_t size = group.offloaded_block_size;
        limit = std::min(limit, keys.size() * size);
        if (limit < num_local + size) return 0;
        const std::uint32_t begin = num_local / size;
        const std::uint32_t end = std::min(ceil_div(limit, size), keys.size());
        const Hit hit = group.is_windowed()
                            ? lookup_window(keys, begin, end, group.window, {tracked.id})
                            : lookup_prefix(keys, begin, end, {tracked.id});
        if (hit.is_deferred) {
          is_deferred = true;
        } else {
          if (hit.num_blocks == 0) return 0;
          limit = std::min(limit, size * (begin + hit.num_blocks));
        }
        if (limit < num_local + size) return 0;
        const std::uint32_t num_new = limit - num_local;
        if (num_new < total) {
          if (is_deferred) {
            is_deferred = false;
            has_pass = true;
            next_first = 0;
          } else if (met_windowed && !has_pass) {
            has_pass = true;
            next_first = num_full_groups_;
          }
        }
        met_windowed = met_windowed || group.is_windowed();
        total = num_new;
      }
      first = next_first;
    }
    if (is_deferred) return std::nullopt;
    if (is_hit_being_loaded(tracked, total)) return std::nullopt;
    return total;
  }

  Hit lookup_prefix(const OffloadKeys& keys, std::uint32_t begin, std::uint32_t end,
                    const RequestContext& context) {
    Hit hit;
    for (std::uint32_t index = begin; index < end; ++index) {
      const LookupResult result = offloaded_.lookup_key(keys[index], context);
      if (result == LookupResult::kMiss) break;
      hit.is_deferred = hit.is_deferred || result == LookupResult::kPending;
      ++hit.num_blocks;
    }
    return hit;
  }

  Hit lookup_window(const OffloadKeys& keys, std::uint32_t begin, std::uint32_t end,
                    std::uint32_t window, const RequestContext& context) {
    Hit hit;
    std::uint32_t run = 0;
    for (std::uint32_t index = end; index > begin; --index) {
      const LookupResult result = offloaded_.lookup_key(keys[index - 1], context);
      hit.is_deferred = hit.is_deferred || result == LookupResult::kPending;
      run = result == LookupResult::kHit ? run + 1 : 0;
      if (run < window) continue;
      hit.num_blocks = index - 1 - begin + window;
      return hit;
    }
    hit.num_blocks = run;
    return hit;
  }

  bool is_hit_being_loaded(const Tracked& tracked, std::uint32_t num_hit_tokens) {
    if (!offloaded_.is_any_loading()) return false;
    views_.clear();
    for (GroupId id = 0; id < num_groups(); ++id) {
      const Group& group = groups_[id];
      const OffloadKeys& keys = tracked.tables[id].keys;
      std::uint32_t begin = tracked.num_local_tokens / group.offloaded_block_size;
      const std::uint32_t end =
          std::min(ceil_div(tracked.num_local_tokens + num_hit_tokens, group.offloaded_block_size),
                   keys.size());
      if (group.is_windowed() && end > group.window) begin = std::max(begin, end - group.window);
      for (std::uint32_t index = begin; index < end; ++index) views_.push_back(keys[index]);
    }
    return offloaded_.is_any_loading(views_);
  }

  void touch(const Tracked& tracked) {
    for (GroupId id = 0; id < num_groups(); ++id) {
      const OffloadKeys& keys = tracked.tables[id].keys;
      const Group& group = groups_[id];
      std::uint32_t index = 0;
      if (group.is_windowed()) {
        const std::uint32_t num_hit_blocks = tracked.num_cached_tokens / group.offloaded_block_size;
        index = num_hit_blocks - std::min(num_hit_blocks, group.window);
      }
      touched_.clear();
      for (; index < keys.size(); ++index) touched_.push_back(keys[index]);
      offloaded_.touch(touched_, {tracked.id});
    }
  }

  // ---- Jobs ----

  std::uint32_t add_job(std::uint32_t slot, bool is_store) {
    const std::uint32_t at = jobs_.insert(next_job_id_);
    Job& job = jobs_[at];
    job.id = next_job_id_++;
    job.tracked = slot;
    job.num_pending = num_workers_;
    job.is_store = is_store;
    job.has_failed = false;
    job.flushed_in = 0;
    job.keys.clear();
    job.unwatched.clear();
    jobs_in_order_.push_back(at);
    std::uint32_t& first_of_request = tracked_[slot].first_job;
    job.previous_of_request = kNone;
    job.next_of_request = first_of_request;
    if (first_of_request != kNone) jobs_[first_of_request].previous_of_request = at;
    first_of_request = at;
    return at;
  }

  void remove_job(std::uint32_t at) {
    const Job& job = jobs_[at];
    jobs_in_order_.erase(at);
    std::uint32_t& first_of_request = tracked_[job.tracked].first_job;
    (job.previous_of_request == kNone ? first_of_request
                                      : jobs_[job.previous_of_request].next_of_request) =
        job.next_of_request;
    if (job.next_of_request != kNone) {
      jobs_[job.next_of_request].previous_of_request = job.previous_of_request;
    }
    jobs_.erase(job.id);
  }

  /// The job is over. So is a finished request with its last job.
  void end_job(std::uint32_t at) {
    const std::uint32_t slot = jobs_[at].tracked;
    remove_job(at);
    if (tracked_[slot].is_finished && tracked_[slot].first_job == kNone) forget(slot);
  }

  /// Fills views_.
  void view_keys(const Job& job) {
    views_.clear();
    for (const KeyRef& ref : job.keys) {
      views_.push_back(tracked_[job.tracked].tables[ref.group].keys[ref.index]);
    }
  }

  void complete(const Job& job) {
    view_keys(job);
    if (job.is_store) {
      offloaded_.complete_store(views_, {tracked_[job.tracked].id}, !job.has_failed);
    } else {
      offloaded_.complete_load(views_);
    }
  }

  /// The blocks of the job's request may be reused from now on.
  void watch(std::uint32_t at) {
    Job& job = jobs_[at];
    for (BlockId block : job.unwatched) watches_.push(block, job.id);
    job.unwatched.clear();
  }

  // ---- A step ----

  void note_allocated(BlockId block) {
    if (block != kNullBlockId) allocated_.push_back(block);
  }

  void note_new_blocks(const SchedulerOutput& output, std::uint32_t first_list) {
    if (first_list == SchedulerOutput::kNoLists) return;
    for (GroupId group = 0; group < num_groups(); ++group) {
      const std::span<const BlockId> blocks = output.block_lists[first_list + group];
      for (BlockId block : blocks) note_allocated(block);
    }
  }

  /// The ids of this step are in no table yet, so every place found is stale.
  void zero_stale_ids() {
    if (num_full_groups_ == groups_.size()) return;
    for (BlockId block : allocated_) {
      places_.filter(block, [this, block](const Place& place) {
        Table& table = tracked_[place.tracked].tables[place.group];
        if (block_at(table, place.index) == block) table.block_ids[place.index] = kNullBlockId;
        return false;
      });
    }
  }

  void append_block_ids(std::uint32_t slot, const SchedulerOutput& output,
                        std::uint32_t first_list) {
    if (first_list == SchedulerOutput::kNoLists) return;
    for (GroupId group = 0; group < num_groups(); ++group) {
      Table& table = tracked_[slot].tables[group];
      for (BlockId block : output.block_lists[first_list + group]) {
        const auto index = static_cast<std::uint32_t>(table.block_ids.size());
        table.block_ids.push_back(block);
        if (groups_[group].is_windowed() && block != kNullBlockId) {
          places_.push(block, {slot, group, index});
        }
      }
    }
  }

  void update_requests(ConnectorHost& host, const SchedulerOutput& output) {
    for (const SchedulerOutput::New& entry : output.scheduled_new_reqs) {
      note_new_blocks(output, entry.first_list);
    }
    for (const SchedulerOutput::Cached& entry : output.scheduled_cached_reqs) {
      const std::uint32_t slot = slot_of(entry.request);
      if (entry.resumed && slot != kNone) forget_block_ids(tracked_[slot]);
      note_new_blocks(output, entry.first_list);
    }
    zero_stale_ids();
    const auto update = [&](RequestIndex request, std::uint32_t first_list) {
      const std::uint32_t slot = slot_of(request);
      if (slot == kNone) return;
      update_keys(tracked_[slot], host.request(request).request);
      append_block_ids(slot, output, first_list);
    };
    for (const SchedulerOutput::New& entry : output.scheduled_new_reqs) {
      update(entry.request, entry.first_list);
    }
    for (const SchedulerOutput::Cached& entry : output.scheduled_cached_reqs) {
      update(entry.request, entry.first_list);
    }
  }

  void flush(std::uint32_t at) {
    if (std::exchange(jobs_[at].flushed_in, step_) == step_) return;
    metadata_.jobs_to_flush.push_back(jobs_[at].id);
  }

  void flush_jobs(const SchedulerOutput& output) {
    for (RequestIndex request : output.preempted) {
      const std::uint32_t slot = slot_of(request);
      if (slot == kNone) continue;
      for (std::uint32_t at = tracked_[slot].first_job; at != kNone;
           at = jobs_[at].next_of_request) {
        flush(at);
      }
    }
    for (BlockId block : allocated_) {
      watches_.filter(block, [this](JobId id) {
        const std::uint32_t at = jobs_.find(id);
        if (at == kNone) return false;
        flush(at);
        return true;
      });
    }
    if (num_known_ > 0 && num_unfinished_ == 0) {
      for (std::uint32_t at = jobs_in_order_.front(); at != kNoRequest;
           at = jobs_in_order_.next(at)) {
        flush(at);
      }
    }
    std::sort(metadata_.jobs_to_flush.begin(), metadata_.jobs_to_flush.end());
  }

  /// Tokens that are computed after the step and may be stored.
  std::uint32_t num_storable_tokens(const Tracked& tracked, const ConnectorRequest& request,
                                    std::uint32_t num_scheduled_tokens) const {
    const auto num_tokens = static_cast<std::uint32_t>(request.request.all_token_ids().size());
    std::uint32_t num_storable =
        std::min(request.num_computed_tokens + num_scheduled_tokens, num_tokens);
    if (tracked.max_offload_tokens) {
      num_storable = std::min(num_storable, *tracked.max_offload_tokens);
    }
    if (offload_prompt_only_) num_storable = std::min(num_storable, request.num_prompt_tokens);
    return num_storable;
  }

  void plan_store(std::uint32_t slot, const ConnectorRequest& request, std::uint32_t num_tokens) {
    gather_keys_to_store(tracked_[slot], num_tokens);
    if (!views_.empty()) {
      if (!offloaded_.prepare_store(views_, {request.id}, prepared_)) return;
      if (!prepared_.keys_to_store.empty()) add_store(slot, request);
    }
    set_cursors(tracked_[slot], num_tokens);
  }

  /// Fills views_ and refs_.
  void gather_keys_to_store(const Tracked& tracked, std::uint32_t num_tokens) {
    views_.clear();
    refs_.clear();
    for (GroupId id = 0; id < num_groups(); ++id) {
      const Group& group = groups_[id];
      const Table& table = tracked.tables[id];
      const std::uint32_t end =
          std::min(num_tokens / group.offloaded_block_size, table.keys.size());
      for (std::uint32_t index = table.cursor; index < end; ++index) {
        if (!is_whole(group, table, index)) continue;
        // A hit ends at a boundary of full attention, and only the window before it can be loaded.
        if (group.alignment > 0 && index % group.alignment < group.alignment - group.window) {
          continue;
        }
        views_.push_back(table.keys[index]);
        refs_.push_back({id, index});
      }
    }
  }

  /// Stores the prepared blocks of refs_.
  void add_store(std::uint32_t slot, const ConnectorRequest& request) {
    const Tracked& tracked = tracked_[slot];
    touch(tracked);
    const std::uint32_t at = add_job(slot, /*is_store=*/true);
    Job& job = jobs_[at];
    TransferJob& store = metadata_.stores.emplace_back();
    store.job = job.id;
    store.request = request.id;
    store.spec.is_store = true;
    store.spec.group_sizes.resize(groups_.size());
    store.spec.block_indices.resize(groups_.size());
    store.spec.slots = prepared_.slots;
    store.spec.gpu_blocks.reserve(prepared_.slots.size() * block_size_factor_);
    auto to_store = prepared_.keys_to_store.begin();
    for (std::size_t i = 0; i < refs_.size() && to_store != prepared_.keys_to_store.end(); ++i) {
      if (views_[i].data() != to_store->data()) continue;
      ++to_store;
      const KeyRef ref = refs_[i];
      const Table& table = tracked.tables[ref.group];
      job.keys.push_back(ref);
      for (std::uint32_t part = 0; part < block_size_factor_; ++part) {
        const std::uint32_t index = ref.index * block_size_factor_ + part;
        const BlockId block = block_at(table, index);
        if (block == kNullBlockId) continue;
        if (store.spec.group_sizes[ref.group]++ == 0) store.spec.block_indices[ref.group] = index;
        store.spec.gpu_blocks.push_back(block);
        if (groups_[ref.group].is_windowed()) {
          watches_.push(block, job.id);
        } else {
          job.unwatched.push_back(block);
        }
      }
    }
  }

  std::vector<Group> groups_;
  std::vector<GroupId> lookup_order_;
  std::size_t num_full_groups_ = 0;  ///< the first ones in the order of lookup
  std::uint32_t block_size_factor_;
  std::uint32_t num_workers_;
  bool offload_prompt_only_;
  bool request_level_policy_;
  bool shares_blocks_;
  OffloadedBlocks offloaded_;

  SlotPool<Tracked> tracked_;
  std::vector<std::uint32_t> slot_of_request_;  ///< by RequestIndex; kNone once it is finished
  std::uint32_t num_known_ = 0;
  std::uint32_t num_unfinished_ = 0;  ///< of them

  NumberedSlots<JobId, Job> jobs_;
  RequestList jobs_in_order_;  ///< their slots, in ascending order of the ids
  JobId next_job_id_ = 0;

  BlockLists<JobId> watches_;  ///< those of ended jobs drop out when the block is allocated
  BlockLists<Place> places_;   ///< the places of a block, also former ones, in windowed tables

  // Of the step under way.
  std::uint64_t step_ = 1;
  std::vector<BlockId> allocated_;
  OffloadingConnectorMetadata metadata_;
  std::shared_ptr<const OffloadingConnectorMetadata> empty_metadata_;

  // Storage of single calls, kept for the next one.
  std::vector<OffloadKeyView> views_;
  std::vector<OffloadKeyView> touched_;
  std::vector<KeyRef> refs_;
  PrepareStoreOutput prepared_;
};

}  // namespace

std::unique_ptr<OffloadingConnectorScheduler> make_fencing_connector_scheduler(
    const OffloadingSpec& spec, std::vector<SecondaryTierHandle> tiers) {
  return std::make_unique<FencingConnectorScheduler>(spec, std::move(tiers));
}

}  // namespace kvfence::optimized
