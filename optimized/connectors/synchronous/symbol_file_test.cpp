// Goal: a file of symbols is a safetensors file, and one that is not whole is detected. Method:
// golden bytes, and each file that is too short or has an extra byte.

#include "optimized/connectors/synchronous/symbol_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace kvfence::optimized {
namespace {

using Bytes = std::vector<std::byte>;
using Symbols = std::vector<KVSymbol>;

Bytes bytes_of(const std::string& text) {
  Bytes bytes(text.size());
  if (!text.empty()) std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

// Safetensors' Rust core and its Python bindings need a header of a multiple of 8 bytes.
TEST(SymbolFile, IsASafetensorsFileOfOneTensor) {
  Bytes file;
  encode_symbols(Symbols{1, 0x01020304}, file);
  std::string expected("\x40\0\0\0\0\0\0\0", 8);
  expected += R"({"kv_cache":{"dtype":"U32","shape":[2],"data_offsets":[0,8]}})";
  expected += std::string(8 + 0x40 - expected.size(), ' ');
  expected += std::string("\1\0\0\0\4\3\2\1", 8);
  EXPECT_EQ(file, bytes_of(expected));
}

TEST(SymbolFile, GivesBackWhatItGot) {
  for (std::size_t num_symbols : {0U, 1U, 4U, 25U, 300U}) {
    SCOPED_TRACE(num_symbols);
    Symbols symbols(num_symbols);
    for (std::size_t i = 0; i < num_symbols; ++i)
      symbols[i] = 0x80000001U * static_cast<KVSymbol>(i);
    Bytes file;
    encode_symbols(symbols, file);
    ASSERT_EQ(num_symbols_of(file), num_symbols);
    Symbols read(num_symbols);
    decode_symbols(file, read);
    EXPECT_EQ(read, symbols);
  }
}

TEST(SymbolFile, WithoutAnEndOrWithMoreThanThatIsNotWhole) {
  for (std::size_t num_symbols : {0U, 1U, 9U, 10U, 25U}) {
    Bytes whole;
    encode_symbols(Symbols(num_symbols, 7), whole);
    for (std::size_t size = 0; size < whole.size(); ++size) {
      SCOPED_TRACE(size);
      EXPECT_EQ(num_symbols_of(std::span(whole).first(size)), std::nullopt);
    }
    for (int i = 0; i < 8; ++i) {
      whole.push_back(std::byte{0});
      EXPECT_EQ(num_symbols_of(whole), std::nullopt);
    }
  }
}

TEST(SymbolFile, OfAnotherFormIsRefused) {
  Bytes file;
  encode_symbols(Symbols{1, 2}, file);
  Bytes other = file;
  other[8 + 25] = std::byte{'I'};  // dtype
  EXPECT_EQ(num_symbols_of(other), std::nullopt);
  other = file;
  other[7] = std::byte{0xFF};  // a header of 2^63 bytes
  EXPECT_EQ(num_symbols_of(other), std::nullopt);
  EXPECT_EQ(num_symbols_of(bytes_of("no safetensors file at all")), std::nullopt);
  EXPECT_EQ(num_symbols_of(Bytes(64)), std::nullopt);
}

}  // namespace
}  // namespace kvfence::optimized
