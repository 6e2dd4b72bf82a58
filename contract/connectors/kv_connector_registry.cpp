#include "contract/connectors/kv_connector_registry.h"

#include <cstddef>
#include <utility>

#include "contract/core/shared_library.h"

namespace kvfence {
namespace {

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

template <class... Factories>
std::size_t num_filled(const Factories&... factories) {
  return (std::size_t{factories ? 1U : 0U} + ...);
}

}  // namespace

std::vector<std::string> KVConnectorFactories::kinds_where(bool whole) const {
  struct Kind {
    const char* name;
    std::size_t num_filled;
    std::size_t num_halves;
  };
  const Kind kinds[] = {
      {"offloading", num_filled(make_offloading, make_offloading_worker), 2},
      {"simple", num_filled(make_simple, make_simple_worker), 2},
      {"files", num_filled(make_files_connector, make_files_worker), 2},
      {"nixl", num_filled(make_producer, make_consumer, make_producer_worker, make_consumer_worker),
       4},
  };
  std::vector<std::string> names;
  for (const Kind& kind : kinds) {
    const bool is_whole = kind.num_filled == kind.num_halves;
    if (kind.num_filled > 0 && is_whole == whole) names.emplace_back(kind.name);
  }
  return names;
}

void KVConnectorFactories::take(const KVConnectorFactories& other) {
  const auto take_one = [&](auto member) {
    if (other.*member) this->*member = other.*member;
  };
  take_one(&KVConnectorFactories::make_offloading);
  take_one(&KVConnectorFactories::make_offloading_worker);
  take_one(&KVConnectorFactories::make_simple);
  take_one(&KVConnectorFactories::make_simple_worker);
  take_one(&KVConnectorFactories::make_files_connector);
  take_one(&KVConnectorFactories::make_files_worker);
  take_one(&KVConnectorFactories::make_producer);
  take_one(&KVConnectorFactories::make_consumer);
  take_one(&KVConnectorFactories::make_producer_worker);
  take_one(&KVConnectorFactories::make_consumer_worker);
}

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
  return register_connector(name, [name, path, symbol]() -> Parsed<KVConnectorFactories> {
    const Parsed<KVConnectorEntry*> entry = open_function<KVConnectorEntry>(path, symbol);
    if (!entry) return entry.error();
    KVConnectorFactories connectors;
    (*entry)(connectors);
    if (const auto half = connectors.half_kinds(); !half.empty()) {
      return InputError{path,
                        {},
                        "half a connector (" + listed(half) + ")",
                        symbol + " to fill in every half of a kind"};
    }
    if (connectors.kinds().empty()) {
      return InputError{path, {}, "no connector", symbol + " to fill in a kind"};
    }
    return connectors;
  });
}

// Source: vLLM v0.19.0 kv_connector/factory.py get_connector_class_by_name
Parsed<KVConnectorFactories> KVConnectorRegistry::get(const std::string& name) {
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    const std::string known = listed(names());
    return InputError{{},
                      {},
                      "connector " + name,
                      known.empty() ? "nothing, since none is registered" : "one of " + known};
  }
  Entry& entry = found->second;
  if (!entry.loaded) {
    Parsed<KVConnectorFactories> connector = entry.load();
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
