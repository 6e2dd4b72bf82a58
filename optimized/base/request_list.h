#pragma once

/// RequestList: an ordered list of requests, linked through their indices. Both ends and removal
/// from anywhere cost O(1).

#include <cstddef>
#include <cstdint>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/kv_cache/kv_cache_manager.h"

namespace kvfence::optimized {

/// No request.
inline constexpr RequestIndex kNoRequest = 0xFFFF'FFFF;

class RequestList {
 public:
  bool empty() const { return size_ == 0; }
  std::uint32_t size() const { return size_; }

  /// kNoRequest if the list is empty.
  RequestIndex front() const { return first_; }

  /// The request after one of the list; kNoRequest after the last.
  RequestIndex next(RequestIndex request) const { return links_[request].next; }

  bool contains(RequestIndex request) const {
    return request < links_.size() && links_[request].is_linked;
  }

  /// Requires: not in the list.
  void push_back(RequestIndex request) {
    grow(request);
    links_[request] = {last_, kNoRequest, true};
    (last_ == kNoRequest ? first_ : links_[last_].next) = request;
    last_ = request;
    ++size_;
  }

  /// Requires: not in the list.
  void push_front(RequestIndex request) {
    grow(request);
    links_[request] = {kNoRequest, first_, true};
    (first_ == kNoRequest ? last_ : links_[first_].prev) = request;
    first_ = request;
    ++size_;
  }

  /// Whether it was in the list.
  bool erase(RequestIndex request) {
    if (!contains(request)) return false;
    Links& links = links_[request];
    (links.prev == kNoRequest ? first_ : links_[links.prev].next) = links.next;
    (links.next == kNoRequest ? last_ : links_[links.next].prev) = links.prev;
    links.is_linked = false;
    --size_;
    return true;
  }

  /// Overwrites out with the list, first to last.
  void copy_to(std::vector<RequestIndex>& out) const {
    out.clear();
    for (RequestIndex at = first_; at != kNoRequest; at = next(at)) out.push_back(at);
  }

  void add_to(StateHash& hash) const {
    hash.add(size_);
    for (RequestIndex at = first_; at != kNoRequest; at = next(at)) hash.add_entry(at);
  }

 private:
  struct Links {
    RequestIndex prev = kNoRequest;
    RequestIndex next = kNoRequest;
    bool is_linked = false;
  };

  void grow(RequestIndex request) {
    if (request >= links_.size()) links_.resize(std::size_t{request} + 1);
  }

  std::vector<Links> links_;  ///< by request
  RequestIndex first_ = kNoRequest;
  RequestIndex last_ = kNoRequest;
  std::uint32_t size_ = 0;
};

}  // namespace kvfence::optimized
