#include "contract/pool/request_table.h"

#include <charconv>
#include <utility>

#include "contract/core/limits.h"

namespace kvfence {
namespace {

/// The number after a separator, cut off the end of text; nothing if there is none. `found` says
/// if it was there.
bool take_number(std::string_view& text, char separator, std::uint32_t& number, bool& found) {
  const std::size_t at = text.rfind(separator);
  found = at != std::string_view::npos;
  if (!found) return true;
  const char* begin = text.data() + at + 1;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(begin, end, number);
  if (begin == end || result.ec != std::errc() || result.ptr != end) return false;
  text = text.substr(0, at);
  return true;
}

}  // namespace

void RequestTable::declare(const std::string& name, RequestSpec spec) {
  const auto [at, added] =
      number_of_.try_emplace(name, static_cast<std::uint32_t>(entries_.size()));
  if (added) {
    entries_.push_back({name, Request(std::move(spec), config_)});
  } else {
    entries_[at->second].request = Request(std::move(spec), config_);
  }
}

std::optional<std::uint32_t> RequestTable::number_of(const std::string& name) const {
  const auto at = number_of_.find(name);
  return at == number_of_.end() ? std::nullopt : std::optional(at->second);
}

Request* RequestTable::find(const std::string& name) {
  return const_cast<Request*>(std::as_const(*this).find(name));
}

const Request* RequestTable::find(const std::string& name) const {
  const auto number = number_of(name);
  return number ? &entries_[*number].request : nullptr;
}

std::optional<std::string> RequestTable::resolve(std::string_view symbol) const {
  std::uint32_t group = 0;
  std::uint32_t factor = 1;
  std::uint32_t index = 0;
  bool has_group = false;
  bool has_factor = false;
  bool has_index = false;
  if (!take_number(symbol, '/', group, has_group)) return std::nullopt;
  if (!take_number(symbol, '*', factor, has_factor)) return std::nullopt;
  if (!take_number(symbol, ':', index, has_index) || !has_index) return std::nullopt;
  if (factor == 0 || factor > limits::kHashesPerKeyMax) return std::nullopt;
  const Request* request = find(std::string(symbol));
  if (!request) return std::nullopt;
  const BlockHashListView hashes = request->block_hashes(config_.hash_block_size * factor);
  if (index >= hashes.size()) return std::nullopt;
  const BlockHashView hash = hashes[index];
  return has_group ? make_block_hash_with_group_id(hash, group) : std::string(hash);
}

std::optional<std::string> RequestTable::symbol_of(std::string_view bytes) const {
  const std::size_t hash_size = kvfence::hash_bytes(config_.algorithm);
  const bool is_key = bytes.size() % hash_size == kGroupIdBytes;
  const std::string_view hash = is_key ? get_block_hash(bytes) : bytes;
  if (hash.empty() || hash.size() % hash_size != 0) return std::nullopt;
  const auto factor = static_cast<std::uint32_t>(hash.size() / hash_size);
  for (const Entry& entry : entries_) {
    const BlockHashListView hashes = entry.request.block_hashes(config_.hash_block_size * factor);
    for (std::size_t index = 0; index < hashes.size(); ++index) {
      if (hashes[index] != hash) continue;
      std::string symbol = entry.name + ":" + std::to_string(index);
      if (factor > 1) symbol += "*" + std::to_string(factor);
      if (is_key) symbol += "/" + std::to_string(get_group_id(bytes));
      return symbol;
    }
  }
  return std::nullopt;
}

}  // namespace kvfence
