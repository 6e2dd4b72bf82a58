#include "contract/connectors/multi/multi_connector_target.h"

#include <algorithm>
#include <utility>

#include "contract/core/rules.h"

namespace kvfence {

Parsed<MultiConnectorTarget::Setup> MultiConnectorTarget::prepare(const Config& config,
                                                                  std::string_view file,
                                                                  Position position) {
  const auto error = [&](std::string found, std::string expected) {
    return InputError{std::string(file), position, std::move(found), std::move(expected)};
  };
  const auto profile = profile_from_text(config.profile);
  if (!profile) return error("profile=" + config.profile, "v0.19 or v0.23");
  const auto is_outside = [](std::size_t number, std::uint32_t max) {
    return number == 0 || number > max;
  };
  const auto range = [](std::uint32_t max) { return "1 to " + std::to_string(max); };
  if (is_outside(config.children.size(), multi_connector::kNumChildrenMax)) {
    return error(std::to_string(config.children.size()) + " children",
                 range(multi_connector::kNumChildrenMax));
  }
  for (const auto& [key, number, max] :
       {std::tuple{"num_ranks=", config.num_ranks, multi_connector::kNumRanksMax},
        std::tuple{"num_groups=", config.num_groups, multi_connector::kNumGroupsMax}}) {
    if (is_outside(number, max)) return error(key + std::to_string(number), range(max));
  }
  if (config.num_groups == 1) return config;
  if (!rules_of(*profile).multi_connector_hma) {
    return error("num_groups=" + std::to_string(config.num_groups),
                 "1, or a profile with the rule multi_connector_hma: v0.23");
  }
  if (!std::all_of(config.children.begin(), config.children.end(),
                   [](const multi_connector::Child& child) { return child.hma; })) {
    return error("num_groups=" + std::to_string(config.num_groups),
                 "1, since not every child takes several groups");
  }
  return config;
}

MultiConnectorTarget::World MultiConnectorTarget::make_world(const Config&, const Setup&) {
  return {};
}

const Target& MultiConnectorTarget::description() {
  static const Target kDescription = describe<MultiConnectorTarget>();
  return kDescription;
}

}  // namespace kvfence
