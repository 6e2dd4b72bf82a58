#pragma once

/// Files as the commands read and write them. Errors are text for people; nothing is left
/// half-written.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/line.h"
#include "contract/core/scenario.h"
#include "scenarios/command/target_tools.h"

namespace kvfence {

/// The whole file, or why it cannot be read.
Parsed<std::string> read_file(const std::string& path);

/// Writes beside it and renames, so that a reader sees the old text or the new. The message if that
/// fails.
std::optional<std::string> write_file(const std::string& path, std::string_view text);

/// A scenario file, parsed, with the target that it names.
struct LoadedScenario {
  Document document;
  const TargetTools* target = nullptr;
};
Parsed<LoadedScenario> load_scenario(const std::string& path);

/// The files that the paths name: files as they are, folders searched for *.kvs, sorted.
Parsed<std::vector<std::string>> scenario_files(const std::vector<std::string>& paths);

/// "a/b.shrunk.kvs" for "a/b.kvs".
std::string shrunk_path(const std::string& path);

}  // namespace kvfence
