#pragma once

/// A list of commands with its target and configuration: what a `.kvs` file holds, and what every
/// source of interleavings yields. Steps may carry an expectation: some members of the observation
/// that has to follow.
///
///     target block_pool
///     config num_gpu_blocks=4 ...
///     get_new_blocks num_blocks=2 -> blocks=[1 2]

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/line.h"
#include "contract/core/target.h"

namespace kvfence {

/// One command and, in a scenario or a trace, what has to be seen after it.
struct Step {
  Command command;
  std::optional<std::vector<Field>> expectation = std::nullopt;
  Position position = {};

  friend bool operator==(const Step& a, const Step& b) {
    return a.command == b.command && a.expectation == b.expectation;
  }
};

struct Scenario {
  const Target* target = nullptr;
  Config config;
  std::vector<Step> steps;
  std::vector<std::string> comments;  ///< the lines at the top, as written after `#`
  std::string file;                   ///< for messages; empty where there is none
  Position config_position;           ///< likewise

  Scenario() = default;
  /// With the default configuration.
  explicit Scenario(const Target& of) : target(&of), config(default_config(of)) {}

  /// What runs; the comments and the file's name are for people.
  friend bool operator==(const Scenario& a, const Scenario& b) {
    return a.target == b.target && a.config == b.config && a.steps == b.steps;
  }
};

/// What its configuration stands for, or what is wrong with it.
Parsed<Setup> prepare(const Scenario& scenario);

/// The target that a document names on its first line that is not a comment.
///
/// Errors: no such line, or another verb than `target`.
Parsed<std::string> target_of(const Document& document, std::string_view file = {});

/// Errors: what is not a command of the target, with its place; a second `target` or `config`;
/// either
///         one after a command; a configuration that prepare refuses.
Parsed<Scenario> scenario_from_document(const Target& target, const Document& document,
                                        std::string_view file = {});

Document to_document(const Scenario& scenario);

}  // namespace kvfence
