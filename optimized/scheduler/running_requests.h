#pragma once

/// RunningRequests: the running requests in order of admission, as an array that is walked every
/// step. A removal leaves a hole; holes are closed once per step.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/kv_cache/kv_cache_manager.h"
#include "optimized/base/request_list.h"

namespace kvfence::optimized {

class RunningRequests {
 public:
  bool empty() const { return size_ == 0; }
  std::uint32_t size() const { return size_; }

  /// Places for an index loop, including holes.
  std::size_t num_places() const { return places_.size(); }

  /// The request at a place; kNoRequest for a hole.
  RequestIndex at(std::size_t place) const { return places_[place]; }

  /// The place of a request, also of one that was removed since holes were last closed.
  std::uint32_t place_of(RequestIndex request) const { return place_of_[request]; }

  /// Requires: not empty.
  RequestIndex back() const { return places_.back(); }
  RequestIndex front() const {
    std::size_t place = 0;
    while (places_[place] == kNoRequest) ++place;
    return places_[place];
  }

  void push_back(RequestIndex request) {
    if (request >= place_of_.size()) place_of_.resize(std::size_t{request} + 1);
    place_of_[request] = static_cast<std::uint32_t>(places_.size());
    places_.push_back(request);
    ++size_;
  }

  /// Requires: the request runs.
  void erase(RequestIndex request) {
    places_[place_of_[request]] = kNoRequest;
    --size_;
    while (!places_.empty() && places_.back() == kNoRequest) places_.pop_back();
  }

  void close_holes() {
    if (places_.size() == size_) return;
    std::size_t end = 0;
    for (RequestIndex request : places_) {
      if (request == kNoRequest) continue;
      place_of_[request] = static_cast<std::uint32_t>(end);
      places_[end++] = request;
    }
    places_.resize(end);
  }

  /// Overwrites out with the requests in order.
  void copy_to(std::vector<RequestIndex>& out) const {
    out = places_;
    std::erase(out, kNoRequest);
  }

  void add_to(StateHash& hash) const { hash.add(places_); }

 private:
  std::vector<RequestIndex> places_;
  std::vector<std::uint32_t> place_of_;  ///< by request
  std::uint32_t size_ = 0;
};

}  // namespace kvfence::optimized
