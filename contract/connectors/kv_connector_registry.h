#pragma once

/// Connectors by name. A connector is loaded when its name is first requested, by a function or
/// from a shared library, so it need not be part of kvfence.
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

/// Functions that make the halves of connectors, one per upstream role. A kind has all of its
/// functions, or none. A function may return null: a failure of the implementation.
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

  /// A synchronous connector, over a storage that was made first. A worker's KV cache says which
  /// rank it is.
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

  /// The kinds that are there: some of "offloading", "simple", "files" and "nixl".
  std::vector<std::string> kinds() const { return kinds_where(/*whole=*/true); }
  /// The kinds that lack a half.
  std::vector<std::string> half_kinds() const { return kinds_where(/*whole=*/false); }

  /// Replaces the kinds that the other one has.
  void take(const KVConnectorFactories& other);

 private:
  std::vector<std::string> kinds_where(bool whole) const;
};

/// The `extern "C"` function of a shared library: fills in the kinds that the library has.
using KVConnectorEntry = void(KVConnectorFactories& connectors);

/// The default symbol.
inline constexpr const char* kKVConnectorSymbol = "kvfence_connector";

/// A value: each copy loads on its own. Errors have the name in `found`.
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
