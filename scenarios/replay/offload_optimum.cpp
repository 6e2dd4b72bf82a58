#include "scenarios/replay/offload_optimum.h"

#include <cstddef>
#include <iterator>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

namespace kvfence {
namespace {

constexpr std::size_t kNever = SIZE_MAX;

/// For each block of each request, in order: the next request that has the block, if it asks for
/// it; kNever if not. A block that comes next as a GPU hit need not be held until then: it can be
/// taken in again from there.
std::vector<std::size_t> next_asked(std::span<const OffloadRequest> requests) {
  std::size_t num_blocks = 0;
  for (const OffloadRequest& request : requests) num_blocks += request.keys.size();
  std::vector<std::size_t> next(num_blocks, kNever);
  std::unordered_map<std::uint32_t, std::size_t> latest;
  for (std::size_t index = requests.size(); index-- > 0;) {
    const OffloadRequest& request = requests[index];
    for (std::size_t k = request.keys.size(); k-- > 0;) {
      const auto [entry, is_first] = latest.try_emplace(request.keys[k], kNever);
      next[--num_blocks] = entry->second;
      entry->second = k >= request.num_gpu_hits ? index : kNever;
    }
  }
  return next;
}

}  // namespace

std::uint64_t optimal_hits(std::span<const OffloadRequest> requests, std::uint64_t capacity) {
  // To hold a block is worth one hit, when it is asked for. Each held block is listed here with that
  // moment; if there are too many, the one with the latest moment is dropped. This greedy choice
  // finds the largest set of time spans of which no more than `capacity` overlap.
  std::set<std::pair<std::size_t, std::uint32_t>> held;
  const std::vector<std::size_t> next = next_asked(requests);
  std::size_t position = 0;
  std::uint64_t num_hits = 0;
  for (std::size_t index = 0; index < requests.size(); ++index) {
    while (!held.empty() && held.begin()->first == index) {
      held.erase(held.begin());
      ++num_hits;
    }
    for (const std::uint32_t key : requests[index].keys) {
      const std::size_t moment = next[position++];
      if (moment != kNever) held.emplace(moment, key);
      if (held.size() > capacity) held.erase(std::prev(held.end()));
    }
  }
  return num_hits;
}

}  // namespace kvfence
