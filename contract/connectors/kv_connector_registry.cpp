#include "contract/connectors/kv_connector_registry.h"

#include <utility>

#include "contract/core/joined.h"
#include "contract/core/shared_library.h"

namespace kvfence {
namespace {

/// visit(name, members...) for each kind, with its halves.
template <class Visit>
void for_each_kind(Visit visit) {
  using F = KVConnectorFactories;
  visit("offloading", &F::make_offloading, &F::make_offloading_worker);
  visit("simple", &F::make_simple, &F::make_simple_worker);
  visit("files", &F::make_files_connector, &F::make_files_worker);
  visit("nixl", &F::make_producer, &F::make_consumer, &F::make_producer_worker,
        &F::make_consumer_worker);
}

}  // namespace

std::vector<std::string> KVConnectorFactories::kinds_where(bool whole) const {
  std::vector<std::string> names;
  for_each_kind([&](const char* name, auto... halves) {
    const bool is_whole = (static_cast<bool>(this->*halves) && ...);
    const bool has_any = (static_cast<bool>(this->*halves) || ...);
    if (has_any && is_whole == whole) names.emplace_back(name);
  });
  return names;
}

void KVConnectorFactories::take(const KVConnectorFactories& other) {
  const auto take_one = [&](auto member) {
    if (other.*member) this->*member = other.*member;
  };
  for_each_kind([&](const char*, auto... halves) { (take_one(halves), ...); });
}

// Source: vLLM v0.19.0 kv_connector/factory.py register_connector
std::optional<InputError> KVConnectorRegistry::register_connector(const std::string& name,
                                                                  Loader loader) {
  if (!entries_.try_emplace(name, Entry{std::move(loader), std::nullopt}).second) {
    return errors_at({}, {})("connector " + name + " registered twice", "each name once");
  }
  return std::nullopt;
}

// Source: vLLM v0.19.0 kv_connector/factory.py get_connector_class (kv_connector_module_path)
std::optional<InputError> KVConnectorRegistry::register_library(const std::string& name,
                                                                const std::string& path,
                                                                const std::string& symbol) {
  return register_connector(name, [name, path, symbol]() -> Parsed<KVConnectorFactories> {
    const Parsed<void*> entry = open_symbol(path, symbol);
    if (!entry) return entry.error();
    const auto error = errors_at(path, {});
    KVConnectorFactories connectors;
    reinterpret_cast<KVConnectorEntry*> (*entry)(connectors);
    if (const auto half = connectors.half_kinds(); !half.empty()) {
      return error("half a connector (" + joined(half) + ")",
                   symbol + " to fill in every half of a kind");
    }
    if (connectors.kinds().empty()) return error("no connector", symbol + " to fill in a kind");
    return connectors;
  });
}

// Source: vLLM v0.19.0 kv_connector/factory.py get_connector_class_by_name
Parsed<KVConnectorFactories> KVConnectorRegistry::get(const std::string& name) {
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    const std::string known = joined(names());
    return errors_at({}, {})("connector " + name, known.empty()
                                                      ? "nothing, since none is registered"
                                                      : "one of " + known);
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
