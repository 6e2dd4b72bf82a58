#pragma once

/// How explain.cpp draws a target's observations: a picture shows one scene per row. Pictures read
/// the members that they draw by name (scenarios/story/observed_member.h), so one serves every
/// target that has these members.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/core/observation.h"
#include "contract/core/target.h"

namespace kvfence {

/// Commands are cut to this many characters in the picture; the history shows them whole.
inline constexpr std::size_t kCommandShownMax = 66;
/// The column of a scene's picture, after its number and command.
inline constexpr std::size_t kPictureColumn = kCommandShownMax + 8;

inline std::string padded(std::string text, std::size_t width) {
  if (text.size() < width) text.resize(width, ' ');
  return text;
}

inline std::string shortened(std::string text, std::size_t width) {
  if (text.size() > width) text = text.substr(0, width - 3) + "...";
  return text;
}

/// A command and the observations after it.
struct Scene {
  std::size_t step = 0;
  std::string command;
  Observation expected;
  Observation actual;
};
using Scenes = std::vector<Scene>;

/// What a side shows of one thing; nothing if it shows no state.
using ShownOf = std::function<std::optional<std::string>(const Observation& observation)>;

/// The history of that thing: every step at which it changed on the reference's side, and the last
/// one with the other side's value, if that differs. `before`: the value before the first command.
std::string history_of(const Scenes& scenes, const std::string& name, std::string before,
                       std::size_t width, const ShownOf& shown_of);

/// Names of the differences.
std::string different(std::initializer_list<std::pair<bool, std::string_view>> differs_and_names);

class ScenePicture {
 public:
  virtual ~ScenePicture() = default;

  /// Whether the observation holds what a row shows.
  virtual bool has_state(const Observation& observation) const = 0;

  virtual std::string legend() const = 0;
  virtual std::string heading() const = 0;
  /// Requires: has_state(observation)
  virtual std::string row(const Observation& observation) const = 0;
  /// Further lines about a scene, given the one before it, if any.
  virtual std::vector<std::string> more_of(const Scene& scene, const Scene* before) const;

  /// The differences between the two rows. Requires: both have the state.
  virtual std::string marks(const Observation& expected, const Observation& actual) const = 0;
  /// The history of what differs between the sides at the end. Requires: a scene.
  virtual std::string histories(const Scenes& scenes) const;
};

/// Whether a configuration is one of two engines.
bool has_two_engines(const Config& config);

/// A pool, with free_queue, ref_cnts and keys: its blocks in columns, and the free queue. `prefix`
/// stands before these names in observations.
std::unique_ptr<ScenePicture> make_pool_picture(std::uint32_t num_blocks, const Scenes& scenes,
                                                std::string prefix = "");
/// Two engines, the second's members after "consumer_": the blocks of both pools, the producer's
/// first.
std::unique_ptr<ScenePicture> make_pair_picture(const Config& config, const Scenes& scenes);
/// A copy worker, with gpu_pages and cpu_pages: what each page on either side holds.
std::unique_ptr<ScenePicture> make_pages_picture();
/// A cache policy, with t1, t2, b1 and b2: its lists, oldest first.
std::unique_ptr<ScenePicture> make_lists_picture(const Config& config);

/// The picture for the target's observations. The configuration is that of a setup.
std::unique_ptr<ScenePicture> make_picture(const Target& target, const Config& config,
                                           const Scenes& scenes);

}  // namespace kvfence
