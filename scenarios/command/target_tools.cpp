#include "scenarios/command/target_tools.h"

#include <string>
#include <string_view>
#include <vector>

#include "contract/core/all_targets.h"

namespace kvfence {
namespace {

/// As one word of a shell's line.
std::string quoted(std::string_view text) {
  std::string word = "'";
  for (char character : text) {
    word += character == '\'' ? std::string("'\\''") : std::string(1, character);
  }
  return word + "'";
}

}  // namespace

std::string Subject::arguments() const {
  if (!sut_command.empty()) return "--sut " + quoted(sut_command);
  if (!connector_library.empty()) return "--connector-library " + quoted(connector_library);
  return planted_bug.empty() ? "" : "--planted-bug " + planted_bug;
}

const std::vector<const TargetTools*>& all_targets() {
  static const std::vector<const TargetTools*> targets = [] {
    std::vector<const TargetTools*> all;
    AllTargets::for_each(
        [&](auto type) { all.push_back(&target_tools<typename decltype(type)::type>()); });
    return all;
  }();
  return targets;
}

const TargetTools* find_target(std::string_view name) {
  for (const TargetTools* target : all_targets()) {
    if (target->name() == name) return target;
  }
  return nullptr;
}

}  // namespace kvfence
