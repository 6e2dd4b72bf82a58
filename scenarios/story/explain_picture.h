#pragma once

/// What the pictures of explain.cpp have in common: a scene, and text of a fixed width.

#include <cstddef>
#include <string>

namespace kvfence {

/// Commands are cut to this many characters in the picture; the history shows them whole.
inline constexpr std::size_t kCommandShownMax = 66;
/// Where the picture of a scene begins, behind its number and command.
inline constexpr std::size_t kPictureColumn = kCommandShownMax + 8;

inline std::string padded(std::string text, std::size_t width) {
  if (text.size() < width) text.resize(width, ' ');
  return text;
}

inline std::string shortened(std::string text, std::size_t width) {
  if (text.size() > width) text = text.substr(0, width - 3) + "...";
  return text;
}

/// A command and what was seen behind it.
template <class Observation>
struct Scene {
  std::size_t step = 0;
  std::string command;
  Observation expected;
  Observation actual;
};

/// One change in the life of a block, as both pictures tell it; `other` is what the other side
/// shows, empty if it shows the same.
template <class Observation>
std::string history_line(const Scene<Observation>& scene, const std::string& before,
                         const std::string& now, std::size_t width, const std::string& other) {
  std::string line = "  step " + padded(std::to_string(scene.step), 4) + padded(before, width) +
                     "-> " + padded(now, width);
  if (!other.empty()) line += "(" + other + " on the other side) ";
  return line + " " + scene.command + "\n";
}

}  // namespace kvfence
