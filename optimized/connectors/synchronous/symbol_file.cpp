#include "optimized/connectors/synchronous/symbol_file.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>

namespace kvfence::optimized {
namespace {

static_assert(std::endian::native == std::endian::little && sizeof(KVSymbol) == 4);

/// The bytes before that many symbols: the header's length, and the header.
std::string start_of_file(std::size_t num_symbols) {
  std::string header = R"({"kv_cache":{"dtype":"U32","shape":[)" + std::to_string(num_symbols) +
                       R"(],"data_offsets":[0,)" + std::to_string(4 * num_symbols) + "]}}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = header.size();
  std::string start(sizeof(length), '\0');
  std::memcpy(start.data(), &length, sizeof(length));
  return start + header;
}

}  // namespace

void encode_symbols(std::span<const KVSymbol> symbols, std::vector<std::byte>& file) {
  const std::string start = start_of_file(symbols.size());
  file.resize(start.size() + symbols.size_bytes());
  const auto data = std::ranges::copy(std::as_bytes(std::span(start)), file.begin()).out;
  std::ranges::copy(std::as_bytes(symbols), data);
}

std::optional<std::size_t> num_symbols_of(std::span<const std::byte> file) {
  std::uint64_t header_bytes = 0;
  if (file.size() < sizeof(header_bytes)) return std::nullopt;
  std::memcpy(&header_bytes, file.data(), sizeof(header_bytes));
  const std::size_t rest = file.size() - sizeof(header_bytes);
  if (header_bytes > rest) return std::nullopt;
  const std::size_t num_symbols = (rest - header_bytes) / sizeof(KVSymbol);
  const std::string start = start_of_file(num_symbols);
  if (file.size() != start.size() + sizeof(KVSymbol) * num_symbols) return std::nullopt;
  if (!std::ranges::equal(file.first(start.size()), std::as_bytes(std::span(start)))) {
    return std::nullopt;
  }
  return num_symbols;
}

void decode_symbols(std::span<const std::byte> file, std::span<KVSymbol> symbols) {
  std::ranges::copy(file.last(symbols.size_bytes()), std::as_writable_bytes(symbols).begin());
}

}  // namespace kvfence::optimized
