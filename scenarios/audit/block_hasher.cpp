#include "scenarios/audit/block_hasher.h"

#include <algorithm>
#include <limits>

namespace kvfence::audit {
namespace {

bool is_pickled(HashFunction function) {
  return function == HashFunction::kSha256 || function == HashFunction::kXxhash;
}

/// The hash algorithm of a function; functions with the same algorithm hash different inputs.
HashAlgorithm digest_of(HashFunction function) {
  return function == HashFunction::kSha256 || function == HashFunction::kSha256Cbor
             ? HashAlgorithm::kSha256Cbor
             : HashAlgorithm::kXxhashCbor;
}

class CborShape {
 public:
  explicit CborShape(CborWriter& writer) : writer_(writer) { writer_.clear(); }

  void begin_tuple(std::size_t size) { writer_.write_array_head(size); }
  void end_tuple(std::size_t) {}
  void bytes(std::string_view value) { writer_.write_bytes(value); }
  void text(std::string_view value) { writer_.write_text(value); }
  void word(std::string_view value) { writer_.write_text(value); }
  void integer(std::int64_t value) { writer_.write_integer(value); }
  void tokens(std::span<const TokenId> tokens) {
    for (TokenId token : tokens) writer_.write_unsigned(token);
  }
  void null() { writer_.write_null(); }
  std::optional<std::string_view> finish() { return writer_.encoded(); }

 private:
  CborWriter& writer_;
};

/// The output of pickle.dumps() for tuples, texts, bytes and integers. Each object but None and the
/// integers is memoized; only literals of the engine's program occur twice.
class PickleShape {
 public:
  explicit PickleShape(std::string& out) : out_(out) { out_.assign(kHeadBytes, '\0'); }

  void begin_tuple(std::size_t size) {
    if (size > 3) out_ += '(';
  }
  void end_tuple(std::size_t size) {
    constexpr std::string_view kSmall = ")\x85\x86\x87";
    out_ += size > 3 ? 't' : kSmall[size];
    if (size > 0) memoize();
  }
  void bytes(std::string_view value) { string('C', 'B', value); }
  void text(std::string_view value) { string('\x8c', 'X', value); }
  /// A literal of the program, which is one object.
  void word(std::string_view value) {
    const auto seen = std::ranges::find(words_, value, &Word::text);
    if (seen != words_.end()) {
      out_ += 'h';
      out_ += static_cast<char>(seen->memo);
      return;
    }
    words_.push_back({value, num_memoized_});
    text(value);
  }
  void integer(std::int64_t value) {
    if (value >= 0 && value <= 0xFF) {
      number('K', value, 1);
    } else if (value >= 0 && value <= 0xFFFF) {
      number('M', value, 2);
    } else if (value >= std::numeric_limits<std::int32_t>::min() &&
               value <= std::numeric_limits<std::int32_t>::max()) {
      number('J', value, 4);
    } else {
      unsigned num_bytes = 5;
      while (num_bytes < 8 && (value >> (8 * num_bytes - 1)) != (value < 0 ? -1 : 0)) ++num_bytes;
      out_ += '\x8a';
      number(static_cast<char>(num_bytes), value, num_bytes);
    }
  }
  void tokens(std::span<const TokenId> tokens) {
    for (TokenId token : tokens) integer(token);
  }
  void null() { out_ += 'N'; }

  /// Nothing if it needs a second frame or a long reference.
  std::optional<std::string_view> finish() {
    constexpr std::size_t kFrameBytesMax = 60'000;
    out_ += '.';
    if (out_.size() > kFrameBytesMax || num_memoized_ > 0xFF) return std::nullopt;
    out_.replace(0, 3, "\x80\x05\x95");
    const std::size_t length = out_.size() - kHeadBytes;
    for (unsigned byte = 0; byte < 8; ++byte) {
      out_[3 + byte] = static_cast<char>(length >> (8 * byte));
    }
    return out_;
  }

 private:
  static constexpr std::size_t kHeadBytes = 11;

  struct Word {
    std::string_view text;
    std::size_t memo;
  };

  void memoize() {
    out_ += '\x94';
    ++num_memoized_;
  }
  /// A byte, and then the value in little-endian order.
  void number(char first, std::int64_t value, unsigned num_bytes) {
    char bytes[9] = {first};
    for (unsigned byte = 0; byte < num_bytes; ++byte) {
      bytes[1 + byte] = static_cast<char>(value >> (8 * byte));
    }
    out_.append(bytes, 1 + num_bytes);
  }
  void string(char small, char wide, std::string_view value) {
    const bool is_small = value.size() <= 0xFF;
    number(is_small ? small : wide, static_cast<std::int64_t>(value.size()), is_small ? 1 : 4);
    out_ += value;
    memoize();
  }

  std::string& out_;
  std::size_t num_memoized_ = 0;
  std::vector<Word> words_;
};

template <class Shape>
bool write_extra_key(Shape& shape, const EventExtraKey& key, bool has_tag) {
  using KeyKind = EventExtraKey::Kind;
  if (key.kind == KeyKind::kItem) {
    if (!key.offset) return false;
    shape.begin_tuple(has_tag ? 3 : 2);
    if (has_tag) shape.word("mm");
    shape.text(key.value);
    shape.integer(*key.offset);
    shape.end_tuple(has_tag ? 3 : 2);
    return true;
  }
  const bool is_text = key.kind == KeyKind::kText;
  if (has_tag) {
    shape.begin_tuple(2);
    shape.word(is_text ? "cache_salt" : "prompt_embeds");
  }
  is_text ? shape.text(key.value) : shape.bytes(key.value);
  if (has_tag) shape.end_tuple(2);
  return true;
}

template <class Shape>
bool write_extra_keys(Shape& shape, const HashedBlock& block) {
  if (block.has_tags && block.has_lora) return false;
  if (block.extra_keys == nullptr) {
    shape.null();
    return true;
  }
  shape.begin_tuple(block.extra_keys->size());
  for (const EventExtraKey& key : *block.extra_keys) {
    if (!write_extra_key(shape, key, block.has_tags)) return false;
  }
  shape.end_tuple(block.extra_keys->size());
  return true;
}

template <class Shape>
bool digest_block(Shape&& shape, HashFunction function, BlockHashView parent,
                  const HashedBlock& block, BlockHash& out) {
  shape.begin_tuple(3);
  shape.bytes(parent);
  shape.begin_tuple(block.tokens.size());
  shape.tokens(block.tokens);
  shape.end_tuple(block.tokens.size());
  if (block.lookahead != nullptr) shape.begin_tuple(1 + block.lookahead->size());
  if (!write_extra_keys(shape, block)) return false;
  if (block.lookahead != nullptr) {
    for (TokenId token : *block.lookahead) shape.integer(token);
    shape.end_tuple(1 + block.lookahead->size());
  }
  shape.end_tuple(3);
  const std::optional<std::string_view> encoded = shape.finish();
  if (!encoded) return false;
  out.resize(hash_bytes(function));
  digest_to(digest_of(function), *encoded, out.data());
  return true;
}

}  // namespace

std::size_t hash_bytes(HashFunction function) { return hash_bytes(digest_of(function)); }

BlockHash BlockHasher::none_hash(HashFunction function, std::string_view seed) {
  if (!is_pickled(function)) return kvfence::none_hash(digest_of(function), seed);
  PickleShape shape(pickle_);
  shape.text(seed);
  return digest(digest_of(function), shape.finish().value_or(""));
}

bool BlockHasher::hash(HashFunction function, BlockHashView parent, const HashedBlock& block,
                       BlockHash& out) {
  return is_pickled(function) ? digest_block(PickleShape(pickle_), function, parent, block, out)
                              : digest_block(CborShape(cbor_), function, parent, block, out);
}

}  // namespace kvfence::audit
