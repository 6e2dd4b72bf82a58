#pragma once

/// A writer of canonical CBOR, for the few shapes that a block hash is taken of. Internal to
/// contract/.
///
/// Canonical: every head in its shortest form, every length definite. Small values stay in the
/// writer's own storage, so hashing a block of a few tokens allocates nothing here.
///
/// Source: RFC 8949 sections 3 and 4.2.1; vLLM v0.19.0 utils/hashing.py (cbor2, canonical=True).

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvfence {

class CborWriter {
 public:
  CborWriter() = default;
  CborWriter(const CborWriter&) = delete;
  CborWriter& operator=(const CborWriter&) = delete;

  void write_unsigned(std::uint64_t value) { write_head(kUnsigned, value); }
  void write_integer(std::int64_t value);
  void write_bytes(std::string_view bytes) { write_string(kBytes, bytes); }

  /// Requires: UTF-8; the bytes are written as they are.
  void write_text(std::string_view text) { write_string(kText, text); }

  /// The head of an array; its items are the next num_items values written.
  void write_array_head(std::uint64_t num_items) { write_head(kArray, num_items); }

  void write_null();

  /// What was written since construction or clear. Valid until the next write.
  std::string_view encoded() const { return {data_, size_}; }

  /// Forgets what was written and keeps the storage.
  void clear() { size_ = 0; }

 private:
  static constexpr std::size_t kInlineBytes = 256;

  /// Major types, in the top three bits of a head.
  static constexpr unsigned kUnsigned = 0x00;
  static constexpr unsigned kNegative = 0x20;
  static constexpr unsigned kBytes = 0x40;
  static constexpr unsigned kText = 0x60;
  static constexpr unsigned kArray = 0x80;

  /// Low five bits of a head whose value follows in 1, 2, 4 or 8 bytes; smaller values are in the
  /// head itself.
  static constexpr unsigned kOneByteFollows = 24;
  static constexpr std::size_t kHeadBytesMax = 9;

  /// Here, since most of what is written are the tokens of a block.
  void write_head(unsigned major_type, std::uint64_t value) {
    reserve_more(kHeadBytesMax);
    char* const out = data_ + size_;
    const auto write = [&](unsigned width_log2) {
      const unsigned width = 1U << width_log2;
      out[0] = static_cast<char>(major_type | (kOneByteFollows + width_log2));
      for (unsigned byte = 0; byte < width; ++byte) {
        out[width - byte] = static_cast<char>(value >> (8 * byte));
      }
      size_ += 1 + width;
    };
    if (value < kOneByteFollows) {
      out[0] = static_cast<char>(major_type | static_cast<unsigned>(value));
      size_ += 1;
    } else if (value <= 0xFF) {
      write(0);
    } else if (value <= 0xFFFF) {
      write(1);
    } else if (value <= 0xFFFF'FFFF) {
      write(2);
    } else {
      write(3);
    }
  }
  void write_string(unsigned major_type, std::string_view bytes);

  /// Room for num_bytes more at data_ + size_.
  void reserve_more(std::size_t num_bytes) {
    if (size_ + num_bytes > capacity_) [[unlikely]]
      grow(size_ + num_bytes);
  }
  void grow(std::size_t capacity_min);

  /// Deliberately not initialised: most blocks use a fraction of it.
  std::array<char, kInlineBytes> inline_;
  std::string heap_;  ///< the storage once inline_ is too small
  char* data_ = inline_.data();
  std::size_t capacity_ = kInlineBytes;
  std::size_t size_ = 0;
};

}  // namespace kvfence
