#pragma once

/// Puts a scheduler with an offloading connector, the worker's half and a device behind the
/// interface that a lockstep drives, with the model runner between them.
///
/// Besides the codes of contract/engine_target.h, and the scheduler's own:
///   kAlreadyDeclared  add_request: the name was used before
///   kUnknownRequest   a name that was never added
///   kBadRange         finish_requests, finish_all_requests: the status is not a finished one

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "contract/check.h"
#include "contract/engine_target.h"
#include "contract/implementation.h"
#include "contract/kv_connector_worker.h"
#include "contract/kv_output_aggregator.h"
#include "contract/offloading_connector.h"
#include "contract/toy_model.h"
#include "properties/scheduler_observer.h"

namespace kvfence {

/// `Side` makes the parts, which is the place where a planted variant gets its bug:
///   Side::Scheduler, Side::Aggregator, Side::Device
///   make_scheduler(const SchedulerConfig&, KVConnectorHandle)
///   make_connector(const ConnectorSetup&) -> std::unique_ptr<OffloadingConnectorScheduler>
///   make_worker(const ConnectorSetup&, rank) -> std::unique_ptr<KVConnectorWorker>
///   make_aggregator(num_workers)
///   make_device(const engine::DeviceOptions&) -> std::unique_ptr<Device>
template <class Side>
requires Scheduler<typename Side::Scheduler> && KVOutputAggregator<typename Side::Aggregator> &&
    engine::EngineDevice<typename Side::Device>
class EngineDriver final : public Implementation<EngineTarget> {
 public:
  EngineDriver(std::string name, Side side) : name_(std::move(name)), side_(std::move(side)) {}

  std::string name() const override { return name_; }

  std::optional<ImplementationFailure> reset(const Config& config) override {
    const Parsed<EngineSetup> parsed = make_engine_setup(config);
    KVFENCE_CHECK(parsed, "reset with a configuration that was not validated");
    // Its forwards run with the old configuration, at its end at the latest.
    device_.reset();
    setup_ = *parsed;
    auto connector = side_.make_connector(setup_.connector);
    if (!connector) return ImplementationFailure{"the scheduler's half is no offloading connector"};
    auto worker = side_.make_worker(setup_.connector, /*rank=*/0);
    if (!worker) return ImplementationFailure{"there is no worker's half"};
    scheduler_.emplace(
        side_.make_scheduler(setup_.connector.scheduler, KVConnectorHandle(std::move(connector))));
    worker_ = std::move(worker);
    aggregator_.emplace(side_.make_aggregator(1));
    device_ = side_.make_device(setup_.device);
    copies_.emplace(*device_);
    observer_.reset();
    in_flight_.clear();
    sequences_.clear();
    return std::nullopt;
  }

  std::optional<ImplementationFailure> submit(const Command& command, const World& world,
                                              Observe observe) override {
    forget_answer();
    observation_.error =
        std::visit([&](const auto& alternative) { return run(alternative, world); }, command);
    observe_numbers();
    if (observe == Observe::kState) {
      observe_state();
    } else {
      Observer::forget_state(observation_);
      observation_.gpu_kv.reset();
      observation_.cpu_kv.reset();
    }
    return std::nullopt;
  }

  std::optional<ImplementationFailure> collect(Observation& observation) override {
    std::swap(observation, observation_);
    return std::nullopt;
  }

 private:
  using Observer = SchedulerObserver<typename Side::Scheduler>;
  using Device = typename Side::Device;

  /// The device's copies as the worker's half wants them.
  class Copies final : public TransferEngine {
   public:
    explicit Copies(Device& device) : device_(&device) {}

    void transfer_async(const TransferJob& job) override {
      const TransferSpec& spec = job.spec;
      engine::Transfer& transfer = submitted_.emplace_back();
      transfer.job = static_cast<std::uint32_t>(job.job);
      transfer.request = job.request;
      transfer.store = spec.is_store;
      transfer.gpu_blocks = spec.gpu_blocks;
      transfer.block_index = spec.block_indices.empty() ? 0 : spec.block_indices.front();
      transfer.slots = spec.slots;
      device_->transfer_async(
          {.job_id = transfer.job,
           .direction = spec.is_store ? worker::Direction::kStore : worker::Direction::kLoad,
           .gpu_blocks = {spec.gpu_blocks.begin(), spec.gpu_blocks.end()},
           .cpu_blocks = {spec.slots.begin(), spec.slots.end()},
           .block_index = transfer.block_index});
    }

    void get_finished(std::vector<TransferResult>& out) override {
      out.clear();
      std::vector<worker::Ended> ended;
      device_->get_finished(ended);
      for (const worker::Ended& each : ended) {
        out.push_back({.job = each.job_id, .success = each.succeeded});
        ended_.push_back(
            {each.job_id, each.direction == worker::Direction::kStore, each.succeeded});
      }
    }

    void wait(std::span<const JobId> jobs) override {
      const std::vector<std::uint32_t> numbers(jobs.begin(), jobs.end());
      device_->wait(numbers);
    }

    std::vector<engine::Transfer> take_submitted() { return std::exchange(submitted_, {}); }
    std::vector<engine::EndedTransfer> take_ended() { return std::exchange(ended_, {}); }

   private:
    Device* device_;
    std::vector<engine::Transfer> submitted_;
    std::vector<engine::EndedTransfer> ended_;
  };

  /// What the model runner knows of a request. Forwards that have not run share the tokens.
  struct Sequence {
    std::optional<std::string> cache_salt;
    std::shared_ptr<std::vector<TokenId>> tokens;
    std::vector<BlockId> blocks;
  };

  /// A request's part of a forward.
  struct Part {
    Sequence sequence;
    std::uint32_t first = 0;  ///< the position of the first token to compute
    std::uint32_t end = 0;    ///< behind the last one
    bool samples = false;
  };

  /// What a forward leaves to its step.
  struct Sampled {
    std::vector<std::vector<TokenId>> tokens;  ///< by part
    bool is_there = false;
  };

  struct PlannedStep {
    SchedulerOutput output;
    std::vector<std::string> finished;
    std::vector<scheduler::ScheduledRequest> scheduled;
    std::vector<scheduler::ScheduledNew> new_reqs;
    std::vector<scheduler::ScheduledCached> cached_reqs;
    bool is_executed = false;
    bool is_polled = false;
    std::shared_ptr<Sampled> sampled;  ///< null: a step without tokens
    AggregatedOutput report;
  };

  OffloadingConnectorScheduler& connector() {
    return static_cast<OffloadingConnectorScheduler&>(*scheduler_->connector());
  }

  static const OffloadingConnectorMetadata& metadata_of(const PlannedStep& step) {
    KVFENCE_CHECK(step.output.kv_connector_metadata, "such a connector always has metadata");
    return static_cast<const OffloadingConnectorMetadata&>(*step.output.kv_connector_metadata);
  }

  // ---- Commands ----

  ErrorCode run(const engine::AddRequest& command, const World& world) {
    const scheduler::World::Entry* entry = world.find(command.id);
    if (!entry || !entry->is_new) return ErrorCode::kAlreadyDeclared;
    NewRequest request;
    request.id = command.id;
    request.spec = {command.tokens, std::nullopt, command.cache_salt, {}};
    request.max_tokens = command.max_tokens;
    request.priority = command.priority;
    request.arrival_time = command.arrival_time;
    request.skip_reading_prefix_cache = command.skip_reading_prefix_cache;
    request.kv_transfer_params.max_offload_tokens = command.max_offload_tokens;
    RequestIndex index = 0;
    const ErrorCode error = scheduler_->add_request(request, index);
    if (error != ErrorCode::kNone) return error;
    observer_.add(index, command.id);
    sequences_[command.id] = {
        command.cache_salt, std::make_shared<std::vector<TokenId>>(command.tokens), {}};
    return ErrorCode::kNone;
  }

  ErrorCode run(const engine::Schedule&, const World&) {
    PlannedStep& step = in_flight_.emplace_back();
    const ErrorCode error = scheduler_->schedule(step.output);
    if (error != ErrorCode::kNone) {
      in_flight_.pop_back();
      return error;
    }
    observer_.names_of(step.output.finished, step.finished);
    observer_.observe_output(*scheduler_, step.output, observation_);
    step.scheduled = *observation_.scheduled;
    step.new_reqs = *observation_.new_reqs;
    step.cached_reqs = *observation_.cached_reqs;
    observation_.requests_to_flush.emplace() = metadata_of(step).requests_to_flush;
    observation_.jobs_to_flush.emplace() = metadata_of(step).jobs_to_flush;
    return ErrorCode::kNone;
  }

  ErrorCode run(const engine::Execute&, const World&) {
    const auto step = std::find_if(in_flight_.begin(), in_flight_.end(),
                                   [](const PlannedStep& each) { return !each.is_executed; });
    if (step == in_flight_.end()) return ErrorCode::kNoStepInFlight;
    if (step != in_flight_.begin() && !std::prev(step)->is_polled) {
      return ErrorCode::kNoStepInFlight;
    }
    const OffloadingConnectorMetadata& metadata = metadata_of(*step);
    worker_->handle_preemptions(metadata, *copies_);
    worker_->start_load_kv(metadata, *copies_);
    take_in_blocks(*step);
    if (step->output.total_num_scheduled_tokens > 0) {
      enqueue_forward(*step);
      worker_->wait_for_save(metadata, *copies_);
    }
    step->is_executed = true;
    observation_.submitted.emplace() = copies_->take_submitted();
    return ErrorCode::kNone;
  }

  ErrorCode run(const engine::Advance& command, const World&) {
    const auto stream = worker::stream_from_text(command.stream);
    if (!stream) return ErrorCode::kNotInConfig;
    observation_.advanced.emplace() = device_->advance(*stream);
    return ErrorCode::kNone;
  }

  ErrorCode run(const engine::Poll&, const World& world) {
    const auto step = std::find_if(in_flight_.begin(), in_flight_.end(),
                                   [](const PlannedStep& each) { return !each.is_polled; });
    if (step == in_flight_.end() || !step->is_executed) return ErrorCode::kNoStepInFlight;
    std::vector<KVConnectorWorkerOutput> outputs(1);
    worker_->get_finished(metadata_of(*step), step->finished, *copies_, outputs.front());
    aggregator_->aggregate(std::span<const KVConnectorWorkerOutput>(outputs), step->report);
    Observer::sort_by_declaration(step->report.finished_recving, world);
    Observer::sort_by_declaration(step->report.finished_sending, world);
    step->is_polled = true;
    observation_.ended.emplace() = copies_->take_ended();
    observation_.finished_recving.emplace() = step->report.finished_recving;
    observation_.finished_sending.emplace() = step->report.finished_sending;
    std::vector<JobId>& completed = observation_.completed_jobs.emplace();
    completed.clear();
    for (const auto& job : step->report.completed_jobs) completed.push_back(job.job);
    return ErrorCode::kNone;
  }

  ErrorCode run(const engine::Update&, const World& world) {
    if (in_flight_.empty() || !in_flight_.front().is_polled) return ErrorCode::kNoStepInFlight;
    const PlannedStep& step = in_flight_.front();
    ModelRunnerOutput output;
    wait_for_forward(step);
    for (std::size_t part = 0; part < step.scheduled.size(); ++part) {
      for (const TokenId token : step.sampled->tokens[part]) {
        output.sampled_token_ids.push_back(token);
      }
      output.sampled_token_ids.end_list();
    }
    const KVConnectorOutput report = Observer::report_of(*scheduler_, world, step.report);
    output.kv_connector_output = report.empty() ? nullptr : &report;
    const ErrorCode error = scheduler_->update_from_output(step.output, output, outputs_);
    if (error != ErrorCode::kNone) return error;
    in_flight_.pop_front();
    observer_.observe_outputs(outputs_, observation_);
    return ErrorCode::kNone;
  }

  ErrorCode run(const engine::FinishRequests& command, const World& world) {
    if (!Observer::all_known(world, command.requests)) return ErrorCode::kUnknownRequest;
    if (!is_finished(command.status)) return ErrorCode::kBadRange;
    scheduler_->finish_requests(Observer::indices_of(*scheduler_, world, command.requests),
                                command.status);
    return ErrorCode::kNone;
  }

  ErrorCode run(const engine::FinishAllRequests& command, const World&) {
    if (!is_finished(command.status)) return ErrorCode::kBadRange;
    scheduler_->finish_all_requests(command.status);
    return ErrorCode::kNone;
  }

  ErrorCode run(const engine::ResetPrefixCache& command, const World&) {
    observation_.success.emplace() = scheduler_->reset_prefix_cache(
        /*reset_running_requests=*/false, command.reset_connector);
    return ErrorCode::kNone;
  }

  ErrorCode run(const engine::Drain&, const World& world) {
    scheduler_->finish_all_requests(RequestStatus::kFinishedAborted);
    ErrorCode error = ErrorCode::kNone;
    for (std::uint32_t step = 0; step < engine::kNumDrainSteps; ++step) {
      // Refused where so many steps are in flight that they have to be taken in first.
      static_cast<void>(run(engine::Schedule{}, world));
      while (!in_flight_.empty() && error == ErrorCode::kNone) {
        static_cast<void>(run(engine::Execute{}, world));
        for (const worker::Stream stream :
             {worker::Stream::kCompute, worker::Stream::kStore, worker::Stream::kLoad}) {
          while (device_->advance(stream)) {
          }
        }
        static_cast<void>(run(engine::Poll{}, world));
        error = run(engine::Update{}, world);
      }
    }
    // The answers of the steps are not those of the command.
    forget_answer();
    return error;
  }

  // ---- The model runner ----

  void take_in_blocks(const PlannedStep& step) {
    for (const std::string& name : step.finished) sequences_.erase(name);
    for (const scheduler::ScheduledNew& entry : step.new_reqs) {
      const auto sequence = sequences_.find(entry.request);
      if (sequence != sequences_.end()) sequence->second.blocks = entry.blocks.front();
    }
    for (const scheduler::ScheduledCached& entry : step.cached_reqs) {
      const auto sequence = sequences_.find(entry.request);
      if (sequence == sequences_.end()) continue;
      std::vector<BlockId>& blocks = sequence->second.blocks;
      if (entry.resumed) blocks.clear();
      if (!entry.blocks.has_value()) continue;
      const std::vector<BlockId>& added = entry.blocks->front();
      blocks.insert(blocks.end(), added.begin(), added.end());
    }
  }

  static std::uint32_t num_computed_of(const PlannedStep& step, const std::string& request) {
    for (const scheduler::ScheduledNew& entry : step.new_reqs) {
      if (entry.request == request) return entry.num_computed_tokens;
    }
    for (const scheduler::ScheduledCached& entry : step.cached_reqs) {
      if (entry.request == request) return entry.num_computed_tokens;
    }
    KVFENCE_CHECK(false, "a scheduled request is new or cached");
  }

  engine::Place place_of(const Sequence& sequence, std::uint32_t position) const {
    const std::uint32_t block_size = setup_.device.block_size;
    KVFENCE_CHECK(position / block_size < sequence.blocks.size(), "a token without a block");
    return {sequence.blocks[position / block_size], position % block_size};
  }

  void enqueue_forward(PlannedStep& step) {
    std::vector<Part> parts;
    std::vector<engine::Place> reads;
    std::vector<engine::Place> writes;
    for (const scheduler::ScheduledRequest& entry : step.scheduled) {
      const auto sequence = sequences_.find(entry.request);
      KVFENCE_CHECK(sequence != sequences_.end(), "a step with a request that was told as over");
      const std::uint32_t first = num_computed_of(step, entry.request);
      parts.push_back({sequence->second, first, first + entry.num_tokens, entry.samples});
      for (std::uint32_t at = 0; at < parts.back().end; ++at) {
        const engine::Place place = place_of(sequence->second, at);
        reads.push_back(place);
        if (at >= first) writes.push_back(place);
      }
    }
    step.sampled = std::make_shared<Sampled>();
    device_->forward(reads, writes,
                     [this, parts = std::move(parts), sampled = step.sampled](
                         engine::KVCells& cells) { run_forward(parts, cells, *sampled); });
  }

  /// All parts write before one reads: a request may find what another computes in the same step.
  void run_forward(const std::vector<Part>& parts, engine::KVCells& cells, Sampled& sampled) const {
    for (const Part& part : parts) {
      const std::vector<TokenId>& tokens = *part.sequence.tokens;
      KVFENCE_CHECK(tokens.size() >= part.end, "a forward with tokens that nobody knows");
      engine::Symbol symbol = toy_model::first_symbol(part.sequence.cache_salt);
      for (std::uint32_t at = 0; at < part.end; ++at) {
        symbol = toy_model::next_symbol(symbol, tokens[at]);
        if (at >= part.first) cells.write(place_of(part.sequence, at), symbol);
      }
    }
    sampled.tokens.resize(parts.size());
    for (std::size_t index = 0; index < parts.size(); ++index) {
      const Part& part = parts[index];
      if (!part.samples) continue;
      std::vector<engine::Symbol> read;
      for (std::uint32_t at = 0; at < part.end; ++at) {
        read.push_back(cells.read(place_of(part.sequence, at)));
      }
      const TokenId token = toy_model::sample(read);
      sampled.tokens[index] = {token};
      // What a preempted request sampled before is known; it comes out once more.
      std::vector<TokenId>& tokens = *part.sequence.tokens;
      if (tokens.size() == part.end) tokens.push_back(token);
    }
    sampled.is_there = true;
  }

  void wait_for_forward(const PlannedStep& step) {
    while (step.sampled && !step.sampled->is_there) {
      KVFENCE_CHECK(device_->advance(worker::Stream::kCompute), "a forward that is not enqueued");
    }
  }

  // ---- Observations ----

  void forget_answer() {
    Observer::forget_answer(observation_);
    observation_.requests_to_flush.reset();
    observation_.jobs_to_flush.reset();
    observation_.submitted.reset();
    observation_.advanced.reset();
    observation_.ended.reset();
    observation_.finished_recving.reset();
    observation_.finished_sending.reset();
    observation_.completed_jobs.reset();
  }

  void observe_numbers() {
    observer_.observe_numbers(*scheduler_, observation_);
    observation_.num_free_slots = connector().num_free_slots();
    observation_.num_steps_in_flight = static_cast<std::uint32_t>(in_flight_.size());
    const worker::Counts counts = device_->counts();
    observation_.num_transfers = counts.num_in_flight;
    observation_.num_races = counts.num_races;
    observation_.num_misuses = counts.num_misuses;
  }

  void observe_state() {
    observer_.observe_state(*scheduler_, observation_);
    const engine::DeviceOptions& device = setup_.device;
    observe_pages(observation_.gpu_kv.emplace(), device.num_gpu_blocks,
                  [this](engine::Place place) { return device_->gpu_symbol(place); });
    observe_pages(observation_.cpu_kv.emplace(), device.num_cpu_blocks * device.block_size_factor,
                  [this](engine::Place place) { return device_->cpu_symbol(place); });
  }

  template <class SymbolAt>
  void observe_pages(std::vector<engine::KVPage>& pages, std::uint32_t num_pages,
                     SymbolAt symbol_at) const {
    pages.clear();
    for (std::uint32_t number = 0; number < num_pages; ++number) {
      engine::KVPage page{number, {}};
      bool is_empty = true;
      for (std::uint32_t offset = 0; offset < setup_.device.block_size; ++offset) {
        page.symbols.push_back(engine::shortened(symbol_at({number, offset})));
        is_empty &= page.symbols.back() == toy_model::kUnwritten;
      }
      if (!is_empty) pages.push_back(std::move(page));
    }
  }

  std::string name_;
  Side side_;
  EngineSetup setup_;
  std::optional<typename Side::Scheduler> scheduler_;
  std::unique_ptr<KVConnectorWorker> worker_;
  std::optional<typename Side::Aggregator> aggregator_;
  std::unique_ptr<Device> device_;
  std::optional<Copies> copies_;
  Observer observer_;
  std::deque<PlannedStep> in_flight_;  ///< oldest first
  std::map<std::string, Sequence> sequences_;
  EngineCoreOutputs outputs_;
  Observation observation_;
};

}  // namespace kvfence
