#pragma once

/// A list of commands with its target and configuration: what a `.kvs` file holds, and what every
/// source of interleavings yields. Steps may carry an expectation: some members of the observation
/// that has to follow.
///
///     target block_pool
///     config num_gpu_blocks=4 ...
///     get_new_blocks num_blocks=2 -> blocks=[1 2]
///
/// A long recording has digests in their place. A file may hold several scenarios, its episodes;
/// each begins with its `target` line.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/declare.h"
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

/// The line `digests members=[...] ...` of a recording without texts: `-> digest=0x...` stands for
/// all observations since the digest before it.
struct Digests {
  std::vector<std::string> members;  ///< so that one added later changes no digest
  bool sparse_state = false;
  std::string recorder;

  static constexpr std::string_view kLine = "digests";
  static constexpr const char* kField = "digest";
  static constexpr std::size_t kBytes = 8;  ///< of each

  static void declare(auto& fields) {
    fields.add("members", &Digests::members,
               "those of the observation that are digested, in order");
    fields.optional("sparse_state", &Digests::sparse_state,
                    "the state is observed only where there is a digest");
    fields.optional("recorder", &Digests::recorder, "the command line that was recorded");
  }
};

struct Scenario {
  const Target* target = nullptr;
  Config config;
  std::optional<Digests> digests;  ///< then expectations are digests
  std::vector<Step> steps;
  std::vector<std::string> comments;   ///< the lines at the top, as written after `#`
  std::string file;                    ///< for messages; empty where there is none
  std::optional<std::size_t> episode;  ///< likewise: which one, in a file of several
  Position config_position;            ///< likewise

  Scenario() = default;
  /// With the default configuration.
  explicit Scenario(const Target& of) : target(&of), config(default_config(of)) {}

  bool has_sparse_state() const { return digests && digests->sparse_state; }

  /// Compares what runs, without comments and file name.
  friend bool operator==(const Scenario& a, const Scenario& b) {
    return a.target == b.target && a.config == b.config && a.digests == b.digests &&
           a.steps == b.steps;
  }
};

/// What its configuration stands for, or what is wrong with it.
Parsed<Setup> prepare(const Scenario& scenario);

/// The target that a document names on its first line that is not a comment.
///
/// Errors: no such line, or another verb than `target`.
Parsed<std::string> target_of(const Document& document, std::string_view file = {});

/// The documents of its episodes; comments go with the `target` line below them.
std::vector<Document> episodes_of(Document document);

/// Errors: what is not a command of the target, with its place; a second `target`, `config` or
///         `digests`; either one after a command; a configuration that prepare refuses.
Parsed<Scenario> scenario_from_document(const Target& target, const Document& document,
                                        std::string_view file = {});
/// One or more.
Parsed<std::vector<Scenario>> scenarios_from_document(const Target& target, Document document,
                                                      std::string_view file = {});

Document to_document(const Scenario& scenario);

}  // namespace kvfence
