#pragma once

/// The man page and the completions of shells, from what `--help` is made of.

#include <string>
#include <vector>

namespace kvfence {

struct OptionHelp {
  std::vector<std::string> names;    ///< "-h", "--help"; none: it is given by its place
  std::string value;                 ///< "FILE", "UINT"; empty for a flag
  std::string doc;                   ///< one line
  std::string default_value;         ///< empty: none is shown
  std::vector<std::string> choices;  ///< all values that it takes; empty where any can be typed
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

/// What each shell reads from its own folder: an option and its choices after its subcommand, files
/// elsewhere.
std::string bash_completions(const ProgramHelp& help);
std::string zsh_completions(const ProgramHelp& help);
std::string fish_completions(const ProgramHelp& help);

}  // namespace kvfence
