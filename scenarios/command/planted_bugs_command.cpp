/// `kvfence check --planted-bugs`: whether each planted bug is caught, by which oracle, how fast,
/// and how short the case is. Bugs of target engine run in the assembly that they belong to.

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "properties/report/number_text.h"
#include "scenarios/command/commands.h"
#include "scenarios/command/output.h"
#include "scenarios/command/progress.h"

namespace kvfence {
namespace {

using Cells = std::vector<std::string>;

std::string count_text(const std::optional<std::uint64_t>& count) {
  return count ? with_thousands(*count) : "-";
}

/// With its assembly, if it belongs to one.
std::string name_of(const PlantedBugInfo& info) {
  const std::string assembly(info.assembly);
  return (assembly.empty() ? "" : assembly + ".") + std::string(info.name);
}

/// The bugs of the pinned assembly, or all.
std::vector<PlantedBugInfo> infos_of(const TargetTools& target,
                                     const std::vector<Field>& overrides) {
  const CheckedPart* const part = target.pinned_part(overrides);
  return part ? part->planted_bugs : target.planted_bugs();
}

Cells cells_of(const PlantedBugRow& row) {
  return {name_of(row.info),
          count_text(row.lockstep_commands),
          row.lockstep_field,
          count_text(row.rule_commands),
          row.rule.empty() ? "-" : row.rule,
          std::to_string(row.shrunk_commands),
          std::string(row.info.thread)};
}

void print_table(const std::vector<Cells>& rows, bool markdown) {
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const Cells& cells : rows) {
    for (std::size_t column = 0; column < cells.size(); ++column) {
      widths[column] = std::max(widths[column], cells[column].size());
    }
  }
  const char* const separator = markdown ? " | " : "  ";
  for (std::size_t index = 0; index < rows.size(); ++index) {
    std::string line = markdown ? "| " : "";
    for (std::size_t column = 0; column < rows[index].size(); ++column) {
      const std::string& cell = rows[index][column];
      const std::string padding(widths[column] - cell.size(), ' ');
      const bool is_number = !cell.empty() && cell[0] >= '0' && cell[0] <= '9';
      line += (column > 0 ? separator : "") + (is_number ? padding + cell : cell + padding);
    }
    std::printf("%s%s\n", line.c_str(), markdown ? " |" : "");
    if (index > 0) continue;
    std::string rule = markdown ? "|" : "";
    for (std::size_t width : widths) {
      rule += markdown ? std::string(width + 2, '-') + "|" : std::string(width, '-') + "  ";
    }
    std::printf("%s\n", rule.c_str());
  }
}

}  // namespace

int planted_bugs_command(const PlantedBugsCommandOptions& options) {
  const TargetTools& target = *required(tools_of(options.target, "--target"));
  const std::vector<PlantedBugInfo> infos = infos_of(target, options.config_overrides);
  Progress progress("planted bugs", options.output.quiet);
  std::vector<Cells> table = {
      {"planted bug", "lockstep", "first seen in", "rules", "first broken", "shrunk", "thread"}};
  std::size_t num_caught = 0;
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const PlantedBugInfo& info : infos) {
    progress.show(table.size() - 1, infos.size());
    const PlantedBugRow row =
        target.measure_planted_bug(info, options.seed, options.num_seeds, options.commands_max);
    num_caught += row.lockstep_commands ? 1 : 0;
    table.push_back(cells_of(row));
    const auto count_json = [](const std::optional<std::uint64_t>& count) {
      return count ? nlohmann::ordered_json(*count) : nlohmann::ordered_json(nullptr);
    };
    rows.push_back({{"name", info.name},
                    {"assembly", info.assembly},
                    {"doc", info.doc},
                    {"thread", info.thread},
                    {"lockstep_commands", count_json(row.lockstep_commands)},
                    {"lockstep_field", row.lockstep_field},
                    {"rule_commands", count_json(row.rule_commands)},
                    {"rule", row.rule},
                    {"shrunk_commands", row.shrunk_commands},
                    {"shrunk", print(row.shrunk)}});
  }
  progress.clear();
  const bool all_caught = num_caught == infos.size() && !infos.empty();
  if (options.output.json) {
    const nlohmann::ordered_json object = {{"target", target.name()},
                                           {"seed", options.seed},
                                           {"seeds", options.num_seeds},
                                           {"planted_bugs", infos.size()},
                                           {"caught", num_caught},
                                           {"seconds", progress.seconds()},
                                           {"rows", rows}};
    print_json(object);
  } else {
    print_table(table, options.markdown);
    std::printf(
        "\nlockstep, rules: random commands until that oracle alone saw it (median of %d "
        "seeds, at most %s "
        "each; - is never)\nshrunk: commands of the smallest failing scenario found\n\n%s: %zu of "
        "%zu planted "
        "bugs caught\n",
        options.num_seeds, with_thousands(options.commands_max).c_str(), all_caught ? "ok" : "FAIL",
        num_caught, infos.size());
  }
  return all_caught ? exit_code::kAgree : exit_code::kDisagreement;
}

}  // namespace kvfence
