#pragma once

/// The picture of a cache policy: its lists, oldest first.

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/core/declare.h"
#include "contract/eviction/eviction_target.h"
#include "contract/core/line.h"
#include "scenarios/story/explain_picture.h"

namespace kvfence {

/// For observations with a policy's t1, t2, b1, b2 and target_t1_size.
template <class Target>
class ListsPicture {
 public:
  using Observation = typename Target::Observation;
  using Scenes = std::vector<Scene<Observation>>;

  ListsPicture(const typename Target::Config& config, const Scenes&)
      : is_arc_(config.policy == to_text(EvictionPolicy::kARC)) {}

  static bool has_state(const Observation& observation) {
    return observation.t1.has_value() && observation.t2.has_value() && observation.b1.has_value() &&
           observation.b2.has_value();
  }

  std::string legend() const {
    return "5 idle   5? being written   5+2 read by two   oldest first, by key";
  }

  std::string heading() const {
    return is_arc_ ? "T1 | T2 | B1 | B2, target of T1" : "blocks, oldest first";
  }

  /// Requires: has_state(observation)
  std::string row(const Observation& observation) const {
    std::string row = blocks_text(*observation.t1);
    if (is_arc_) {
      row += " | " + blocks_text(*observation.t2) + " | " + ghosts_text(*observation.b1) + " | " +
             ghosts_text(*observation.b2) + ", " + print(to_value(observation.target_t1_size));
    }
    if constexpr (requires { observation.num_free_slots; }) {
      row += "   free slots " + std::to_string(observation.num_free_slots);
    }
    return row;
  }

  std::vector<std::string> more_of(const Scene<Observation>&, const Scene<Observation>*) const {
    return {};
  }

  /// Which lists differ between the two rows. Requires: both have the state.
  std::string marks(const Observation& expected, const Observation& actual) const {
    std::string names;
    const auto add = [&](bool differs, std::string_view name) {
      if (differs) names += " " + std::string(name);
    };
    add(*expected.t1 != *actual.t1, is_arc_ ? "T1" : "the blocks");
    add(*expected.t2 != *actual.t2, "T2");
    add(*expected.b1 != *actual.b1, "B1");
    add(*expected.b2 != *actual.b2, "B2");
    add(expected.target_t1_size != actual.target_t1_size, "the target");
    return names.empty() ? "" : "^ different:" + names;
  }

  /// The life of each key that the two sides show differently at the end.
  std::string histories(const Scenes& scenes) const {
    const Scene<Observation>& last = scenes.back();
    if (!has_state(last.expected) || !has_state(last.actual)) return "";
    std::string text;
    std::size_t num_told = 0;
    for (std::uint32_t key : keys_of(last)) {
      if (num_told == kHistoriesMax) break;
      if (place_of(last.expected, key) == place_of(last.actual, key)) continue;
      text += history(scenes, key);
      ++num_told;
    }
    return text;
  }

 private:
  static constexpr std::size_t kHistoriesMax = 3;
  /// "B1 B2 T1?" and the like are no wider.
  static constexpr std::size_t kPlaceWidth = 6;

  static std::string status_text(const eviction::Entry& block) {
    if (!block.ready) return "?";
    return block.readers > 0 ? "+" + std::to_string(block.readers) : "";
  }

  static std::string blocks_text(const std::vector<eviction::Entry>& blocks) {
    std::string text;
    for (const eviction::Entry& block : blocks) {
      text += (text.empty() ? "" : " ") + std::to_string(block.key) + status_text(block);
    }
    return text.empty() ? "-" : text;
  }

  static std::string ghosts_text(const std::vector<std::uint32_t>& ghosts) {
    std::string text;
    for (std::uint32_t key : ghosts) text += (text.empty() ? "" : " ") + std::to_string(key);
    return text.empty() ? "-" : text;
  }

  static std::set<std::uint32_t> keys_of(const Scene<Observation>& scene) {
    std::set<std::uint32_t> keys;
    for (const Observation* shown : {&scene.expected, &scene.actual}) {
      for (const auto* blocks : {&*shown->t1, &*shown->t2}) {
        for (const eviction::Entry& block : *blocks) keys.insert(block.key);
      }
      keys.insert(shown->b1->begin(), shown->b1->end());
      keys.insert(shown->b2->begin(), shown->b2->end());
    }
    return keys;
  }

  /// "T1?", "T2+1", "B1", or "." for a key that stands nowhere.
  static std::string place_of(const Observation& observation, std::uint32_t key) {
    for (const auto& [name, blocks] :
         {std::pair{"T1", &*observation.t1}, std::pair{"T2", &*observation.t2}}) {
      for (const eviction::Entry& block : *blocks) {
        if (block.key == key) return name + status_text(block);
      }
    }
    for (const auto& [name, ghosts] :
         {std::pair{"B1", &*observation.b1}, std::pair{"B2", &*observation.b2}}) {
      for (std::uint32_t ghost : *ghosts) {
        if (ghost == key) return name;
      }
    }
    return ".";
  }

  /// Every step at which the key changed its place on the reference's side.
  static std::string history(const Scenes& scenes, std::uint32_t key) {
    std::string text = "\nkey " + std::to_string(key) + "\n";
    std::string before = ".";
    for (const Scene<Observation>& scene : scenes) {
      if (!has_state(scene.expected)) continue;
      const std::string now = place_of(scene.expected, key);
      const bool is_last = &scene == &scenes.back();
      if (now != before || is_last) {
        const std::string other =
            is_last && has_state(scene.actual) ? place_of(scene.actual, key) : now;
        text += history_line(scene, before, now, kPlaceWidth, other == now ? "" : other);
      }
      before = now;
    }
    return text;
  }

  bool is_arc_;
};

}  // namespace kvfence
