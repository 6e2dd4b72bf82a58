#pragma once

/// A model small enough to be run without a cache: what it writes for a token depends on all tokens
/// before it, and what it samples depends on everything that it reads.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "contract/content_pattern.h"
#include "contract/types.h"

namespace kvfence::toy_model {

/// What the KV of one token is.
using Symbol = std::uint64_t;

/// Of a place that nothing was written to; no token has it.
inline constexpr Symbol kUnwritten = 0;
/// Of bytes that are nobody's; no token has it.
inline constexpr Symbol kTorn = 1;

/// What the symbols of a request begin with. The salt counts: who has another one shares nothing.
inline Symbol first_symbol(const std::optional<std::string>& cache_salt) {
  Symbol symbol = content::fmix64(3);
  if (!cache_salt) return symbol;
  for (const char character : *cache_salt) {
    symbol = content::fmix64(symbol ^ (static_cast<unsigned char>(character) + 256U));
  }
  return symbol;
}

/// The KV of a token behind one of which it is `before`.
inline Symbol next_symbol(Symbol before, TokenId token) {
  const Symbol symbol = content::fmix64(before + content::fmix64(token + 1ULL));
  return symbol > kTorn ? symbol : symbol + 2;
}

/// The KV of each token.
inline std::vector<Symbol> symbols_of(const std::optional<std::string>& cache_salt,
                                      std::span<const TokenId> tokens) {
  std::vector<Symbol> symbols;
  Symbol symbol = first_symbol(cache_salt);
  for (const TokenId token : tokens) symbols.push_back(symbol = next_symbol(symbol, token));
  return symbols;
}

/// The token that comes of what was read, which is of each position, in order.
inline TokenId sample(std::span<const Symbol> read) {
  std::uint64_t hash = content::fmix64(read.size());
  for (const Symbol symbol : read) hash = content::fmix64(hash ^ symbol);
  return static_cast<TokenId>(hash & 0xFF'FFFF);
}

/// What a run without a cache says after these tokens.
inline TokenId sample_without_cache(const std::optional<std::string>& cache_salt,
                                    std::span<const TokenId> tokens) {
  return sample(symbols_of(cache_salt, tokens));
}

}  // namespace kvfence::toy_model
