#include "contract/engine/engine_config.h"

#include <algorithm>

namespace kvfence::engine {
namespace {

/// Makes it the record of that word; false if there is none.
template <class... Records>
bool emplace(std::string_view word, std::variant<Records...>& record) {
  return ((word == Records::kWord && (record.template emplace<Records>(), true)) || ...);
}

}  // namespace

bool from_value(const Value& value, ConnectorList& member, std::string& expected) {
  expected = "connectors such as [(offloading num_cpu_blocks=8)]";
  const auto* list = value.get_if<Value::List>();
  if (!list) return false;
  member.clear();
  for (const Value& element : *list) {
    const auto* const words = element.get_if<kvfence::Record>();
    if (!words) return false;
    ConnectorRecord& record = member.emplace_back();
    if (!emplace(words->verb, record)) {
      expected =
          "(scripted), (offloading ...), (simple ...), (example ...), (decode_bench ...), "
          "(nixl ...) or (multi ...)";
      return false;
    }
    const auto error = std::visit(
        [&](auto& typed) { return assign_fields(typed, words->fields, {}); }, record.as_variant());
    if (!error) continue;
    expected = "for " + error->found + " in (" + words->verb + " ...) " + error->expected;
    return false;
  }
  return true;
}

bool operator==(const ConnectorList& a, const ConnectorList& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& one, const auto& other) {
    return one.as_variant() == other.as_variant();
  });
}

Assembly assembly_of(const Config& config) {
  if (config.has_device()) {
    const bool is_offloading =
        config.has_connector() &&
        std::holds_alternative<offloading::Record>(config.connectors->front().as_variant());
    return is_offloading ? Assembly::kOffloadingOnDevice : Assembly::kOnDevice;
  }
  if (config.connector<MultiRecord>()) return Assembly::kMulti;
  if (config.connector<offloading::Record>()) return Assembly::kOffloading;
  if (config.connector<simple::Record>()) return Assembly::kSimple;
  if (config.connector<files::ExampleRecord>() || config.connector<files::DecodeBenchRecord>()) {
    return Assembly::kSynchronous;
  }
  if (config.connector<nixl::Record>()) return Assembly::kPrefillDecode;
  return Assembly::kScheduler;
}

void make_assembly(Assembly assembly, Config& config) {
  const bool is_on_device =
      assembly == Assembly::kOffloadingOnDevice || assembly == Assembly::kOnDevice;
  config.device = is_on_device ? DeviceKind::kVirtual : DeviceKind::kScripted;
  config.engines = assembly == Assembly::kPrefillDecode ? 2 : 1;
  ConnectorList& connectors = config.connectors.emplace();
  switch (assembly) {
    case Assembly::kScheduler:
      break;
    case Assembly::kOffloading:
    case Assembly::kOffloadingOnDevice:
      connectors.emplace_back(offloading::Record());
      break;
    case Assembly::kOnDevice:
    case Assembly::kMulti:
      connectors.emplace_back(MultiRecord{{offloading::Record(), simple::Record()}});
      break;
    case Assembly::kSimple:
      connectors.emplace_back(simple::Record());
      break;
    case Assembly::kSynchronous:
      connectors.emplace_back(files::ExampleRecord());
      break;
    case Assembly::kPrefillDecode:
      connectors.emplace_back(nixl::Record());
      break;
  }
}

}  // namespace kvfence::engine
