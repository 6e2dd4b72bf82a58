#pragma once

/// A connector over several others: the executable specification of its worker's half. The rules of
/// each function stand in contract/connectors/multi/multi_connector.h.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/connectors/multi/multi_connector.h"
#include "contract/core/check.h"
#include "contract/core/state_digest.h"

namespace kvfence::reference {

template <MultiConnectorWorkerChild Child>
class MultiConnectorWorker {
 public:
  using Metadata = MultiConnectorMetadata<typename Child::Metadata>;
  using WorkerMetadata = MultiConnectorWorkerMetadata<typename Child::WorkerMetadata>;
  using Stats = std::vector<StatsOfClass<typename Child::Stats>>;

  explicit MultiConnectorWorker(std::vector<Child> children) : children_(std::move(children)) {
    KVFENCE_CHECK(!children_.empty(), "a MultiConnector has children");
  }

  std::span<Child> children() { return children_; }

  // Source: vLLM v0.19.0 multi_connector.py prefer_cross_layer_blocks.
  bool prefer_cross_layer_blocks() const {
    for (const Child& child : children_) {
      if (!child.prefer_cross_layer_blocks()) return false;
    }
    return true;
  }

  // Source: vLLM v0.19.0 multi_connector.py, the functions of these names.
  void register_kv_caches() {
    for (Child& child : children_) child.register_kv_caches();
  }
  void register_cross_layers_kv_cache() {
    for (Child& child : children_) child.register_cross_layers_kv_cache();
  }

  // Source: vLLM v0.19.0 multi_connector.py get_handshake_metadata.
  typename Child::Handshake get_handshake_metadata() {
    for (Child& child : children_) {
      if (auto handshake = child.get_handshake_metadata()) return handshake;
    }
    return {};
  }

  // Source: vLLM v0.19.0 multi_connector.py handle_preemptions.
  void handle_preemptions(const Metadata& metadata) {
    for (std::size_t place = 0; place < children_.size(); ++place) {
      children_[place].handle_preemptions(metadata.metadata[place]);
    }
  }

  // Source: vLLM v0.19.0 multi_connector.py bind_connector_metadata.
  void bind_connector_metadata(const Metadata& metadata) {
    for (const ExtraAsyncSaves& extra : metadata.extra_async_saves) {
      extra_async_saves_[extra.request] = extra.saves;
    }
    for (std::size_t place = 0; place < children_.size(); ++place) {
      children_[place].bind_connector_metadata(metadata.metadata[place]);
    }
  }

  // Source: vLLM v0.19.0 multi_connector.py, the functions of these names.
  void start_load_kv() {
    for (Child& child : children_) child.start_load_kv();
  }
  void wait_for_layer_load(std::string_view layer) {
    for (Child& child : children_) child.wait_for_layer_load(layer);
  }
  void save_kv_layer(std::string_view layer) {
    for (Child& child : children_) child.save_kv_layer(layer);
  }
  void wait_for_save() {
    for (Child& child : children_) child.wait_for_save();
  }
  void clear_connector_metadata() {
    for (Child& child : children_) child.clear_connector_metadata();
  }

  // Source: vLLM v0.19.0 multi_connector.py shutdown.
  bool shutdown() {
    bool has_failed = false;
    for (Child& child : children_) {
      if (!child.shutdown()) has_failed = true;
    }
    return !has_failed;
  }

  // Source: vLLM v0.19.0 multi_connector.py get_finished.
  void get_finished(std::span<const std::string> finished_req_ids, FinishedTransfers& out) {
    std::set<std::string> sent;
    std::set<std::string> received;
    for (Child& child : children_) {
      FinishedTransfers of_child;
      child.get_finished(finished_req_ids, of_child);
      received.insert(of_child.recving.begin(), of_child.recving.end());
      for (const std::string& request : of_child.sending) {
        const auto extra = extra_async_saves_.find(request);
        if (extra == extra_async_saves_.end()) {
          sent.insert(request);
        } else if (--extra->second == 0) {
          extra_async_saves_.erase(extra);
        }
      }
    }
    out.sending.assign(sent.begin(), sent.end());
    out.recving.assign(received.begin(), received.end());
  }

  // Source: vLLM v0.19.0 multi_connector.py get_block_ids_with_load_errors.
  void get_block_ids_with_load_errors(std::vector<BlockId>& out) {
    std::vector<BlockId> blocks;
    for (Child& child : children_) child.get_block_ids_with_load_errors(blocks);
    const std::set<BlockId> all(blocks.begin(), blocks.end());
    out.assign(all.begin(), all.end());
  }

  // Source: vLLM v0.23.0 multi_connector.py get_kv_connector_stats.
  bool get_kv_connector_stats(Stats& out) {
    out.clear();
    for (Child& child : children_) {
      const auto stats = child.get_kv_connector_stats();
      if (stats) add(out, child.connector_class(), *stats);
    }
    return !out.empty();
  }

  // Source: vLLM v0.19.0 multi_connector.py build_connector_worker_meta.
  bool build_connector_worker_meta(WorkerMetadata& out) {
    out.metadata.clear();
    bool has_some = false;
    for (Child& child : children_) {
      out.metadata.push_back(child.build_connector_worker_meta());
      if (out.metadata.back()) has_some = true;
    }
    return has_some;
  }

  // Source: vLLM v0.19.0 multi_connector.py MultiKVConnectorWorkerMetadata.aggregate.
  static void aggregate(WorkerMetadata& into, const WorkerMetadata& other) {
    KVFENCE_CHECK(into.metadata.size() == other.metadata.size(), "ranks have the same children");
    for (std::size_t place = 0; place < into.metadata.size(); ++place) {
      if (!other.metadata[place]) continue;
      if (into.metadata[place]) {
        into.metadata[place]->aggregate(*other.metadata[place]);
      } else {
        into.metadata[place] = other.metadata[place];
      }
    }
  }

  // Source: vLLM v0.19.0 multi_connector.py MultiKVConnectorStats.aggregate.
  static void aggregate(Stats& into, const Stats& other) {
    for (const auto& of_class : other) add(into, of_class.connector_class, of_class.stats);
  }

  void extra_async_saves(std::vector<ExtraAsyncSaves>& out) const {
    out.clear();
    for (const auto& [request, saves] : extra_async_saves_) out.push_back({request, saves});
  }

  void add_to(StateHash& hash) const { hash.add_all(children_, extra_async_saves_); }

 private:
  static void add(Stats& stats, std::string_view connector_class,
                  const typename Child::Stats& more) {
    for (auto& of_class : stats) {
      if (of_class.connector_class == connector_class) return of_class.stats.aggregate(more);
    }
    stats.push_back({std::string(connector_class), more});
  }

  std::vector<Child> children_;
  std::map<std::string, std::uint32_t> extra_async_saves_;  ///< by request, none is 0
};

}  // namespace kvfence::reference
