#pragma once

/// A MultiConnector (contract/connectors/multi/multi_connector.h) as a KVConnector whose children
/// are KVConnectors, and its worker's half as a KVConnectorWorker. No rule of its own but this one:
/// the transfers of the children have numbers of the MultiConnector's (multi_connector_job), in the
/// engine of a rank as in what the workers report; each child knows its own alone.

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/connectors/kv_connector.h"
#include "contract/connectors/kv_connector_stats.h"
#include "contract/connectors/kv_connector_worker.h"
#include "contract/connectors/kv_output_aggregator.h"
#include "contract/connectors/multi/multi_connector.h"
#include "contract/connectors/transfer_engine.h"
#include "contract/core/check.h"
#include "contract/core/state_digest.h"
#include "contract/core/status.h"

namespace kvfence {

/// What a step tells the workers' halves of all children.
struct MultiKVConnectorMetadata final : KVConnectorMetadata {
  MultiConnectorMetadata<std::shared_ptr<const KVConnectorMetadata>> told;

  const KVConnectorMetadata* child(std::size_t place) const override {
    return place < told.metadata.size() ? told.metadata[place].get() : nullptr;
  }
  void add_to(StateHash& hash) const override { hash.add(told); }
};

/// The jobs of a child that workers reported, by its own numbers.
struct CompletedJobsOfChild {
  std::vector<CompletedJob> jobs;
  void aggregate(const CompletedJobsOfChild& other) {
    jobs.insert(jobs.end(), other.jobs.begin(), other.jobs.end());
  }
};

/// The scheduler's half of a child, of which MultiConnector asks by the names of requests alone:
/// the rest of a call stands beside it.
class KVConnectorChild {
 public:
  using Metadata = std::shared_ptr<const KVConnectorMetadata>;
  using WorkerMetadata = CompletedJobsOfChild;
  using Event = KVCacheEvent;
  using Handshake = HandshakesByRank::value_type;

  /// What a KVConnector is called with; null where the call has none.
  struct Call {
    ConnectorHost* host = nullptr;
    const ConnectorRequest* request = nullptr;
    const SchedulerOutput* output = nullptr;
    const KVConnectorOutput* report = nullptr;
  };

  explicit KVConnectorChild(std::unique_ptr<KVConnector> connector)
      : connector_(std::move(connector)) {}

  /// For the calls that follow.
  void begin(const Call& call) { call_ = call; }

  KVConnector* connector() const { return connector_.get(); }

  bool supports_hma() const { return connector_->supports_hma(); }
  void on_new_request(std::string_view) { connector_->on_new_request(*call_.request); }
  MatchedTokens get_num_new_matched_tokens(std::string_view, std::uint32_t num_local_tokens) {
    return connector_->get_num_new_matched_tokens(*call_.request, num_local_tokens);
  }
  void update_state_after_alloc(std::string_view, const BlocksByGroup& blocks,
                                std::uint32_t num_external_tokens) {
    connector_->update_state_after_alloc(*call_.host, *call_.request, blocks, num_external_tokens);
  }
  Metadata build_connector_meta() {
    return connector_->build_connector_meta(*call_.host, *call_.output);
  }
  void update_connector_output(const AggregatedOutput&, const CompletedJobsOfChild* completed) {
    KVConnectorOutput own = *call_.report;
    own.completed_jobs = completed ? completed->jobs : std::vector<CompletedJob>();
    connector_->update_connector_output(*call_.host, own);
  }
  FinishedAnswer request_finished(std::string_view request, std::span<const BlockId> group) {
    return request_finished_all_groups(request, {{group.begin(), group.end()}});
  }
  FinishedAnswer request_finished_all_groups(std::string_view, const BlocksByGroup& blocks) {
    const bool hold = connector_->request_finished(*call_.host, *call_.request, blocks);
    return {hold, connector_->take_client_params()};
  }
  void take_events(std::vector<KVCacheEvent>& out) { connector_->take_events(out); }
  std::optional<bool> reset_cache() {
    const bool done = connector_->reset_cache();
    return connector_->says_how_reset_went() ? std::optional(done) : std::nullopt;
  }
  void set_xfer_handshake_metadata(const HandshakesByRank& handshakes) {
    connector_->set_xfer_handshake_metadata(handshakes);
  }
  bool shutdown() { return connector_->shutdown(); }
  void add_to(StateHash& hash) const { hash.add(connector_); }

 private:
  KVConnectorHandle connector_;
  Call call_;
};

/// Thrown where upstream raises: the engine ends.
struct EngineEnded {
  ErrorCode code = ErrorCode::kNone;
};

/// What a client gets of a finished request.
struct ClientParams {
  std::string request;
  std::string params;
  void add_to(StateHash& hash) const { hash.add_all(request, params); }
};

/// What an observer sees of a MultiConnector among KVConnectors.
class MultiKVConnectorScheduler : public KVConnector {
 public:
  /// These two replace out, in no particular order.
  virtual void chosen(std::vector<ChosenConnector>& out) const = 0;
  virtual void extra_async_saves(std::vector<ExtraAsyncSaves>& out) const = 0;
  /// The child that loads the request while it waits, until that is over; nothing: none does.
  virtual std::optional<std::uint32_t> loading_child(std::string_view request) const = 0;
  /// Appends what clients get of requests that finished since the last call, oldest first.
  virtual void take_all_client_params(std::vector<ClientParams>& out) = 0;
};

/// The same of a worker's half.
class MultiKVConnectorWorkerHalf : public KVConnectorWorker {
 public:
  /// Replaces out, in no particular order.
  virtual void extra_async_saves(std::vector<ExtraAsyncSaves>& out) const = 0;
  /// Makes one report of the ranks' jobs and of their children's statistics, rank 0 first, as
  /// upstream's metadata and statistics of a MultiConnector aggregate themselves.
  virtual void aggregate(std::span<const KVConnectorWorkerOutput> outputs,
                         AggregatedOutput& out) const = 0;
};

/// Multi: a MultiConnector over KVConnectorChild.
template <class Multi>
class MultiKVConnector final : public Cloning<MultiKVConnector<Multi>, MultiKVConnectorScheduler> {
 public:
  /// more: what Multi is constructed from besides. Requires: at least one child; one group, unless
  /// Rules::multi_connector_hma.
  template <class... More>
  MultiKVConnector(const Rules& rules, std::vector<KVConnectorChild> children, More... more)
      : num_children_(static_cast<std::uint32_t>(children.size())),
        supports_hma_(std::all_of(children.begin(), children.end(),
                                  [](const auto& child) { return child.supports_hma(); })),
        multi_(rules, std::move(children), more...) {}

  void set_xfer_handshake_metadata(const HandshakesByRank& handshakes) override {
    multi_.set_xfer_handshake_metadata(handshakes);
  }

  void on_new_request(const ConnectorRequest& request) override {
    begin({.request = &request});
    const ErrorCode error = multi_.on_new_request(request.id);
    KVFENCE_CHECK(error == ErrorCode::kNone, "a scheduler tells of requests as the rules say");
  }

  MatchedTokens get_num_new_matched_tokens(const ConnectorRequest& request,
                                           std::uint32_t num_local_tokens) override {
    begin({.request = &request});
    const MatchedTokens matched = multi_.get_num_new_matched_tokens(request.id, num_local_tokens);
    would_load_async_ = matched.load_async;
    return matched;
  }

  void update_state_after_alloc(ConnectorHost& host, const ConnectorRequest& request,
                                const BlocksByGroup& blocks,
                                std::uint32_t num_external_tokens) override {
    begin({.host = &host, .request = &request});
    if (num_external_tokens > 0 && would_load_async_) {
      loading_[request.index] = {std::string(request.id), chosen_child(request.id)};
    }
    multi_.update_state_after_alloc(request.id, blocks, num_external_tokens);
  }

  std::shared_ptr<const KVConnectorMetadata> build_connector_meta(
      ConnectorHost& host, const SchedulerOutput& output) override {
    begin({.host = &host, .output = &output});
    auto metadata = std::make_shared<MultiKVConnectorMetadata>();
    multi_.build_connector_meta(metadata->told);
    return metadata;
  }

  void update_connector_output(ConnectorHost& host, const KVConnectorOutput& output) override {
    for (const RequestIndex request : output.finished_recving) loading_.erase(request);
    MultiConnectorWorkerMetadata<CompletedJobsOfChild> by_child;
    by_child.metadata.resize(num_children_);
    for (const CompletedJob& completed : output.completed_jobs) {
      const ChildJob own = child_job(completed.job, num_children_);
      std::optional<CompletedJobsOfChild>& jobs = by_child.metadata[own.child];
      if (!jobs) jobs.emplace();
      jobs->jobs.push_back(completed);
      jobs->jobs.back().job = own.job;
    }
    begin({.host = &host, .report = &output});
    // Who is finished stands in the report, by index.
    multi_.update_connector_output({}, output.completed_jobs.empty() ? nullptr : &by_child);
  }

  bool request_finished(ConnectorHost& host, const ConnectorRequest& request,
                        const BlocksByGroup& blocks) override {
    begin({.host = &host, .request = &request});
    FinishedAnswer answer;
    const ErrorCode error = multi_.request_finished(request.id, blocks, answer);
    if (error != ErrorCode::kNone) throw EngineEnded{error};
    if (answer.kv_transfer_params) {
      client_params_.push_back({std::string(request.id), *answer.kv_transfer_params});
    }
    return answer.hold_blocks;
  }

  void take_events(std::vector<KVCacheEvent>& out) override { multi_.take_events(out); }
  bool reset_cache() override { return multi_.reset_cache(); }
  bool supports_hma() const override { return supports_hma_; }
  bool shutdown() override { return multi_.shutdown(); }

  KVConnector* child(std::size_t place) override {
    return place < num_children_ ? multi_.children()[place].connector() : nullptr;
  }
  void add_to(StateHash& hash) const override { hash.add_all(multi_, loading_, client_params_); }

  void chosen(std::vector<ChosenConnector>& out) const override { multi_.chosen(out); }
  void extra_async_saves(std::vector<ExtraAsyncSaves>& out) const override {
    multi_.extra_async_saves(out);
  }
  std::optional<std::uint32_t> loading_child(std::string_view request) const override {
    for (const auto& [index, load] : loading_) {
      if (load.request == request) return load.child;
    }
    return std::nullopt;
  }
  void take_all_client_params(std::vector<ClientParams>& out) override {
    out.insert(out.end(), client_params_.begin(), client_params_.end());
    client_params_.clear();
  }

 private:
  void begin(const KVConnectorChild::Call& call) {
    for (KVConnectorChild& child : multi_.children()) child.begin(call);
  }

  std::uint32_t chosen_child(std::string_view request) const {
    std::vector<ChosenConnector> all;
    multi_.chosen(all);
    for (const ChosenConnector& chosen : all) {
      if (chosen.request == request) return chosen.child;
    }
    return num_children_;
  }

  std::uint32_t num_children_;
  bool supports_hma_;  ///< each child
  Multi multi_;
  bool would_load_async_ = false;  ///< the last lookup found
  std::map<RequestIndex, ChosenConnector> loading_;
  std::vector<ClientParams> client_params_;
};

/// The transfers of a child that ended on a rank, by its own numbers.
struct TransferResultsOfChild {
  std::vector<TransferResult> results;
  void aggregate(const TransferResultsOfChild& other) {
    results.insert(results.end(), other.results.begin(), other.results.end());
  }
};

/// A rank's copy engine as one child of a MultiConnector sees it. What ended and belongs to another
/// child stays in that one's inbox.
class EngineOfChild final : public TransferEngine {
 public:
  /// inboxes: one per child; both outlive it.
  EngineOfChild(TransferEngine& engine, std::vector<std::vector<TransferResult>>& inboxes,
                std::uint32_t child)
      : engine_(engine), inboxes_(inboxes), child_(child) {}

  void transfer_async(const TransferJob& job) override {
    TransferJob numbered = job;
    numbered.job = number(job.job);
    engine_.transfer_async(numbered);
  }

  void get_finished(std::vector<TransferResult>& out) override {
    std::vector<TransferResult> ended;
    engine_.get_finished(ended);
    for (TransferResult& result : ended) {
      const ChildJob own = child_job(result.job, num_children());
      result.job = own.job;
      inboxes_[own.child].push_back(result);
    }
    out = std::exchange(inboxes_[child_], {});
  }

  void wait(std::span<const JobId> jobs) override {
    std::vector<JobId> numbers;
    for (const JobId job : jobs) numbers.push_back(number(job));
    engine_.wait(numbers);
  }

 private:
  std::uint32_t num_children() const { return static_cast<std::uint32_t>(inboxes_.size()); }
  JobId number(JobId job) const { return multi_connector_job({child_, job}, num_children()); }

  TransferEngine& engine_;
  std::vector<std::vector<TransferResult>>& inboxes_;
  std::uint32_t child_;
};

/// The statistics of a child; those of its own children stand by themselves.
template <OffloadingConnectorStats StatsType>
struct StatsOfChild {
  StatsType own = StatsType();
  std::vector<StatsOfClass<StatsType>> below;

  void aggregate(const StatsOfChild& other) {
    own.aggregate(other.own);
    for (const StatsOfClass<StatsType>& more : other.below) {
      const auto at = std::find_if(below.begin(), below.end(), [&](const auto& known) {
        return known.connector_class == more.connector_class;
      });
      at == below.end() ? below.push_back(more) : at->stats.aggregate(more.stats);
    }
  }
};

/// The worker's half of a child, which reports everything at once: it is kept until it is asked for
/// piece by piece.
template <OffloadingConnectorStats StatsType>
class KVConnectorWorkerChild {
 public:
  using Metadata = std::shared_ptr<const KVConnectorMetadata>;
  using WorkerMetadata = TransferResultsOfChild;
  using Stats = StatsOfChild<StatsType>;
  using Handshake = HandshakesByRank::value_type;

  KVConnectorWorkerChild(std::string connector_class, std::unique_ptr<KVConnectorWorker> worker)
      : connector_class_(std::move(connector_class)), worker_(std::move(worker)) {}

  /// What it is registered with later. copies: outlives it.
  void begin(TransferEngine& copies) { copies_ = &copies; }

  std::string_view connector_class() const { return connector_class_; }
  bool prefer_cross_layer_blocks() const { return worker_->prefer_cross_layer_blocks(); }
  void register_kv_caches() { worker_->register_kv_caches(*copies_); }
  void register_cross_layers_kv_cache() { worker_->register_cross_layers_kv_cache(*copies_); }
  Handshake get_handshake_metadata() { return worker_->get_handshake_metadata(); }
  void handle_preemptions(const Metadata& metadata) { worker_->handle_preemptions(*metadata); }
  void bind_connector_metadata(const Metadata& metadata) {
    worker_->bind_connector_metadata(*metadata);
  }
  void start_load_kv() { worker_->start_load_kv(); }
  void wait_for_layer_load(std::string_view layer) {
    worker_->wait_for_layer_load(number_of(layer));
  }
  void save_kv_layer(std::string_view layer) { worker_->save_kv_layer(number_of(layer)); }
  void wait_for_save() { worker_->wait_for_save(); }
  void get_finished(std::span<const std::string> finished_requests, FinishedTransfers& out) {
    worker_->get_finished(finished_requests, report_);
    out.sending = report_.finished_sending;
    out.recving = report_.finished_recving;
  }
  void get_block_ids_with_load_errors(std::vector<BlockId>& out) {
    out.insert(out.end(), report_.invalid_block_ids.begin(), report_.invalid_block_ids.end());
  }
  std::optional<Stats> get_kv_connector_stats() {
    if (report_.stats.empty() && report_.stats_of_children.empty()) return std::nullopt;
    Stats stats{StatsType(std::span<const TransferOperations>(report_.stats)), {}};
    for (const TransferOperationsOfClass& child : report_.stats_of_children) {
      stats.below.push_back(
          {child.connector_class, StatsType(std::span<const TransferOperations>(child.stats))});
    }
    return stats;
  }
  std::optional<TransferResultsOfChild> build_connector_worker_meta() {
    if (report_.completed_jobs.empty()) return std::nullopt;
    return TransferResultsOfChild{report_.completed_jobs};
  }
  void clear_connector_metadata() { worker_->clear_connector_metadata(); }
  bool shutdown() { return worker_->shutdown(); }
  void add_to(StateHash& hash) const { hash.add_all(worker_, report_); }

 private:
  static std::uint32_t number_of(std::string_view layer) {
    std::uint32_t number = 0;
    std::from_chars(layer.data(), layer.data() + layer.size(), number);
    return number;
  }

  std::string connector_class_;
  KVConnectorWorkerHandle worker_;
  TransferEngine* copies_ = nullptr;
  KVConnectorWorkerOutput report_;
};

/// Multi: a MultiConnectorWorker over KVConnectorWorkerChild<Stats>.
template <class Multi, class Stats>
class MultiKVConnectorWorker final
    : public Cloning<MultiKVConnectorWorker<Multi, Stats>, MultiKVConnectorWorkerHalf> {
 public:
  using Child = KVConnectorWorkerChild<Stats>;

  /// As above. Requires: at least one child.
  template <class... More>
  explicit MultiKVConnectorWorker(std::vector<Child> children, More... more)
      : engines_(std::make_shared<Engines>()), multi_(std::move(children), more...) {
    engines_->inboxes.resize(multi_.children().size());
  }

  bool prefer_cross_layer_blocks() const override { return multi_.prefer_cross_layer_blocks(); }
  void register_kv_caches(TransferEngine& copies) override {
    lend(copies);
    multi_.register_kv_caches();
  }
  void register_cross_layers_kv_cache(TransferEngine& copies) override {
    lend(copies);
    multi_.register_cross_layers_kv_cache();
  }
  std::shared_ptr<const KVConnectorHandshakeMetadata> get_handshake_metadata() override {
    return multi_.get_handshake_metadata();
  }

  void handle_preemptions(const KVConnectorMetadata& metadata) override {
    multi_.handle_preemptions(told_by(metadata));
  }
  void bind_connector_metadata(const KVConnectorMetadata& metadata) override {
    multi_.bind_connector_metadata(told_by(metadata));
  }
  void start_load_kv() override { multi_.start_load_kv(); }
  void wait_for_layer_load(std::uint32_t layer) override {
    multi_.wait_for_layer_load(std::to_string(layer));
  }
  void save_kv_layer(std::uint32_t layer) override { multi_.save_kv_layer(std::to_string(layer)); }
  void wait_for_save() override { multi_.wait_for_save(); }

  void get_finished(std::span<const std::string> finished_requests,
                    KVConnectorWorkerOutput& out) override {
    FinishedTransfers finished;
    multi_.get_finished(finished_requests, finished);
    out.finished_sending = std::move(finished.sending);
    out.finished_recving = std::move(finished.recving);
    multi_.get_block_ids_with_load_errors(out.invalid_block_ids);

    out.stats.clear();
    out.stats_of_children.clear();
    std::vector<StatsOfClass<typename Child::Stats>> by_class;
    multi_.get_kv_connector_stats(by_class);
    for (const auto& [name, stats] : by_class) {
      if (!stats.own.is_empty()) add(name, stats.own, out);
      for (const StatsOfClass<Stats>& child : stats.below) {
        add(name + "/" + child.connector_class, child.stats, out);
      }
    }

    out.completed_jobs.clear();
    WorkerMetadata by_child;
    multi_.build_connector_worker_meta(by_child);
    for (std::uint32_t child = 0; child < by_child.metadata.size(); ++child) {
      if (!by_child.metadata[child]) continue;
      for (TransferResult result : by_child.metadata[child]->results) {
        result.job = multi_connector_job({child, result.job}, num_children());
        out.completed_jobs.push_back(result);
      }
    }
  }

  void clear_connector_metadata() override { multi_.clear_connector_metadata(); }
  bool shutdown() override { return multi_.shutdown(); }

  void extra_async_saves(std::vector<ExtraAsyncSaves>& out) const override {
    multi_.extra_async_saves(out);
  }

  void aggregate(std::span<const KVConnectorWorkerOutput> outputs,
                 AggregatedOutput& out) const override {
    std::optional<WorkerMetadata> jobs;
    std::optional<StatsByClass> stats;
    for (const KVConnectorWorkerOutput& output : outputs) {
      take_in(jobs_by_child(output), !output.completed_jobs.empty(), jobs);
      take_in(stats_by_class(output), !output.stats_of_children.empty(), stats);
    }
    std::map<JobId, CompletedJob> completed;
    for (std::uint32_t child = 0; jobs && child < num_children(); ++child) {
      if (!jobs->metadata[child]) continue;
      for (const TransferResult& result : jobs->metadata[child]->results) {
        const JobId job = multi_connector_job({child, result.job}, num_children());
        CompletedJob& all = completed[job];
        all.job = job;
        ++all.num_workers;
        if (!result.success) ++all.num_failed;
      }
    }
    out.completed_jobs.clear();
    for (const auto& [job, all] : completed) out.completed_jobs.push_back(all);
    out.stats_of_children.clear();
    for (std::size_t at = 0; stats && at < stats->size(); ++at) {
      const auto data = (*stats)[at].stats.own.data();
      out.stats_of_children.push_back({(*stats)[at].connector_class, {data.begin(), data.end()}});
    }
  }
  void add_to(StateHash& hash) const override { hash.add_all(engines_->inboxes, multi_); }

 private:
  using WorkerMetadata = MultiConnectorWorkerMetadata<TransferResultsOfChild>;
  using StatsByClass = std::vector<StatsOfClass<typename Child::Stats>>;

  WorkerMetadata jobs_by_child(const KVConnectorWorkerOutput& output) const {
    WorkerMetadata jobs;
    jobs.metadata.resize(num_children());
    for (const TransferResult& result : output.completed_jobs) {
      const ChildJob own = child_job(result.job, num_children());
      std::optional<TransferResultsOfChild>& of_child = jobs.metadata[own.child];
      if (!of_child) of_child.emplace();
      of_child->results.push_back(result);
      of_child->results.back().job = own.job;
    }
    return jobs;
  }

  static StatsByClass stats_by_class(const KVConnectorWorkerOutput& output) {
    StatsByClass stats;
    for (const TransferOperationsOfClass& of_class : output.stats_of_children) {
      stats.push_back({of_class.connector_class,
                       {Stats(std::span<const TransferOperations>(of_class.stats)), {}}});
    }
    return stats;
  }

  /// The first rank that has any begins.
  template <class Part>
  void take_in(Part part, bool has_any, std::optional<Part>& all) const {
    if (!has_any) return;
    if (all) {
      multi_.aggregate(*all, part);
    } else {
      all = std::move(part);
    }
  }

  /// The rank's copy engine as the children see it. Copies share it, as they share that.
  struct Engines {
    std::vector<std::vector<TransferResult>> inboxes;  ///< by child
    std::vector<EngineOfChild> of_children;
  };

  static const MultiConnectorMetadata<typename Child::Metadata>& told_by(
      const KVConnectorMetadata& metadata) {
    const auto* const multi = dynamic_cast<const MultiKVConnectorMetadata*>(&metadata);
    KVFENCE_CHECK(multi != nullptr, "metadata of another connector");
    for (const auto& told : multi->told.metadata) {
      KVFENCE_CHECK(told != nullptr, "such children always have metadata");
    }
    return multi->told;
  }

  static void add(std::string name, const Stats& stats, KVConnectorWorkerOutput& out) {
    out.stats_of_children.push_back({std::move(name), {stats.data().begin(), stats.data().end()}});
  }

  std::uint32_t num_children() const {
    return static_cast<std::uint32_t>(engines_->inboxes.size());
  }

  void lend(TransferEngine& copies) {
    engines_->of_children.clear();
    engines_->of_children.reserve(num_children());
    for (std::uint32_t child = 0; child < num_children(); ++child) {
      multi_.children()[child].begin(
          engines_->of_children.emplace_back(copies, engines_->inboxes, child));
    }
  }

  std::shared_ptr<Engines> engines_;
  Multi multi_;
};

}  // namespace kvfence
