#pragma once

/// The requests that a list of commands has declared, by name, and the symbolic spelling of their
/// hashes.
///
/// A hash is written `A:2` where a person writes it: block 2 of request A at hash granularity.
/// `A:1*2` is element 1 of the merged view of factor 2, and `A:2/0` is the packed key with group 0.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "contract/pool/request.h"

namespace kvfence {

class RequestTable {
 public:
  RequestTable() = default;
  explicit RequestTable(HashConfig config) : config_(std::move(config)) {}

  /// Adds a request, or replaces the one of that name.
  void declare(const std::string& name, RequestSpec spec);

  /// How many were declared before it; nothing for an unknown name.
  std::optional<std::uint32_t> number_of(const std::string& name) const;

  /// The request of that name, or null. Stable until the next declare.
  Request* find(const std::string& name);
  const Request* find(const std::string& name) const;

  const HashConfig& config() const { return config_; }

  /// The bytes that a symbol stands for; nothing if it is no symbol or names what is not there.
  std::optional<std::string> resolve(std::string_view symbol) const;

  /// The symbol of a hash (no group) or of a packed key, the shortest that fits; nothing for bytes
  /// of no request. Cost: linear in all hashes; for reports.
  std::optional<std::string> symbol_of(std::string_view bytes) const;

 private:
  struct Entry {
    std::string name;
    Request request;
  };

  HashConfig config_;
  std::vector<Entry> entries_;
  std::unordered_map<std::string, std::uint32_t> number_of_;
};

}  // namespace kvfence
