#pragma once

/// A model small enough to be run without a cache: what it writes for a token depends on all tokens
/// before it, and what it samples depends on everything that it reads.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "contract/core/types.h"
#include "contract/worker/content_pattern.h"

namespace kvfence::toy_model {

/// The KV of one token.
using Symbol = std::uint64_t;

/// The symbol of a place that was not written to; no token has it.
inline constexpr Symbol kUnwritten = 0;
/// The symbol of torn bytes; no token has it.
inline constexpr Symbol kTorn = 1;

/// The low 32 bits of a symbol; 0 and 1 keep their meaning.
inline std::uint32_t shortened(Symbol symbol) { return static_cast<std::uint32_t>(symbol); }

/// What the symbols of a request begin with. The salt is included: requests with different salts
/// share nothing.
inline Symbol first_symbol(const std::optional<std::string>& cache_salt) {
  Symbol symbol = content::fmix64(3);
  if (!cache_salt) return symbol;
  for (const char character : *cache_salt) {
    symbol = content::fmix64(symbol ^ (static_cast<unsigned char>(character) + 256U));
  }
  return symbol;
}

/// The KV of a token; `before` is that of the token before it.
inline Symbol next_symbol(Symbol before, TokenId token) {
  const Symbol symbol = content::fmix64(before + content::fmix64(token + 1ULL));
  return symbol > kTorn ? symbol : symbol + 2;
}

/// The KV of each token; replaces symbols.
inline void symbols_of(const std::optional<std::string>& cache_salt,
                       std::span<const TokenId> tokens, std::vector<Symbol>& symbols) {
  symbols.clear();
  symbols.reserve(tokens.size());
  Symbol symbol = first_symbol(cache_salt);
  for (const TokenId token : tokens) symbols.push_back(symbol = next_symbol(symbol, token));
}

inline std::vector<Symbol> symbols_of(const std::optional<std::string>& cache_salt,
                                      std::span<const TokenId> tokens) {
  std::vector<Symbol> symbols;
  symbols_of(cache_salt, tokens, symbols);
  return symbols;
}

/// What a group of layers keeps of a token, where the first group keeps `symbol`.
inline Symbol symbol_of_group(Symbol symbol, std::size_t group) {
  if (group == 0) return symbol;
  const Symbol own = content::fmix64(symbol + group);
  return own > kTorn ? own : own + 2;
}

/// The first position that a token at `position` reads in a group of that window; 0: of all tokens.
inline std::uint32_t first_read(std::uint32_t position, std::uint32_t window) {
  return window == 0 || position < window ? 0 : position + 1 - window;
}

/// The token sampled from what was read: group after group, each position in order.
inline TokenId sample(std::span<const Symbol> read) {
  std::uint64_t hash = content::fmix64(read.size());
  for (const Symbol symbol : read) hash = content::fmix64(hash ^ symbol);
  return static_cast<TokenId>(hash & 0xFF'FFFF);
}

/// The windows of a model with one group.
inline constexpr std::array<std::uint32_t, 1> kFullAttention = {0};

/// The token that a run without a cache samples after tokens of these symbols. Requires: at least
/// one. windows: by group.
inline TokenId sample_after(std::span<const Symbol> symbols,
                            std::span<const std::uint32_t> windows) {
  const auto end = static_cast<std::uint32_t>(symbols.size());
  std::vector<Symbol> read;
  for (std::size_t group = 0; group < windows.size(); ++group) {
    for (std::uint32_t at = first_read(end - 1, windows[group]); at < end; ++at) {
      read.push_back(symbol_of_group(symbols[at], group));
    }
  }
  return sample(read);
}

/// The same, after these tokens.
inline TokenId sample_without_cache(const std::optional<std::string>& cache_salt,
                                    std::span<const TokenId> tokens,
                                    std::span<const std::uint32_t> windows = kFullAttention) {
  return sample_after(symbols_of(cache_salt, tokens), windows);
}

/// The draft model: it reads no KV cache, and is mostly right.
inline TokenId draft_after(std::span<const Symbol> symbols,
                           std::span<const std::uint32_t> windows) {
  const TokenId token = sample_after(symbols, windows);
  const bool is_right = content::fmix64(symbols.back()) % 4 != 0;
  return is_right ? token : token ^ 1U;
}

/// Not a token: reported when ranks sampled different ones.
inline constexpr TokenId kDisagreement = 0x100'0000;

}  // namespace kvfence::toy_model
