// Goal: once it has seen its longest calls, a connector allocates only metadata that are not empty.
// Method: this program counts every call of operator new. Request ids fit into the string itself,
// and nothing is evicted, since the manager would report evicted keys in strings. Above tiers,
// promotions that fail and stores that fail leave room instead.

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/scheduler/scheduler.h"
#include "optimized/base/brisk_engine_test_support.h"
#include "optimized/base/counted_allocations.h"
#include "optimized/connectors/kv_output_aggregator.h"
#include "optimized/connectors/offloading/offloading_connector.h"

namespace kvfence::optimized {
namespace {

constexpr std::uint32_t kBlockSize = 4;
constexpr std::uint32_t kNumTokens = 20;
constexpr RequestIndex kNumRequests = 4;

/// The kind of the scheduler's half, and whether it has tiers.
enum class Form : std::uint8_t { kHold, kFence, kFenceWithTiers };

/// Wants whole requests, reports a hit for every block when the test says so, ends each job at the
/// second poll after its submission, and fails every promotion.
class PoorTier final : public Cloning<PoorTier, SecondaryTier> {
 public:
  explicit PoorTier(std::shared_ptr<const bool> says_hit) : says_hit_(std::move(says_hit)) {}

  LookupResult lookup(OffloadKeyView, const RequestContext&) override {
    return *says_hit_ ? LookupResult::kHit : LookupResult::kMiss;
  }
  void submit_store(const TierJob& job) override { submit({job.job_id, true}); }
  void submit_load(const TierJob& job) override { submit({job.job_id, false}); }
  void get_finished_jobs(std::vector<JobResult>& out) override {
    out.insert(out.end(), old_.begin(), old_.begin() + num_old_);
    old_ = young_;
    num_old_ = std::exchange(num_young_, 0);
  }
  OffloadPolicy on_new_request(const RequestContext&) override {
    return OffloadPolicy::kRequestLevel;
  }

 private:
  void submit(JobResult result) { young_.at(static_cast<std::size_t>(num_young_++)) = result; }

  std::shared_ptr<const bool> says_hit_;
  std::array<JobResult, 64> young_{};
  std::array<JobResult, 64> old_{};
  std::ptrdiff_t num_young_ = 0;
  std::ptrdiff_t num_old_ = 0;
};

OffloadingSpec spec_of(Form form) {
  const Profile profile = form == Form::kHold ? Profile::kV019 : Profile::kV023;
  OffloadingSpec spec;
  spec.kv_cache.pool.num_gpu_blocks = 64;
  spec.kv_cache.pool.hash.hash_block_size = kBlockSize;
  spec.kv_cache.groups = {{.block_size = kBlockSize}};
  if (profile == Profile::kV023) {
    spec.kv_cache.groups.push_back(
        {.kind = KVCacheSpecKind::kSlidingWindow, .block_size = kBlockSize, .sliding_window = 8});
  }
  spec.manager.cache.capacity = 64;
  spec.manager.rules = rules_of(profile);
  spec.has_tiers = form == Form::kFenceWithTiers;
  return spec;
}

/// The number of allocations, by kind of call.
struct Cost {
  std::size_t of_metadata = 0;  ///< of steps with metadata
  std::size_t of_decoding = 0;  ///< of steps with empty metadata
  std::size_t of_the_rest = 0;  ///< of the scheduler's half
  std::size_t of_workers = 0;   ///< and of the aggregator
};

/// Repeats the life of the same requests, with all calls that concern them.
class World final : private ConnectorHost {
 public:
  explicit World(Form form)
      : connector_(make_offloading_connector_scheduler(spec_of(form), make_tiers(form))),
        worker_(make_offloading_connector_worker(spec_of(form))),
        aggregator_(1),
        blocks_(spec_of(form).kv_cache.groups.size()) {
    for (RequestIndex index = 0; index < kNumRequests; ++index) {
      RequestSpec spec;
      for (TokenId token = 0; token < kNumTokens; ++token) {
        spec.tokens.push_back(100 * index + token);
      }
      requests_.emplace_back(spec, spec_of(form).kv_cache.pool.hash);
    }
    for (std::vector<BlockId>& ids : blocks_) ids.reserve(kNumTokens / kBlockSize);
  }

  /// Each request comes, is loaded if it was stored before, is computed, stored, decodes and goes.
  /// Above tiers, the stores of every second one fail, and a tier tries to promote its blocks.
  Cost life() {
    Cost cost;
    for (RequestIndex index = 0; index < kNumRequests; ++index) {
      set_blocks(index);
      num_computed_ = 0;
      stores_fail_ = connector_->tiering() && index % 2 == 1;
      MatchedTokens hit;
      add([&] { connector_->on_new_request(request(index)); }, cost.of_the_rest);
      *says_hit_ = true;
      add([&] { hit = connector_->get_num_new_matched_tokens(request(index), 0); },
          cost.of_the_rest);
      *says_hit_ = false;
      if (connector_->tiering()) num_promotions_ += connector_->tiering()->num_pending();
      while (!hit.num_tokens) {
        run_step(cost, /*has_metadata=*/false);
        add([&] { hit = connector_->get_num_new_matched_tokens(request(index), 0); },
            cost.of_the_rest);
      }
      const std::uint32_t num_external = *hit.num_tokens;
      num_loaded_ += num_external;
      add(
          [&] {
            connector_->update_state_after_alloc(*this, request(index), blocks_, num_external);
          },
          num_external > 0 ? cost.of_metadata : cost.of_the_rest);
      num_computed_ = num_external;
      plan_new(index);
      run_step(cost, /*has_metadata=*/true);
      num_computed_ = kNumTokens;
      for (int i = 0; i < 3; ++i) {
        output_.scheduled.push_back({index, 1, 0, true});
        output_.scheduled_cached_reqs.emplace_back().request = index;
        run_step(cost, /*has_metadata=*/false);
      }
      is_finished_ = connector_->request_finished(*this, request(index), blocks_);
      run_step(cost, /*has_metadata=*/false);
      is_finished_ = false;
    }
    return cost;
  }

  std::uint64_t num_loaded() const { return num_loaded_; }
  std::uint64_t num_promotions() const { return num_promotions_; }

 private:
  std::vector<SecondaryTierHandle> make_tiers(Form form) const {
    std::vector<SecondaryTierHandle> tiers;
    if (form != Form::kFenceWithTiers) return tiers;
    for (int place = 0; place < 2; ++place)
      tiers.emplace_back(std::make_unique<PoorTier>(says_hit_));
    return tiers;
  }

  template <class Operation>
  static void add(Operation operation, std::size_t& cost) {
    const std::size_t before = num_allocations();
    operation();
    cost += num_allocations() - before;
  }

  void set_blocks(RequestIndex index) {
    for (std::vector<BlockId>& ids : blocks_) {
      ids.clear();
      for (BlockId i = 0; i < kNumTokens / kBlockSize; ++i) ids.push_back(1 + index + i);
    }
  }

  void plan_new(RequestIndex index) {
    output_.scheduled.push_back({index, kNumTokens - num_computed_, 0, true});
    output_.scheduled_new_reqs.push_back({index, num_computed_, 0});
    for (const std::vector<BlockId>& ids : blocks_) {
      output_.block_lists.append(ids);
      output_.block_lists.end_list();
    }
  }

  void run_step(Cost& cost, bool has_metadata) {
    add([&] { metadata_ = connector_->build_connector_meta(*this, output_); },
        has_metadata ? cost.of_metadata : cost.of_decoding);
    output_.scheduled.clear();
    output_.scheduled_new_reqs.clear();
    output_.scheduled_cached_reqs.clear();
    output_.block_lists.clear();
    add(
        [&] {
          worker_->register_kv_caches(engine_);
          worker_->handle_preemptions(*metadata_);
          worker_->bind_connector_metadata(*metadata_);
          worker_->start_load_kv();
          worker_->wait_for_save();
          worker_->get_finished(std::span(&id_, is_finished_ ? 1 : 0), report_);
          aggregator_.aggregate(std::span(&report_, 1), aggregated_);
        },
        cost.of_workers);
    update_.completed_jobs = aggregated_.completed_jobs;
    for (CompletedJob& job : update_.completed_jobs) job.num_failed = stores_fail_ ? 1 : 0;
    update_.finished_sending.assign(aggregated_.finished_sending.size(), current_);
    update_.finished_recving.assign(aggregated_.finished_recving.size(), current_);
    add([&] { connector_->update_connector_output(*this, update_); }, cost.of_the_rest);
  }

  ConnectorRequest request(RequestIndex index) const override {
    current_ = index;
    return {index, id_, requests_[index], kNumTokens, num_computed_, params_};
  }
  bool is_cached(BlockId) const override { return false; }

  std::shared_ptr<bool> says_hit_ = std::make_shared<bool>(false);  ///< the tiers
  std::unique_ptr<OffloadingConnectorScheduler> connector_;
  std::unique_ptr<KVConnectorWorker> worker_;
  KVOutputAggregator aggregator_;
  BriskEngine engine_;
  std::vector<Request> requests_;
  BlocksByGroup blocks_;
  std::string id_ = "A";
  KVTransferParams params_;
  std::uint32_t num_computed_ = 0;
  std::uint64_t num_loaded_ = 0;
  std::uint64_t num_promotions_ = 0;  ///< keys
  bool stores_fail_ = false;
  bool is_finished_ = false;
  mutable RequestIndex current_ = 0;
  SchedulerOutput output_;
  std::shared_ptr<const KVConnectorMetadata> metadata_;
  KVConnectorWorkerOutput report_;
  AggregatedOutput aggregated_;
  KVConnectorOutput update_;
};

class ConnectorNoAllocation : public testing::TestWithParam<Form> {};

TEST_P(ConnectorNoAllocation, ButMetadataThatAreNotEmpty) {
  World world(GetParam());
  const std::size_t before = num_allocations();
  for (int i = 0; i < 10; ++i) world.life();
  ASSERT_GT(num_allocations(), before);  // the counter counts
  const std::uint64_t num_loaded = world.num_loaded();
  const std::uint64_t num_promotions = world.num_promotions();
  for (int i = 0; i < 100; ++i) {
    const Cost cost = world.life();
    EXPECT_EQ(cost.of_decoding, 0U);
    EXPECT_EQ(cost.of_the_rest, 0U);
    EXPECT_EQ(cost.of_workers, 0U);
    // The metadata, its list, and four lists of a transfer.
    EXPECT_LE(cost.of_metadata, kNumRequests * 6U);
    EXPECT_GT(cost.of_metadata, 0U);
  }
  EXPECT_GT(world.num_loaded(), num_loaded);
  EXPECT_EQ(world.num_promotions() > num_promotions, GetParam() == Form::kFenceWithTiers);
}

INSTANTIATE_TEST_SUITE_P(Forms, ConnectorNoAllocation,
                         testing::Values(Form::kHold, Form::kFence, Form::kFenceWithTiers),
                         [](const auto& param) {
                           if (param.param == Form::kHold) return "hold";
                           return param.param == Form::kFence ? "fence" : "fence_with_tiers";
                         });

}  // namespace
}  // namespace kvfence::optimized
