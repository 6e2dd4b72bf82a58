#include "contract/engine/engine_target.h"

#include <variant>

#include "contract/core/describe.h"
#include "contract/engine/engine_setup.h"

namespace kvfence {
namespace engine {

void World::apply(const Command& command) {
  newest_.reset();
  if (const auto* added = std::get_if<AddRequest>(&command)) return add(added->id, added->spec());
  const auto* handed_over = std::get_if<HandOver>(&command);
  const Request* const prompt = handed_over ? requests_.find(handed_over->request) : nullptr;
  if (!prompt) return;
  const RequestSpec spec = prompt->spec();
  add(handed_over->id, spec);
}

void World::add(const std::string& id, const RequestSpec& spec) {
  if (requests_.number_of(id)) return;
  requests_.declare(id, spec);
  newest_ = requests_.number_of(id);
}

std::optional<World::Entry> World::find(const std::string& name) const {
  const auto number = requests_.number_of(name);
  if (!number) return std::nullopt;
  return Entry{*number, number == newest_};
}

}  // namespace engine

void EngineTarget::complete(Config& config) {
  if (!config.assembly || config.connectors) return;
  const Config defaults;
  const engine::DeviceKind device = config.device;
  const std::uint32_t engines = config.engines;
  engine::make_assembly(*config.assembly, config);
  if (device != defaults.device) config.device = device;
  if (engines != defaults.engines) config.engines = engines;
}

const Target& EngineTarget::description() { return described<EngineTarget>(); }

}  // namespace kvfence
