#pragma once

/// Reads and writes the files of the commands, with or without gzip. Errors are text for people; no
/// file is left half-written.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/line.h"
#include "contract/core/scenario.h"
#include "scenarios/command/target_tools.h"

namespace kvfence {

/// The whole file, unpacked; or why it cannot be read.
Parsed<std::string> read_file(const std::string& path);

/// Writes to another file and renames it, so that a reader sees the old text or the new; a link or
/// a device is written itself. Compresses if the name ends in .gz, equal texts to equal bytes.
/// Returns an error message, if any.
std::optional<std::string> write_file(const std::string& path, std::string_view text);

/// Why write_file() would fail, as far as that can be known without writing.
std::optional<std::string> why_not_writable(const std::string& path);

/// Whether the name ends in .kvs or .kvs.gz.
bool is_scenario_name(const std::string& path);

/// A scenario file, parsed, with the target that it names.
struct LoadedScenario {
  Document document;
  const TargetTools* target = nullptr;

  /// That episode, which the file must have; without one the whole document.
  Document only(std::optional<std::size_t> episode) const;
};
/// episode: which one is meant.
/// Errors: besides, no such episode; episodes of several targets.
Parsed<LoadedScenario> load_scenario(const std::string& path,
                                     std::optional<std::size_t> episode = std::nullopt);

/// The files that the paths name; folders are searched for *.kvs and *.kvs.gz. Sorted.
Parsed<std::vector<std::string>> scenario_files(const std::vector<std::string>& paths);

/// "a/b.shrunk.kvs" for "a/b.kvs" and "a/b.kvs.gz"; "b.shrunk.kvs" if "a/b" is no file but a pipe.
std::string shrunk_path(const std::string& path);

}  // namespace kvfence
