#pragma once

/// RequestIds: id -> request. The ids themselves lie with the owner, who hands in how to get at
/// them.

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "contract/kv_cache/kv_cache_manager.h"
#include "optimized/base/open_table.h"

namespace kvfence::optimized {

class RequestIds {
 public:
  /// The request of that id. id_of(request) is the id of a request in the table.
  template <class IdOf>
  std::optional<RequestIndex> find(std::string_view id, const IdOf& id_of) const {
    const RequestIndex found =
        by_tag_.find(tag_of(id), [&](RequestIndex request) { return id_of(request) == id; });
    if (found == by_tag_.kNone) return std::nullopt;
    return found;
  }

  /// Requires: no request of that id is in the table.
  void insert(std::string_view id, RequestIndex request) { by_tag_.insert(tag_of(id), request); }

  /// Requires: the request is in the table under that id.
  void erase(std::string_view id, RequestIndex request) { by_tag_.erase(tag_of(id), request); }

 private:
  static std::uint32_t tag_of(std::string_view id) {
    const std::uint64_t hash = std::hash<std::string_view>()(id);
    return static_cast<std::uint32_t>(hash ^ (hash >> 32));
  }

  OpenTable<std::uint32_t> by_tag_;
};

}  // namespace kvfence::optimized
