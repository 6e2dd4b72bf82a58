#include "optimized/connectors/synchronous/symbol_file.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <string_view>

namespace kvfence::optimized {
namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kSymbolBytes = 4;
constexpr std::size_t kHeaderAlignment = 8;

/// The header for that many symbols.
class Header {
 public:
  explicit Header(std::size_t num_symbols) {
    const int length =
        std::snprintf(text_.data(), text_.size(),
                      R"({"kv_cache":{"dtype":"U32","shape":[%zu],"data_offsets":[0,%zu]}})",
                      num_symbols, kSymbolBytes * num_symbols);
    size_ = static_cast<std::size_t>(length);
    while (size_ % kHeaderAlignment != 0) text_[size_++] = ' ';
  }
  std::string_view text() const { return {text_.data(), size_}; }

 private:
  std::array<char, 128> text_{};  ///< the text and two numbers of 20 digits
  std::size_t size_ = 0;
};

template <class Number>
void put(Number number, std::size_t num_bytes, std::byte* to) {
  for (std::size_t i = 0; i < num_bytes; ++i) to[i] = static_cast<std::byte>(number >> (8 * i));
}

template <class Number>
Number get(std::size_t num_bytes, const std::byte* from) {
  Number number = 0;
  for (std::size_t i = 0; i < num_bytes; ++i) number |= static_cast<Number>(from[i]) << (8 * i);
  return number;
}

}  // namespace

void encode_symbols(std::span<const KVSymbol> symbols, std::vector<std::byte>& file) {
  const Header header(symbols.size());
  const std::string_view text = header.text();
  file.resize(kLengthBytes + text.size() + kSymbolBytes * symbols.size());
  put<std::uint64_t>(text.size(), kLengthBytes, file.data());
  std::byte* to = file.data() + kLengthBytes;
  for (const char letter : text) *to++ = static_cast<std::byte>(letter);
  for (const KVSymbol symbol : symbols) {
    put(symbol, kSymbolBytes, to);
    to += kSymbolBytes;
  }
}

std::optional<std::size_t> num_symbols_of(std::span<const std::byte> file) {
  if (file.size() < kLengthBytes) return std::nullopt;
  const auto header_bytes = get<std::uint64_t>(kLengthBytes, file.data());
  const std::span<const std::byte> rest = file.subspan(kLengthBytes);
  if (header_bytes > rest.size()) return std::nullopt;
  const std::size_t data_bytes = rest.size() - header_bytes;
  if (data_bytes % kSymbolBytes != 0) return std::nullopt;
  const std::size_t num_symbols = data_bytes / kSymbolBytes;
  const Header expected(num_symbols);
  const std::string_view text = expected.text();
  const bool is_expected =
      header_bytes == text.size() &&
      std::equal(text.begin(), text.end(), rest.begin(), [](char letter, std::byte byte) {
        return static_cast<std::byte>(letter) == byte;
      });
  if (!is_expected) return std::nullopt;
  return num_symbols;
}

void decode_symbols(std::span<const std::byte> file, std::span<KVSymbol> symbols) {
  const std::byte* from = file.data() + (file.size() - kSymbolBytes * symbols.size());
  for (KVSymbol& symbol : symbols) {
    symbol = get<KVSymbol>(kSymbolBytes, from);
    from += kSymbolBytes;
  }
}

}  // namespace kvfence::optimized
