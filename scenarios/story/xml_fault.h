#pragma once

/// For the tests of charts: whether a picture is well-formed, without a parser from outside.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace kvfence {

/// What is wrong with the XML that SvgWriter writes (elements, quoted attributes, text, five
/// entities; no comments); empty if nothing is.
inline std::string xml_fault(std::string_view text) {
  constexpr std::string_view kEntities[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&apos;"};
  std::vector<std::string> open;
  std::size_t num_roots = 0;
  const auto entity_fault = [&](std::string_view piece) {
    for (std::size_t at = piece.find('&'); at != piece.npos; at = piece.find('&', at + 1)) {
      bool is_known = false;
      for (const std::string_view entity : kEntities) {
        is_known |= piece.substr(at, entity.size()) == entity;
      }
      if (!is_known) return true;
    }
    return false;
  };
  while (!text.empty()) {
    const std::size_t start = text.find('<');
    const std::string_view between = text.substr(0, start);
    if (entity_fault(between) || between.find('>') != between.npos) return "raw text";
    if (open.empty() && between.find_first_not_of('\n') != between.npos) return "text outside";
    if (start == text.npos) break;
    const std::size_t end = text.find('>', start);
    if (end == text.npos) return "open bracket";
    std::string_view tag = text.substr(start + 1, end - start - 1);
    text.remove_prefix(end + 1);
    if (!tag.empty() && tag.front() == '/') {
      if (open.empty() || open.back() != tag.substr(1)) return "closes " + std::string(tag);
      open.pop_back();
      continue;
    }
    const bool is_closed = !tag.empty() && tag.back() == '/';
    if (is_closed) tag.remove_suffix(1);
    const std::size_t name_end = tag.find(' ');
    const std::string name(tag.substr(0, name_end));
    if (open.empty() && ++num_roots > 1) return "two roots";
    if (!is_closed) open.push_back(name);
    std::vector<std::string> names;
    std::string_view attributes = name_end == tag.npos ? "" : tag.substr(name_end);
    while (!attributes.empty()) {
      const std::size_t equals = attributes.find("=\"");
      const std::size_t quote =
          equals == attributes.npos ? equals : attributes.find('"', equals + 2);
      if (attributes.front() != ' ' || quote == attributes.npos) return "attribute of " + name;
      const std::string attribute(attributes.substr(1, equals - 1));
      for (const std::string& other : names) {
        if (other == attribute) return "attribute twice in " + name;
      }
      names.push_back(attribute);
      const std::string_view value = attributes.substr(equals + 2, quote - equals - 2);
      if (value.find('<') != value.npos || entity_fault(value)) return "value in " + name;
      attributes.remove_prefix(quote + 1);
    }
  }
  if (!open.empty()) return "not closed: " + open.back();
  return num_roots == 1 ? "" : "no root";
}

/// How often it stands there, overlaps included.
inline std::size_t count_of(std::string_view text, std::string_view what) {
  std::size_t count = 0;
  for (std::size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++count;
  return count;
}

}  // namespace kvfence
