#pragma once

/// The man page and the completions of shells, from the same data as `--help`.

#include <string>
#include <vector>

namespace kvfence {

struct OptionHelp {
  std::vector<std::string> names;    ///< "-h", "--help"; none: a positional argument
  std::string value;                 ///< "FILE", "UINT"; empty for a flag
  std::string doc;                   ///< one line
  std::string default_value;         ///< empty: none is shown
  std::vector<std::string> choices;  ///< all values that it takes; empty if it takes any
};

struct CommandHelp {
  std::string name;
  std::string doc;
  std::vector<OptionHelp> options;
};

struct ProgramHelp {
  CommandHelp program;
  std::vector<CommandHelp> commands;
  std::string version;
  std::string exit_codes;
};

/// In the macros of man(7).
std::string man_page(const ProgramHelp& help);

/// The completion script of each shell: after a subcommand its options and their choices, elsewhere
/// files.
std::string bash_completions(const ProgramHelp& help);
std::string zsh_completions(const ProgramHelp& help);
std::string fish_completions(const ProgramHelp& help);

}  // namespace kvfence
