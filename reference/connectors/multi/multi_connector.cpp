#include "reference/connectors/multi/multi_connector.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "contract/connectors/multi/child_engines.h"
#include "contract/core/check.h"
#include "contract/core/cloned.h"
#include "contract/core/state_digest.h"
#include "reference/connectors/kv_connector_stats.h"

namespace kvfence::reference {
namespace {

class MultiScheduler final : public Cloning<MultiScheduler, MultiConnectorScheduler> {
 public:
  MultiScheduler(const Rules& rules, std::vector<KVConnectorHandle> children)
      : rules_(rules), children_(std::move(children)) {
    KVFENCE_CHECK(!children_.empty(), "a MultiConnector has children");
  }

  // Source: vLLM v0.19.0 multi_connector.py set_xfer_handshake_metadata.
  void set_xfer_handshake_metadata(const HandshakesByRank& handshakes) override {
    for (KVConnectorHandle& child : children_) child->set_xfer_handshake_metadata(handshakes);
  }

  // Source: vLLM v0.23.0 multi_connector.py on_new_request.
  void on_new_request(const ConnectorRequest& request) override {
    KVFENCE_CHECK(rules_.connector_learns_new_requests, "a scheduler that keeps the rules");
    for (KVConnectorHandle& child : children_) child->on_new_request(request);
  }

  // Source: vLLM v0.19.0 multi_connector.py get_num_new_matched_tokens.
  MatchedTokens get_num_new_matched_tokens(const ConnectorRequest& request,
                                           std::uint32_t num_local_tokens) override {
    MatchedTokens first{0, false};
    would_load_async_ = false;
    for (std::uint32_t place = 0; place < children_.size(); ++place) {
      const MatchedTokens answer =
          children_[place]->get_num_new_matched_tokens(request, num_local_tokens);
      if (!answer.num_tokens) return {};
      if (*first.num_tokens > 0 || *answer.num_tokens == 0) continue;
      first = answer;
      chosen_[std::string(request.id)] = place;
    }
    would_load_async_ = first.load_async;
    return first;
  }

  // Source: vLLM v0.19.0 multi_connector.py update_state_after_alloc.
  void update_state_after_alloc(ConnectorHost& host, const ConnectorRequest& request,
                                const BlocksByGroup& blocks,
                                std::uint32_t num_external_tokens) override {
    const auto chosen = chosen_.find(std::string(request.id));
    if (num_external_tokens > 0 && would_load_async_) {
      KVFENCE_CHECK(chosen != chosen_.end(), "the child that loads was chosen");
      loading_[request.index] = *chosen;
    }
    const BlocksByGroup no_blocks(blocks.size());
    for (std::uint32_t place = 0; place < children_.size(); ++place) {
      const bool is_chosen = chosen != chosen_.end() && chosen->second == place;
      const bool gets_blocks = is_chosen || rules_.multi_connector_shares_blocks;
      children_[place]->update_state_after_alloc(host, request, gets_blocks ? blocks : no_blocks,
                                                 is_chosen ? num_external_tokens : 0);
    }
  }

  // Source: vLLM v0.19.0 multi_connector.py build_connector_meta.
  std::shared_ptr<const KVConnectorMetadata> build_connector_meta(
      ConnectorHost& host, const SchedulerOutput& output) override {
    auto metadata = std::make_shared<MultiConnectorMetadata>();
    for (KVConnectorHandle& child : children_) {
      metadata->metadata.push_back(child->build_connector_meta(host, output));
    }
    extra_async_saves(metadata->extra_async_saves);
    extra_async_saves_.clear();
    return metadata;
  }

  // Source: vLLM v0.19.0 multi_connector.py update_connector_output.
  void update_connector_output(ConnectorHost& host, const KVConnectorOutput& output) override {
    for (const RequestIndex request : output.finished_recving) loading_.erase(request);
    for (std::uint32_t place = 0; place < children_.size(); ++place) {
      KVConnectorOutput own = output;
      own.completed_jobs.clear();
      for (CompletedJob job : output.completed_jobs) {
        const ChildJob of_child = child_job(job.job, num_children());
        if (of_child.child != place) continue;
        job.job = of_child.job;
        own.completed_jobs.push_back(job);
      }
      children_[place]->update_connector_output(host, own);
    }
  }

  // Source: vLLM v0.23.0 multi_connector.py request_finished_all_groups,
  // _aggregate_request_finished; v0.19.0 request_finished.
  bool request_finished(ConnectorHost& host, const ConnectorRequest& request,
                        const BlocksByGroup& blocks) override {
    KVFENCE_CHECK(blocks.size() == 1 || (rules_.multi_connector_hma && supports_hma()),
                  "several groups are for children that all support them");
    std::uint32_t num_saves = 0;
    std::optional<std::string> params;
    for (KVConnectorHandle& child : children_) {
      if (child->request_finished(host, request, blocks)) ++num_saves;
      std::optional<std::string> of_child = child->take_client_params();
      if (!of_child) continue;
      if (params) throw EngineEnded{ErrorCode::kSeveralParams};
      params = std::move(of_child);
    }
    if (num_saves > 1) extra_async_saves_[std::string(request.id)] = num_saves - 1;
    chosen_.erase(std::string(request.id));
    if (params) client_params_.push_back({std::string(request.id), *params});
    return num_saves > 0;
  }

  // Source: vLLM v0.19.0 multi_connector.py take_events.
  void take_events(std::vector<KVCacheEvent>& out) override {
    for (KVConnectorHandle& child : children_) child->take_events(out);
  }

  // Source: vLLM v0.19.0 multi_connector.py reset_cache.
  bool reset_cache() override {
    bool has_failed = false;
    for (KVConnectorHandle& child : children_) {
      const bool is_done = child->reset_cache();
      if (child->says_how_reset_went() && !is_done) has_failed = true;
    }
    return !has_failed;
  }

  bool supports_hma() const override {
    return std::ranges::all_of(
        children_, [](const KVConnectorHandle& child) { return child->supports_hma(); });
  }

  // Source: vLLM v0.19.0 multi_connector.py shutdown.
  bool shutdown() override {
    bool has_failed = false;
    for (KVConnectorHandle& child : children_) {
      if (!child->shutdown()) has_failed = true;
    }
    return !has_failed;
  }

  KVConnector* child(std::size_t place) override {
    return place < children_.size() ? children_[place].get() : nullptr;
  }

  void chosen(std::vector<ChosenConnector>& out) const override {
    out.clear();
    for (const auto& [request, place] : chosen_) out.push_back({request, place});
  }

  void extra_async_saves(std::vector<ExtraAsyncSaves>& out) const override {
    out.clear();
    for (const auto& [request, saves] : extra_async_saves_) out.push_back({request, saves});
  }

  std::optional<std::uint32_t> loading_child(std::string_view request) const override {
    for (const auto& [index, load] : loading_) {
      if (load.first == request) return load.second;
    }
    return std::nullopt;
  }

  void take_all_client_params(std::vector<ClientParams>& out) override {
    out.insert(out.end(), client_params_.begin(), client_params_.end());
    client_params_.clear();
  }

  void add_to(StateHash& hash) const override {
    hash.add_all(children_, chosen_, extra_async_saves_, loading_, client_params_);
  }

 private:
  std::uint32_t num_children() const { return static_cast<std::uint32_t>(children_.size()); }

  Rules rules_;
  std::vector<KVConnectorHandle> children_;
  std::map<std::string, std::uint32_t> chosen_;             ///< places, by request
  std::map<std::string, std::uint32_t> extra_async_saves_;  ///< by request, none is 0
  bool would_load_async_ = false;                           ///< the last lookup found
  /// Requests that wait for a load, and the place of the child that loads them.
  std::map<RequestIndex, std::pair<std::string, std::uint32_t>> loading_;
  std::vector<ClientParams> client_params_;
};

class MultiWorker final : public Cloning<MultiWorker, MultiConnectorWorker> {
 public:
  explicit MultiWorker(std::vector<MultiConnectorChildWorker> children)
      : children_(std::move(children)), engines_(num_children()) {
    KVFENCE_CHECK(!children_.empty(), "a MultiConnector has children");
  }

  // Source: vLLM v0.19.0 multi_connector.py prefer_cross_layer_blocks.
  bool prefer_cross_layer_blocks() const override {
    for (const MultiConnectorChildWorker& child : children_) {
      if (!child.worker->prefer_cross_layer_blocks()) return false;
    }
    return true;
  }

  // Source: vLLM v0.19.0 multi_connector.py, the functions of these names.
  void register_kv_caches(TransferEngine& copies) override {
    engines_.lend(copies);
    for (std::uint32_t place = 0; place < num_children(); ++place) {
      children_[place].worker->register_kv_caches(engines_.of_child(place));
    }
  }
  void register_cross_layers_kv_cache(TransferEngine& copies) override {
    engines_.lend(copies);
    for (std::uint32_t place = 0; place < num_children(); ++place) {
      children_[place].worker->register_cross_layers_kv_cache(engines_.of_child(place));
    }
  }

  // Source: vLLM v0.19.0 multi_connector.py get_handshake_metadata.
  std::shared_ptr<const KVConnectorHandshakeMetadata> get_handshake_metadata() override {
    for (MultiConnectorChildWorker& child : children_) {
      if (auto handshake = child.worker->get_handshake_metadata()) return handshake;
    }
    return nullptr;
  }

  // Source: vLLM v0.19.0 multi_connector.py handle_preemptions.
  void handle_preemptions(const KVConnectorMetadata& metadata) override {
    const MultiConnectorMetadata& of_step = multi_connector_metadata(metadata);
    for (std::size_t place = 0; place < children_.size(); ++place) {
      children_[place].worker->handle_preemptions(*of_step.metadata[place]);
    }
  }

  // Source: vLLM v0.19.0 multi_connector.py bind_connector_metadata.
  void bind_connector_metadata(const KVConnectorMetadata& metadata) override {
    const MultiConnectorMetadata& of_step = multi_connector_metadata(metadata);
    for (const ExtraAsyncSaves& extra : of_step.extra_async_saves) {
      extra_async_saves_[extra.request] = extra.saves;
    }
    for (std::size_t place = 0; place < children_.size(); ++place) {
      children_[place].worker->bind_connector_metadata(*of_step.metadata[place]);
    }
  }

  // Source: vLLM v0.19.0 multi_connector.py, the functions of these names.
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

  // Source: vLLM v0.19.0 multi_connector.py shutdown.
  bool shutdown() override {
    bool has_failed = false;
    for (MultiConnectorChildWorker& child : children_) {
      if (!child.worker->shutdown()) has_failed = true;
    }
    return !has_failed;
  }

  // Source: vLLM v0.19.0 multi_connector.py get_finished, get_block_ids_with_load_errors,
  // build_connector_worker_meta; v0.23.0 get_kv_connector_stats.
  void get_finished(std::span<const std::string> finished_requests,
                    KVConnectorWorkerOutput& out) override {
    std::set<std::string> sent;
    std::set<std::string> received;
    std::set<BlockId> invalid;
    StatsByClass stats;
    out = {};
    for (std::uint32_t place = 0; place < num_children(); ++place) {
      KVConnectorWorkerOutput of_child;
      children_[place].worker->get_finished(finished_requests, of_child);
      received.insert(of_child.finished_recving.begin(), of_child.finished_recving.end());
      invalid.insert(of_child.invalid_block_ids.begin(), of_child.invalid_block_ids.end());
      for (const std::string& request : of_child.finished_sending) {
        const auto extra = extra_async_saves_.find(request);
        if (extra == extra_async_saves_.end()) {
          sent.insert(request);
        } else if (--extra->second == 0) {
          extra_async_saves_.erase(extra);
        }
      }
      for (TransferResult result : of_child.completed_jobs) {
        result.job = multi_connector_job({place, result.job}, num_children());
        out.completed_jobs.push_back(result);
      }
      if (!of_child.stats.empty()) {
        stats.aggregate(children_[place].connector_class, of_child.stats);
      }
    }
    out.finished_sending.assign(sent.begin(), sent.end());
    out.finished_recving.assign(received.begin(), received.end());
    out.invalid_block_ids.assign(invalid.begin(), invalid.end());
    out.stats_of_children = stats.data();
  }

  void extra_async_saves(std::vector<ExtraAsyncSaves>& out) const override {
    out.clear();
    for (const auto& [request, saves] : extra_async_saves_) out.push_back({request, saves});
  }

  void add_to(StateHash& hash) const override {
    hash.add_all(engines_, children_, extra_async_saves_);
  }

 private:
  std::uint32_t num_children() const { return static_cast<std::uint32_t>(children_.size()); }

  std::vector<MultiConnectorChildWorker> children_;
  ChildEngines engines_;
  std::map<std::string, std::uint32_t> extra_async_saves_;  ///< by request, none is 0
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

}  // namespace kvfence::reference
