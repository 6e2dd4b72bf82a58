#include "scenarios/story/explain_picture.h"

#include "scenarios/story/observed_member.h"

namespace kvfence {

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
