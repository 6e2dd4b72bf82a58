#include "contract/pool/request.h"

#include <array>
#include <utility>

#include "contract/core/check.h"
#include "contract/pool/cbor.h"

namespace kvfence {
namespace {

/// The cursor of blocks that generated tokens complete: the last multimodal item.
constexpr std::int64_t kLastMmFeature = -1;

/// Appends the keys of the multimodal items that overlap the block; the result is the next cursor.
std::int64_t append_mm_extra_keys(const std::vector<MmFeature>& mm_features, std::int64_t start,
                                  std::int64_t end, std::int64_t mm_cursor, ExtraKeys& keys) {
  const auto end_of = [](const MmFeature& feature) {
    return std::int64_t{feature.offset} + feature.length;
  };
  // Past the last item the cursor stays as it is, also when it is negative.
  if (mm_features.empty() || end_of(mm_features.back()) <= start) return mm_cursor;

  const auto num_features = static_cast<std::int64_t>(mm_features.size());
  if (mm_cursor < 0) mm_cursor += num_features;
  KVFENCE_CHECK(mm_cursor >= 0, "a multimodal cursor before the first item");

  for (; mm_cursor < num_features; ++mm_cursor) {
    const MmFeature& feature = mm_features[static_cast<std::size_t>(mm_cursor)];
    if (end <= feature.offset) break;
    if (start >= end_of(feature)) continue;
    keys.emplace_back(MmExtraKey{feature.identifier, std::int64_t{feature.offset} - start});
    // An item that goes on in the next block is looked at again there.
    if (end < end_of(feature)) break;
  }
  return mm_cursor;
}

void write_extra_keys(CborWriter& writer, const ExtraKeys& extra_keys) {
  if (extra_keys.empty()) {
    writer.write_null();
    return;
  }
  writer.write_array_head(extra_keys.size());
  for (const ExtraKey& key : extra_keys) {
    if (const auto* mm_key = std::get_if<MmExtraKey>(&key)) {
      writer.write_array_head(2);
      writer.write_text(mm_key->identifier);
      writer.write_integer(mm_key->offset);
    } else {
      writer.write_text(std::get<std::string>(key));
    }
  }
}

/// Writes what the hash of a block is taken of.
void write_block(CborWriter& writer, BlockHashView parent_hash, std::span<const TokenId> tokens,
                 const ExtraKeys& extra_keys) {
  writer.clear();
  writer.write_array_head(3);
  writer.write_bytes(parent_hash);
  writer.write_array_head(tokens.size());
  for (TokenId token : tokens) writer.write_unsigned(token);
  write_extra_keys(writer, extra_keys);
}

}  // namespace

ExtraKeysAndCursor generate_block_hash_extra_keys(const RequestSpec& spec,
                                                  std::size_t start_token_index,
                                                  std::size_t end_token_index,
                                                  std::int64_t mm_cursor) {
  ExtraKeysAndCursor result;
  if (spec.lora) result.keys.emplace_back(spec.lora->name);
  result.mm_cursor =
      append_mm_extra_keys(spec.mm_features, static_cast<std::int64_t>(start_token_index),
                           static_cast<std::int64_t>(end_token_index), mm_cursor, result.keys);
  if (start_token_index == 0 && spec.cache_salt && !spec.cache_salt->empty()) {
    result.keys.emplace_back(*spec.cache_salt);
  }
  return result;
}

BlockHash hash_block_tokens(HashAlgorithm algorithm, BlockHashView parent_hash,
                            std::span<const TokenId> tokens, const ExtraKeys& extra_keys) {
  CborWriter writer;
  write_block(writer, parent_hash, tokens, extra_keys);
  return digest(algorithm, writer.encoded());
}

Request::Request(RequestSpec spec, const HashConfig& config) : spec_(std::move(spec)) {
  hash_by(config);
}

void Request::assign(const RequestSpec& spec, const HashConfig& config) {
  spec_ = spec;
  hash_by(config);
}

void Request::hash_by(const HashConfig& config) {
  KVFENCE_CHECK(config.hash_block_size > 0, "hash_block_size must be positive");
  algorithm_ = config.algorithm;
  hash_block_size_ = config.hash_block_size;
  hash_size_ = kvfence::hash_bytes(config.algorithm);
  seed_ = config.seed;
  hash_bytes_.clear();
  hash_full_blocks();
}

void Request::hash_full_blocks() {
  const std::span<const TokenId> tokens = spec_.tokens;
  const std::size_t num_full_blocks = tokens.size() / hash_block_size_;
  std::size_t block_index = num_hashes();
  num_tokens_at_next_hash_ = (num_full_blocks + 1) * hash_block_size_;
  if (block_index == num_full_blocks) return;

  hash_bytes_.resize(num_full_blocks * hash_size_);
  const auto hash_at = [this](std::size_t index) {
    return hash_bytes_.data() + index * hash_size_;
  };
  CborWriter writer;
  std::array<char, kHashBytesMax> none_hash;
  std::int64_t mm_cursor = kLastMmFeature;
  const char* parent = none_hash.data();
  if (block_index == 0) {
    writer.write_text(seed_);
    digest_to(algorithm_, writer.encoded(), none_hash.data());
    mm_cursor = 0;
  } else {
    parent = hash_at(block_index - 1);
  }
  for (; block_index < num_full_blocks; ++block_index) {
    const std::size_t start = block_index * hash_block_size_;
    ExtraKeysAndCursor extra =
        generate_block_hash_extra_keys(spec_, start, start + hash_block_size_, mm_cursor);
    mm_cursor = extra.mm_cursor;
    write_block(writer, {parent, hash_size_}, tokens.subspan(start, hash_block_size_), extra.keys);
    digest_to(algorithm_, writer.encoded(), hash_at(block_index));
    parent = hash_at(block_index);
  }
}

}  // namespace kvfence
