#include "contract/engine/engine_config.h"

#include <algorithm>
#include <utility>

namespace kvfence::engine {
namespace {

/// Makes it the record of that word; false if there is none.
template <std::size_t kIndex = 0>
bool emplace(std::string_view word, ConnectorRecord& record) {
  using Records = ConnectorRecord::variant;
  if constexpr (kIndex == std::variant_size_v<Records>) {
    return false;
  } else {
    using Record = std::variant_alternative_t<kIndex, Records>;
    if (word != Record::kWord) return emplace<kIndex + 1>(word, record);
    record.template emplace<kIndex>();
    return true;
  }
}

}  // namespace

Value to_value(const ConnectorList& member) {
  Value::List list;
  for (const ConnectorRecord& record : member) {
    std::visit(
        [&](const auto& typed) {
          list.emplace_back(
              Value::Variant(kvfence::Record(std::string(typed.kWord), to_fields(typed))));
        },
        record.as_variant());
  }
  return Value::Variant(std::move(list));
}

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

std::string_view to_text(Assembly assembly) {
  for (const AssemblyInfo& info : kAssemblies) {
    if (info.assembly == assembly) return info.name;
  }
  return {};
}

std::optional<Assembly> assembly_from_text(std::string_view text) {
  for (const AssemblyInfo& info : kAssemblies) {
    if (info.name == text) return info.assembly;
  }
  return std::nullopt;
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
  ConnectorList& connectors = config.connectors.emplace();
  config.device = kScriptedDevice;
  config.engines = 1;
  switch (assembly) {
    case Assembly::kScheduler:
      break;
    case Assembly::kOffloading:
      connectors.emplace_back(offloading::Record());
      break;
    case Assembly::kOffloadingOnDevice:
      connectors.emplace_back(offloading::Record());
      config.device = kVirtualDevice;
      break;
    case Assembly::kOnDevice:
      connectors.emplace_back(MultiRecord{{offloading::Record(), simple::Record()}});
      config.device = kVirtualDevice;
      break;
    case Assembly::kSimple:
      connectors.emplace_back(simple::Record());
      break;
    case Assembly::kSynchronous:
      connectors.emplace_back(files::ExampleRecord());
      break;
    case Assembly::kMulti:
      connectors.emplace_back(MultiRecord{{offloading::Record(), simple::Record()}});
      break;
    case Assembly::kPrefillDecode:
      connectors.emplace_back(nixl::Record());
      config.engines = 2;
      break;
  }
}

}  // namespace kvfence::engine
