/// The figures as tables, and as JSON.

#include <cstdio>
#include <string_view>

#include "cuda/figures/gpu_figures.h"

namespace kvfence::cuda {
namespace {

template <class... Arguments>
std::string print(const char* format, Arguments... arguments) {
  char line[256];
  std::snprintf(line, sizeof line, format, arguments...);
  return line;
}

std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (const char character : text) {
    if (character == '"' || character == '\\') result += '\\';
    result += static_cast<unsigned char>(character) < 0x20 ? ' ' : character;
  }
  return result + "\"";
}

std::string number(double value) { return print("%.6g", value); }
std::string number(std::size_t value) { return std::to_string(value); }
std::string truth(bool value) { return value ? "true" : "false"; }

/// Members of an object, or elements of an array.
class Json {
 public:
  explicit Json(char open) : close_(open == '{' ? '}' : ']') { text_ += open; }
  Json& add(const char* name, const std::string& value) { return add(quoted(name) + ": " + value); }
  Json& add(const std::string& element) {
    if (text_.size() > 1) text_ += ", ";
    text_ += element;
    return *this;
  }
  std::string end() const { return text_ + close_; }

 private:
  std::string text_;
  char close_;
};

std::string json_of(const CopyFigure& figure) {
  return Json('{')
      .add("path", quoted(figure.path))
      .add("direction", quoted(figure.direction))
      .add("block_bytes", number(figure.block_bytes))
      .add("num_blocks", number(figure.num_blocks))
      .add("microseconds", number(figure.microseconds))
      .add("gb_per_second", number(figure.gb_per_second))
      .add("of_ceiling", number(figure.of_ceiling))
      .add("call_microseconds", number(figure.call_microseconds))
      .add("num_wrong_bytes", number(std::size_t{figure.num_wrong_bytes}))
      .end();
}

std::string json_of(const RaceFigure& race) {
  return Json('{')
      .add("id", quoted(race.id))
      .add("name", quoted(race.name))
      .add("path", quoted(race.path))
      .add("has_barrier", truth(race.has_barrier))
      .add("must_corrupt", truth(race.must_corrupt))
      .add("is_corrupt", truth(race.is_corrupt))
      .add("is_early", truth(race.is_early))
      .add("has_timed_out", truth(race.has_timed_out))
      .add("is_as_expected", truth(race.is_as_expected()))
      .add("refusal", quoted(race.refusal))
      .add("first_wrong", quoted(race.first_wrong))
      .end();
}

std::string json_of(const CopyCost& cost) {
  Json object('{');
  object.add("direction", quoted(to_text(cost.direction)))
      .add("copy_bytes", number(cost.copy_bytes))
      .add("num_copies", number(cost.num_copies));
  for (std::size_t path = 0; path < kNumCopyPaths; ++path) {
    const std::string name = std::string(to_text(static_cast<CopyPathKind>(path))) + "_us";
    object.add(name.c_str(), number(cost.microseconds[path]));
  }
  return object.end();
}

/// One to a line, so that two files can be compared.
template <class Elements>
std::string json_of_all(const Elements& elements) {
  std::string text;
  for (const auto& element : elements)
    text += (text.empty() ? "\n    " : ",\n    ") + json_of(element);
  return "[" + text + "]";
}

}  // namespace

std::string to_json(const Figures& figures, const std::string& device_name) {
  Json attributes('{');
  for (const auto& [name, value] : figures.attributes) {
    attributes.add(name.c_str(), std::to_string(value));
  }
  const std::string members[] = {
      quoted("device") + ": " + quoted(device_name),
      quoted("runtime_version") + ": " + std::to_string(figures.runtime_version),
      quoted("driver_version") + ": " + std::to_string(figures.driver_version),
      quoted("attributes") + ": " + attributes.end(),
      quoted("store_ceiling") + ": " + number(figures.store_ceiling),
      quoted("load_ceiling") + ": " + number(figures.load_ceiling),
      quoted("both_ceiling") + ": " + number(figures.both_ceiling),
      quoted("device_copy") + ": " + number(figures.device_copy),
      quoted("fill_kernel") + ": " + number(figures.fill_kernel),
      quoted("check_kernel") + ": " + number(figures.check_kernel),
      quoted("num_wrong_in_check") + ": " + number(std::size_t{figures.num_wrong_in_check}),
      quoted("num_rows_left_out") + ": " + number(figures.num_rows_left_out),
      quoted("num_failures") + ": " + number(figures.num_failures()),
      quoted("races") + ": " + json_of_all(figures.races),
      quoted("calibration") + ": " + json_of_all(figures.calibration.costs()),
      quoted("copies") + ": " + json_of_all(figures.copies),
  };
  std::string text;
  for (const std::string& member : members) text += (text.empty() ? "{\n  " : ",\n  ") + member;
  return text + "\n}\n";
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
    const char* const verdict = race.has_timed_out      ? ": THE LATCH TIMED OUT"
                                : race.is_as_expected() ? ""
                                                        : ": NOT AS EXPECTED";
    text += print("%-3s %-8s %-8s %-8s %-6s ", race.id.c_str(), race.path.c_str(),
                  race.has_barrier ? "yes" : "no", race.is_corrupt ? "yes" : "no",
                  race.is_early ? "yes" : "no");
    text += race.name + verdict + (race.refusal.empty() ? "" : " (" + race.refusal + ")");
    text += (race.first_wrong.empty() ? "" : "; " + race.first_wrong) + "\n";
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
