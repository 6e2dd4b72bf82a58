#include "contract/kv_connector_registry.h"

#include <utility>

#include "contract/shared_library.h"

namespace kvfence {
namespace {

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "nothing, since none is registered" : "one of " + text;
}

}  // namespace

// Source: vLLM v0.19.0 kv_connector/factory.py register_connector
std::optional<InputError> KVConnectorRegistry::register_connector(const std::string& name,
                                                                  Loader loader) {
  if (!entries_.try_emplace(name, Entry{std::move(loader), std::nullopt}).second) {
    return InputError{{}, {}, "connector " + name + " registered twice", "each name once"};
  }
  return std::nullopt;
}

// Source: vLLM v0.19.0 kv_connector/factory.py get_connector_class (kv_connector_module_path)
std::optional<InputError> KVConnectorRegistry::register_library(const std::string& name,
                                                                const std::string& path,
                                                                const std::string& symbol) {
  return register_connector(name, [name, path, symbol]() -> Parsed<KVConnectorClass> {
    const Parsed<KVConnectorEntry*> entry = open_function<KVConnectorEntry>(path, symbol);
    if (!entry) return entry.error();
    KVConnectorClass connector;
    (*entry)(connector);
    if (!connector.make_scheduler || !connector.make_worker) {
      return InputError{path, {}, "half a connector", symbol + " to fill in both members"};
    }
    return connector;
  });
}

// Source: vLLM v0.19.0 kv_connector/factory.py get_connector_class_by_name
Parsed<KVConnectorClass> KVConnectorRegistry::get(const std::string& name) {
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    return InputError{{}, {}, "connector " + name, listed(names())};
  }
  Entry& entry = found->second;
  if (!entry.loaded) {
    Parsed<KVConnectorClass> connector = entry.load();
    if (!connector) return connector.error();
    entry.loaded.emplace() = std::move(*connector);
  }
  return *entry.loaded;
}

std::vector<std::string> KVConnectorRegistry::names() const {
  std::vector<std::string> all;
  for (const auto& [name, entry] : entries_) all.push_back(name);
  return all;
}

}  // namespace kvfence
