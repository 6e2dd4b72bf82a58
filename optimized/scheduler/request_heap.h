#pragma once

/// RequestHeap: a binary heap of requests that knows the position of each, so that any of them can
/// be removed in O(log n).
///
/// Each call gets the order as an argument, since the owner holds the data that it compares. The
/// order of a request must not change while it is in the heap.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/kv_cache/kv_cache_manager.h"

namespace kvfence::optimized {

class RequestHeap {
 public:
  bool empty() const { return heap_.empty(); }
  std::uint32_t size() const { return static_cast<std::uint32_t>(heap_.size()); }
  bool contains(RequestIndex request) const {
    return request < positions_.size() && positions_[request] != kAbsent;
  }

  /// The request that goes before all others. Requires: not empty.
  RequestIndex top() const { return heap_.front(); }

  /// All requests, in no particular order.
  std::span<const RequestIndex> unordered() const { return heap_; }

  void add_to(StateHash& hash) const { hash.add(heap_); }

  /// Requires: not in the heap; goes_before is a strict order of requests.
  template <class GoesBefore>
  void push(RequestIndex request, const GoesBefore& goes_before) {
    if (request >= positions_.size()) positions_.resize(std::size_t{request} + 1, kAbsent);
    heap_.push_back(request);
    sift_up(heap_.size() - 1, goes_before);
  }

  /// Requires: in the heap.
  template <class GoesBefore>
  void erase(RequestIndex request, const GoesBefore& goes_before) {
    const std::size_t hole = positions_[request];
    positions_[request] = kAbsent;
    const RequestIndex last = heap_.back();
    heap_.pop_back();
    if (hole == heap_.size()) return;
    place(hole, last);
    sift_up(hole, goes_before);
    sift_down(positions_[last], goes_before);
  }

 private:
  static constexpr std::uint32_t kAbsent = 0xFFFF'FFFF;

  void place(std::size_t at, RequestIndex request) {
    heap_[at] = request;
    positions_[request] = static_cast<std::uint32_t>(at);
  }

  template <class GoesBefore>
  void sift_up(std::size_t at, const GoesBefore& goes_before) {
    const RequestIndex request = heap_[at];
    for (; at > 0 && goes_before(request, heap_[(at - 1) / 2]); at = (at - 1) / 2) {
      place(at, heap_[(at - 1) / 2]);
    }
    place(at, request);
  }

  template <class GoesBefore>
  void sift_down(std::size_t at, const GoesBefore& goes_before) {
    const RequestIndex request = heap_[at];
    for (std::size_t child = 2 * at + 1; child < heap_.size(); child = 2 * at + 1) {
      if (child + 1 < heap_.size() && goes_before(heap_[child + 1], heap_[child])) ++child;
      if (!goes_before(heap_[child], request)) break;
      place(at, heap_[child]);
      at = child;
    }
    place(at, request);
  }

  std::vector<RequestIndex> heap_;
  std::vector<std::uint32_t> positions_;  ///< by request
};

}  // namespace kvfence::optimized
