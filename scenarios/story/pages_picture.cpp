#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "contract/worker/worker_target.h"
#include "scenarios/story/explain_picture.h"
#include "scenarios/story/observed_member.h"

namespace kvfence {
namespace {

using Pages = std::vector<worker::Page>;

const Pages* gpu_pages_of(const Observation& observation) {
  return find_observed<Pages>(observation, "gpu_pages");
}
const Pages* cpu_pages_of(const Observation& observation) {
  return find_observed<Pages>(observation, "cpu_pages");
}
std::uint32_t number(const Observation& observation, std::string_view name) {
  return observed<std::uint32_t>(observation, name);
}

std::string pages_text(const Pages& pages) {
  std::string text;
  for (const worker::Page& page : pages) {
    if (!text.empty()) text += " ";
    if (page.rank > 0) text += "r" + std::to_string(page.rank) + "/";
    text += std::to_string(page.number) + ":";
    text += page.torn ? "torn"
            : page.undefined
                ? "undefined"
                : std::to_string(page.of_block) + "g" + std::to_string(page.generation);
  }
  return text.empty() ? "-" : text;
}

class PagesPicture final : public ScenePicture {
 public:
  bool has_state(const Observation& observation) const override {
    return gpu_pages_of(observation) && cpu_pages_of(observation);
  }

  std::string legend() const override {
    return "3:5g2 page 3 holds what the second forward wrote into GPU block 5   3:torn page 3 "
           "holds parts   r1/3: of rank 1   +1 deferred   ~2 in flight   ! races, misuses";
  }

  std::string heading() const override { return "GPU | CPU | transfers"; }

  std::string row(const Observation& observation) const override {
    std::string row = pages_text(*gpu_pages_of(observation)) + " | " +
                      pages_text(*cpu_pages_of(observation)) + " | +" +
                      std::to_string(number(observation, "num_deferred")) + " ~" +
                      std::to_string(number(observation, "num_in_flight"));
    const std::uint32_t num_races = number(observation, "num_races");
    const std::uint32_t num_misuses = number(observation, "num_misuses");
    if (num_races + num_misuses > 0) {
      row += " ! " + std::to_string(num_races) + " " + std::to_string(num_misuses);
    }
    return row;
  }

  std::string marks(const Observation& expected, const Observation& actual) const override {
    const auto differs = [&](std::string_view name) {
      return number(expected, name) != number(actual, name);
    };
    return different({{*gpu_pages_of(expected) != *gpu_pages_of(actual), "the GPU's pages"},
                      {*cpu_pages_of(expected) != *cpu_pages_of(actual), "the CPU's pages"},
                      {differs("num_races"), "races"},
                      {differs("num_misuses"), "misuses"}});
  }
};

}  // namespace

std::unique_ptr<ScenePicture> make_pages_picture() { return std::make_unique<PagesPicture>(); }

}  // namespace kvfence
