#pragma once

/// The contents of an ExampleConnector's file: a safetensors file with one tensor, "kv_cache", of
/// unsigned 32-bit symbols by token. The form is upstream's, so that any reader of safetensors can
/// show it.
///
///     8 bytes      bytes of the header, little-endian
///     header       {"kv_cache":{"dtype":"U32","shape":[n],"data_offsets":[0,4n]}}, and spaces up
///                  to a multiple of 8
///     4n bytes     the symbols, little-endian
///
/// Source: safetensors 0.4, "Format"; vLLM v0.19.0 example_connector.py save_kv_layer.

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "contract/scripted/scripted_kv_cache.h"

namespace kvfence::optimized {

/// Overwrites file with these symbols'.
void encode_symbols(std::span<const KVSymbol> symbols, std::vector<std::byte>& file);

/// How many symbols a whole file holds; nothing if it is not whole or has another form than the
/// above: its header must match its length.
std::optional<std::size_t> num_symbols_of(std::span<const std::byte> file);

/// Requires: num_symbols_of(file) == symbols.size()
void decode_symbols(std::span<const std::byte> file, std::span<KVSymbol> symbols);

}  // namespace kvfence::optimized
