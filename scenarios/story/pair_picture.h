#pragma once

/// The picture of a pair of engines: the blocks of both pools, the producer's first.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "contract/connectors/disaggregated/disaggregated_target.h"
#include "scenarios/story/explain_picture.h"
#include "scenarios/story/pool_picture.h"

namespace kvfence {

/// For observations with an engine's observation by role, reads and notices.
template <class Target>
class PairPicture {
 public:
  using Observation = typename Target::Observation;
  using Scenes = std::vector<Scene<Observation>>;

  PairPicture(const typename Target::Config& config, const Scenes& scenes)
      : producer_({config.num_gpu_blocks}, of(EngineRole::kProducer, scenes)),
        consumer_({config.consumer_num_gpu_blocks > 0 ? config.consumer_num_gpu_blocks
                                                      : config.num_gpu_blocks},
                  of(EngineRole::kConsumer, scenes)) {}

  static bool has_state(const Observation& observation) {
    return Pool::has_state(observation.of(EngineRole::kProducer)) &&
           Pool::has_state(observation.of(EngineRole::kConsumer));
  }

  std::string legend() const { return producer_.legend(); }

  std::string heading() const {
    return "producer: " + producer_.heading() + kBetween + "consumer: " + consumer_.heading();
  }

  /// Requires: has_state(observation)
  std::string row(const Observation& observation) const {
    return "          " + producer_.row(observation.of(EngineRole::kProducer)) + kBetween +
           "          " + consumer_.row(observation.of(EngineRole::kConsumer));
  }

  /// The block tables that a scene changed, and what is under way between the engines.
  std::vector<std::string> more_of(const Scene<Observation>& scene,
                                   const Scene<Observation>* before) const {
    std::vector<std::string> lines;
    for (const EngineRole role : kEngineRoles) {
      const Pool& pool = role == EngineRole::kProducer ? producer_ : consumer_;
      const Scene<EngineObservation> now = of(role, scene);
      const auto was = before ? std::optional(of(role, *before)) : std::nullopt;
      for (const std::string& line : pool.more_of(now, was ? &*was : nullptr)) {
        lines.push_back(std::string(to_text(role)) + " " + line);
      }
    }
    const auto add = [&](const char* name, const auto& member) {
      if (member.has_value() && !member->empty()) {
        lines.push_back(name + print(to_value(*member)));
      }
    };
    add("reads ", scene.expected.reads);
    add("notices ", scene.expected.notices);
    return lines;
  }

  /// What differs between the two rows. Requires: both have the state.
  std::string marks(const Observation& expected, const Observation& actual) const {
    std::string names;
    const auto add = [&](bool differs, const char* name) {
      if (differs) names += std::string(" ") + name;
    };
    add(!(expected.of(EngineRole::kProducer) == actual.of(EngineRole::kProducer)), "producer");
    add(!(expected.of(EngineRole::kConsumer) == actual.of(EngineRole::kConsumer)), "consumer");
    add(expected.reads != actual.reads, "reads");
    add(expected.notices != actual.notices, "notices");
    return names.empty() ? "" : "^ different:" + names;
  }

  /// The life of each block that the two sides show differently at the end.
  std::string histories(const Scenes& scenes) const {
    std::string text;
    const auto add = [&](const std::string& name, const std::string& histories) {
      if (!histories.empty()) text += "\n" + name + histories;
    };
    add("producer", producer_.histories(of(EngineRole::kProducer, scenes)));
    add("consumer", consumer_.histories(of(EngineRole::kConsumer, scenes)));
    return text;
  }

 private:
  using EngineObservation = scheduler::Observation;

  /// One engine, as a picture of a pool asks for it.
  struct Engine {
    using Observation = EngineObservation;
    struct Config {
      std::uint32_t num_gpu_blocks = 0;
    };
  };
  using Pool = PoolPicture<Engine>;

  static constexpr const char* kBetween = "   |   ";

  static Scene<EngineObservation> of(EngineRole role, const Scene<Observation>& scene) {
    return {scene.step, scene.command, scene.expected.of(role), scene.actual.of(role)};
  }

  static std::vector<Scene<EngineObservation>> of(EngineRole role, const Scenes& scenes) {
    std::vector<Scene<EngineObservation>> all;
    for (const Scene<Observation>& scene : scenes) all.push_back(of(role, scene));
    return all;
  }

  Pool producer_;
  Pool consumer_;
};

}  // namespace kvfence
