/// The figures as tables, and as JSON.

#include <cstdio>
#include <nlohmann/json.hpp>

#include "cuda/figures/gpu_figures.h"

namespace kvfence::cuda {
namespace {

template <class... Arguments>
std::string print(const char* format, Arguments... arguments) {
  char line[256];
  std::snprintf(line, sizeof line, format, arguments...);
  return line;
}

using Json = nlohmann::ordered_json;

Json json_of(const CopyFigure& figure) {
  return {{"path", figure.path},
          {"direction", figure.direction},
          {"block_bytes", figure.block_bytes},
          {"num_blocks", figure.num_blocks},
          {"microseconds", figure.microseconds},
          {"gb_per_second", figure.gb_per_second},
          {"of_ceiling", figure.of_ceiling},
          {"call_microseconds", figure.call_microseconds},
          {"num_wrong_bytes", figure.num_wrong_bytes}};
}

Json json_of(const RaceFigure& race) {
  return {{"id", race.race.id},
          {"name", race.race.name},
          {"path", to_text(race.path)},
          {"has_barrier", race.has_barrier},
          {"must_corrupt", race.must_corrupt()},
          {"is_corrupt", race.is_corrupt()},
          {"is_early", race.outcome.is_early},
          {"has_timed_out", race.outcome.has_timed_out},
          {"is_as_expected", race.is_as_expected()},
          {"refusal", race.outcome.refusal},
          {"first_wrong", race.is_corrupt() ? race.outcome.wrong[0] : ""}};
}

Json json_of(const CopyCost& cost) {
  Json object = {{"direction", to_text(cost.direction)},
                 {"copy_bytes", cost.copy_bytes},
                 {"num_copies", cost.num_copies}};
  for (std::size_t path = 0; path < kNumCopyPaths; ++path) {
    object[std::string(to_text(static_cast<CopyPathKind>(path))) + "_us"] = cost.microseconds[path];
  }
  return object;
}

/// One to a line, so that two files can be compared.
template <class Elements>
std::string lines_of(const Elements& elements) {
  std::string text;
  for (const auto& element : elements) {
    text += (text.empty() ? "\n    " : ",\n    ") + json_of(element).dump();
  }
  return "[" + text + "]";
}

}  // namespace

std::string to_json(const Figures& figures, const std::string& device_name) {
  Json attributes = Json::object();
  for (const auto& [name, value] : figures.attributes) attributes[name] = value;
  const Json object = {{"device", device_name},
                       {"runtime_version", figures.runtime_version},
                       {"driver_version", figures.driver_version},
                       {"attributes", attributes},
                       {"store_ceiling", figures.store_ceiling},
                       {"load_ceiling", figures.load_ceiling},
                       {"both_ceiling", figures.both_ceiling},
                       {"device_copy", figures.device_copy},
                       {"fill_kernel", figures.fill_kernel},
                       {"check_kernel", figures.check_kernel},
                       {"num_wrong_in_check", figures.num_wrong_in_check},
                       {"num_rows_left_out", figures.num_rows_left_out},
                       {"num_failures", figures.num_failures()}};
  std::string text = object.dump(2);
  text.resize(text.size() - 2);  // without the end of the object
  return text + ",\n  \"races\": " + lines_of(figures.races) +
         ",\n  \"calibration\": " + lines_of(figures.calibration.costs()) +
         ",\n  \"copies\": " + lines_of(figures.copies) + "\n}\n";
}

std::string to_tables(const Figures& figures) {
  std::string text =
      print("CUDA runtime %d, driver %d", figures.runtime_version, figures.driver_version);
  for (const auto& [name, value] : figures.attributes) {
    text += ", " + name + " " + std::to_string(value);
  }
  text += "\n\nraces: the arm without its barrier has to be corrupt\n";
  text +=
      print("%-3s %-8s %-8s %-8s %-6s %s\n", "id", "path", "barrier", "corrupt", "early", "what");
  for (const RaceFigure& race : figures.races) {
    const RaceOutcome& outcome = race.outcome;
    text += print("%-3s %-8s %-8s %-8s %-6s %s", race.race.id, to_text(race.path).data(),
                  race.has_barrier ? "yes" : "no", race.is_corrupt() ? "yes" : "no",
                  outcome.is_early ? "yes" : "no", race.race.name);
    text += outcome.has_timed_out   ? ": THE LATCH TIMED OUT"
            : race.is_as_expected() ? ""
                                    : ": NOT AS EXPECTED";
    text += outcome.refusal.empty() ? "" : " (" + outcome.refusal + ")";
    text += (race.is_corrupt() ? "; " + outcome.wrong[0] : "") + "\n";
  }
  text += "\nkernels on the GPU's own memory, GB/s\n";
  text += print("fill %.0f   check %.0f   a copy reads and writes %.0f   wrong bytes %zu\n",
                figures.fill_kernel, figures.check_kernel, figures.device_copy,
                std::size_t{figures.num_wrong_in_check});
  text += "\ncalibration: the cheapest of each row\n" + figures.calibration.to_text();
  text += print("\ncopies; one large copy, GB/s: store %.1f, load %.1f, both at once %.1f\n",
                figures.store_ceiling, figures.load_ceiling, figures.both_ceiling);
  text += print("%11s %10s %-9s %-11s %12s %8s %8s %10s %8s\n", "block_bytes", "num_blocks",
                "direction", "path", "us", "GB/s", "ceiling", "us_calls", "wrong");
  for (const CopyFigure& copy : figures.copies) {
    text += print("%11zu %10zu %-9s %-11s %12.2f %8.2f %7.1f%% %10.2f %8zu\n", copy.block_bytes,
                  copy.num_blocks, copy.direction.c_str(), copy.path.c_str(), copy.microseconds,
                  copy.gb_per_second, 100 * copy.of_ceiling, copy.call_microseconds,
                  std::size_t{copy.num_wrong_bytes});
  }
  if (figures.num_rows_left_out > 0) {
    text += print("%zu rows were left out for want of time\n", figures.num_rows_left_out);
  }
  text += print("\n%zu failures\n", figures.num_failures());
  return text;
}

}  // namespace kvfence::cuda
