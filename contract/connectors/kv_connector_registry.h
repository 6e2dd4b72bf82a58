#pragma once

/// Connectors by name. What a name stands for is loaded when somebody first asks for it: by a
/// function, or from a shared library, so that a connector need not be part of kvfence.
///
/// Source: vLLM v0.19.0 and v0.23.0 distributed/kv_transfer/kv_connector/factory.py
/// KVConnectorFactory.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "contract/connectors/kv_connector.h"
#include "contract/connectors/kv_connector_worker.h"
#include "contract/core/line.h"

namespace kvfence {

struct ConnectorSetup;
struct DisaggregatedSpec;
struct SimpleCPUOffloadSpec;
struct SynchronousConnectorSpec;
struct SynchronousWorkerReport;
class DisaggregatedConsumer;
class DisaggregatedProducer;
class ScriptedKVCache;
class SharedStorage;
class SynchronousConnectorScheduler;
class Transport;

/// Makes the halves of connectors, one for each of upstream's roles. Of a kind there are all of
/// them, or none. They may give null, which is a failure of the implementation.
struct KVConnectorFactories {
  template <class Made, class... From>
  using Make = std::function<std::unique_ptr<Made>(From...)>;

  /// An OffloadingConnectorScheduler. The setup's tiers have their types, and its slots their
  /// bytes.
  Make<KVConnector, const ConnectorSetup&> make_offloading;
  Make<KVConnectorWorker, const ConnectorSetup&, std::uint32_t /*rank*/> make_offloading_worker;

  /// A SimpleCPUOffloadScheduler.
  Make<KVConnector, const SimpleCPUOffloadSpec&> make_simple;
  Make<KVConnectorWorker, const SimpleCPUOffloadSpec&> make_simple_worker;

  /// A synchronous one, over a storage that was made first. Of which rank a worker is, is told by
  /// its KV cache.
  Make<SynchronousConnectorScheduler, const SynchronousConnectorSpec&, SharedStorage&>
      make_files_connector;
  Make<KVConnectorWorker, const SynchronousConnectorSpec&, SharedStorage&, ScriptedKVCache&,
       SynchronousWorkerReport&>
      make_files_worker;

  /// A pair's, over a transport that outlives the workers.
  Make<DisaggregatedProducer, const DisaggregatedSpec&> make_producer;
  Make<DisaggregatedConsumer, const DisaggregatedSpec&> make_consumer;
  Make<KVConnectorWorker, const DisaggregatedSpec&, std::uint32_t /*rank*/, Transport&>
      make_producer_worker, make_consumer_worker;

  /// Of "offloading", "simple", "files" and "nixl" those that are there.
  std::vector<std::string> kinds() const { return kinds_where(/*whole=*/true); }
  /// Those of which a half is missing.
  std::vector<std::string> half_kinds() const { return kinds_where(/*whole=*/false); }

  /// Replaces what the other one has.
  void take(const KVConnectorFactories& other);

 private:
  std::vector<std::string> kinds_where(bool whole) const;
};

/// What a shared library has to have, as `extern "C"`: fills in the kinds that it has.
using KVConnectorEntry = void(KVConnectorFactories& connectors);

/// The symbol that is looked for where nobody says another.
inline constexpr const char* kKVConnectorSymbol = "kvfence_connector";

/// A value: copies load for themselves. Errors have the name in `found`.
class KVConnectorRegistry {
 public:
  using Loader = std::function<Parsed<KVConnectorFactories>()>;

  /// The loader runs when the name is first asked for; again, if it failed.
  /// Errors: the name is taken.
  std::optional<InputError> register_connector(const std::string& name, Loader loader);

  /// A KVConnectorEntry in a shared library.
  /// Errors: the name is taken. That the library or the symbol is missing, or a half of a kind,
  /// or every kind, shows when the name is first asked for.
  std::optional<InputError> register_library(const std::string& name, const std::string& path,
                                             const std::string& symbol = kKVConnectorSymbol);

  /// Errors: no such name (`expected` lists the ones there are); the loader's.
  Parsed<KVConnectorFactories> get(const std::string& name);

  /// In alphabetical order.
  std::vector<std::string> names() const;

 private:
  struct Entry {
    Loader load;
    std::optional<KVConnectorFactories> loaded;
  };
  std::map<std::string, Entry> entries_;
};

}  // namespace kvfence
