#pragma once

/// MultiConnectorWorker: the worker's half of a connector over several others. The rules of every
/// operation stand in contract/connectors/multi/multi_connector.h. No threads: a connector belongs
/// to one.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/connectors/multi/multi_connector.h"
#include "contract/core/check.h"
#include "contract/core/state_digest.h"
#include "optimized/base/request_numbers.h"

namespace kvfence::optimized {

template <MultiConnectorWorkerChild Child>
class MultiConnectorWorker {
 public:
  using Metadata = MultiConnectorMetadata<typename Child::Metadata>;
  using WorkerMetadata = MultiConnectorWorkerMetadata<typename Child::WorkerMetadata>;
  using Stats = std::vector<StatsOfClass<typename Child::Stats>>;

  /// What is allocated later is as much as the most requests had at once, names of requests beyond
  /// a string's own storage, and what the children and the caller take.
  explicit MultiConnectorWorker(std::vector<Child> children) : children_(std::move(children)) {
    KVFENCE_CHECK(!children_.empty(), "a MultiConnector has children");
  }

  std::span<Child> children() { return children_; }

  bool prefer_cross_layer_blocks() const {
    return std::all_of(children_.begin(), children_.end(),
                       [](const Child& child) { return child.prefer_cross_layer_blocks(); });
  }

  void register_kv_caches() {
    for (Child& child : children_) child.register_kv_caches();
  }
  void register_cross_layers_kv_cache() {
    for (Child& child : children_) child.register_cross_layers_kv_cache();
  }

  typename Child::Handshake get_handshake_metadata() {
    typename Child::Handshake handshake{};
    for (std::size_t place = 0; place < children_.size() && !handshake; ++place) {
      handshake = children_[place].get_handshake_metadata();
    }
    return handshake;
  }

  void handle_preemptions(const Metadata& metadata) {
    for (std::size_t place = 0; place < children_.size(); ++place) {
      children_[place].handle_preemptions(metadata.metadata[place]);
    }
  }

  void bind_connector_metadata(const Metadata& metadata) {
    for (const ExtraAsyncSaves& extra : metadata.extra_async_saves) {
      extra_async_saves_.set(extra.request, extra.saves);
    }
    for (std::size_t place = 0; place < children_.size(); ++place) {
      children_[place].bind_connector_metadata(metadata.metadata[place]);
    }
  }

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
  bool shutdown() {
    bool all_done = true;
    for (Child& child : children_) {
      all_done &= child.shutdown();
    }
    return all_done;
  }

  void get_finished(std::span<const std::string> finished_req_ids, FinishedTransfers& out) {
    out.sending.clear();
    out.recving.clear();
    for (Child& child : children_) {
      child.get_finished(finished_req_ids, of_child_);
      for (std::string& request : of_child_.sending) {
        if (!swallow(request)) out.sending.push_back(std::move(request));
      }
      for (std::string& request : of_child_.recving) {
        out.recving.push_back(std::move(request));
      }
    }
    keep_each_once(out.sending);
    keep_each_once(out.recving);
  }

  void get_block_ids_with_load_errors(std::vector<BlockId>& out) {
    out.clear();
    for (Child& child : children_) {
      child.get_block_ids_with_load_errors(out);
    }
    keep_each_once(out);
  }

  bool get_kv_connector_stats(Stats& out) {
    out.clear();
    for (Child& child : children_) {
      if (auto stats = child.get_kv_connector_stats()) {
        add(out, child.connector_class(), std::move(*stats));
      }
    }
    return !out.empty();
  }

  bool build_connector_worker_meta(WorkerMetadata& out) {
    out.metadata.clear();
    bool has_some = false;
    for (Child& child : children_) {
      out.metadata.push_back(child.build_connector_worker_meta());
      has_some |= out.metadata.back().has_value();
    }
    return has_some;
  }

  void aggregate(WorkerMetadata& into, const WorkerMetadata& other) const {
    KVFENCE_CHECK(into.metadata.size() == other.metadata.size(), "ranks have the same children");
    for (std::size_t place = 0; place < into.metadata.size(); ++place) {
      const auto& more = other.metadata[place];
      if (!more) continue;
      auto& present = into.metadata[place];
      if (present) {
        present->aggregate(*more);
      } else {
        present = more;
      }
    }
  }

  void aggregate(Stats& into, const Stats& other) const {
    for (const auto& of_class : other) add(into, of_class.connector_class, of_class.stats);
  }

  void extra_async_saves(std::vector<ExtraAsyncSaves>& out) const {
    out.clear();
    extra_async_saves_.for_each([&](std::string_view request, std::uint32_t saves) {
      ExtraAsyncSaves& extra = out.emplace_back();
      extra.request = request;
      extra.saves = saves;
    });
  }

  void add_to(StateHash& hash) const { hash.add_all(children_, extra_async_saves_); }

 private:
  /// Whether a notice that the request is sent is not the last one.
  bool swallow(std::string_view request) {
    std::uint32_t* extra = extra_async_saves_.find(request);
    if (!extra) return false;
    if (*extra > 1) {
      --*extra;
    } else {
      extra_async_saves_.erase(request);
    }
    return true;
  }

  /// A handful of elements: as many as children report at once.
  template <class T>
  static void keep_each_once(std::vector<T>& elements) {
    std::sort(elements.begin(), elements.end());
    elements.erase(std::unique(elements.begin(), elements.end()), elements.end());
  }

  static void add(Stats& stats, std::string_view connector_class, typename Child::Stats more) {
    for (auto& of_class : stats) {
      if (of_class.connector_class != connector_class) continue;
      of_class.stats.aggregate(more);
      return;
    }
    auto& added = stats.emplace_back();
    added.connector_class = connector_class;
    added.stats = std::move(more);
  }

  std::vector<Child> children_;
  RequestNumbers extra_async_saves_;
  FinishedTransfers of_child_;  ///< of the call that runs
};

}  // namespace kvfence::optimized
