#include "scenarios/replay/offload_replay.h"

#include <algorithm>
#include <utility>

#include "contract/core/rules.h"
#include "properties/targets/checks.h"
#include "scenarios/replay/offload_optimum.h"
#include "scenarios/replay/replay_sides.h"

namespace kvfence {
namespace {

using Keys = std::vector<std::uint32_t>;

/// One run: turns requests into commands, depending on the answers.
class OffloadReplay {
 public:
  OffloadReplay(const Setup& setup, ReplaySides& managers)
      : setup_(setup),
        config_(setup.config().as<offload::Config>()),
        rules_(rules_of(config_.profile)),
        managers_(managers) {}

  OffloadTierResult run(std::span<const OffloadRequest> requests, const ReplayProgress& progress) {
    managers_.start(setup_);
    for (std::size_t index = 0; index < requests.size() && !managers_.is_over(); ++index) {
      serve(requests[index]);
      if (progress) progress(index + 1, requests.size());
    }
    // This command changes nothing; it lets the state after the last request be compared.
    if (!managers_.is_over()) send(offload::TakeEvents{}, /*want_state=*/true);
    static_cast<ReplayEnd&>(result_) = managers_.end();
    return std::move(result_);
  }

 private:
  const offload::Observation& seen() const { return managers_.seen().as<offload::Observation>(); }

  /// Sends one command; false ends the replay.
  bool send(offload::Command command, bool want_state = false) {
    return managers_.send(Command(std::move(command)), want_state);
  }

  bool serve(const OffloadRequest& request) {
    const Keys keys(request.keys.begin(), request.keys.end());
    const Keys asked(keys.begin() + request.num_gpu_hits, keys.end());
    std::uint32_t num_found = 0;
    if (!rules_.lookup_by_key && !send(offload::Touch{keys})) return false;
    if (!asked.empty() && !look_up(asked, num_found)) return false;
    if (rules_.lookup_by_key && !send(offload::Touch{keys})) return false;
    result_.asked += asked.size();
    result_.found += num_found;
    if (num_found == 0) return store(keys, keys);

    const Keys found(asked.begin(), asked.begin() + num_found);
    if (!send(offload::PrepareLoad{found}) || !send(offload::CompleteLoad{found})) return false;
    return store(keys, {asked.begin() + num_found, asked.end()});
  }

  /// Finds the leading blocks that are ready.
  bool look_up(const Keys& asked, std::uint32_t& num_found) {
    if (rules_.lookup_by_key) {
      for (const std::uint32_t key : asked) {
        if (!send(offload::LookupKey{key})) return false;
        const auto& result = seen().result;
        if (!result.has_value()) return managers_.refuse("result", "miss, pending or hit", "none");
        if (*result != LookupResult::kHit) break;
        ++num_found;
      }
      return true;
    }
    if (!send(offload::Lookup{asked})) return false;
    const auto& num_hits = seen().num_hits;
    if (!num_hits.has_value() || *num_hits > asked.size()) {
      return managers_.refuse("num_hits", "at most " + std::to_string(asked.size()),
                              num_hits.has_value() ? std::to_string(*num_hits) : "none");
    }
    num_found = *num_hits;
    return true;
  }

  /// Stores the missing ones of `keys`, which are the last ones of the request.
  bool store(const Keys& request_keys, const Keys& keys) {
    if (keys.empty()) return true;
    if (!send(offload::PrepareStore{keys})) return false;
    const offload::Observation& seen = this->seen();
    if (!seen.stored.has_value()) return managers_.refuse("stored", "true or false", "none");
    if (!*seen.stored) {
      ++result_.refused;
      return true;
    }
    if (!seen.keys_to_store.has_value() || !seen.evicted.has_value()) {
      return managers_.refuse("keys_to_store", "lists of keys to store and of evicted blocks",
                              "none");
    }
    const Keys keys_to_store = *seen.keys_to_store;
    result_.evicted += seen.evicted->size();
    result_.stored += keys_to_store.size();
    if (keys_to_store.empty()) return true;
    offload::CompleteStore complete;
    complete.keys = keys_to_store;
    return send(offload::Touch{request_keys}) && send(complete) &&
           (!config_.enable_events || send(offload::TakeEvents{}));
  }

  const Setup& setup_;
  const offload::Config& config_;
  Rules rules_;
  ReplaySides& managers_;
  OffloadTierResult result_;
};

template <class Value>
std::optional<Value> repeated(std::vector<Value> values) {
  std::sort(values.begin(), values.end());
  const auto found = std::adjacent_find(values.begin(), values.end());
  if (found == values.end()) return std::nullopt;
  return *found;
}

}  // namespace

TrafficReplayOptions gpu_options_of(const OffloadReplayOptions& options) {
  return {.gpu_blocks = options.gpu_blocks,
          .concurrency = options.concurrency,
          .profile = options.profile,
          .requests_max = options.requests_max};
}

offload::Config config_of(const OffloadReplayOptions& options, EvictionPolicy policy,
                          std::uint32_t cpu_blocks) {
  offload::Config config;
  config.policy = policy;
  config.capacity = cpu_blocks;
  config.profile = options.profile;
  config.enable_events = options.enable_events;
  config.store_threshold = options.store_threshold;
  return config;
}

std::optional<InputError> validate(const OffloadReplayOptions& options) {
  if (auto wrong = validate(gpu_options_of(options))) return wrong;
  if (options.state_every == 0) return option_error("state_every=0", "at least 1");
  if (options.policies.empty()) return option_error("no policy", "lru, arc or both");
  if (options.cpu_blocks.empty()) return option_error("no capacity", "at least one");
  if (const auto policy = repeated(options.policies)) {
    return option_error("policy " + std::string(to_text(*policy)) + " twice", "each once");
  }
  if (const auto size = repeated(options.cpu_blocks)) {
    return option_error("cpu_blocks=" + std::to_string(*size) + " twice", "each once");
  }
  for (const std::uint32_t cpu_blocks : options.cpu_blocks) {
    if (cpu_blocks > kCpuBlocksMax) {
      return option_error("cpu_blocks=" + std::to_string(cpu_blocks),
                          "at most " + std::to_string(kCpuBlocksMax));
    }
    for (const EvictionPolicy policy : options.policies) {
      const auto setup = OffloadTarget::prepare(config_of(options, policy, cpu_blocks), {}, {});
      if (!setup) return setup.error();
    }
  }
  return std::nullopt;
}

OffloadTierResult replay_offload_tier(std::span<const OffloadRequest> requests,
                                      const offload::Config& config, std::uint32_t state_every,
                                      Implementation& expected, Implementation* actual,
                                      const ReplayProgress& progress) {
  const Setup setup = prepared(OffloadTarget::description(), Config(config));
  ReplaySides managers(offload_checks(), expected, actual, state_every,
                       "the traffic asks only for what a manager has to answer");
  if (actual != nullptr) managers.keep_commands();
  return OffloadReplay(setup, managers).run(requests, progress);
}

double OffloadReplayResult::cpu_hit_rate(std::uint64_t found) const {
  return ratio(found, traffic.num_asked());
}

double OffloadReplayResult::hit_rate(std::uint64_t found) const {
  return ratio(traffic.num_gpu_hits + found, traffic.num_blocks);
}

std::size_t OffloadReplayResult::commands() const {
  std::size_t sum = 0;
  for (const OffloadPoint& point : points) {
    for (const OffloadTierResult& result : point.results) sum += result.commands;
  }
  return sum;
}

const OffloadTierResult* OffloadReplayResult::diverged() const {
  if (points.empty() || points.back().results.empty()) return nullptr;
  const OffloadTierResult& last = points.back().results.back();
  return last.divergence ? &last : nullptr;
}

OffloadReplayResult replay_offload_tiers(OffloadRequests traffic,
                                         const OffloadReplayOptions& options,
                                         Implementation& expected, Implementation* actual,
                                         const ReplayProgress& progress) {
  OffloadReplayResult result;
  result.traffic = std::move(traffic);
  result.policies = options.policies;
  const std::span<const OffloadRequest> requests = result.traffic.requests;
  result.found_max = optimal_hits(requests, UINT64_MAX);
  std::size_t requests_done = 0;
  const std::size_t num_runs = options.cpu_blocks.size() * options.policies.size();
  const auto count = [&](std::size_t here, std::size_t total) {
    if (progress) progress(requests_done + here, num_runs * total);
  };
  for (const std::uint32_t cpu_blocks : options.cpu_blocks) {
    OffloadPoint& point = result.points.emplace_back();
    point.cpu_blocks = cpu_blocks;
    point.optimum = optimal_hits(requests, cpu_blocks);
    for (const EvictionPolicy policy : options.policies) {
      point.results.push_back(replay_offload_tier(requests, config_of(options, policy, cpu_blocks),
                                                  options.state_every, expected, actual, count));
      if (result.diverged() != nullptr) return result;
      requests_done += requests.size();
    }
  }
  return result;
}

}  // namespace kvfence
