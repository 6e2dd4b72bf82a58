#pragma once

/// The picture of a copy worker: what each page on either side holds.

#include <string>
#include <string_view>
#include <vector>

#include "contract/worker/worker_target.h"
#include "scenarios/story/explain_picture.h"

namespace kvfence {

/// For observations with gpu_pages and cpu_pages.
template <class Target>
class WorkerPicture {
 public:
  using Observation = typename Target::Observation;
  using Scenes = std::vector<Scene<Observation>>;

  WorkerPicture(const typename Target::Config&, const Scenes&) {}

  static bool has_state(const Observation& observation) {
    return observation.gpu_pages.has_value() && observation.cpu_pages.has_value();
  }

  std::string legend() const {
    return "3:5g2 page 3 holds what the second forward wrote into GPU block 5   3:torn page 3 "
           "holds "
           "parts   r1/3: of rank 1   +1 deferred   ~2 in flight   ! races, misuses";
  }

  std::string heading() const { return "GPU | CPU | transfers"; }

  /// Requires: has_state(observation)
  std::string row(const Observation& observation) const {
    std::string row =
        pages_text(*observation.gpu_pages) + " | " + pages_text(*observation.cpu_pages) + " | +" +
        std::to_string(observation.num_deferred) + " ~" + std::to_string(observation.num_in_flight);
    if (observation.num_races + observation.num_misuses > 0) {
      row += " ! " + std::to_string(observation.num_races) + " " +
             std::to_string(observation.num_misuses);
    }
    return row;
  }

  std::vector<std::string> more_of(const Scene<Observation>&, const Scene<Observation>*) const {
    return {};
  }

  /// What differs between the two rows. Requires: both have the state.
  std::string marks(const Observation& expected, const Observation& actual) const {
    std::string names;
    const auto add = [&](bool differs, std::string_view name) {
      if (differs) names += " " + std::string(name);
    };
    add(*expected.gpu_pages != *actual.gpu_pages, "the GPU's pages");
    add(*expected.cpu_pages != *actual.cpu_pages, "the CPU's pages");
    add(expected.num_races != actual.num_races, "races");
    add(expected.num_misuses != actual.num_misuses, "misuses");
    return names.empty() ? "" : "^ different:" + names;
  }

  std::string histories(const Scenes&) const { return ""; }

 private:
  static std::string pages_text(const std::vector<worker::Page>& pages) {
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
};

}  // namespace kvfence
