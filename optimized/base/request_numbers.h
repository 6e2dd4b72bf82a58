#pragma once

/// RequestNumbers: a map from the ids of some requests to numbers. Entries are dense, so that a
/// walk costs no more than their number.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/kv_cache/kv_cache_manager.h"
#include "optimized/base/request_ids.h"

namespace kvfence::optimized {

/// Cost: O(1) per operation, except for walks. Entries reuse the storage of earlier ones.
class RequestNumbers {
 public:
  /// Null if the request has none. Valid until the next set or erase.
  std::uint32_t* find(std::string_view request) {
    const auto at = place_of(request);
    return at ? &entries_[*at].number : nullptr;
  }

  void set(std::string_view request, std::uint32_t number) {
    if (std::uint32_t* present = find(request)) {
      *present = number;
      return;
    }
    if (size_ == entries_.size()) entries_.emplace_back();
    entries_[size_].request = request;
    entries_[size_].number = number;
    ids_.insert(request, size_++);
  }

  /// Does nothing if the request has none.
  void erase(std::string_view request) {
    const auto found = place_of(request);
    if (!found) return;
    const RequestIndex at = *found;
    const RequestIndex last = size_ - 1;
    ids_.erase(request, at);
    if (at != last) {
      // The last entry fills the hole.
      ids_.erase(entries_[last].request, last);
      std::swap(entries_[at], entries_[last]);
      ids_.insert(entries_[at].request, at);
    }
    --size_;
  }

  void clear() {
    while (size_ > 0) {
      ids_.erase(entries_[size_ - 1].request, size_ - 1);
      --size_;
    }
  }

  /// Calls visit(request, number) for each, in no particular order.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (RequestIndex at = 0; at < size_; ++at) {
      visit(std::string_view(entries_[at].request), entries_[at].number);
    }
  }

  void add_to(StateHash& hash) const {
    StateHash all;
    for_each([&all](std::string_view request, std::uint32_t number) {
      all.add_unordered(StateHash::hash_of(std::pair(request, number)));
    });
    hash.add(all);
  }

 private:
  struct Entry {
    std::string request;
    std::uint32_t number = 0;
  };

  std::optional<RequestIndex> place_of(std::string_view request) const {
    return ids_.find(request,
                     [this](RequestIndex at) -> std::string_view { return entries_[at].request; });
  }

  RequestIds ids_;
  std::vector<Entry> entries_;  ///< those from size_ on are storage
  std::uint32_t size_ = 0;
};

}  // namespace kvfence::optimized
