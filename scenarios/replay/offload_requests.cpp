#include "scenarios/replay/offload_requests.h"

#include <algorithm>
#include <string>

#include "contract/core/check.h"

namespace kvfence {

std::optional<InputError> find_repeated_id(std::span<const MooncakeRequest> requests,
                                           std::string_view file) {
  std::vector<std::uint32_t> ids;
  for (std::size_t index = 0; index < requests.size(); ++index) {
    ids = requests[index].hash_ids;
    std::sort(ids.begin(), ids.end());
    const auto repeated = std::adjacent_find(ids.begin(), ids.end());
    if (repeated == ids.end()) continue;
    return InputError{
        std::string(file),
        {},
        "hash id " + std::to_string(*repeated) + " twice in request " + std::to_string(index + 1),
        "ids that name the whole prefix up to their block"};
  }
  return std::nullopt;
}

OffloadRequests below_gpu_tier(std::span<const MooncakeRequest> requests,
                               TrafficReplayOptions options, Implementation& pool,
                               const ReplayProgress& progress) {
  options.samples_max = UINT32_MAX;  // one per request: the hits of each are a difference
  const TrafficReplayResult gpu = replay_traffic(requests, options, pool, nullptr, progress);
  KVFENCE_CHECK(!gpu.divergence, "the pool of the GPU tier refused well-formed traffic");
  KVFENCE_CHECK(gpu.samples.size() == gpu.requests, "a sample for each request");

  OffloadRequests below;
  below.too_large = gpu.too_large;
  for (std::size_t index = 0; index < gpu.requests; ++index) {
    const TrafficSample& sample = gpu.samples[index];
    if (sample.blocks == below.num_blocks) continue;  // too large, or without blocks
    const auto num_hits = static_cast<std::uint32_t>(sample.hits - below.num_gpu_hits);
    below.requests.push_back({requests[index].hash_ids, num_hits});
    below.num_blocks = sample.blocks;
    below.num_gpu_hits = sample.hits;
  }
  return below;
}

}  // namespace kvfence
