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
#include "optimized/base/request_list.h"
#include "optimized/base/slots.h"
#include "optimized/connectors/kv_connector_stats.h"

namespace kvfence::optimized {
namespace {

/// The extra saves of requests. Cost: O(1) per operation, O(requests) where all are concerned.
class ExtraSaves {
 public:
  void set(std::string_view request, std::uint32_t saves) {
    std::optional<std::uint32_t> slot = entries_.find(request);
    if (!slot) {
      slot = entries_.insert(request);
      taken_.push_back(*slot);
    }
    entries_[*slot].saves = saves;
  }

  /// Takes one from the request; false if it has none.
  bool take_one(std::string_view request) {
    const std::optional<std::uint32_t> slot = entries_.find(request);
    if (!slot) return false;
    if (--entries_[*slot].saves == 0) erase(*slot);
    return true;
  }

  void clear() {
    while (!taken_.empty()) erase(taken_.front());
  }

  void copy_to(std::vector<ExtraAsyncSaves>& out) const {
    out.clear();
    for (std::uint32_t slot = taken_.front(); slot != kNoRequest; slot = taken_.next(slot)) {
      out.push_back({entries_[slot].id, entries_[slot].saves});
    }
  }

  /// The order means nothing.
  void add_to(StateHash& hash) const {
    StateHash all;
    for (std::uint32_t slot = taken_.front(); slot != kNoRequest; slot = taken_.next(slot)) {
      all.add_unordered(StateHash::hash_of(entries_[slot]));
    }
    hash.add(all);
  }

 private:
  struct Entry {
    std::string id;
    std::uint32_t saves = 0;
  };

  void erase(std::uint32_t slot) {
    taken_.erase(slot);
    entries_.erase(slot);
  }

  NamedSlots<Entry> entries_;
  RequestList taken_;  ///< slots
};

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
    would_load_async_ = false;
    for (std::uint32_t place = 0; place < num_children(); ++place) {
      const MatchedTokens answer =
          children_[place]->get_num_new_matched_tokens(request, num_local_tokens);
      if (!answer.num_tokens) return {};
      if (*first.num_tokens > 0 || *answer.num_tokens == 0) continue;
      first = answer;
      choose(chosen_, request, place);
    }
    would_load_async_ = first.load_async;
    return first;
  }

  void update_state_after_alloc(ConnectorHost& host, const ConnectorRequest& request,
                                const BlocksByGroup& blocks,
                                std::uint32_t num_external_tokens) override {
    const std::uint32_t chosen = chosen_child(request.index);
    if (num_external_tokens > 0 && would_load_async_) choose(loading_, request, chosen);
    no_blocks_.resize(blocks.size());
    const BlocksByGroup& of_others = rules_.multi_connector_shares_blocks ? blocks : no_blocks_;
    for (std::uint32_t place = 0; place < num_children(); ++place) {
      if (chosen == place) {
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
    extra_async_saves_.copy_to(metadata->extra_async_saves);
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
    std::optional<std::string> params;
    for (KVConnectorHandle& child : children_) {
      if (child->request_finished(host, request, blocks)) ++num_saves;
      std::optional<std::string> of_child = child->take_client_params();
      if (!of_child) continue;
      if (params) throw EngineEnded{ErrorCode::kSeveralParams};
      params = std::move(of_child);
    }
    if (num_saves > 1) extra_async_saves_.set(request.id, num_saves - 1);
    if (request.index < chosen_.size()) chosen_[request.index].child = kNoChild;
    if (params) client_params_.push_back({std::string(request.id), std::move(*params)});
    return num_saves > 0;
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

  void chosen(std::vector<ChosenConnector>& out) const override {
    out.clear();
    for (const Choice& choice : chosen_) {
      if (choice.child != kNoChild) out.push_back({choice.request, choice.child});
    }
  }

  void extra_async_saves(std::vector<ExtraAsyncSaves>& out) const override {
    extra_async_saves_.copy_to(out);
  }

  std::optional<std::uint32_t> loading_child(std::string_view request) const override {
    for (const Choice& load : loading_) {
      if (load.child != kNoChild && load.request == request) return load.child;
    }
    return std::nullopt;
  }

  void take_all_client_params(std::vector<ClientParams>& out) override {
    out.insert(out.end(), client_params_.begin(), client_params_.end());
    client_params_.clear();
  }

  void add_to(StateHash& hash) const override {
    hash.add_all(children_, extra_async_saves_, client_params_);
    for (const std::vector<Choice>* choices : {&chosen_, &loading_}) {
      StateHash all;
      for (const Choice& choice : *choices) {
        if (choice.child != kNoChild) all.add_unordered(StateHash::hash_of(choice));
      }
      hash.add(all);
    }
  }

 private:
  static constexpr std::uint32_t kNoChild = 0xFFFF'FFFF;

  /// The child that is to do something for a request.
  struct Choice {
    std::string request;
    std::uint32_t child = kNoChild;
  };

  static void choose(std::vector<Choice>& choices, const ConnectorRequest& request,
                     std::uint32_t child) {
    if (request.index >= choices.size()) choices.resize(std::size_t{request.index} + 1);
    choices[request.index].request = request.id;
    choices[request.index].child = child;
  }

  std::uint32_t chosen_child(RequestIndex request) const {
    return request < chosen_.size() ? chosen_[request].child : kNoChild;
  }

  std::uint32_t num_children() const { return static_cast<std::uint32_t>(children_.size()); }

  Rules rules_;
  std::vector<KVConnectorHandle> children_;
  bool supports_hma_ = false;      ///< each child
  std::vector<Choice> chosen_;     ///< by RequestIndex
  std::vector<Choice> loading_;    ///< by RequestIndex, while the request waits
  ExtraSaves extra_async_saves_;   ///< that no metadata carry yet
  bool would_load_async_ = false;  ///< the last lookup found
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
        // With an extra save more notices of the request are to come.
        if (extra_async_saves_.take_one(request)) continue;
        out.finished_sending.push_back(std::move(request));
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
    extra_async_saves_.copy_to(out);
  }

  void add_to(StateHash& hash) const override {
    hash.add_all(engines_, children_, extra_async_saves_);
  }

 private:
  std::uint32_t num_children() const { return static_cast<std::uint32_t>(children_.size()); }
  KVConnectorWorker& worker(std::uint32_t place) { return *children_[place].worker.get(); }

  std::vector<MultiConnectorChildWorker> children_;
  ChildEngines engines_;
  ExtraSaves extra_async_saves_;
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
