#include "contract/engine/engine_config.h"

#include <algorithm>
#include <string>

#include "contract/core/check.h"

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
  const AssemblyInfo& info = kAssemblies[static_cast<std::size_t>(assembly)];
  config.device = info.device;
  config.engines = assembly == Assembly::kPrefillDecode ? 2 : 1;
  std::string expected;
  const bool is_list =
      from_value(*parse_value(info.connectors), config.connectors.emplace(), expected);
  KVFENCE_CHECK(is_list, expected);
}

}  // namespace kvfence::engine
