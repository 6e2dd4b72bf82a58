#include "scenarios/replay/traffic_replay.h"

#include <algorithm>
#include <deque>
#include <utility>
#include <variant>

#include "contract/core/check.h"
#include "properties/targets/checks.h"

namespace kvfence {
namespace {

using block_pool::CacheFullBlocks;
using block_pool::DeclareRequest;
using block_pool::FreeBlocks;
using block_pool::GetCachedBlock;
using block_pool::GetNewBlocks;
using block_pool::TakeEvents;
using block_pool::Touch;

constexpr std::uint32_t kBlockSize = 1;  ///< one symbol per block
constexpr GroupId kGroup = 0;

constexpr const char* kPromise = "the traffic asks only for what a pool has to grant";

/// One replay: turns requests into commands, depending on the answers.
class TrafficReplay {
 public:
  TrafficReplay(const TrafficReplayOptions& options, ReplaySides& pools, const EventsTap& tap)
      : options_(options), pools_(pools), tap_(tap) {
    counts_ = {options.gpu_blocks - 1, 0, 1};
    result_.peak_referenced = counts_.referenced;
  }

  /// Stops at the first divergence.
  TrafficReplayResult run(std::span<const MooncakeRequest> requests,
                          const ReplayProgress& progress) {
    const std::size_t num_requests = std::min(requests.size(), options_.requests_max);
    const std::size_t per_sample =
        num_requests / std::max<std::uint32_t>(options_.samples_max, 1) + 1;
    pools_.start(prepared(BlockPoolTarget::description(), Config(config_of(options_))));
    for (std::size_t index = 0; index < num_requests && !is_over(); ++index) {
      const MooncakeRequest& request = requests[index];
      latest_ms_ = std::max(latest_ms_, request.timestamp_ms);
      if (!admit(request_name(index), request.hash_ids)) break;
      ++result_.requests;
      if (result_.requests % per_sample == 0 || result_.requests == num_requests) take_sample();
      if (progress) progress(result_.requests, num_requests);
    }
    while (!running_.empty() && end_oldest(/*want_state=*/running_.size() == 1)) {
    }
    static_cast<ReplayEnd&>(result_) = pools_.end();
    return std::move(result_);
  }

 private:
  bool is_over() const { return is_tapped_out_ || pools_.is_over(); }

  const block_pool::Observation& seen() const {
    return pools_.seen().as<block_pool::Observation>();
  }

  bool send(block_pool::Command command) { return send(Command(std::move(command))); }

  /// Sends one command; false ends the replay.
  bool send(const Command& command, bool want_state = false) {
    if (is_over() || !pools_.send(command, want_state)) return false;
    counts_ = {seen().num_empty, seen().num_cached, seen().num_referenced};
    result_.peak_referenced = std::max(result_.peak_referenced, counts_.referenced);
    return true;
  }

  bool has_blocks(std::size_t num_blocks) {
    const auto& blocks = seen().blocks;
    const std::size_t found = blocks.has_value() ? blocks->size() : 0;
    if (found == num_blocks) return true;
    return pools_.refuse("blocks", std::to_string(num_blocks) + " blocks",
                         std::to_string(found) + " blocks");
  }

  bool admit(const std::string& name, const std::vector<std::uint32_t>& hash_ids) {
    if (hash_ids.empty()) return true;
    if (hash_ids.size() > options_.gpu_blocks - 1) {
      ++result_.too_large;
      return true;
    }
    while (running_.size() >= options_.concurrency) {
      if (!end_oldest()) return false;
    }
    DeclareRequest declared;
    declared.id = name;
    declared.tokens = hash_ids;
    if (!send(std::move(declared))) return false;

    std::vector<BlockId> blocks;
    if (!look_up(name, hash_ids.size(), blocks)) return false;
    const auto num_hits = static_cast<std::uint32_t>(blocks.size());
    if (num_hits > 0 && !send(Touch{blocks})) return false;
    const auto num_new = static_cast<std::uint32_t>(hash_ids.size()) - num_hits;
    if (num_new > 0) {
      if (!take_new(num_new, blocks)) return false;
      CacheFullBlocks cached;
      cached.request = name;
      cached.blocks = blocks;
      cached.num_cached_blocks = num_hits;
      cached.num_full_blocks = num_hits + num_new;
      cached.block_size = kBlockSize;
      cached.group = kGroup;
      if (!send(std::move(cached))) return false;
    }
    result_.blocks += hash_ids.size();
    result_.hits += num_hits;
    FreeBlocks end;
    end.blocks.assign(blocks.rbegin(), blocks.rend());
    running_.emplace_back(block_pool::Command(std::move(end)));
    return !options_.enable_kv_cache_events || take_events();
  }

  bool take_events() {
    if (!send(Command(block_pool::Command(TakeEvents{})), tap_.wants_keys)) return false;
    is_tapped_out_ = tap_.take && !tap_.take(latest_ms_ * kMicrosecondsAMillisecond, *seen().events,
                                             *seen().keys);
    return !is_tapped_out_;
  }

  /// Finds the blocks of the longest cached prefix.
  bool look_up(const std::string& name, std::size_t num_blocks, std::vector<BlockId>& blocks) {
    Command command{block_pool::Command(GetCachedBlock{name, 0, kBlockSize, {kGroup}})};
    for (std::size_t index = 0; index < num_blocks; ++index) {
      std::get<GetCachedBlock>(command.as<block_pool::Command>()).index =
          static_cast<std::uint32_t>(index);
      if (!send(command)) return false;
      const auto& hit = seen().hit;
      if (!hit.has_value()) return pools_.refuse("hit", "true or false", "none");
      if (!*hit) return true;
      if (!has_blocks(1)) return false;
      blocks.push_back(seen().blocks->front());
    }
    return true;
  }

  /// Appends new blocks; the hits are touched already, so ending older requests cannot lose them.
  bool take_new(std::uint32_t num_new, std::vector<BlockId>& blocks) {
    while (counts_.empty + counts_.cached < num_new && !running_.empty()) {
      if (!end_oldest()) return false;
    }
    const std::uint32_t num_cached = counts_.cached;
    if (!send(GetNewBlocks{num_new}) || !has_blocks(num_new)) return false;
    result_.evictions += num_cached - std::min(counts_.cached, num_cached);
    const std::vector<BlockId>& new_blocks = *seen().blocks;
    blocks.insert(blocks.end(), new_blocks.begin(), new_blocks.end());
    return true;
  }

  bool end_oldest(bool want_state = false) {
    if (!send(running_.front(), want_state)) return false;
    running_.pop_front();
    return true;
  }

  void take_sample() {
    result_.samples.push_back(
        {result_.requests, latest_ms_, counts_, result_.blocks, result_.hits, result_.evictions});
  }

  const TrafficReplayOptions& options_;
  ReplaySides& pools_;
  const EventsTap& tap_;
  bool is_tapped_out_ = false;
  std::deque<Command> running_;  ///< the commands that end each running request, oldest first
  BlockCounts counts_;           ///< after the last command
  std::uint64_t latest_ms_ = 0;
  TrafficReplayResult result_;
};

}  // namespace

block_pool::Config config_of(const TrafficReplayOptions& options) {
  block_pool::Config config;
  config.num_gpu_blocks = options.gpu_blocks;
  config.enable_caching = true;
  config.enable_kv_cache_events = options.enable_kv_cache_events;
  config.hash_block_size = kBlockSize;
  config.hash_algorithm = options.hash_algorithm;
  config.profile = options.profile;
  return config;
}

std::optional<InputError> validate(const TrafficReplayOptions& options) {
  if (options.concurrency == 0) return option_error("concurrency=0", "at least 1");
  if (options.state_every == 0) return option_error("state_every=0", "at least 1");
  const auto setup = BlockPoolTarget::prepare(config_of(options), {}, {});
  if (!setup) return setup.error();
  return std::nullopt;
}

double TrafficSample::hit_rate() const { return ratio(hits, blocks); }

double TrafficReplayResult::hit_rate() const { return ratio(hits, blocks); }

TrafficReplayResult replay_traffic(std::span<const MooncakeRequest> requests,
                                   const TrafficReplayOptions& options, Implementation& expected,
                                   Implementation* actual, const ReplayProgress& progress,
                                   const EventsTap& tap) {
  KVFENCE_CHECK(!validate(options), "a replay with options that were not validated");
  ReplaySides pools(block_pool_checks(), expected, actual, options.state_every, kPromise);
  pools.keep_commands();
  return TrafficReplay(options, pools, tap).run(requests, progress);
}

std::vector<HitRatePoint> hit_rate_curve(std::span<const MooncakeRequest> requests,
                                         std::span<const std::uint32_t> sizes,
                                         const TrafficReplayOptions& options,
                                         Implementation& expected, Implementation* actual,
                                         const ReplayProgress& progress) {
  std::vector<HitRatePoint> points;
  std::size_t requests_done = 0;
  for (const std::uint32_t size : sizes) {
    TrafficReplayOptions at_size = options;
    at_size.gpu_blocks = size;
    const auto count = [&](std::size_t here, std::size_t total) {
      if (progress) progress(requests_done + here, sizes.size() * total);
    };
    points.push_back({size, replay_traffic(requests, at_size, expected, actual, count)});
    if (points.back().result.divergence) break;
    requests_done += points.back().result.requests;
  }
  return points;
}

}  // namespace kvfence
