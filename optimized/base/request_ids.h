#pragma once

/// RequestIds: id -> request, by open addressing. The ids themselves lie with the owner, who hands
/// in how to get at them.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "contract/kv_cache/kv_cache_manager.h"
#include "optimized/base/request_list.h"

namespace kvfence::optimized {

class RequestIds {
 public:
  /// The request of that id. id_of(request) is the id of a request in the table.
  template <class IdOf>
  std::optional<RequestIndex> find(std::string_view id, const IdOf& id_of) const {
    if (slots_.empty()) return std::nullopt;
    const std::uint32_t tag = tag_of(id);
    for (std::size_t at = tag & mask();; at = (at + 1) & mask()) {
      const Slot& slot = slots_[at];
      if (slot.request == kNoRequest) return std::nullopt;
      if (slot.tag == tag && id_of(slot.request) == id) return slot.request;
    }
  }

  /// Requires: no request of that id is in the table.
  void insert(std::string_view id, RequestIndex request) {
    if (2 * (std::size_t{size_} + 1) > slots_.size()) grow();
    put({tag_of(id), request});
    ++size_;
  }

  /// Requires: the request is in the table under that id.
  void erase(std::string_view id, RequestIndex request) {
    std::size_t hole = tag_of(id) & mask();
    while (slots_[hole].request != request) hole = (hole + 1) & mask();
    // The rest of the cluster moves up, so that no probe ends too early.
    for (std::size_t at = (hole + 1) & mask(); slots_[at].request != kNoRequest;
         at = (at + 1) & mask()) {
      const std::size_t distance_to_home = (at - slots_[at].tag) & mask();
      if (distance_to_home < ((at - hole) & mask())) continue;
      slots_[hole] = slots_[at];
      hole = at;
    }
    slots_[hole] = {};
    --size_;
  }

 private:
  struct Slot {
    std::uint32_t tag = 0;
    RequestIndex request = kNoRequest;
  };

  static std::uint32_t tag_of(std::string_view id) {
    const std::uint64_t hash = std::hash<std::string_view>()(id);
    return static_cast<std::uint32_t>(hash ^ (hash >> 32));
  }
  std::size_t mask() const { return slots_.size() - 1; }

  void put(const Slot& slot) {
    std::size_t at = slot.tag & mask();
    while (slots_[at].request != kNoRequest) at = (at + 1) & mask();
    slots_[at] = slot;
  }

  void grow() {
    constexpr std::size_t kSlotsMin = 16;
    std::vector<Slot> old(slots_.empty() ? kSlotsMin : 2 * slots_.size());
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.request != kNoRequest) put(slot);
    }
  }

  std::vector<Slot> slots_;  ///< a power of two, at most half full
  std::uint32_t size_ = 0;
};

}  // namespace kvfence::optimized
