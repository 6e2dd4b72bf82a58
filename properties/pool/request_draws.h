#pragma once

/// The content of requests: tokens with many shared prefixes, and what else enters the hashes of
/// their blocks.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/pool/request.h"
#include "properties/draws/choices.h"

namespace kvfence {

/// The content of blocks in one episode. Usually a block repeats one symbol. In one episode in so
/// many each symbol stands for a sequence, with repeats and large ids, and sometimes two neighbours
/// are exchanged: the same tokens in another order.
class TokenDraws {
 public:
  explicit TokenDraws(Choices& choices) {
    if (!choices.once_in(kVariedOnceIn)) return;
    for (std::uint32_t left = 3 + choices.below(4); left > 0; --left) {
      alphabet_.push_back(pick(choices, kTokenIds));
    }
  }

  /// Appends a block, or part of one, of the content that the symbol stands for.
  void append(TokenId symbol, std::uint32_t num_tokens, Choices& choices,
              std::vector<TokenId>& tokens) const {
    const std::size_t first = tokens.size();
    tokens.insert(tokens.end(), num_tokens, symbol);
    if (alphabet_.empty()) return;
    for (std::size_t at = first; at < tokens.size(); ++at) {
      tokens[at] =
          alphabet_[(symbol + 2 * symbol * (at - first) + (at - first)) % alphabet_.size()];
    }
    if (num_tokens < 2 || !choices.once_in(8)) return;
    const std::size_t swapped = first + choices.below(num_tokens - 1);
    std::swap(tokens[swapped], tokens[swapped + 1]);
  }

 private:
  static constexpr std::uint32_t kVariedOnceIn = 8;
  /// Ids from which CBOR takes more bytes, and limits of signed integers.
  static constexpr std::array<TokenId, 12> kTokenIds = {
      0, 1, 2, 23, 24, 255, 256, 65'535, 65'536, 0x7FFF'FFFF, 0x8000'0000, 0xFFFF'FFFF};

  std::vector<TokenId> alphabet_;  ///< empty: a block repeats its symbol
};

/// Most blocks have no more tokens: small blocks make more happen in few tokens.
inline constexpr std::uint32_t kSmallBlockMax = 4;

/// Tokens of a block: up to four, sometimes as many as engines have, or an odd number.
inline std::uint32_t draw_block_size(Choices& choices) {
  constexpr std::array<std::uint32_t, 6> kLarge = {5, 7, 16, 16, 33, 64};
  return choices.once_in(32) ? pick(choices, kLarge) : 1 + choices.below(kSmallBlockMax);
}

/// One of several adapters; a name may come with more than one id.
inline void draw_lora(Choices& choices, std::optional<std::string>& name, std::uint32_t& id) {
  constexpr std::array<std::string_view, 2> kNames = {"lora", "other"};
  name.emplace(pick(choices, kNames));
  id = 1 + choices.below(3);
}

/// One to four multimodal items, by offset; one image may come twice.
inline void draw_items(Choices& choices, std::vector<MmFeature>& items) {
  constexpr std::array<std::string_view, 3> kImages = {"cat", "dog", "bird"};
  std::uint32_t offset = choices.below(4);
  for (std::uint32_t left = 1 + skewed(choices, 4); left > 0; --left) {
    const std::uint32_t length = 1 + choices.below(6);
    items.push_back({std::string(pick(choices, kImages)), offset, length});
    offset += length + choices.below(3);
  }
}

}  // namespace kvfence
