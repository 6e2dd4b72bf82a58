#include "contract/connectors/kv_connector_registry.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "contract/core/shared_library.h"

namespace kvfence {
namespace {

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "nothing, since none is registered" : "one of " + text;
}

}  // namespace

std::optional<InputError> KVConnectorRegistry::add(const std::string& name, Entry entry) {
  if (!entries_.try_emplace(name, std::move(entry)).second) {
    return InputError{{}, {}, "connector " + name + " registered twice", "each name once"};
  }
  return std::nullopt;
}

// Source: vLLM v0.19.0 kv_connector/factory.py register_connector
std::optional<InputError> KVConnectorRegistry::register_connector(const std::string& name,
                                                                  Loader loader) {
  return add(name, {std::move(loader), {}, std::nullopt});
}

std::optional<InputError> KVConnectorRegistry::register_combiner(const std::string& name,
                                                                 Combiner combine) {
  return add(name, {{}, std::move(combine), std::nullopt});
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

Parsed<KVConnectorClass> KVConnectorRegistry::get(const std::string& name) {
  if (name.find('(') == std::string::npos) return get_single(name);
  std::string_view text = name;
  std::string first;
  Parsed<KVConnectorClass> connector = take(text, first);
  if (connector && !text.empty()) {
    return InputError{
        {}, {}, "\"" + std::string(text) + "\" behind connector " + first, "nothing there"};
  }
  return connector;
}

// Source: vLLM v0.19.0 kv_connector/factory.py get_connector_class_by_name
Parsed<KVConnectorClass> KVConnectorRegistry::get_single(const std::string& name) {
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    return InputError{{}, {}, "connector " + name, listed(names())};
  }
  Entry& entry = found->second;
  if (entry.combine) {
    return InputError{{}, {}, "connector " + name + " without children", name + "(CHILD ...)"};
  }
  if (!entry.loaded) {
    Parsed<KVConnectorClass> connector = entry.load();
    if (!connector) return connector.error();
    entry.loaded.emplace() = std::move(*connector);
  }
  return *entry.loaded;
}

// Source: vLLM v0.19.0 kv_connector/v1/multi_connector.py _get_connector_classes_and_configs
Parsed<KVConnectorClass> KVConnectorRegistry::take(std::string_view& text, std::string& name) {
  const std::size_t end = std::min(text.find_first_of("( )"), text.size());
  name = text.substr(0, end);
  text.remove_prefix(end);
  if (text.empty() || text.front() != '(') return get_single(name);

  std::vector<KVConnectorChildClass> children;
  while (!text.empty() && text.front() != ')') {
    if (!children.empty() && text.front() != ' ') {
      return InputError{{},
                        {},
                        "\"" + std::string(text) + "\" behind connector " + children.back().name,
                        "a space or a closing parenthesis"};
    }
    text.remove_prefix(1);  // an opening parenthesis, or the space behind a child
    if (children.empty() && !text.empty() && text.front() == ')') break;
    KVConnectorChildClass child;
    Parsed<KVConnectorClass> connector = take(text, child.name);
    if (!connector) return connector.error();
    child.connector = std::move(*connector);
    children.push_back(std::move(child));
  }
  if (text.empty()) {
    return InputError{{}, {}, "no end of the children of connector " + name, "a parenthesis"};
  }
  text.remove_prefix(1);

  const auto found = entries_.find(name);
  if (found == entries_.end()) return get_single(name);
  if (!found->second.combine) {
    return InputError{{}, {}, "connector " + name + " with children", name + " alone"};
  }
  if (children.empty()) return get_single(name);
  return found->second.combine(std::move(children));
}

std::vector<std::string> KVConnectorRegistry::names() const {
  std::vector<std::string> all;
  for (const auto& [name, entry] : entries_) all.push_back(name);
  return all;
}

}  // namespace kvfence
