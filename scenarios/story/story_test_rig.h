#pragma once

/// For tests of stories: scenarios and the bugs that they name.

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/core/check.h"
#include "contract/core/scenario.h"
#include "properties/core/lockstep.h"
#include "scenarios/command/files.h"
#include "scenarios/targets/targets.h"

namespace kvfence {

inline Scenario parsed(const Target& target, std::string_view text, const std::string& file) {
  const Parsed<Document> document = parse_document(text, file);
  KVFENCE_CHECK(document, document.error().to_text());
  Parsed<Scenario> scenario = scenario_from_document(target, *document, file);
  KVFENCE_CHECK(scenario, scenario.error().to_text());
  return std::move(*scenario);
}

/// A scenario of a folder of races and the bug that it names.
struct RaceFile {
  std::string name;
  Scenario scenario;
  std::string planted_bug;
};

inline std::vector<RaceFile> race_files(const Target& target, const char* folder) {
  std::vector<RaceFile> files;
  const Parsed<std::vector<std::string>> paths = scenario_files({folder});
  KVFENCE_CHECK(paths, folder);
  for (const std::string& path : *paths) {
    RaceFile file{.name = std::filesystem::path(path).stem().string(),
                  .scenario = parsed(target, *read_file(path), path),
                  .planted_bug = {}};
    for (const std::string& comment : file.scenario.comments) {
      constexpr std::string_view kMark = "Planted bug: ";
      const std::size_t at = comment.find(kMark);
      if (at != comment.npos) file.planted_bug = comment.substr(at + kMark.size());
    }
    files.push_back(std::move(file));
  }
  return files;
}

/// Whether the side under test differs from the reference.
inline bool differs(const TargetSides& sides, const Scenario& scenario,
                    const std::string& planted_bug) {
  const auto expected = sides.make_reference();
  const auto actual =
      planted_bug.empty() ? sides.make_optimized() : sides.make_planted(planted_bug);
  Lockstep lockstep(*sides.checks, *expected, *actual);
  return run_scenario(lockstep, scenario).has_value();
}

}  // namespace kvfence
