#pragma once

/// Digests of internal states: an explorer remembers them, and a comparison of them shows that a
/// command changed nothing. The number of entries is counted too: it shows that a run which
/// released everything keeps nothing.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "contract/core/check.h"
#include "contract/core/members.h"

namespace kvfence {

/// 128 bits: no two states of one exploration collide by accident.
struct StateDigest {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  friend bool operator==(const StateDigest&, const StateDigest&) = default;
};

/// Hashes a state member by member. It includes what decides later answers, in canonical form, but
/// not the history that led to the state, such as the places in a hash table.
///
/// Counts the entries of the lists, sets and maps that it takes in; those of an array, which are
/// always there, do not count.
///
/// Source: the mixing steps of wyhash by Wang Yi (public domain), two lanes.
class StateHash {
 public:
  /// Counts entries only.
  static StateHash for_entries() {
    StateHash hash;
    hash.counts_alone_ = true;
    return hash;
  }

  template <class T>
  requires std::is_integral_v<T> || std::is_enum_v<T>
  void add(T number) { mix(static_cast<std::uint64_t>(number)); }
  /// Another one as a whole.
  void add(const StateHash& other) {
    const StateDigest digest = other.digest_of_known();
    mix(digest.low);
    mix(digest.high);
    count(other);
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
  /// Lists, sets and maps; where the order of the elements means nothing, their sum.
  template <class Range>
  requires(!std::is_convertible_v<const Range&, std::string_view>) && requires(const Range& range) {
    std::size(range);
    std::begin(range);
  }
  void add(const Range& range) {
    mix(std::size(range));
    for (const auto& element : range) {
      if constexpr (requires { typename Range::hasher; }) {
        add_unordered(hash_of(element));
      } else {
        add(element);
        num_entries_ += !kIsArray<Range>;
      }
    }
  }
  template <class A, class B>
  void add(const std::pair<A, B>& pair) {
    add(pair.first);
    add(pair.second);
  }
  /// An optional, or a pointer that owns: what is there.
  template <class T>
  requires requires(const T& value) { value.operator*(); }
  void add(const T& value) {
    add(static_cast<bool>(value));
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
  /// A plain struct without add_to: all its members.
  template <class T>
  requires std::is_aggregate_v<T> &&
      (!requires(const T& value, StateHash& hash) { value.add_to(hash); }) &&
      (!requires(const T& value) { std::begin(value); }) void add(const T& value) {
    with_members(value, [this](const auto&... members) { this->add_all(members...); });
  }

  template <class... T>
  void add_all(const T&... values) {
    (add(values), ...);
  }

  /// Entries whose order means nothing: the sum of their digests.
  void add_unordered(const StateHash& entry) {
    const StateDigest digest = entry.digest_of_known();
    sum_.low += digest.low;
    sum_.high += digest.high;
    ++num_entries_;
    count(entry);
  }

  /// An entry of a table that is no list, set or map.
  template <class... T>
  void add_entry(const T&... values) {
    ++num_entries_;
    add_all(values...);
  }

  /// What a class keeps by design when no operation is pending: a cache, storage for reuse, records
  /// of the past. Its entries are not counted.
  template <class... T>
  void add_kept(const T&... values) {
    if (counts_alone_) return;
    const std::size_t num_entries = num_entries_;
    add_all(values...);
    num_entries_ = num_entries;
  }

  /// Places that are used again, and which of them are free: only the others are entries.
  template <class Places, class Free>
  void add_pool(const Places& places, const Free& free_places) {
    add_kept(places, free_places);
    num_entries_ += std::size(places) - std::size(free_places);
  }

  /// Adds an object of a foreign class, which has no add_to.
  void add_unknown() { is_known_ = false; }

  /// The hash of one value.
  template <class T>
  static StateHash hash_of(const T& value) {
    StateHash hash;
    hash.add(value);
    return hash;
  }
  template <class T>
  static StateDigest digest_of(const T& value) {
    return hash_of(value).digest();
  }

  /// Requires: add_unknown was not called.
  StateDigest digest() const {
    KVFENCE_CHECK(is_known_, "the digest of a class without add_to");
    return digest_of_known();
  }
  /// Null if add_unknown was called.
  std::optional<std::size_t> num_entries() const {
    return is_known_ ? std::optional(num_entries_) : std::nullopt;
  }

 private:
  template <class Range>
  static constexpr bool kIsArray = std::is_array_v<Range> || requires {
    std::tuple_size<Range>::value;
  };

  StateDigest digest_of_known() const {
    StateHash last = *this;
    last.mix(sum_.low);
    last.mix(sum_.high);
    return {last.low_ ^ (last.high_ >> 32), last.high_ ^ (last.low_ << 32)};
  }
  void count(const StateHash& other) {
    num_entries_ += other.num_entries_;
    is_known_ &= other.is_known_;
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
  std::size_t num_entries_ = 0;
  bool is_known_ = true;
  bool counts_alone_ = false;
};

}  // namespace kvfence
