#pragma once

/// The KV cache of one rank as symbols, and a model that computes it: what a slot, the place of one
/// token, holds in a layer is a number that follows from all tokens whose KV it rests on. A
/// scripted part of the world, so that what a connector brings can be compared with what it should
/// bring.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/core/types.h"

namespace kvfence {

inline constexpr KVSymbol kNothingComputed = 0;
inline constexpr KVSymbol kFilledWithDummies = 1;

/// Before the first token of a sequence; layers differ.
constexpr KVSymbol symbol_before(std::uint32_t layer) { return 2166136261u + layer; }

/// After one more token: the symbol before it, times 16777619, exclusive or the token + 1, all in
/// 32 bits (FNV-1).
constexpr KVSymbol symbol_after(KVSymbol before, TokenId token) {
  return (before * 16777619u) ^ (token + 1);
}

/// The symbol of the last of these tokens, which begin a sequence.
constexpr KVSymbol symbol_of(std::uint32_t layer, std::span<const TokenId> tokens) {
  KVSymbol symbol = symbol_before(layer);
  for (const TokenId token : tokens) symbol = symbol_after(symbol, token);
  return symbol;
}

/// The cache of a rank with the layers [first_layer, first_layer + num_layers). Slot block *
/// block_size + offset is that of a block's token at that offset. At first nothing is computed.
class ScriptedKVCache {
 public:
  ScriptedKVCache(std::uint32_t first_layer, std::uint32_t num_layers, std::uint32_t num_blocks,
                  std::uint32_t block_size)
      : first_layer_(first_layer),
        num_layers_(num_layers),
        block_size_(block_size),
        num_slots_(num_blocks * block_size),
        symbols_(std::size_t{num_layers} * num_slots_, kNothingComputed) {}

  std::uint32_t first_layer() const { return first_layer_; }
  std::uint32_t num_layers() const { return num_layers_; }
  std::uint32_t block_size() const { return block_size_; }

  /// [block_size]. Requires: a layer of this rank and a block of the pool, here and below.
  std::span<const KVSymbol> block(std::uint32_t layer, BlockId block) const {
    return this->layer(layer).subspan(std::size_t{block} * block_size_, block_size_);
  }
  std::span<KVSymbol> block(std::uint32_t layer, BlockId block) {
    return std::span(symbols_).subspan(first_slot(layer) + std::size_t{block} * block_size_,
                                       block_size_);
  }
  /// [num_blocks * block_size].
  std::span<const KVSymbol> layer(std::uint32_t layer) const {
    return std::span(symbols_).subspan(first_slot(layer), num_slots_);
  }

  /// Computes tokens [first_token, first_token + tokens.size()) of a request in one layer, given
  /// its blocks: each goes on from what the slot of the token before holds. A token in the null
  /// block is passed over.
  /// Requires: blocks for all of the tokens.
  void compute(std::uint32_t layer, std::span<const BlockId> blocks, std::uint32_t first_token,
               std::span<const TokenId> tokens) {
    for (std::uint32_t i = 0; i < tokens.size(); ++i) {
      const std::uint32_t token = first_token + i;
      if (blocks[token / block_size_] == kNullBlockId) continue;
      const KVSymbol before = token == 0 ? symbol_before(layer) : slot_of(layer, blocks, token - 1);
      slot_of(layer, blocks, token) = symbol_after(before, tokens[i]);
    }
  }

  void add_to(StateHash& hash) const { hash.add(symbols_); }

 private:
  std::size_t first_slot(std::uint32_t layer) const {
    return std::size_t{layer - first_layer_} * num_slots_;
  }
  KVSymbol& slot_of(std::uint32_t layer, std::span<const BlockId> blocks, std::uint32_t token) {
    return block(layer, blocks[token / block_size_])[token % block_size_];
  }

  std::uint32_t first_layer_;
  std::uint32_t num_layers_;
  std::uint32_t block_size_;
  std::uint32_t num_slots_;
  std::vector<KVSymbol> symbols_;  ///< [num_layers][num_slots]
};

}  // namespace kvfence
