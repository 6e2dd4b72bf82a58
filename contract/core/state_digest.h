#pragma once

/// Digests of internal states: what an explorer remembers of a state, and how a command that must
/// change nothing is held to it.

#include <bit>
#include <concepts>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "contract/core/check.h"

namespace kvfence {

/// 128 bits: no two of the states of one exploration are ever alike by accident.
struct StateDigest {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  friend bool operator==(const StateDigest&, const StateDigest&) = default;
};

/// Takes in a state member by member. What is behaviour goes in, in canonical form: the history
/// that led to a state, such as the places in a hash table, stays out.
///
/// Source: the mixing steps of wyhash by Wang Yi (public domain), two lanes.
class StateHash {
 public:
  template <std::integral T>
  void add(T number) {
    mix(static_cast<std::uint64_t>(number));
  }
  void add(const StateDigest& digest) {
    mix(digest.low);
    mix(digest.high);
  }
  void add(double number) { mix(std::bit_cast<std::uint64_t>(number)); }
  void add(std::string_view bytes) {
    mix(bytes.size());
    std::uint64_t word = 0;
    int filled = 0;
    for (const char byte : bytes) {
      word = (word << 8) | static_cast<unsigned char>(byte);
      if (++filled < 8) continue;
      mix(word);
      word = 0;
      filled = 0;
    }
    if (filled > 0) mix(word);
  }
  void add(const std::string& bytes) { add(std::string_view(bytes)); }
  template <class T>
  requires std::is_enum_v<T>
  void add(T value) { mix(static_cast<std::uint64_t>(value)); }
  /// Lists, sets and maps; where the order of the elements means nothing, their sum.
  template <class Range>
  requires requires(const Range& range) {
    std::size(range);
    std::begin(range);
  }
  void add(const Range& range) {
    mix(std::size(range));
    for (const auto& element : range) {
      if constexpr (requires { typename Range::hasher; }) {
        add_unordered(digest_of(element));
      } else {
        add(element);
      }
    }
  }
  template <class A, class B>
  void add(const std::pair<A, B>& pair) {
    add(pair.first);
    add(pair.second);
  }
  template <class T>
  void add(const std::shared_ptr<T>& pointer) {
    add_pointed_at(pointer.get());
  }
  template <class T>
  void add(const std::unique_ptr<T>& pointer) {
    add_pointed_at(pointer.get());
  }
  template <class T>
  void add(const std::optional<T>& value) {
    add(value.has_value());
    if (value) add(*value);
  }
  template <class... T>
  void add(const std::variant<T...>& value) {
    add(value.index());
    std::visit([this](const auto& alternative) { this->add(alternative); }, value);
  }
  /// A class adds its members itself: void add_to(StateHash&) const.
  template <class T>
  requires requires(const T& value, StateHash& hash) { value.add_to(hash); }
  void add(const T& value) { value.add_to(*this); }

  template <class... T>
  void add_all(const T&... values) {
    (add(values), ...);
  }

  /// Elements whose order means nothing: the sum of their digests.
  void add_unordered(const StateDigest& element) {
    sum_.low += element.low;
    sum_.high += element.high;
  }

  /// Of a value alone.
  template <class T>
  static StateDigest digest_of(const T& value) {
    StateHash hash;
    hash.add(value);
    return hash.digest();
  }

  StateDigest digest() const {
    StateHash last = *this;
    last.mix(sum_.low);
    last.mix(sum_.high);
    return {last.low_ ^ (last.high_ >> 32), last.high_ ^ (last.low_ << 32)};
  }

 private:
  template <class T>
  void add_pointed_at(const T* value) {
    add(value != nullptr);
    if (value) add(*value);
  }

  static std::uint64_t multiplied(std::uint64_t a, std::uint64_t b) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(a) * b;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  }
  void mix(std::uint64_t word) {
    low_ = multiplied(low_ ^ word, 0xA076'1D64'78BD'642F);
    high_ = multiplied(high_ ^ word ^ 0x8EBC'6AF0'9C88'C6E3, 0xE703'7ED1'A0B4'28DB) + low_;
  }

  std::uint64_t low_ = 0x2D35'8DCC'AA6C'78A5;
  std::uint64_t high_ = 0x8BB8'4B93'962E'ACC9;
  StateDigest sum_;
};

/// What a class from outside does that has no add_to of its own.
[[noreturn]] inline void no_digest() {
  check_failed(__FILE__, __LINE__, "add_to", "a class without a digest");
}

}  // namespace kvfence
