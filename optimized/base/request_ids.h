#pragma once

/// RequestIds: a map from ids to requests. The owner stores the ids, and passes in a function that
/// reads them.
///
/// Takes the secret of the engine's configuration where clients choose the ids. The halves of
/// connectors have no such configuration: they use the engine's ids, to which upstream has appended
/// 8 random digits.
/// Source: vLLM v0.19.0 v1/engine/input_processor.py assign_request_id.

#include <cstdint>
#include <optional>
#include <string_view>

#include "contract/core/table_secret.h"
#include "contract/kv_cache/kv_cache_manager.h"
#include "optimized/base/keyed_hash.h"
#include "optimized/base/open_table.h"

namespace kvfence::optimized {

class RequestIds {
 public:
  explicit RequestIds(const TableSecret& secret = {}) : hash_(secret) {}

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
  std::uint32_t tag_of(std::string_view id) const { return static_cast<std::uint32_t>(hash_(id)); }

  KeyedHash hash_;
  OpenTable<std::uint32_t> by_tag_;
};

}  // namespace kvfence::optimized
