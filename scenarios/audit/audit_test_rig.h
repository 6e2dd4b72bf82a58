#pragma once

/// For tests of an audit: payloads in either encoding, written by hand instead of by the encoder
/// of the publishing side.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/types.h"

namespace kvfence::audit {

/// msgpack of small or whole values.
class Pack {
 public:
  Pack& list(std::size_t size) { return head('\x90', 0xDC, size); }
  Pack& map(std::size_t size) { return head('\x80', 0xDE, size); }
  Pack& nil() { return raw("\xc0"); }
  Pack& text(std::string_view text) {
    out_ += '\xd9';
    out_ += static_cast<char>(text.size());
    return raw(text);
  }
  Pack& bytes(std::string_view bytes) {
    out_ += '\xc4';
    out_ += static_cast<char>(bytes.size());
    return raw(bytes);
  }
  Pack& number(std::uint64_t value) {
    if (value < 128) {
      out_ += static_cast<char>(value);
      return *this;
    }
    out_ += '\xcf';
    for (unsigned byte = 8; byte-- > 0;) out_ += static_cast<char>(value >> (8 * byte));
    return *this;
  }
  Pack& tokens(const std::vector<TokenId>& tokens) {
    list(tokens.size());
    for (TokenId token : tokens) number(token);
    return *this;
  }
  Pack& raw(std::string_view bytes) {
    out_ += bytes;
    return *this;
  }
  std::string done() const { return out_; }

 private:
  Pack& head(char small, unsigned wide, std::size_t size) {
    if (size < 16) {
      out_ += static_cast<char>(small | static_cast<char>(size));
      return *this;
    }
    out_ += static_cast<char>(wide);
    out_ += static_cast<char>(size >> 8);
    out_ += static_cast<char>(size);
    return *this;
  }

  std::string out_;
};

/// A stored block, as a test describes it.
struct StoredText {
  std::vector<std::string> hashes;
  std::string parent;  ///< empty: none
  std::vector<TokenId> tokens;
  std::uint32_t block_size = 4;
  std::string medium = "GPU";
  std::string kind = "full_attention";  ///< empty: none
  std::vector<TokenId> lookahead = {};  ///< of the first hash; empty: none
};

inline std::string stored(const StoredText& event) {
  Pack pack;
  pack.map(event.lookahead.empty() ? 7 : 8);
  pack.text("type").text("BlockStored").text("block_hashes").list(event.hashes.size());
  for (const std::string& hash : event.hashes) pack.bytes(hash);
  pack.text("parent_block_hash");
  event.parent.empty() ? pack.nil() : pack.bytes(event.parent);
  pack.text("token_ids")
      .tokens(event.tokens)
      .text("block_size")
      .number(event.block_size)
      .text("medium")
      .text(event.medium)
      .text("kv_cache_spec_kind");
  event.kind.empty() ? pack.nil() : pack.text(event.kind);
  if (!event.lookahead.empty()) pack.text("lookahead_token_ids").list(1).tokens(event.lookahead);
  return pack.done();
}

inline std::string removed(std::string_view hash, std::string_view medium = "GPU") {
  return Pack()
      .map(3)
      .text("type")
      .text("BlockRemoved")
      .text("block_hashes")
      .list(1)
      .bytes(hash)
      .text("medium")
      .text(medium)
      .done();
}

inline std::string cleared() { return Pack().map(1).text("type").text("AllBlocksCleared").done(); }

/// [1.5, events, rank 0].
inline std::string batch_of(const std::vector<std::string>& events, std::uint64_t rank = 0) {
  Pack pack;
  pack.list(3).raw(std::string_view("\xcb\x3f\xf8\0\0\0\0\0\0", 9)).list(events.size());
  for (const std::string& event : events) pack.raw(event);
  return pack.number(rank).done();
}

}  // namespace kvfence::audit
