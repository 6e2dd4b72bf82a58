#include "optimized/connectors/multi/multi_connector.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "contract/connectors/multi/child_engines.h"
#include "contract/core/check.h"
#include "contract/core/cloned.h"
#include "contract/core/lists.h"
#include "contract/core/state_digest.h"
#include "optimized/base/request_numbers.h"
#include "optimized/connectors/kv_connector_stats.h"

namespace kvfence::optimized {
namespace {

/// Replaces out by a record per request, with its number.
template <class Record>
void copy_to(const RequestNumbers& numbers, std::vector<Record>& out) {
  out.clear();
  numbers.for_each([&](std::string_view request, std::uint32_t number) {
    out.push_back({std::string(request), number});
  });
}

/// Later allocations: storage for the largest number of requests at once, names of requests beyond
/// a string's own storage, a step's metadata, and what the children and the caller take.
class MultiScheduler final : public Cloning<MultiScheduler, MultiConnectorScheduler> {
 public:
  MultiScheduler(const Rules& rules, std::vector<KVConnectorHandle> children)
      : rules_(rules), children_(std::move(children)), jobs_of_children_(children_.size()) {
    KVFENCE_CHECK(!children_.empty(), "a MultiConnector has children");
    supports_hma_ = std::ranges::all_of(
        children_, [](const KVConnectorHandle& child) { return child->supports_hma(); });
  }

  void set_xfer_handshake_metadata(const HandshakesByRank& handshakes) override {
    for (KVConnectorHandle& child : children_) child->set_xfer_handshake_metadata(handshakes);
  }

  void on_new_request(const ConnectorRequest& request) override {
    KVFENCE_CHECK(rules_.connector_learns_new_requests, "a scheduler that keeps the rules");
    for (KVConnectorHandle& child : children_) child->on_new_request(request);
  }

  MatchedTokens get_num_new_matched_tokens(const ConnectorRequest& request,
                                           std::uint32_t num_local_tokens) override {
    MatchedTokens first{0, false};
    std::uint32_t chosen = num_children();
    bool again = false;
    for (std::uint32_t place = 0; place < num_children(); ++place) {
      const MatchedTokens answer =
          children_[place]->get_num_new_matched_tokens(request, num_local_tokens);
      if (!answer.num_tokens) {
        again = true;
        break;
      }
      if (*first.num_tokens > 0 || *answer.num_tokens == 0) continue;
      first = answer;
      chosen = place;
    }
    if (chosen < num_children()) chosen_.set(request.id, chosen);
    would_load_async_ = !again && first.load_async;
    if (again) return {};
    return first;
  }

  void update_state_after_alloc(ConnectorHost& host, const ConnectorRequest& request,
                                const BlocksByGroup& blocks,
                                std::uint32_t num_external_tokens) override {
    const std::uint32_t* chosen = chosen_.find(request.id);
    if (num_external_tokens > 0 && would_load_async_) {
      if (request.index >= loading_.size()) loading_.resize(request.index + 1);
      loading_[request.index].request = request.id;
      loading_[request.index].child = chosen ? *chosen : kNoChild;
    }
    no_blocks_.resize(blocks.size());
    const BlocksByGroup& of_others = rules_.multi_connector_shares_blocks ? blocks : no_blocks_;
    for (std::uint32_t place = 0; place < num_children(); ++place) {
      if (chosen && *chosen == place) {
        children_[place]->update_state_after_alloc(host, request, blocks, num_external_tokens);
      } else {
        children_[place]->update_state_after_alloc(host, request, of_others, 0);
      }
    }
  }

  std::shared_ptr<const KVConnectorMetadata> build_connector_meta(
      ConnectorHost& host, const SchedulerOutput& output) override {
    auto metadata = std::make_shared<MultiConnectorMetadata>();
    metadata->metadata.reserve(children_.size());
    for (KVConnectorHandle& child : children_) {
      metadata->metadata.push_back(child->build_connector_meta(host, output));
    }
    copy_to(extra_async_saves_, metadata->extra_async_saves);
    extra_async_saves_.clear();
    return metadata;
  }

  void update_connector_output(ConnectorHost& host, const KVConnectorOutput& output) override {
    for (const RequestIndex request : output.finished_recving) {
      if (request < loading_.size()) loading_[request].child = kNoChild;
    }
    for (std::vector<CompletedJob>& jobs : jobs_of_children_) jobs.clear();
    for (CompletedJob job : output.completed_jobs) {
      const ChildJob own = child_job(job.job, num_children());
      job.job = own.job;
      jobs_of_children_[own.child].push_back(job);
    }
    report_ = output;
    for (std::uint32_t place = 0; place < num_children(); ++place) {
      report_.completed_jobs = jobs_of_children_[place];
      children_[place]->update_connector_output(host, report_);
    }
  }

  bool request_finished(ConnectorHost& host, const ConnectorRequest& request,
                        const BlocksByGroup& blocks) override {
    KVFENCE_CHECK(blocks.size() == 1 || (rules_.multi_connector_hma && supports_hma_),
                  "children that do not support HMA are for one group");
    std::uint32_t num_saves = 0;
    bool hold_blocks = false;
    std::optional<std::string> params;
    for (KVConnectorHandle& child : children_) {
      const bool holds = child->request_finished(host, request, blocks);
      num_saves += holds;
      hold_blocks = num_saves > 0;
      std::optional<std::string> of_child = child->take_client_params();
      if (of_child) {
        if (params) throw EngineEnded{ErrorCode::kSeveralParams};
        params = std::move(of_child);
      }
    }
    if (num_saves > 1) extra_async_saves_.set(request.id, num_saves - 1);
    chosen_.erase(request.id);
    if (params) client_params_.push_back({std::string(request.id), std::move(*params)});
    return hold_blocks;
  }

  void take_events(std::vector<KVCacheEvent>& out) override {
    for (KVConnectorHandle& child : children_) child->take_events(out);
  }

  bool reset_cache() override {
    bool all_done = true;
    for (KVConnectorHandle& child : children_) {
      const bool done = child->reset_cache();
      all_done &= done || !child->says_how_reset_went();
    }
    return all_done;
  }

  bool supports_hma() const override { return supports_hma_; }

  bool shutdown() override {
    bool all_done = true;
    for (KVConnectorHandle& child : children_) {
      all_done &= child->shutdown();
    }
    return all_done;
  }

  KVConnector* child(std::size_t place) override {
    return place < children_.size() ? children_[place].get() : nullptr;
  }

  void chosen(std::vector<ChosenConnector>& out) const override { copy_to(chosen_, out); }

  void extra_async_saves(std::vector<ExtraAsyncSaves>& out) const override {
    copy_to(extra_async_saves_, out);
  }

  std::optional<std::uint32_t> loading_child(std::string_view request) const override {
    for (const Load& load : loading_) {
      if (load.child != kNoChild && load.request == request) return load.child;
    }
    return std::nullopt;
  }

  void take_all_client_params(std::vector<ClientParams>& out) override {
    out.insert(out.end(), client_params_.begin(), client_params_.end());
    client_params_.clear();
  }

  void add_to(StateHash& hash) const override {
    hash.add_all(children_, chosen_, extra_async_saves_, client_params_);
    for (std::size_t index = 0; index < loading_.size(); ++index) {
      if (loading_[index].child == kNoChild) continue;
      hash.add_entry(index, loading_[index].request, loading_[index].child);
    }
  }

 private:
  static constexpr std::uint32_t kNoChild = 0xFFFF'FFFF;

  struct Load {
    std::string request;
    std::uint32_t child = kNoChild;
  };

  std::uint32_t num_children() const { return static_cast<std::uint32_t>(children_.size()); }

  Rules rules_;
  std::vector<KVConnectorHandle> children_;
  bool supports_hma_ = false;         ///< each child
  RequestNumbers chosen_;             ///< places
  RequestNumbers extra_async_saves_;  ///< that no metadata carry yet
  bool would_load_async_ = false;     ///< the last lookup found
  std::vector<Load> loading_;         ///< by request, while it waits
  std::vector<ClientParams> client_params_;

  // Of the call that runs.
  BlocksByGroup no_blocks_;
  KVConnectorOutput report_;
  std::vector<std::vector<CompletedJob>> jobs_of_children_;
};

/// Later allocations: as in MultiScheduler, and the statistics of steps that have some.
class MultiWorker final : public Cloning<MultiWorker, MultiConnectorWorker> {
 public:
  explicit MultiWorker(std::vector<MultiConnectorChildWorker> children)
      : children_(std::move(children)), engines_(num_children()), reports_(num_children()) {
    KVFENCE_CHECK(!children_.empty(), "a MultiConnector has children");
  }

  bool prefer_cross_layer_blocks() const override {
    return std::ranges::all_of(children_, [](const MultiConnectorChildWorker& child) {
      return child.worker->prefer_cross_layer_blocks();
    });
  }

  void register_kv_caches(TransferEngine& copies) override {
    engines_.lend(copies);
    for (std::uint32_t place = 0; place < num_children(); ++place) {
      worker(place).register_kv_caches(engines_.of_child(place));
    }
  }
  void register_cross_layers_kv_cache(TransferEngine& copies) override {
    engines_.lend(copies);
    for (std::uint32_t place = 0; place < num_children(); ++place) {
      worker(place).register_cross_layers_kv_cache(engines_.of_child(place));
    }
  }

  std::shared_ptr<const KVConnectorHandshakeMetadata> get_handshake_metadata() override {
    std::shared_ptr<const KVConnectorHandshakeMetadata> handshake;
    for (std::uint32_t place = 0; place < num_children() && !handshake; ++place) {
      handshake = worker(place).get_handshake_metadata();
    }
    return handshake;
  }

  void handle_preemptions(const KVConnectorMetadata& metadata) override {
    const MultiConnectorMetadata& combined = multi_connector_metadata(metadata);
    for (std::uint32_t place = 0; place < num_children(); ++place) {
      worker(place).handle_preemptions(*combined.metadata[place]);
    }
  }

  void bind_connector_metadata(const KVConnectorMetadata& metadata) override {
    const MultiConnectorMetadata& combined = multi_connector_metadata(metadata);
    for (const ExtraAsyncSaves& extra : combined.extra_async_saves) {
      extra_async_saves_.set(extra.request, extra.saves);
    }
    for (std::uint32_t place = 0; place < num_children(); ++place) {
      worker(place).bind_connector_metadata(*combined.metadata[place]);
    }
  }

  void start_load_kv() override {
    for (MultiConnectorChildWorker& child : children_) child.worker->start_load_kv();
  }
  void wait_for_layer_load(std::uint32_t layer) override {
    for (MultiConnectorChildWorker& child : children_) child.worker->wait_for_layer_load(layer);
  }
  void save_kv_layer(std::uint32_t layer) override {
    for (MultiConnectorChildWorker& child : children_) child.worker->save_kv_layer(layer);
  }
  void wait_for_save() override {
    for (MultiConnectorChildWorker& child : children_) child.worker->wait_for_save();
  }
  void clear_connector_metadata() override {
    for (MultiConnectorChildWorker& child : children_) child.worker->clear_connector_metadata();
  }
  bool shutdown() override {
    bool all_done = true;
    for (MultiConnectorChildWorker& child : children_) {
      all_done &= child.worker->shutdown();
    }
    return all_done;
  }

  void get_finished(std::span<const std::string> finished_requests,
                    KVConnectorWorkerOutput& out) override {
    out.clear();
    StatsByClass stats;
    for (std::uint32_t place = 0; place < num_children(); ++place) {
      KVConnectorWorkerOutput& of_child = reports_[place];
      worker(place).get_finished(finished_requests, of_child);
      for (std::string& request : of_child.finished_sending) {
        if (!swallow(request)) out.finished_sending.push_back(std::move(request));
      }
      for (std::string& request : of_child.finished_recving) {
        out.finished_recving.push_back(std::move(request));
      }
      out.invalid_block_ids.insert(out.invalid_block_ids.end(), of_child.invalid_block_ids.begin(),
                                   of_child.invalid_block_ids.end());
      for (TransferResult result : of_child.completed_jobs) {
        result.job = multi_connector_job({place, result.job}, num_children());
        out.completed_jobs.push_back(result);
      }
      if (!of_child.stats.empty()) {
        stats.aggregate(children_[place].connector_class, of_child.stats);
      }
    }
    keep_each_once(out.finished_sending);
    keep_each_once(out.finished_recving);
    keep_each_once(out.invalid_block_ids);
    stats.move_to(out.stats_of_children);
  }

  void extra_async_saves(std::vector<ExtraAsyncSaves>& out) const override {
    copy_to(extra_async_saves_, out);
  }

  void add_to(StateHash& hash) const override {
    hash.add_all(engines_, children_, extra_async_saves_);
  }

 private:
  std::uint32_t num_children() const { return static_cast<std::uint32_t>(children_.size()); }
  KVConnectorWorker& worker(std::uint32_t place) { return *children_[place].worker.get(); }

  /// Whether more notices that the request is sent are to come.
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

  std::vector<MultiConnectorChildWorker> children_;
  ChildEngines engines_;
  RequestNumbers extra_async_saves_;
  std::vector<KVConnectorWorkerOutput> reports_;  ///< by child, of the call that runs
};

}  // namespace

std::unique_ptr<KVConnector> make_multi_connector_scheduler(
    const Rules& rules, std::vector<KVConnectorHandle> children) {
  return std::make_unique<MultiScheduler>(rules, std::move(children));
}

std::unique_ptr<KVConnectorWorker> make_multi_connector_worker(
    std::vector<MultiConnectorChildWorker> children) {
  return std::make_unique<MultiWorker>(std::move(children));
}

}  // namespace kvfence::optimized
