#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/core/declare.h"
#include "contract/core/line.h"
#include "contract/core/lists.h"
#include "contract/engine/engine_words.h"
#include "scenarios/story/explain_picture.h"
#include "scenarios/story/observed_member.h"

namespace kvfence {
namespace {

constexpr const char* kBetween = "   |   ";
/// Before the second engine's members.
constexpr std::string_view kConsumer = "consumer_";

/// The scheduler of one engine: the members with that prefix.
std::vector<Field> fields_of_engine(std::string_view prefix, const Observation& observation) {
  const std::vector<std::string_view> names =
      names_of(declared_struct<engine::SchedulerObservation>());
  std::vector<Field> fields;
  for (Field& field : fields_of(observation.declared())) {
    if (!field.key.starts_with(prefix)) continue;
    const std::string_view name = std::string_view(field.key).substr(prefix.size());
    if (contains(names, name)) {
      fields.push_back(std::move(field));
    }
  }
  return fields;
}

class PairPicture final : public ScenePicture {
 public:
  PairPicture(std::uint32_t num_producer_blocks, std::uint32_t num_consumer_blocks,
              const Scenes& scenes)
      : engines_{{{"producer", make_pool_picture(num_producer_blocks, scenes)},
                  {"consumer",
                   make_pool_picture(num_consumer_blocks, scenes, std::string(kConsumer))}}} {}

  bool has_state(const Observation& observation) const override {
    return engines_[0].pool->has_state(observation) && engines_[1].pool->has_state(observation);
  }

  std::string legend() const override { return engines_[0].pool->legend(); }

  std::string heading() const override {
    return "producer: " + engines_[0].pool->heading() + kBetween +
           "consumer: " + engines_[1].pool->heading();
  }

  std::string row(const Observation& observation) const override {
    return "          " + engines_[0].pool->row(observation) + kBetween + "          " +
           engines_[1].pool->row(observation);
  }

  /// The block tables that a scene changed, and the reads and notices between the engines.
  std::vector<std::string> more_of(const Scene& scene, const Scene* before) const override {
    std::vector<std::string> lines;
    for (const Engine& engine : engines_) {
      for (const std::string& line : engine.pool->more_of(scene, before)) {
        lines.push_back(std::string(engine.name) + " " + line);
      }
    }
    for (const char* name : {"reads", "notices"}) {
      Value::List values = observed_values(scene.expected, name);
      if (values.empty()) continue;
      lines.push_back(std::string(name) + " " + print(Value(std::move(values))));
    }
    return lines;
  }

  std::string marks(const Observation& expected, const Observation& actual) const override {
    const auto engine_differs = [&](std::string_view prefix) {
      return fields_of_engine(prefix, expected) != fields_of_engine(prefix, actual);
    };
    const auto differs = [&](std::string_view name) {
      return observed_values(expected, name) != observed_values(actual, name);
    };
    return different({{engine_differs(""), "producer"},
                      {engine_differs(kConsumer), "consumer"},
                      {differs("reads"), "reads"},
                      {differs("notices"), "notices"}});
  }

  std::string histories(const Scenes& scenes) const override {
    std::string text;
    for (const Engine& engine : engines_) {
      const std::string histories = engine.pool->histories(scenes);
      if (!histories.empty()) text += "\n" + std::string(engine.name) + histories;
    }
    return text;
  }

 private:
  struct Engine {
    std::string_view name;
    std::unique_ptr<ScenePicture> pool;
  };

  std::array<Engine, 2> engines_;  ///< the producer first
};

}  // namespace

std::unique_ptr<ScenePicture> make_pair_picture(const Config& config, const Scenes& scenes) {
  const auto num_blocks = setting_of<std::uint32_t>(config, "num_gpu_blocks");
  const auto num_of_consumer = setting_of<std::uint32_t>(config, "consumer_num_gpu_blocks");
  return std::make_unique<PairPicture>(num_blocks,
                                       num_of_consumer > 0 ? num_of_consumer : num_blocks, scenes);
}

}  // namespace kvfence
