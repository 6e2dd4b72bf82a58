#pragma once

/// What an engine is put together from, besides its scheduler: the place where a planted variant
/// gets its bug.

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "contract/connectors/disaggregated/disaggregated_connector.h"
#include "contract/connectors/kv_connector.h"
#include "contract/connectors/kv_connector_registry.h"
#include "contract/connectors/kv_connector_worker.h"
#include "contract/connectors/kv_output_aggregator.h"
#include "contract/connectors/multi/multi_kv_connector.h"
#include "contract/connectors/synchronous/shared_storage.h"
#include "contract/connectors/synchronous/synchronous_connector.h"
#include "contract/core/state_digest.h"
#include "contract/engine/engine_device.h"
#include "contract/engine/engine_target.h"
#include "contract/tiering/tier_files.h"

namespace kvfence {

/// An EngineDevice whose type the driver need not know.
class AnyDevice {
 public:
  virtual ~AnyDevice() = default;
  virtual void transfer_async(const engine::Copy& copy) = 0;
  virtual void get_finished(std::vector<worker::Ended>& ended) = 0;
  virtual void wait(std::span<const std::uint32_t> jobs) = 0;
  virtual void forward(const std::vector<engine::Place>& reads,
                       const std::vector<engine::Place>& writes, engine::Kernel kernel) = 0;
  virtual bool advance(worker::Stream stream) = 0;
  virtual void fail_next(worker::Direction direction, worker::Fault fault) = 0;
  virtual void begin_remote(std::uint32_t number, std::span<const std::uint32_t> blocks,
                            bool writes) = 0;
  virtual void know_remote(std::uint32_t number) = 0;
  virtual void know_forward() = 0;
  /// The KV cache, for who accesses it over a network.
  virtual engine::KVCells& cells() = 0;
  virtual worker::Counts counts() const = 0;
  virtual void show_pages(std::uint32_t rank, engine::KVPages& gpu, engine::KVPages& cpu) const = 0;
  virtual void add_to(StateHash& hash) const = 0;
};

template <engine::EngineDevice Device>
class DeviceOf final : public AnyDevice {
 public:
  template <class... Arguments>
  explicit DeviceOf(Arguments&&... arguments) : device_(std::forward<Arguments>(arguments)...) {}

  Device& device() { return device_; }

  void transfer_async(const engine::Copy& copy) override { device_.transfer_async(copy); }
  void get_finished(std::vector<worker::Ended>& ended) override { device_.get_finished(ended); }
  void wait(std::span<const std::uint32_t> jobs) override { device_.wait(jobs); }
  void forward(const std::vector<engine::Place>& reads, const std::vector<engine::Place>& writes,
               engine::Kernel kernel) override {
    device_.forward(reads, writes, std::move(kernel));
  }
  bool advance(worker::Stream stream) override { return device_.advance(stream); }
  void fail_next(worker::Direction direction, worker::Fault fault) override {
    device_.fail_next(direction, fault);
  }
  void begin_remote(std::uint32_t number, std::span<const std::uint32_t> blocks,
                    bool writes) override {
    device_.begin_remote(number, blocks, writes);
  }
  void know_remote(std::uint32_t number) override { device_.know_remote(number); }
  void know_forward() override { device_.know_forward(); }
  engine::KVCells& cells() override { return device_; }
  worker::Counts counts() const override { return device_.counts(); }
  void show_pages(std::uint32_t rank, engine::KVPages& gpu, engine::KVPages& cpu) const override {
    device_.show_pages(rank, gpu, cpu);
  }
  void add_to(StateHash& hash) const override { hash.add(device_); }

 private:
  Device device_;
};

/// What makes one report of those of all ranks; it keeps what each has heard so far.
class AggregateReports {
 public:
  AggregateReports() = default;
  template <class Aggregator>
  requires(!std::same_as<Aggregator, AggregateReports>) &&
      KVOutputAggregator<Aggregator> explicit AggregateReports(Aggregator aggregator)
      : aggregator_(std::make_unique<Holder<Aggregator>>(std::move(aggregator))) {}

  void operator()(std::span<const KVConnectorWorkerOutput> outputs, AggregatedOutput& out) {
    aggregator_->aggregate(outputs, out);
  }
  void add_to(StateHash& hash) const { hash.add(aggregator_); }

 private:
  struct Base {
    virtual ~Base() = default;
    virtual void aggregate(std::span<const KVConnectorWorkerOutput> outputs,
                           AggregatedOutput& out) = 0;
    virtual void add_to(StateHash& hash) const = 0;
  };
  template <class Aggregator>
  struct Holder final : Base {
    explicit Holder(Aggregator held) : aggregator(std::move(held)) {}
    void aggregate(std::span<const KVConnectorWorkerOutput> outputs,
                   AggregatedOutput& out) override {
      aggregator.aggregate(outputs, out);
    }
    void add_to(StateHash& hash) const override { hash.add(aggregator); }
    Aggregator aggregator;
  };

  std::unique_ptr<Base> aggregator_;
};

/// A child of a MultiConnector's worker; the name is that of its statistics.
struct NamedWorker {
  std::string name;
  std::unique_ptr<KVConnectorWorker> worker;
};

/// Makes the parts of an engine. What a configuration does not name is not asked for.
struct EngineParts : KVConnectorFactories {
  /// Where a library's connectors are to be judged: the kinds that it has. An engine with none of
  /// them is refused, unless it has a MultiConnector.
  std::vector<std::string> judged_kinds;

  /// Over which connectors of kind files are.
  std::function<std::unique_ptr<SharedStorage>(const SynchronousConnectorSpec& spec)> make_storage;

  /// The MultiConnector over connectors that were made.
  std::function<std::unique_ptr<KVConnector>(const Rules& rules,
                                             std::vector<KVConnectorChild> children)>
      make_multi;
  std::function<std::unique_ptr<KVConnectorWorker>(std::vector<NamedWorker> children)>
      make_multi_worker;

  std::function<AggregateReports(const EngineSetup& setup, std::uint32_t num_ranks)> make_aggregate;
  std::function<std::unique_ptr<AnyDevice>(const EngineSetup& setup, EngineRole role)> make_device;
  MakeTierFiles make_tier_files;
};

}  // namespace kvfence
