#include "contract/pool/cbor.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace kvfence {
namespace {

constexpr char kNull = '\xf6';

}  // namespace

void CborWriter::write_integer(std::int64_t value) {
  // A negative n is encoded as -1 - n, which is the complement of its bits.
  const auto bits = static_cast<std::uint64_t>(value);
  if (value < 0) {
    write_head(kNegative, ~bits);
  } else {
    write_head(kUnsigned, bits);
  }
}

void CborWriter::write_string(unsigned major_type, std::string_view bytes) {
  write_head(major_type, bytes.size());
  if (bytes.empty()) return;
  reserve_more(bytes.size());
  std::memcpy(data_ + size_, bytes.data(), bytes.size());
  size_ += bytes.size();
}

void CborWriter::write_null() {
  reserve_more(1);
  data_[size_++] = kNull;
}

void CborWriter::grow(std::size_t capacity_min) {
  std::string storage;
  storage.resize(std::max(2 * capacity_, capacity_min));
  std::memcpy(storage.data(), data_, size_);
  heap_ = std::move(storage);
  data_ = heap_.data();
  capacity_ = heap_.size();
}

}  // namespace kvfence
