#pragma once

/// The KV cache of one rank as symbols, and a model that computes it: what a block holds in a layer
/// is a number that follows from all tokens whose KV it rests on. A scripted part of the world, so
/// that what a connector brings can be told from what it should have brought.

#include <cstdint>
#include <span>
#include <vector>

#include "contract/types.h"

namespace kvfence {

/// What a block holds in one layer. 0: nothing that was computed.
using KVSymbol = std::uint32_t;

inline constexpr KVSymbol kNothingComputed = 0;
inline constexpr KVSymbol kFilledWithDummies = 1;

/// Before the first token of a sequence; layers differ.
constexpr KVSymbol symbol_before(std::uint32_t layer) { return 2166136261u + layer; }

/// Behind one more token: the symbol before it, times 16777619, exclusive or the token + 1, all in
/// 32 bits (FNV-1).
constexpr KVSymbol symbol_behind(KVSymbol before, TokenId token) {
  return (before * 16777619u) ^ (token + 1);
}

/// Of a block that ends with, or has room behind, the last of these tokens of a sequence.
constexpr KVSymbol symbol_of(std::uint32_t layer, std::span<const TokenId> tokens) {
  KVSymbol symbol = symbol_before(layer);
  for (const TokenId token : tokens) symbol = symbol_behind(symbol, token);
  return symbol;
}

/// The cache of a rank with the layers [first_layer, first_layer + num_layers). At first nothing is
/// computed.
class ScriptedKVCache {
 public:
  ScriptedKVCache(std::uint32_t first_layer, std::uint32_t num_layers, std::uint32_t num_blocks)
      : first_layer_(first_layer),
        num_layers_(num_layers),
        num_blocks_(num_blocks),
        symbols_(std::size_t{num_layers} * num_blocks, kNothingComputed) {}

  std::uint32_t first_layer() const { return first_layer_; }
  std::uint32_t num_layers() const { return num_layers_; }

  /// Requires: a layer of this rank and a block of the pool, here and below.
  KVSymbol read(std::uint32_t layer, BlockId block) const { return symbols_[place(layer, block)]; }
  void write(std::uint32_t layer, BlockId block, KVSymbol symbol) {
    symbols_[place(layer, block)] = symbol;
  }
  std::span<const KVSymbol> layer(std::uint32_t layer) const {
    return std::span(symbols_).subspan(place(layer, 0), num_blocks_);
  }

  /// Computes tokens [first_token, first_token + tokens.size()) of a request in one layer, given
  /// its blocks of block_size tokens. Each token goes on from what its block holds, and the first
  /// one of a block from what the block before holds. A token in the null block is passed over.
  /// Requires: blocks for all of the tokens.
  void compute(std::uint32_t layer, std::span<const BlockId> blocks, std::uint32_t block_size,
               std::uint32_t first_token, std::span<const TokenId> tokens) {
    for (std::uint32_t i = 0; i < tokens.size(); ++i) {
      const std::uint32_t token = first_token + i;
      const std::uint32_t index = token / block_size;
      if (blocks[index] == kNullBlockId) continue;
      KVSymbol before = symbol_before(layer);
      if (token % block_size > 0) {
        before = read(layer, blocks[index]);
      } else if (token > 0) {
        before = read(layer, blocks[index - 1]);
      }
      write(layer, blocks[index], symbol_behind(before, tokens[i]));
    }
  }

 private:
  std::size_t place(std::uint32_t layer, BlockId block) const {
    return std::size_t{layer - first_layer_} * num_blocks_ + block;
  }

  std::uint32_t first_layer_;
  std::uint32_t num_layers_;
  std::uint32_t num_blocks_;
  std::vector<KVSymbol> symbols_;  ///< [num_layers][num_blocks]
};

}  // namespace kvfence
