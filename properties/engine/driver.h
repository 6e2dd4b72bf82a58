#pragma once

/// Puts a scheduler with an offloading connector, the workers' halves and devices of all ranks
/// behind the interface that a lockstep drives, with the model runner between them.
///
/// Besides the codes of contract/engine/engine_target.h, and the scheduler's own:
///   kAlreadyDeclared  add_request: the name was used before
///   kNotInConfig      add_request: several groups, without skip_reading_prefix_cache
///   kUnknownRequest   a name that was never added
///   kBadRange         finish_requests, finish_all_requests: the status is not a finished one

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "contract/connectors/kv_connector_worker.h"
#include "contract/connectors/kv_output_aggregator.h"
#include "contract/connectors/offloading/offloading_connector.h"
#include "contract/core/check.h"
#include "contract/engine/engine_target.h"
#include "contract/engine/toy_model.h"
#include "properties/core/driver.h"
#include "properties/scheduler/observer.h"

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
class EngineDriver final : public DriverOf<EngineTarget> {
 public:
  EngineDriver(std::string name, Side side) : name_(std::move(name)), side_(std::move(side)) {}

  std::string name() const override { return name_; }

  std::optional<ImplementationFailure> start(const Config&, const Setup& setup) override {
    // Their forwards run with the old configuration, at their end at the latest.
    ranks_.clear();
    setup_ = setup;
    auto connector = side_.make_connector(setup_.connector);
    if (!connector) return ImplementationFailure{"the scheduler's half is no offloading connector"};
    scheduler_.emplace(
        side_.make_scheduler(setup_.connector.scheduler, KVConnectorHandle(std::move(connector))));
    aggregator_.emplace(side_.make_aggregator(setup_.connector.spec.num_workers));
    for (std::uint32_t rank = 0; rank < setup_.connector.spec.num_workers; ++rank) {
      auto worker = side_.make_worker(setup_.connector, rank);
      if (!worker) return ImplementationFailure{"there is no worker's half"};
      auto device = side_.make_device(setup_.device);
      Device& shared = *device;
      ranks_.push_back({std::move(worker), std::move(device), Copies(rank, shared)});
    }
    observer_.reset();
    in_flight_.clear();
    sequences_.clear();
    return std::nullopt;
  }

  void submit_typed(const Command& command, const World& world, Observe observe) override {
    forget_answer();
    observation_.error =
        std::visit([&](const auto& alternative) { return run(alternative, world); }, command);
    observer_.observe(*scheduler_, observe, observation_);
    observe_numbers();
    if (observe == Observe::kState && !setup_.tokens_only) {
      observe_pages();
    } else {
      observation_.gpu_kv.reset();
      observation_.cpu_kv.reset();
    }
  }

  void collect_typed(Observation& observation) override { observation = std::move(observation_); }

 private:
  using Observer = SchedulerObserver<typename Side::Scheduler>;
  using Device = typename Side::Device;

  /// A device's copies as the worker's half of its rank wants them.
  class Copies final : public TransferEngine {
   public:
    Copies(std::uint32_t rank, Device& device) : rank_(rank), device_(&device) {}

    void transfer_async(const TransferJob& job) override {
      const TransferSpec& spec = job.spec;
      engine::Transfer& transfer = submitted_.emplace_back();
      transfer.rank = rank_;
      transfer.job = static_cast<std::uint32_t>(job.job);
      transfer.request = job.request;
      transfer.store = spec.is_store;
      transfer.gpu_blocks = spec.gpu_blocks;
      transfer.group_sizes = spec.group_sizes;
      transfer.block_indices = spec.block_indices;
      // With hold a store says nothing of it.
      transfer.block_indices.resize(transfer.group_sizes.size());
      transfer.slots = spec.slots;
      device_->transfer_async(
          {.job_id = transfer.job,
           .direction = spec.is_store ? worker::Direction::kStore : worker::Direction::kLoad,
           .gpu_blocks = {spec.gpu_blocks.begin(), spec.gpu_blocks.end()},
           .cpu_blocks = {spec.slots.begin(), spec.slots.end()},
           .group_sizes = transfer.group_sizes,
           .block_indices = transfer.block_indices});
    }

    void get_finished(std::vector<TransferResult>& out) override {
      out.clear();
      std::vector<worker::Ended> ended;
      device_->get_finished(ended);
      for (const worker::Ended& each : ended) {
        out.push_back({.job = each.job_id, .success = each.succeeded});
        ended_.push_back(
            {rank_, each.job_id, each.direction == worker::Direction::kStore, each.succeeded});
      }
    }

    void wait(std::span<const JobId> jobs) override {
      const std::vector<std::uint32_t> numbers(jobs.begin(), jobs.end());
      device_->wait(numbers);
    }

    void take_submitted(std::vector<engine::Transfer>& all) { move_to(all, submitted_); }
    void take_ended(std::vector<engine::EndedTransfer>& all) { move_to(all, ended_); }

   private:
    template <class T>
    static void move_to(std::vector<T>& all, std::vector<T>& own) {
      std::move(own.begin(), own.end(), std::back_inserter(all));
      own.clear();
    }

    std::uint32_t rank_;
    Device* device_;
    std::vector<engine::Transfer> submitted_;
    std::vector<engine::EndedTransfer> ended_;
  };

  struct Rank {
    std::unique_ptr<KVConnectorWorker> worker;
    std::unique_ptr<Device> device;
    Copies copies;
  };

  /// What the model runner knows of a request. Forwards that have not run share the tokens, of
  /// which each rank has its own: it samples by its own KV. Blocks that they have are not changed.
  struct Sequence {
    std::optional<std::string> cache_salt;
    std::shared_ptr<std::vector<std::vector<TokenId>>> tokens;  ///< by rank
    std::shared_ptr<const BlocksByGroup> blocks;
  };

  /// A request's part of a forward.
  struct Part {
    Sequence sequence;
    std::uint32_t first = 0;  ///< the position of the first token to compute
    std::uint32_t end = 0;    ///< behind the last one
    bool samples = false;
  };

  /// What a rank's forward leaves to its step.
  struct Sampled {
    std::vector<std::optional<TokenId>> tokens;  ///< by part
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
    std::vector<std::shared_ptr<Sampled>> sampled;  ///< by rank; empty: a step without tokens
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
    if (setup_.windows.size() > 1 && !command.skip_reading_prefix_cache) {
      return ErrorCode::kNotInConfig;
    }
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
        command.cache_salt,
        std::make_shared<std::vector<std::vector<TokenId>>>(ranks_.size(), command.tokens),
        std::make_shared<const BlocksByGroup>(setup_.windows.size())};
    return ErrorCode::kNone;
  }

  ErrorCode run(const engine::Schedule&, const World&) {
    PlannedStep& step = new_step();
    const ErrorCode error = scheduler_->schedule(step.output);
    if (error != ErrorCode::kNone) {
      spare_.splice(spare_.end(), in_flight_, std::prev(in_flight_.end()));
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
    for (Rank& rank : ranks_) {
      rank.worker->handle_preemptions(metadata, rank.copies);
      rank.worker->start_load_kv(metadata, rank.copies);
    }
    take_in_blocks(*step);
    if (step->output.total_num_scheduled_tokens > 0) {
      enqueue_forward(*step);
      for (Rank& rank : ranks_) rank.worker->wait_for_save(metadata, rank.copies);
    }
    step->is_executed = true;
    std::vector<engine::Transfer>& submitted = observation_.submitted.emplace();
    submitted.clear();
    for (Rank& rank : ranks_) rank.copies.take_submitted(submitted);
    return ErrorCode::kNone;
  }

  ErrorCode run(const engine::Advance& command, const World&) {
    const auto stream = worker::stream_from_text(command.stream);
    if (!stream || command.rank >= ranks_.size()) return ErrorCode::kNotInConfig;
    observation_.advanced.emplace() = ranks_[command.rank].device->advance(*stream);
    return ErrorCode::kNone;
  }

  ErrorCode run(const engine::FailNext& command, const World&) {
    const auto direction = worker::direction_from_text(command.stream);
    const auto fault = worker::fault_from_text(command.fault);
    const bool can_be = fault == worker::Fault::kCopy || fault == worker::Fault::kWait ||
                        fault == worker::Fault::kRecord;
    if (!direction || !can_be || command.rank >= ranks_.size()) return ErrorCode::kNotInConfig;
    if (*direction == worker::Direction::kLoad) {
      const bool is_plain = setup_.windows == std::vector<std::uint32_t>{0};
      if (!is_plain) return ErrorCode::kNotInConfig;
    } else if (!setup_.connector.spec.manager.rules.offload_fences_reuse) {
      return ErrorCode::kNotInProfile;
    }
    ranks_[command.rank].device->fail_next(*direction, *fault);
    return ErrorCode::kNone;
  }

  ErrorCode run(const engine::Poll&, const World& world) {
    const auto step = std::find_if(in_flight_.begin(), in_flight_.end(),
                                   [](const PlannedStep& each) { return !each.is_polled; });
    if (step == in_flight_.end() || !step->is_executed) return ErrorCode::kNoStepInFlight;
    std::vector<engine::EndedTransfer>& ended = observation_.ended.emplace();
    ended.clear();
    std::vector<KVConnectorWorkerOutput> outputs(ranks_.size());
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      Copies& copies = ranks_[rank].copies;
      ranks_[rank].worker->get_finished(metadata_of(*step), step->finished, copies, outputs[rank]);
      copies.take_ended(ended);
    }
    aggregator_->aggregate(std::span<const KVConnectorWorkerOutput>(outputs), step->report);
    Observer::sort_by_declaration(step->report.finished_recving, world);
    Observer::sort_by_declaration(step->report.finished_sending, world);
    step->is_polled = true;
    observation_.finished_recving.emplace() = step->report.finished_recving;
    observation_.finished_sending.emplace() = step->report.finished_sending;
    observation_.invalid_blocks.emplace() = step->report.invalid_block_ids;
    std::vector<connector::Completed>& completed = observation_.completed_jobs.emplace();
    completed.clear();
    for (const CompletedJob& job : step->report.completed_jobs) {
      completed.push_back({job.job, job.num_workers, job.num_failed});
    }
    return ErrorCode::kNone;
  }

  ErrorCode run(const engine::Update&, const World& world) {
    if (in_flight_.empty() || !in_flight_.front().is_polled) return ErrorCode::kNoStepInFlight;
    const PlannedStep& step = in_flight_.front();
    ModelRunnerOutput output;
    wait_for_forward(step);
    for (std::size_t part = 0; part < step.scheduled.size(); ++part) {
      std::vector<TokenId> sampled;
      for (const auto& rank : step.sampled) {
        if (rank->tokens[part]) sampled.push_back(*rank->tokens[part]);
      }
      if (!sampled.empty()) output.sampled_token_ids.push_back(toy_model::agreed(sampled));
      output.sampled_token_ids.end_list();
    }
    const KVConnectorOutput report = Observer::report_of(*scheduler_, world, step.report);
    output.kv_connector_output = report.empty() ? nullptr : &report;
    const ErrorCode error = scheduler_->update_from_output(step.output, output, outputs_);
    if (error != ErrorCode::kNone) return error;
    spare_.splice(spare_.end(), in_flight_, in_flight_.begin());
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
    for (Rank& rank : ranks_) {
      rank.device->fail_next(worker::Direction::kStore, worker::Fault::kNone);
      rank.device->fail_next(worker::Direction::kLoad, worker::Fault::kNone);
    }
    scheduler_->finish_all_requests(RequestStatus::kFinishedAborted);
    ErrorCode error = ErrorCode::kNone;
    for (std::uint32_t step = 0; step < engine::kNumDrainSteps; ++step) {
      // Refused where so many steps are in flight that they have to be taken in first.
      static_cast<void>(run(engine::Schedule{}, world));
      while (!in_flight_.empty() && error == ErrorCode::kNone) {
        static_cast<void>(run(engine::Execute{}, world));
        for (Rank& rank : ranks_) run_all(*rank.device);
        static_cast<void>(run(engine::Poll{}, world));
        error = run(engine::Update{}, world);
      }
    }
    // The answers of the steps are not those of the command.
    forget_answer();
    return error;
  }

  static void run_all(Device& device) {
    for (const worker::Stream stream :
         {worker::Stream::kCompute, worker::Stream::kStore, worker::Stream::kLoad}) {
      while (device.advance(stream)) {
      }
    }
  }

  /// Behind those in flight, with the storage of one that is over.
  PlannedStep& new_step() {
    if (spare_.empty()) return in_flight_.emplace_back();
    in_flight_.splice(in_flight_.end(), spare_, spare_.begin());
    PlannedStep& step = in_flight_.back();
    step.is_executed = false;
    step.is_polled = false;
    step.sampled.clear();
    return step;
  }

  // ---- The model runner ----

  void take_in_blocks(const PlannedStep& step) {
    for (const std::string& name : step.finished) sequences_.erase(name);
    for (const scheduler::ScheduledNew& entry : step.new_reqs) {
      const auto sequence = sequences_.find(entry.request);
      if (sequence == sequences_.end()) continue;
      sequence->second.blocks = std::make_shared<const BlocksByGroup>(entry.blocks);
    }
    for (const scheduler::ScheduledCached& entry : step.cached_reqs) {
      const auto sequence = sequences_.find(entry.request);
      if (sequence == sequences_.end() || !(entry.resumed || entry.blocks.has_value())) continue;
      BlocksByGroup table(setup_.windows.size());
      if (!entry.resumed) table = *sequence->second.blocks;
      for (std::size_t group = 0; group < table.size() && entry.blocks.has_value(); ++group) {
        const std::vector<BlockId>& added = (*entry.blocks)[group];
        table[group].insert(table[group].end(), added.begin(), added.end());
      }
      sequence->second.blocks = std::make_shared<const BlocksByGroup>(std::move(table));
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

  engine::Place place_of(const Sequence& sequence, std::size_t group,
                         std::uint32_t position) const {
    const std::uint32_t block_size = setup_.connector.scheduler.kv_cache.groups[group].block_size;
    const std::vector<BlockId>& blocks = (*sequence.blocks)[group];
    KVFENCE_CHECK(position / block_size < blocks.size(), "a token without a block");
    return {blocks[position / block_size], position % block_size};
  }

  /// The first position that the tokens of a part read in a group.
  std::uint32_t first_read_of(const Part& part, std::size_t group) const {
    return toy_model::first_read(part.first, setup_.windows[group]);
  }

  void enqueue_forward(PlannedStep& step) {
    const auto parts = std::make_shared<std::vector<Part>>();
    parts->reserve(step.scheduled.size());
    reads_.clear();
    writes_.clear();
    for (const scheduler::ScheduledRequest& entry : step.scheduled) {
      const auto sequence = sequences_.find(entry.request);
      KVFENCE_CHECK(sequence != sequences_.end(), "a step with a request that was told as over");
      const std::uint32_t first = num_computed_of(step, entry.request);
      const Part& part = parts->emplace_back(
          Part{sequence->second, first, first + entry.num_tokens, entry.samples});
      for (std::size_t group = 0; group < setup_.windows.size(); ++group) {
        for (std::uint32_t at = first_read_of(part, group); at < part.end; ++at) {
          const engine::Place place = place_of(part.sequence, group, at);
          reads_.push_back(place);
          if (at >= first) writes_.push_back(place);
        }
      }
    }
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      step.sampled.push_back(std::make_shared<Sampled>());
      ranks_[rank].device->forward(
          reads_, writes_,
          [this, rank, parts, sampled = step.sampled.back()](engine::KVCells& cells) {
            run_forward(rank, *parts, cells, *sampled);
          });
    }
  }

  /// All parts write before one reads: a request may find what another computes in the same step.
  void run_forward(std::size_t rank, const std::vector<Part>& parts, engine::KVCells& cells,
                   Sampled& sampled) {
    if (symbols_.size() < parts.size()) symbols_.resize(parts.size());
    for (std::size_t index = 0; index < parts.size(); ++index) {
      const Part& part = parts[index];
      const std::vector<TokenId>& tokens = (*part.sequence.tokens)[rank];
      KVFENCE_CHECK(tokens.size() >= part.end, "a forward with tokens that nobody knows");
      toy_model::symbols_of(part.sequence.cache_salt, std::span(tokens).first(part.end),
                            symbols_[index]);
      write(part, symbols_[index], /*wrong=*/0, cells);
    }
    sampled.tokens.resize(parts.size());
    for (std::size_t index = 0; index < parts.size(); ++index) {
      const Part& part = parts[index];
      const TokenId token = attend(part, symbols_[index], cells);
      if (!part.samples) continue;
      sampled.tokens[index] = token;
      // What a preempted request sampled before is known; it comes out once more.
      std::vector<TokenId>& tokens = (*part.sequence.tokens)[rank];
      if (tokens.size() == part.end) tokens.push_back(token);
    }
    sampled.is_there = true;
  }

  /// symbols: of the tokens up to the part's end. wrong: 0, or how what was read differs.
  void write(const Part& part, const std::vector<engine::Symbol>& symbols, engine::Symbol wrong,
             engine::KVCells& cells) const {
    for (std::size_t group = 0; group < setup_.windows.size(); ++group) {
      for (std::uint32_t at = part.first; at < part.end; ++at) {
        cells.write(place_of(part.sequence, group, at),
                    toy_model::symbol_of_group(symbols[at], group) ^ wrong);
      }
    }
  }

  /// What comes of the last token. If anything that the part's tokens attend to is not what it
  /// should be, all of them are written anew, wrong as well.
  TokenId attend(const Part& part, const std::vector<engine::Symbol>& symbols,
                 engine::KVCells& cells) {
    read_.clear();
    engine::Symbol wrong = 0;
    for (std::size_t group = 0; group < setup_.windows.size(); ++group) {
      const std::uint32_t last = toy_model::first_read(part.end - 1, setup_.windows[group]);
      for (std::uint32_t at = first_read_of(part, group); at < part.end; ++at) {
        const engine::Symbol symbol = cells.read(place_of(part.sequence, group, at));
        wrong |= symbol ^ toy_model::symbol_of_group(symbols[at], group);
        if (at >= last) read_.push_back(symbol);
      }
    }
    if (wrong != 0) {
      write(part, symbols, wrong, cells);
      read_.push_back(wrong);
    }
    return toy_model::sample(read_);
  }

  void wait_for_forward(const PlannedStep& step) {
    for (std::size_t rank = 0; rank < step.sampled.size(); ++rank) {
      while (!step.sampled[rank]->is_there) {
        KVFENCE_CHECK(ranks_[rank].device->advance(worker::Stream::kCompute),
                      "a forward that is not enqueued");
      }
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
    observation_.invalid_blocks.reset();
    observation_.completed_jobs.reset();
  }

  void observe_numbers() {
    observation_.num_free_slots = connector().num_free_slots();
    observation_.num_steps_in_flight = static_cast<std::uint32_t>(in_flight_.size());
    observation_.num_transfers = 0;
    observation_.num_races = 0;
    observation_.num_misuses = 0;
    for (const Rank& rank : ranks_) {
      const worker::Counts counts = rank.device->counts();
      observation_.num_transfers += counts.num_in_flight;
      observation_.num_races += counts.num_races;
      observation_.num_misuses += counts.num_misuses;
    }
  }

  void observe_pages() {
    const engine::DeviceOptions& options = setup_.device;
    page_symbols_.resize(options.block_size);
    engine::KVPages& gpu = observation_.gpu_kv.emplace();
    engine::KVPages& cpu = observation_.cpu_kv.emplace();
    gpu.clear();
    cpu.clear();
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      const Device& device = *ranks_[rank].device;
      observe_pages(gpu, rank, options.num_gpu_blocks,
                    [&](std::uint32_t block) { return device.gpu_page(block, page_symbols_); });
      observe_pages(cpu, rank, options.num_cpu_blocks * options.block_size_factor,
                    [&](std::uint32_t page) { return device.cpu_page(page, page_symbols_); });
    }
  }

  /// read(page) fills page_symbols_; false: there is nothing to show.
  template <class Read>
  void observe_pages(engine::KVPages& pages, std::uint32_t rank, std::uint32_t num_pages,
                     Read read) const {
    for (std::uint32_t number = 0; number < num_pages; ++number) {
      if (!read(number)) continue;
      std::transform(page_symbols_.begin(), page_symbols_.end(),
                     pages.add(rank, number, page_symbols_.size()).begin(), engine::shortened);
    }
  }

  std::string name_;
  Side side_;
  EngineSetup setup_;
  std::optional<typename Side::Scheduler> scheduler_;
  std::optional<typename Side::Aggregator> aggregator_;
  // Before the ranks, at whose end forwards may still run.
  std::vector<std::vector<engine::Symbol>> symbols_;  ///< of a forward that runs: by part
  std::vector<engine::Symbol> read_;                  ///< by the part that attends
  std::vector<engine::Symbol> page_symbols_;          ///< of the page that is observed
  std::vector<engine::Place> reads_;                  ///< of the forward that is enqueued
  std::vector<engine::Place> writes_;
  std::vector<Rank> ranks_;
  Observer observer_;
  std::list<PlannedStep> in_flight_;  ///< oldest first
  std::list<PlannedStep> spare_;      ///< that are over
  std::map<std::string, Sequence> sequences_;
  EngineCoreOutputs outputs_;
  Observation observation_;
};

}  // namespace kvfence
