#include "contract/worker/kv_pages.h"

#include <algorithm>

namespace kvfence::engine {

KVPages::KVPages(const std::vector<KVPage>& pages) {
  for (const KVPage& page : pages) {
    std::ranges::copy(page.symbols, add(page.rank, page.number, page.symbols.size()).begin());
  }
}

KVPage KVPages::page_at(std::size_t word) const {
  const auto head = words_.begin() + static_cast<std::ptrdiff_t>(word);
  return {head[0], head[1], {head + kNumHeadWords, head + kNumHeadWords + head[2]}};
}

std::vector<KVPage> KVPages::list() const {
  std::vector<KVPage> pages;
  for (std::size_t word = 0; word < size_; word += size_of(word)) {
    pages.push_back(page_at(word));
  }
  return pages;
}

KVPage KVPages::find(std::uint32_t rank, std::uint32_t number) const {
  for (std::size_t word = 0; word < size_; word += size_of(word)) {
    if (words_[word] == rank && words_[word + 1] == number) return page_at(word);
  }
  return {rank, number, {}};
}

Value to_value(const KVPages& member) { return kvfence::to_value(member.list()); }

bool from_value(const Value& value, KVPages& member, std::string& expected) {
  std::vector<KVPage> pages;
  if (!kvfence::from_value(value, pages, expected)) return false;
  member = KVPages(pages);
  return true;
}

}  // namespace kvfence::engine
