#include "scenarios/command/help_pages.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "contract/core/joined.h"
#include "scenarios/command/shell_word.h"

namespace kvfence {
namespace {

std::string replaced(std::string_view text, std::string_view characters, std::string_view before) {
  std::string out;
  for (const char character : text) {
    if (characters.find(character) != characters.npos) out += before;
    out += character;
  }
  return out;
}

bool is_positional(const OptionHelp& option) { return option.names.empty(); }

std::vector<std::string> names_of(const std::vector<OptionHelp>& options) {
  std::vector<std::string> names;
  for (const OptionHelp& option : options) {
    names.insert(names.end(), option.names.begin(), option.names.end());
  }
  return names;
}

// ---- man(7) ----

/// Text with roff's special characters escaped.
std::string roff(std::string_view text) {
  std::string out;
  for (const char character : text) {
    if (character == '\\') {
      out += "\\e";
    } else {
      out += character == '-' ? std::string("\\-") : std::string(1, character);
    }
  }
  return !out.empty() && (out[0] == '.' || out[0] == '\'') ? "\\&" + out : out;
}

std::string man_option(const OptionHelp& option) {
  const std::string value = "\\fI" + roff(option.value) + "\\fR";
  std::string text = ".TP\n";
  if (is_positional(option)) {
    text += value;
  } else {
    text += "\\fB" + roff(joined(option.names, ", ")) + "\\fR";
    if (!option.value.empty()) text += " " + value;
  }
  text += "\n" + roff(option.doc) + "\n";
  if (!option.choices.empty()) text += "One of " + roff(joined(option.choices, ", ")) + ".\n";
  if (!option.default_value.empty()) text += "Default: " + roff(option.default_value) + ".\n";
  return text;
}

std::string man_options(const CommandHelp& command) {
  std::string text;
  for (const OptionHelp& option : command.options) text += man_option(option);
  return text;
}

}  // namespace

std::string man_page(const ProgramHelp& help) {
  const CommandHelp& program = help.program;
  std::string title = program.name;
  std::transform(title.begin(), title.end(), title.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::toupper(letter)); });
  // "kvfence checks ...: a simple reference ..." is a name and a line about it.
  const std::string_view doc = program.doc;
  const std::string_view line = doc.substr(0, doc.find(':')).substr(program.name.size() + 1);
  std::string text = ".TH " + title + " 1 \"\" \"" + program.name + " " + help.version +
                     "\" \"User Commands\"\n.SH NAME\n" + program.name + " \\- " + roff(line) +
                     "\n.SH SYNOPSIS\n.B " + program.name +
                     "\n\\fISUBCOMMAND\\fR [\\fIOPTION\\fR...]\n.SH DESCRIPTION\n" + roff(doc) +
                     "\n.SH OPTIONS\n" + man_options(program) + ".SH SUBCOMMANDS\n";
  for (const CommandHelp& command : help.commands) {
    text += ".SS " + program.name + " " + command.name + "\n" + roff(command.doc) + "\n" +
            man_options(command);
  }
  return text + ".SH EXIT STATUS\n" + roff(help.exit_codes) + "\n";
}

// ---- bash ----

std::string bash_completions(const ProgramHelp& help) {
  const std::string& name = help.program.name;
  std::string values;
  std::string options;
  for (const CommandHelp& command : help.commands) {
    for (const OptionHelp& option : command.options) {
      if (option.choices.empty()) continue;
      const std::string list = " words=" + shell_word(joined(option.choices, " ")) + " ;;\n";
      for (const std::string& flag : option.names) {
        values += "    '" + command.name + " " + flag + "')" + list;
      }
      if (is_positional(option)) values += "    '" + command.name + " '*)" + list;
    }
    options += "      " + command.name +
               ") words=" + shell_word(joined(names_of(command.options), " ")) + " ;;\n";
  }
  return "# Completions of " + name + " for bash; " + name + " generate bash wrote them.\n_" +
         name +
         "() {\n  local word=${COMP_WORDS[COMP_CWORD]} words=\n  if [ \"$COMP_CWORD\" -eq 1 ]; "
         "then\n"
         "    words=" +
         shell_word(joined(help.commands, " ", &CommandHelp::name) + " " +
                    joined(names_of(help.program.options), " ")) +
         "\n  elif [[ $word == -* ]]; then\n    case ${COMP_WORDS[1]} in\n" + options +
         "    esac\n  else\n    case \"${COMP_WORDS[1]} ${COMP_WORDS[COMP_CWORD-1]}\" in\n" +
         values +
         "    esac\n  fi\n"
         "  if [ -n \"$words\" ]; then\n    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
         "  else\n    COMPREPLY=($(compgen -f -- \"$word\"))\n  fi\n}\ncomplete -o filenames -F _" +
         name + " " + name + "\n";
}

// ---- zsh ----

std::string zsh_completions(const ProgramHelp& help) {
  const std::string& name = help.program.name;
  const auto doc_of = [](const std::string& doc) { return replaced(doc, "[]:\\", "\\"); };
  const auto action_of = [](const OptionHelp& option) {
    const std::string action =
        option.choices.empty() ? "_files" : "(" + joined(option.choices, " ") + ")";
    return ":" + replaced(option.value, ":", "\\") + ":" + action;
  };
  std::string text = "#compdef " + name + "\n# Completions for zsh; " + name +
                     " generate zsh wrote them.\n_" + name + "() {\n  local -a commands=(\n";
  for (const CommandHelp& command : help.commands) {
    text += "    " + shell_word(command.name + ":" + replaced(command.doc, ":\\", "\\")) + "\n";
  }
  text += "  )\n  if (( CURRENT == 2 )); then\n    _describe subcommand commands\n    compadd -- " +
          joined(names_of(help.program.options), " ") +
          "\n    return\n  fi\n  shift words\n  (( CURRENT-- ))\n  case $words[1] in\n";
  for (const CommandHelp& command : help.commands) {
    text += "    " + command.name + ")\n      _arguments";
    for (const OptionHelp& option : command.options) {
      for (const std::string& flag : option.names) {
        text += " \\\n        " + shell_word(flag + "[" + doc_of(option.doc) + "]" +
                                             (option.value.empty() ? "" : action_of(option)));
      }
      if (is_positional(option)) text += " \\\n        " + shell_word("*" + action_of(option));
    }
    text += " ;;\n";
  }
  return text + "  esac\n}\n_" + name + " \"$@\"\n";
}

// ---- fish ----

std::string fish_completions(const ProgramHelp& help) {
  const std::string& name = help.program.name;
  const auto fish_quoted = [](std::string_view text) {
    return "'" + replaced(text, "'\\", "\\") + "'";
  };
  const auto option_text = [&](const std::string& when, const OptionHelp& option) {
    std::string text = "complete -c " + name + " -n " + fish_quoted(when);
    for (const std::string& flag : option.names) {
      text += flag.starts_with("--") ? " -l " + flag.substr(2) : " -s " + flag.substr(1);
    }
    if (!option.choices.empty()) {
      text += " -x -a " + fish_quoted(joined(option.choices, " "));
    } else if (!option.value.empty()) {
      text += " -r";
    }
    return text + " -d " + fish_quoted(option.doc) + "\n";
  };
  std::string text =
      "# Completions of " + name + " for fish; " + name + " generate fish wrote them.\n";
  for (const OptionHelp& option : help.program.options) {
    text += option_text("__fish_use_subcommand", option);
  }
  for (const CommandHelp& command : help.commands) {
    text += "complete -c " + name + " -n __fish_use_subcommand -f -a " + command.name + " -d " +
            fish_quoted(command.doc) + "\n";
    for (const OptionHelp& option : command.options) {
      if (is_positional(option) && option.choices.empty()) continue;
      text += option_text("__fish_seen_subcommand_from " + command.name, option);
    }
  }
  return text;
}

}  // namespace kvfence
