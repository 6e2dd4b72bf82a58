#pragma once

/// The first thing that went wrong in a run, as data, and the rules that can say so; report.h
/// renders it.

#include <cstddef>
#include <string>
#include <string_view>

namespace kvfence {

struct Divergence {
  std::size_t step = 0;  ///< index of the command, from 0
  /// Who saw it: "lockstep", "expectation", "leaks", "implementation", an invariant's name; "crash":
  /// the process ended that ran both sides; "unsupported": nobody, since a side does not have the
  /// configuration, "unavailable": nor this target, or cannot be started, "stopped": nobody, since
  /// no more was wanted.
  std::string oracle = {};
  /// The observation's member, with an index where it is a list: "free_queue[2]".
  std::string field = {};
  std::string expected = {};  ///< the reference's side, or what the rule demands; in line language
  std::string actual = {};    ///< the other side
  std::string message = {};   ///< one sentence: the rule that is broken

  friend bool operator==(const Divergence&, const Divergence&) = default;
};

/// One row of a room's table of rules.
struct Invariant {
  std::string_view id;    ///< unique across targets: "pool.3"
  std::string_view name;  ///< Divergence::oracle
  std::string_view rule;  ///< Divergence::message
  /// Members of the observation that decide it besides `error`, as "blocks ref_cnts"; empty: all.
  std::string_view needs = {};
};

/// Whether a rule with these needs needs that member.
inline bool is_needed(std::string_view needs, std::string_view member) {
  const std::string all = " " + std::string(needs) + " ";
  return needs.empty() || all.find(" " + std::string(member) + " ") != std::string::npos;
}

}  // namespace kvfence
