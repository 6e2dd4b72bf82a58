#pragma once

/// The library of scenarios (scenarios/cases/) as tests read it.

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include "contract/core/line.h"

namespace kvfence {

/// Where the scenarios of a part are, such as of "engine.offloading".
inline std::string cases_folder(std::string_view part) {
  std::string folder(part);
  std::replace(folder.begin(), folder.end(), '.', '/');
  return KVFENCE_CASES_DIR "/" + folder;
}

inline Parsed<Document> read_document(const std::string& file) {
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  return parse_document(text.str(), file);
}

}  // namespace kvfence
