#include "scenarios/story/explain_picture.h"

#include "scenarios/story/observed_member.h"

namespace kvfence {

std::string history_of(const Scenes& scenes, const std::string& name, std::string before,
                       std::size_t width, const ShownOf& shown_of) {
  std::string text = "\n" + name + "\n";
  for (const Scene& scene : scenes) {
    const std::optional<std::string> now = shown_of(scene.expected);
    if (!now) continue;
    const bool is_last = &scene == &scenes.back();
    if (*now != before || is_last) {
      text += "  step " + padded(std::to_string(scene.step), 4) + padded(before, width) + "-> " +
              padded(*now, width);
      const std::optional<std::string> other = is_last ? shown_of(scene.actual) : now;
      if (other && *other != *now) text += "(" + *other + " on the other side) ";
      text += " " + scene.command + "\n";
    }
    before = *now;
  }
  return text;
}

std::string different(std::initializer_list<std::pair<bool, std::string_view>> differs_and_names) {
  std::string names;
  for (const auto& [differs, name] : differs_and_names) {
    if (differs) names += " " + std::string(name);
  }
  return names.empty() ? "" : "^ different:" + names;
}

std::vector<std::string> ScenePicture::more_of(const Scene&, const Scene*) const { return {}; }

std::string ScenePicture::histories(const Scenes&) const { return ""; }

bool has_two_engines(const Config& config) {
  const auto engines = find_member(config.declared(), "engines");
  const auto* const number = engines ? get_if<std::uint32_t>(*engines) : nullptr;
  return number && *number == 2;
}

std::unique_ptr<ScenePicture> make_picture(const Target& target, const Config& config,
                                           const Scenes& scenes) {
  if (has_two_engines(config)) return make_pair_picture(config, scenes);
  if (shows(target, "free_queue")) {
    return make_pool_picture(setting_of<std::uint32_t>(config, "num_gpu_blocks"), scenes);
  }
  if (shows(target, "gpu_pages")) return make_pages_picture();
  return make_lists_picture(config);
}

}  // namespace kvfence
