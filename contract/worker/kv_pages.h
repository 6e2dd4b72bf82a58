#pragma once

/// What pages of KV cache hold, as an engine shows it.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/declare.h"

namespace kvfence::engine {

using kvfence::operator==;

/// A block, or the part of a slot that takes one, to which something was written.
struct KVPage {
  static constexpr std::string_view kWord = "page";
  std::uint32_t rank = 0;
  std::uint32_t number = 0;
  std::vector<std::uint32_t> symbols;
  static void declare(auto& fields) {
    using S = KVPage;
    fields.optional("rank", &S::rank, "where");
    fields.add("number", &S::number, "which");
    fields.add("symbols", &S::symbols, "one per token, the low 32 bits; 0: nothing; 1: torn bytes");
  }
};

/// Pages as one run of numbers, since all of them are observed and compared after every command.
class KVPages {
 public:
  KVPages() = default;
  explicit KVPages(const std::vector<KVPage>& pages);

  void clear() { size_ = 0; }

  /// Appends a page, whose symbols the caller writes before it appends another.
  std::span<std::uint32_t> add(std::uint32_t rank, std::uint32_t number, std::size_t num_symbols) {
    const std::size_t begin = size_;
    size_ += kNumHeadWords + num_symbols;
    if (size_ > words_.size()) words_.resize(2 * size_);
    std::uint32_t* const head = words_.data() + begin;
    head[0] = rank;
    head[1] = number;
    head[2] = static_cast<std::uint32_t>(num_symbols);
    return {head + kNumHeadWords, num_symbols};
  }

  std::vector<KVPage> list() const;
  /// A page without symbols if the list does not have it. Cost: O(pages).
  KVPage find(std::uint32_t rank, std::uint32_t number) const;

  friend bool operator==(const KVPages& a, const KVPages& b) {
    return a.size_ == b.size_ && std::equal(a.words_.begin(), a.end(), b.words_.begin());
  }

 private:
  static constexpr std::size_t kNumHeadWords = 3;

  std::vector<std::uint32_t>::const_iterator end() const {
    return words_.begin() + static_cast<std::ptrdiff_t>(size_);
  }
  KVPage page_at(std::size_t word) const;
  std::size_t size_of(std::size_t word) const { return kNumHeadWords + words_[word + 2]; }

  std::vector<std::uint32_t> words_;  ///< by page: rank, number, count of symbols, symbols
  std::size_t size_ = 0;              ///< how many of the words count
};

// As a list of pages.
Value to_value(const KVPages& member);
bool from_value(const Value& value, KVPages& member, std::string& expected);

}  // namespace kvfence::engine
