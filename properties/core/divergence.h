#pragma once

/// The first failure in a run, as data, and the rules that can report it; report.h renders it.

#include <cstddef>
#include <string>
#include <string_view>

namespace kvfence {

struct Divergence {
  std::size_t step = 0;  ///< index of the command, from 0
  /// What reports it: "lockstep", "expectation", "leaks", "implementation", or the name of a rule;
  /// "crash": the process that ran both sides exited. No failures: "unsupported", a side does not
  /// support the configuration; "unavailable", a side does not support the target or cannot be
  /// started; "stopped", the run was stopped.
  std::string oracle = {};
  /// The observation's member, with an index where it is a list: "free_queue[2]".
  std::string field = {};
  std::string expected = {};  ///< the reference's side, or what the rule demands; in line language
  std::string actual = {};    ///< the other side
  std::string message = {};   ///< one sentence: the broken rule

  friend bool operator==(const Divergence&, const Divergence&) = default;
};

/// One row of a room's table of rules.
struct Invariant {
  std::string_view id;    ///< unique across targets: "pool.3"
  std::string_view name;  ///< Divergence::oracle
  std::string_view rule;  ///< Divergence::message
  /// Members of the observation that it reads besides `error`, as "blocks ref_cnts"; empty: all.
  std::string_view needs = {};
};

/// Whether a rule with these needs needs that member.
inline bool is_needed(std::string_view needs, std::string_view member) {
  const std::string all = " " + std::string(needs) + " ";
  return needs.empty() || all.find(" " + std::string(member) + " ") != std::string::npos;
}

}  // namespace kvfence
