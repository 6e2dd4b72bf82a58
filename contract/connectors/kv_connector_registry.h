#pragma once

/// Connectors by name. What a name stands for is loaded when somebody first asks for it: by a
/// function, or from a shared library, so that a connector need not be part of kvfence.
///
/// The name of a connector over several others has theirs behind it, which may have some in turn:
/// `multi_connector(offloading simple_cpu_offload)`. Upstream names them in its extra
/// configuration.
///
/// Source: vLLM v0.19.0 and v0.23.0 distributed/kv_transfer/kv_connector/factory.py
/// KVConnectorFactory.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/connectors/kv_connector.h"
#include "contract/connectors/kv_connector_worker.h"
#include "contract/core/line.h"

namespace kvfence {

struct ConnectorSetup;

/// Makes the halves of a connector, one for each of upstream's roles.
struct KVConnectorClass {
  std::function<std::unique_ptr<KVConnector>(const ConnectorSetup&)> make_scheduler;
  std::function<std::unique_ptr<KVConnectorWorker>(const ConnectorSetup&, std::uint32_t rank)>
      make_worker;
};

/// A child of a connector over several others.
struct KVConnectorChildClass {
  std::string name;
  KVConnectorClass connector;
};

/// What a shared library has to have, as `extern "C"`: fills in both members.
using KVConnectorEntry = void(KVConnectorClass& connector);

/// The symbol that is looked for where nobody says another.
inline constexpr const char* kKVConnectorSymbol = "kvfence_connector";

/// A value: copies load for themselves. Errors have the name in `found`.
class KVConnectorRegistry {
 public:
  using Loader = std::function<Parsed<KVConnectorClass>()>;
  /// Makes one connector of several, of which there is at least one.
  using Combiner = std::function<KVConnectorClass(std::vector<KVConnectorChildClass>)>;

  /// The loader runs when the name is first asked for; again, if it failed.
  /// Errors: the name is taken.
  std::optional<InputError> register_connector(const std::string& name, Loader loader);

  /// A KVConnectorEntry in a shared library.
  /// Errors: the name is taken. That the library or the symbol is missing, or that a member was not
  /// filled in, shows when the name is first asked for.
  std::optional<InputError> register_library(const std::string& name, const std::string& path,
                                             const std::string& symbol = kKVConnectorSymbol);

  /// A connector over several others.
  /// Errors: the name is taken.
  std::optional<InputError> register_combiner(const std::string& name, Combiner combine);

  /// Errors: no such name (`expected` lists the ones there are), also of a child; children of a
  /// connector that has none, no children of one that has some, or parentheses that do not close;
  /// the loader's.
  Parsed<KVConnectorClass> get(const std::string& name);

  /// In alphabetical order, without children.
  std::vector<std::string> names() const;

 private:
  struct Entry {
    Loader load;
    Combiner combine;  ///< instead, of a connector over several others
    std::optional<KVConnectorClass> loaded;
  };
  std::optional<InputError> add(const std::string& name, Entry entry);
  Parsed<KVConnectorClass> get_single(const std::string& name);
  /// text: begins with a name, and loses it.
  Parsed<KVConnectorClass> take(std::string_view& text, std::string& name);

  std::map<std::string, Entry> entries_;
};

}  // namespace kvfence
