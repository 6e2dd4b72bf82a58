#pragma once

/// The first thing that went wrong in a run, as data; report.h renders it.

#include <cstddef>
#include <string>

namespace kvfence {

struct Divergence {
  std::size_t step = 0;  ///< index of the command, from 0
  std::string
      oracle;  ///< who saw it: "lockstep", "expectation", "implementation", or an invariant's name
  std::string
      field;  ///< the observation's member, with an index where it is a list: "free_queue[2]"
  std::string expected;  ///< the reference's side, or what the rule demands; line-language text
  std::string actual;    ///< the other side
  std::string message;   ///< one sentence: the rule that is broken
};

}  // namespace kvfence
