#include "reference/connectors/offloading/offloading_connector.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "contract/core/check.h"
#include "contract/core/lists.h"
#include "contract/core/state_digest.h"

namespace kvfence::reference {
namespace {

// The scheduler's half that frees blocks at once, and flushes the transfers that touch a block
// before the block is used again. The rules of each function are in
// contract/connectors/offloading/offloading_connector.h under "fence".
// Source: vLLM v0.23.0 distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py
// OffloadingConnectorScheduler.

std::uint32_t ceil_div(std::uint32_t a, std::uint32_t b) { return (a + b - 1) / b; }

class FencingOffloadingConnector final
    : public Cloning<FencingOffloadingConnector, OffloadingConnectorBase> {
 public:
  using Cloning::Cloning;

  // Source: vLLM v0.23.0 v1/.../offloading/scheduler.py on_new_request
  void on_new_request(const ConnectorRequest& request) override {
    RequestState state;
    state.max_offload_tokens = request.params.max_offload_tokens;
    const OffloadPolicy policy = manager_.on_new_request({request.id});
    state.request_level = spec_.request_level_policy || policy == OffloadPolicy::kRequestLevel;
    state.groups.resize(num_groups());
    const bool is_new = requests_.emplace(request.id, std::move(state)).second;
    KVFENCE_CHECK(is_new, "transfers of an earlier request of that id are under way");
  }

  // A request that was preempted in a step that is still in flight may come in again before its
  // stores are reported.
  // Source: vLLM v0.23.0 v1/.../offloading/scheduler.py get_num_new_matched_tokens; that jobs are
  // waited for: vllm#46014
  MatchedTokens get_num_new_matched_tokens(const ConnectorRequest& request,
                                           std::uint32_t num_local_tokens) override {
    RequestState& state = known(request.id);
    for (GroupState& group : state.groups) group.block_ids.clear();
    if (has_jobs(request.id)) return {.num_tokens = std::nullopt, .load_async = false};
    const std::optional<std::uint32_t> num_hit_tokens = lookup(request, num_local_tokens);
    state.num_local_tokens = num_local_tokens;
    state.num_cached_tokens = num_local_tokens + num_hit_tokens.value_or(0);
    touch(request, state);
    return {.num_tokens = num_hit_tokens, .load_async = num_hit_tokens.value_or(0) > 0};
  }

  // Source: vLLM v0.23.0 v1/.../offloading/scheduler.py update_state_after_alloc
  void update_state_after_alloc(ConnectorHost& host, const ConnectorRequest& request,
                                const BlocksByGroup& blocks,
                                std::uint32_t num_external_tokens) override {
    if (num_external_tokens > 0 || spec_.manager.rules.multi_connector_shares_blocks) {
      for (const std::vector<BlockId>& block_ids : blocks) {
        allocated_blocks_.insert(block_ids.begin(), block_ids.end());
      }
      allocated_blocks_.erase(kNullBlockId);
    }
    if (num_external_tokens == 0) return;
    RequestState& state = known(request.id);
    const std::uint32_t num_cached_tokens = state.num_local_tokens + num_external_tokens;

    Job job;
    job.request = request.id;
    job.num_pending_workers = spec_.num_workers;
    TransferJob load;
    load.request = request.id;
    for (std::size_t group = 0; group < num_groups(); ++group) {
      const std::vector<BlockId>& block_ids = blocks[group];
      const std::uint32_t num_blocks = ceil_div(num_cached_tokens, gpu_block_size(group));
      KVFENCE_CHECK(block_ids.size() >= num_blocks, "what is cached has blocks");
      const auto end = block_ids.begin() + num_blocks;
      const auto first = std::find_if(block_ids.begin(), end, [&host](BlockId block) {
        return block != kNullBlockId && !host.is_cached(block);
      });
      const auto num_local_blocks = static_cast<std::uint32_t>(first - block_ids.begin());
      KVFENCE_CHECK(state.num_local_tokens <= num_local_blocks * gpu_block_size(group),
                    "what is computed has blocks with a key");
      const std::uint32_t num_pending_blocks = num_blocks - num_local_blocks;
      if (const std::optional<std::uint32_t> window = window_in_blocks(group)) {
        KVFENCE_CHECK(num_pending_blocks <= *window * spec_.block_size_factor,
                      "a windowed group loads no more than its window");
      }

      const std::vector<OffloadKey> keys = offload_keys(request, group);
      const std::uint32_t num_keys = ceil_div(num_cached_tokens, offloaded_block_size(group));
      KVFENCE_CHECK(keys.size() >= num_keys, "what is loaded has hashes");
      if (num_pending_blocks > 0) {
        const auto to_load = key_range(keys, num_local_blocks / spec_.block_size_factor, num_keys);
        job.keys.insert(job.keys.end(), to_load.begin(), to_load.end());
      }
      load.spec.gpu_blocks.insert(load.spec.gpu_blocks.end(), first, end);
      load.spec.group_sizes.push_back(num_pending_blocks);
      load.spec.block_indices.push_back(num_local_blocks);
      if (!state.request_level) state.groups[group].next_stored_block = num_keys;
    }
    load.spec.slots = prepare_load(job.keys);

    KVFENCE_CHECK(!has_jobs(request.id), "a load is a request's only job");
    load.job = num_jobs_++;
    jobs_.emplace(load.job, std::move(job));
    loads_.push_back(std::move(load));
  }

  // Source: vLLM v0.23.0 v1/.../offloading/scheduler.py build_connector_meta
  std::shared_ptr<const KVConnectorMetadata> build_connector_meta(
      ConnectorHost& host, const SchedulerOutput& output) override {
    update_block_ids(host, output);
    manager_.on_schedule_end();
    add_jobs_to_flush(host, output);

    auto metadata = std::make_shared<OffloadingConnectorMetadata>();
    metadata->loads = std::exchange(loads_, {});
    for (const SchedulerOutput::Scheduled& scheduled : output.scheduled) {
      const ConnectorRequest request = host.request(scheduled.request);
      plan_store(request, num_offloadable_tokens(request, known(request.id), output),
                 metadata->stores);
    }
    metadata->jobs_to_flush.assign(jobs_to_flush_.begin(), jobs_to_flush_.end());
    jobs_to_flush_.clear();
    allocated_blocks_.clear();
    return metadata;
  }

  // Source: vLLM v0.23.0 v1/.../offloading/scheduler.py update_connector_output; failures: ours
  void update_connector_output(ConnectorHost& /*host*/, const KVConnectorOutput& output) override {
    for (const CompletedJob& completed : output.completed_jobs) {
      KVFENCE_CHECK(completed.num_workers > 0, "at least one worker reports a job");
      if (completed.job < first_job_since_reset_) continue;
      const auto found = jobs_.find(completed.job);
      KVFENCE_CHECK(found != jobs_.end(), "a job that is reported is under way");
      Job& job = found->second;
      KVFENCE_CHECK(completed.num_workers <= job.num_pending_workers,
                    "each worker reports it once");
      job.num_pending_workers -= completed.num_workers;
      if (completed.num_failed > 0) job.has_failed = true;
      if (job.num_pending_workers > 0) continue;

      if (job.is_store) {
        manager_.complete_store(views(job.keys), {job.request}, !job.has_failed);
      } else {
        must(manager_.complete_load(views(job.keys)), "what is being loaded stays held");
      }
      jobs_.erase(found);
    }
    forget_finished_requests();
  }

  // Source: vLLM v0.23.0 v1/.../offloading/scheduler.py request_finished
  bool request_finished(ConnectorHost& /*host*/, const ConnectorRequest& request,
                        const BlocksByGroup& /*blocks*/) override {
    manager_.on_request_finished({request.id});
    known(request.id).is_finished = true;
    forget_finished_requests();
    return false;
  }

  // Source: vLLM v0.23.0 v1/.../offloading/scheduler.py reset_cache; that requests forget their
  // jobs: the release after it; refused with tiers: vllm#44541
  bool reset_cache() override {
    if (manager_.tiering()) return false;
    KVFENCE_CHECK(loads_.empty() && allocated_blocks_.empty(), "no reset while a step is planned");
    for (const auto& [number, job] : jobs_) jobs_to_flush_.insert(number);
    manager_.reset_cache();
    for (auto& [id, state] : requests_) {
      for (GroupState& group : state.groups) group.next_stored_block = 0;
    }
    first_job_since_reset_ = num_jobs_;
    jobs_.clear();
    forget_finished_requests();
    return true;
  }

  void add_to(StateHash& hash) const override {
    OffloadingConnectorBase::add_to(hash);
    hash.add_all(requests_, num_jobs_, first_job_since_reset_, jobs_, loads_, jobs_to_flush_,
                 allocated_blocks_);
  }

 private:
  struct GroupState {
    std::vector<BlockId> block_ids;       ///< as the steps reported them; 0: not there any more
    std::uint32_t next_stored_block = 0;  ///< the cursor, in offloaded blocks
  };

  struct RequestState {
    std::optional<std::uint32_t> max_offload_tokens;
    bool request_level = false;           ///< what is loaded is stored again
    std::uint32_t num_local_tokens = 0;   ///< of the last lookup
    std::uint32_t num_cached_tokens = 0;  ///< of the last lookup: local and found
    bool is_finished = false;
    std::vector<GroupState> groups;
  };

  struct Job {
    std::string request;
    bool is_store = false;
    std::uint32_t num_pending_workers = 0;
    bool has_failed = false;
    std::vector<OffloadKey> keys;                ///< in the order of planning
    std::vector<BlockId> windowed_blocks;        ///< stores: sources in windowed groups
    std::vector<BlockId> full_attention_blocks;  ///< stores: sources in the other groups
  };

  // Groups.

  // Source: vLLM v0.23.0 v1/.../offloading/scheduler.py get_sliding_window_size_in_blocks
  std::optional<std::uint32_t> window_in_blocks(std::size_t group) const {
    const KVCacheSpec& spec = spec_.kv_cache.groups[group];
    if (spec.kind == KVCacheSpecKind::kMamba) return 1;
    if (spec.kind != KVCacheSpecKind::kSlidingWindow) return std::nullopt;
    return ceil_div(spec.sliding_window, offloaded_block_size(group));
  }

  // Offloaded blocks of a windowed group between two places where a hit of the full-attention
  // groups can end, if most of them are out of the window there.
  // Source: vLLM v0.23.0 v1/.../offloading/scheduler.py SchedulerOffloadConfig.from_spec
  std::optional<std::uint32_t> alignment_in_blocks(std::size_t group) const {
    std::set<std::uint32_t> full_attention_sizes;
    for (std::size_t other = 0; other < num_groups(); ++other) {
      if (!window_in_blocks(other)) full_attention_sizes.insert(offloaded_block_size(other));
    }
    const std::optional<std::uint32_t> window = window_in_blocks(group);
    if (!window || full_attention_sizes.size() != 1) return std::nullopt;
    const std::uint32_t alignment = *full_attention_sizes.begin();
    if (alignment <= offloaded_block_size(group)) return std::nullopt;
    const std::uint32_t num_blocks = alignment / offloaded_block_size(group);
    if (*window >= num_blocks) return std::nullopt;
    return num_blocks;
  }

  // Full attention first, then from the longest window to the shortest.
  // Source: vLLM v0.23.0 v1/.../offloading/scheduler.py OffloadingConnectorScheduler.__init__
  std::vector<std::size_t> lookup_groups() const {
    std::vector<std::size_t> groups(num_groups());
    std::iota(groups.begin(), groups.end(), std::size_t{0});
    std::ranges::stable_sort(groups, std::greater(), [this](std::size_t group) {
      return window_in_blocks(group).value_or(std::numeric_limits<std::uint32_t>::max());
    });
    return groups;
  }

  std::vector<std::size_t> windowed_groups() const {
    std::vector<std::size_t> groups = lookup_groups();
    std::erase_if(groups, [this](std::size_t group) { return !window_in_blocks(group); });
    return groups;
  }

  // Lookups. Each answers nothing for "ask again".

  // Keys after a pending one are asked for too: a manager may begin to fetch them.
  // Source: vLLM v0.23.0 v1/.../offloading/scheduler.py _maximal_prefix_lookup
  std::optional<std::uint32_t> maximal_prefix_lookup(std::span<const OffloadKey> keys,
                                                     const RequestContext& context) {
    std::uint32_t num_found = 0;
    bool is_deferred = false;
    for (const OffloadKey& key : keys) {
      const LookupResult result = manager_.lookup_key(key, context);
      if (result == LookupResult::kMiss) break;
      if (result == LookupResult::kPending) is_deferred = true;
      ++num_found;
    }
    if (is_deferred) return std::nullopt;
    return num_found;
  }

  // Source: vLLM v0.23.0 v1/.../offloading/scheduler.py _sliding_window_lookup
  std::optional<std::uint32_t> sliding_window_lookup(std::span<const OffloadKey> keys,
                                                     std::uint32_t window,
                                                     const RequestContext& context) {
    std::uint32_t num_in_a_row = 0;
    std::size_t first = keys.size();
    bool is_deferred = false;
    while (first > 0 && num_in_a_row < window) {
      --first;
      const LookupResult result = manager_.lookup_key(keys[first], context);
      if (result == LookupResult::kPending) is_deferred = true;
      num_in_a_row = result == LookupResult::kHit ? num_in_a_row + 1 : 0;
    }
    if (is_deferred) return std::nullopt;
    return static_cast<std::uint32_t>(first) + num_in_a_row;
  }

  // How many tokens after the computed ones can be loaded. Each group may shorten the length that
  // an earlier group accepted; windowed groups then look again.
  // Source: vLLM v0.23.0 v1/.../offloading/scheduler.py _lookup
  std::optional<std::uint32_t> lookup(const ConnectorRequest& request,
                                      std::uint32_t num_computed_tokens) {
    auto max_hit = static_cast<std::uint32_t>(request.request.all_token_ids().size());
    if (!windowed_groups().empty()) --max_hit;
    std::uint32_t num_hit = 0;
    bool is_deferred = false;
    std::vector<std::size_t> groups = lookup_groups();
    while (!groups.empty()) {
      std::vector<std::size_t> next_groups;
      bool windowed_came_before = false;
      for (const std::size_t group : groups) {
        const std::uint32_t block_size = offloaded_block_size(group);
        const std::vector<OffloadKey> keys = offload_keys(request, group);
        max_hit = std::min(max_hit, static_cast<std::uint32_t>(keys.size()) * block_size);
        if (max_hit < num_computed_tokens + block_size) return 0;

        const std::uint32_t start = num_computed_tokens / block_size;
        const std::span<const OffloadKey> asked =
            key_range(keys, start, ceil_div(max_hit, block_size));
        const std::optional<std::uint32_t> window = window_in_blocks(group);
        const std::optional<std::uint32_t> num_found =
            window ? sliding_window_lookup(asked, *window, {request.id})
                   : maximal_prefix_lookup(asked, {request.id});
        if (num_found == 0u) return 0;
        if (num_found) {
          max_hit = std::min(max_hit, block_size * (start + *num_found));
        } else {
          is_deferred = true;
        }
        if (max_hit < num_computed_tokens + block_size) return 0;

        const std::uint32_t new_num_hit = max_hit - num_computed_tokens;
        if (new_num_hit < num_hit) {
          if (is_deferred) {
            is_deferred = false;
            next_groups = lookup_groups();
          } else if (windowed_came_before && next_groups.empty()) {
            next_groups = windowed_groups();
          }
        }
        if (window) windowed_came_before = true;
        num_hit = new_num_hit;
      }
      groups = std::move(next_groups);
    }
    if (is_deferred) return std::nullopt;

    for (std::size_t group = 0; group < num_groups(); ++group) {
      const std::uint32_t block_size = offloaded_block_size(group);
      const std::vector<OffloadKey> keys = offload_keys(request, group);
      std::span<const OffloadKey> found =
          key_range(keys, num_computed_tokens / block_size,
                    ceil_div(num_computed_tokens + num_hit, block_size));
      const std::optional<std::uint32_t> window = window_in_blocks(group);
      if (window && found.size() > *window) found = found.last(*window);
      const bool must_wait = spec_.kv_cache.pool.enable_caching &&
                             std::any_of(found.begin(), found.end(), [this](const OffloadKey& key) {
                               return is_being_loaded(key);
                             });
      if (must_wait) return std::nullopt;
    }
    return num_hit;
  }

  bool is_being_loaded(OffloadKeyView key) const {
    return std::any_of(jobs_.begin(), jobs_.end(), [key](const auto& entry) {
      return !entry.second.is_store && contains(views(entry.second.keys), key);
    });
  }

  // In a windowed group, touches only what a hit of this request, or what it adds, would need.
  // Source: vLLM v0.23.0 v1/.../offloading/scheduler.py _touch
  void touch(const ConnectorRequest& request, const RequestState& state) {
    for (std::size_t group = 0; group < num_groups(); ++group) {
      const std::vector<OffloadKey> keys = offload_keys(request, group);
      std::uint32_t first = 0;
      if (const std::optional<std::uint32_t> window = window_in_blocks(group)) {
        const std::uint32_t num_hit_blocks = state.num_cached_tokens / offloaded_block_size(group);
        first = num_hit_blocks - std::min(num_hit_blocks, *window);
      }
      manager_.touch(views(key_range(keys, first, keys.size())), {request.id});
    }
  }

  // Requests and jobs.

  RequestState& known(std::string_view id) {
    const auto found = requests_.find(id);
    KVFENCE_CHECK(found != requests_.end(), "the connector knows the request");
    return found->second;
  }

  bool has_jobs(std::string_view id) const {
    return std::any_of(jobs_.begin(), jobs_.end(),
                       [id](const auto& entry) { return entry.second.request == id; });
  }

  bool is_loading(std::string_view id) const {
    return std::any_of(jobs_.begin(), jobs_.end(), [id](const auto& entry) {
      return entry.second.request == id && !entry.second.is_store;
    });
  }

  // A running request's blocks of full attention stay its own. Those of a window may leave it.
  // Source: vLLM v0.23.0 v1/.../offloading/scheduler.py _block_id_to_pending_jobs
  bool watches_allocated_block(const Job& job) const {
    const auto is_allocated = [this](BlockId block) { return allocated_blocks_.contains(block); };
    const auto any_allocated = [&](const std::vector<BlockId>& blocks) {
      return std::any_of(blocks.begin(), blocks.end(), is_allocated);
    };
    const auto request = requests_.find(job.request);
    KVFENCE_CHECK(request != requests_.end(), "a request with jobs is known");
    return any_allocated(job.windowed_blocks) ||
           (request->second.is_finished && any_allocated(job.full_attention_blocks));
  }

  void forget_finished_requests() {
    std::erase_if(requests_, [this](const auto& entry) {
      return entry.second.is_finished && !has_jobs(entry.first);
    });
  }

  // build_connector_meta

  // A block that left a window and was given out in this step has other contents from now on: it is
  // no longer stored for its earlier request.
  // Source: vLLM v0.23.0 v1/.../offloading/scheduler.py _update_req_states; places before the
  // cursor: ours
  void update_block_ids(const ConnectorHost& host, const SchedulerOutput& output) {
    std::map<std::string, std::vector<std::size_t>, std::less<>> num_old_blocks;  // by id and group
    for (const RequestData& data : request_data(host, output, num_groups())) {
      RequestState& state = known(data.request.id);
      std::vector<std::size_t>& num_old = num_old_blocks[std::string(data.request.id)];
      for (std::size_t group = 0; group < num_groups(); ++group) {
        std::vector<BlockId>& block_ids = state.groups[group].block_ids;
        if (data.resumed) block_ids.clear();
        num_old.push_back(block_ids.size());
        for (const BlockId block : data.new_blocks[group]) {
          block_ids.push_back(block);
          if (block != kNullBlockId) allocated_blocks_.insert(block);
        }
      }
    }

    for (auto& [id, state] : requests_) {
      const auto scheduled = num_old_blocks.find(id);
      for (const std::size_t group : windowed_groups()) {
        GroupState& group_state = state.groups[group];
        const std::size_t end = scheduled != num_old_blocks.end() ? scheduled->second[group]
                                                                  : group_state.block_ids.size();
        for (std::size_t place = 0; place < end; ++place) {
          BlockId& block = group_state.block_ids[place];
          if (allocated_blocks_.contains(block)) block = kNullBlockId;
        }
      }
    }
  }

  // Without unfinished requests there may be no further step that sees the transfers end.
  // Source: vLLM v0.23.0 v1/.../offloading/scheduler.py build_connector_meta
  void add_jobs_to_flush(const ConnectorHost& host, const SchedulerOutput& output) {
    for (const RequestIndex preempted : output.preempted) {
      const ConnectorRequest request = host.request(preempted);
      KVFENCE_CHECK(!is_loading(request.id), "a running request has no load under way");
      for (const auto& [number, job] : jobs_) {
        if (job.request == request.id) jobs_to_flush_.insert(number);
      }
    }
    const bool all_are_finished =
        !requests_.empty() &&
        std::ranges::all_of(requests_, [](const auto& entry) { return entry.second.is_finished; });
    for (const auto& [number, job] : jobs_) {
      if (all_are_finished || watches_allocated_block(job)) jobs_to_flush_.insert(number);
    }
  }

  // Source: vLLM v0.23.0 v1/.../offloading/scheduler.py _build_store_jobs
  std::uint32_t num_offloadable_tokens(const ConnectorRequest& request, const RequestState& state,
                                       const SchedulerOutput& output) const {
    std::uint32_t num_tokens = num_tokens_after_step(request, output);
    if (state.max_offload_tokens) num_tokens = std::min(num_tokens, *state.max_offload_tokens);
    if (spec_.offload_prompt_only) num_tokens = std::min(num_tokens, request.num_prompt_tokens);
    return num_tokens;
  }

  // Whether the GPU has all of an offloaded block that a load may want. With Mamba that is the state
  // after the block, and the one a token earlier: a prompt that ends there recomputes its last
  // token.
  // Source: vLLM v0.23.0 v1/.../offloading/scheduler.py _build_store_jobs, for Mamba; ours
  bool is_whole(std::size_t group, std::span<const BlockId> gpu_blocks) const {
    const KVCacheSpec& group_spec = spec_.kv_cache.groups[group];
    if (group_spec.kind == KVCacheSpecKind::kMamba) {
      const std::size_t num_states = group_spec.block_size == 1 ? 2 : 1;
      if (gpu_blocks.size() > num_states) gpu_blocks = gpu_blocks.last(num_states);
    }
    return !contains(gpu_blocks, kNullBlockId);
  }

  // Not offered: blocks that left the window, and those that no hit can need because hits end where
  // an offloaded block of full attention does.
  // Source: vLLM v0.23.0 v1/.../offloading/scheduler.py _build_store_jobs
  std::vector<OffloadKey> keys_to_offer(const ConnectorRequest& request, const RequestState& state,
                                        std::uint32_t num_tokens) const {
    const std::uint32_t factor = spec_.block_size_factor;
    std::vector<OffloadKey> offered;
    for (std::size_t group = 0; group < num_groups(); ++group) {
      const GroupState& group_state = state.groups[group];
      const std::vector<OffloadKey> keys = offload_keys(request, group);
      const std::uint32_t end = num_tokens / offloaded_block_size(group);
      if (end <= group_state.next_stored_block) continue;
      KVFENCE_CHECK(keys.size() >= end, "what is computed has hashes");
      KVFENCE_CHECK(group_state.block_ids.size() >= std::size_t{end} * factor,
                    "what is computed has blocks");
      const std::optional<std::uint32_t> alignment = alignment_in_blocks(group);
      for (std::uint32_t block = group_state.next_stored_block; block < end; ++block) {
        const auto gpu_blocks = std::span(group_state.block_ids).subspan(block * factor, factor);
        if (!is_whole(group, gpu_blocks)) continue;
        if (alignment && block % *alignment < *alignment - *window_in_blocks(group)) continue;
        offered.push_back(keys[block]);
      }
    }
    return offered;
  }

  // Source: vLLM v0.23.0 v1/.../offloading/scheduler.py _build_store_jobs
  void plan_store(const ConnectorRequest& request, std::uint32_t num_tokens,
                  std::vector<TransferJob>& stores) {
    RequestState& state = known(request.id);
    const std::vector<OffloadKey> offered = keys_to_offer(request, state, num_tokens);
    bool stored = true;
    PrepareStoreOutput prepared;
    if (!offered.empty()) {
      must(manager_.prepare_store(views(offered), {request.id}, stored, prepared),
           "hashes of a request differ, and keys have the group");
    }
    if (!stored) return;
    if (prepared.keys_to_store.empty()) {
      set_cursors(state, num_tokens);
      return;
    }
    touch(request, state);

    Job job;
    job.request = request.id;
    job.is_store = true;
    job.num_pending_workers = spec_.num_workers;
    job.keys.assign(prepared.keys_to_store.begin(), prepared.keys_to_store.end());
    TransferJob store;
    store.request = request.id;
    store.spec.is_store = true;
    store.spec.slots = prepared.slots;
    for (std::size_t group = 0; group < num_groups(); ++group) {
      const GroupState& group_state = state.groups[group];
      const std::vector<OffloadKey> keys = offload_keys(request, group);
      std::vector<BlockId>& watched =
          window_in_blocks(group) ? job.windowed_blocks : job.full_attention_blocks;
      std::uint32_t num_blocks = 0;
      std::uint32_t first_place = 0;
      const std::uint32_t end = num_tokens / offloaded_block_size(group);
      for (std::uint32_t block = group_state.next_stored_block; block < end; ++block) {
        if (!contains(prepared.keys_to_store, keys[block])) continue;
        const std::uint32_t place = block * spec_.block_size_factor;
        for (std::uint32_t i = place; i < place + spec_.block_size_factor; ++i) {
          const BlockId gpu_block = group_state.block_ids[i];
          if (gpu_block == kNullBlockId) continue;
          if (num_blocks == 0) first_place = i;
          ++num_blocks;
          store.spec.gpu_blocks.push_back(gpu_block);
          watched.push_back(gpu_block);
        }
      }
      store.spec.group_sizes.push_back(num_blocks);
      store.spec.block_indices.push_back(first_place);
    }
    set_cursors(state, num_tokens);

    KVFENCE_CHECK(!is_loading(request.id), "nothing is stored for a request that loads");
    store.job = num_jobs_++;
    jobs_.emplace(store.job, std::move(job));
    stores.push_back(std::move(store));
  }

  // Source: vLLM v0.23.0 v1/.../offloading/scheduler.py advance_stored_idx
  void set_cursors(RequestState& state, std::uint32_t num_tokens) const {
    for (std::size_t group = 0; group < num_groups(); ++group) {
      state.groups[group].next_stored_block = num_tokens / offloaded_block_size(group);
    }
  }

  std::map<std::string, RequestState, std::less<>> requests_;  ///< by id; finished ones with jobs
  JobId num_jobs_ = 0;                                         ///< numbered so far
  JobId first_job_since_reset_ = 0;
  std::map<JobId, Job> jobs_;  ///< under way

  // Since the last metadata.
  std::vector<TransferJob> loads_;
  std::set<JobId> jobs_to_flush_;
  std::set<BlockId> allocated_blocks_;
};

}  // namespace

std::unique_ptr<OffloadingConnectorScheduler> make_fencing_connector(
    const OffloadingSpec& spec, std::vector<SecondaryTierHandle> tiers) {
  return std::make_unique<FencingOffloadingConnector>(spec, std::move(tiers));
}

}  // namespace kvfence::reference
