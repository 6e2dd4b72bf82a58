#pragma once

/// What the tests of every table of planted bugs ask of it.

#include <cstddef>
#include <set>
#include <string_view>
#include <vector>

namespace kvfence::optimized {

/// The names of those that do not stand where their enumeration has them, are not found by their
/// name, or share it with an earlier one or with one of those that are taken; and "no_such_bug", if
/// that is found.
template <class Table, class FromName>
std::vector<std::string_view> misplaced_bugs(const Table& table, FromName from_name,
                                             std::set<std::string_view> taken = {}) {
  std::vector<std::string_view> misplaced;
  for (std::size_t place = 0; place < table.size(); ++place) {
    const auto& info = table[place];
    const bool is_in_order =
        static_cast<std::size_t>(info.bug) == place + 1 && &planted_bug_info(info.bug) == &info;
    const bool is_found = from_name(info.name) == info.bug;
    if (!taken.insert(info.name).second || !is_in_order || !is_found) {
      misplaced.push_back(info.name);
    }
  }
  if (from_name("no_such_bug")) misplaced.push_back("no_such_bug");
  return misplaced;
}

}  // namespace kvfence::optimized
