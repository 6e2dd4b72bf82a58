#include "properties/engine/on_device/facet.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <span>

#include "contract/core/check.h"
#include "contract/engine/toy_model.h"
#include "properties/engine/engines.h"

namespace kvfence::engine::on_device {

void Facet::start(const EngineSetup& setup, EngineRole role) {
  setup_ = &setup;
  role_ = role;
  const auto number = static_cast<std::size_t>(role);
  const std::uint32_t num_ranks =
      setup.device && number < setup.num_ranks.size() ? setup.num_ranks[number] : 0;
  runners_.resize(num_ranks);
  for (ModelRunner& runner : runners_) runner.reset(setup);
  progress_ = RankProgress(num_ranks);
}

void Facet::plan(const SchedulerObservation& shown, PlannedStep& step) {
  step.scheduled = *shown.scheduled;
  step.new_reqs = *shown.new_reqs;
  step.cached_reqs = *shown.cached_reqs;
}

// ---- Commands ----

ErrorCode Facet::run(const Execute& command, Engine& engine, DeviceObserved& observed) {
  if (command.rank && *command.rank >= engine.ranks.size()) return ErrorCode::kNotInConfig;
  const std::vector<std::uint32_t> whose =
      progress_.executing(command.rank, engine.in_flight.size());
  if (whose.empty()) return ErrorCode::kNoStepInFlight;
  PlannedStep& step = *std::next(engine.in_flight.begin(), progress_.num_executed(whose.front()));
  for (const std::uint32_t number : whose) execute(step, number, engine.ranks[number]);
  progress_.execute(whose);
  take_submitted(engine, observed);
  return ErrorCode::kNone;
}

void Facet::execute(PlannedStep& step, std::uint32_t number, EngineRank& rank) {
  if (rank.worker) {
    const KVConnectorMetadata* const metadata = step.output.kv_connector_metadata.get();
    KVFENCE_CHECK(metadata, "such a connector always has metadata");
    rank.worker->handle_preemptions(*metadata);
    rank.worker->bind_connector_metadata(*metadata);
    rank.worker->start_load_kv();
  }
  runners_[number].take_in_blocks(step);
  if (step.output.total_num_scheduled_tokens == 0) return;
  while (step.sampled.size() < runners_.size()) {
    step.sampled.push_back(std::make_shared<Sampled>());
  }
  runners_[number].enqueue_forward(step, step.sampled[number], *rank.device);
  if (rank.worker) rank.worker->wait_for_save();
}

ErrorCode Facet::run(const Advance& command, Engine& engine, DeviceObserved& observed) {
  const auto stream = from_text<worker::Stream>(command.stream);
  if (!stream || command.rank >= engine.ranks.size()) return ErrorCode::kNotInConfig;
  observed.advanced.emplace() = engine.ranks[command.rank].device->advance(*stream);
  return ErrorCode::kNone;
}

ErrorCode Facet::run(const FailNext& command, Engine& engine, DeviceObserved&) {
  const auto direction = from_text<worker::Direction>(command.stream);
  const auto fault = from_text<worker::Fault>(command.fault);
  const bool can_be = fault && *fault != worker::Fault::kNone && *fault != worker::Fault::kSticky;
  if (!direction || !can_be || command.rank >= engine.ranks.size()) return ErrorCode::kNotInConfig;
  if (!setup_->offloading || setup_->simple) return ErrorCode::kNotInConfig;
  if (worker::fails(*fault)) {
    const bool is_load = *direction == worker::Direction::kLoad;
    const bool is_plain = setup_->windows == std::vector<std::uint32_t>{0};
    if (is_load && !is_plain) return ErrorCode::kNotInConfig;
    const bool may_fail = setup_->offloading->spec.manager.rules.offload_fences_reuse;
    if (!is_load && !may_fail) return ErrorCode::kNotInProfile;
  }
  engine.ranks[command.rank].device->fail_next(*direction, *fault);
  return ErrorCode::kNone;
}

ErrorCode Facet::poll(const Poll& command, Engine& engine, DeviceObserved& observed,
                      PlannedStep*& polled) {
  if (command.rank && *command.rank >= engine.ranks.size()) return ErrorCode::kNotInConfig;
  const std::vector<std::uint32_t> whose = progress_.polling(command.rank);
  if (whose.empty()) return ErrorCode::kNoStepInFlight;
  const std::uint32_t place = progress_.num_polled(whose.front());
  PlannedStep& step = *std::next(engine.in_flight.begin(), place);
  step.worker_outputs.resize(engine.ranks.size());
  std::vector<EndedTransfer>& ended = observed.ended.emplace();
  ended.clear();
  for (const std::uint32_t number : whose) {
    EngineRank& rank = engine.ranks[number];
    if (!rank.worker) continue;
    rank.worker->get_finished(step.finished, step.worker_outputs[number]);
    rank.worker->clear_connector_metadata();
    rank.device_copies->take_ended(ended);
  }
  if (setup_->simple) take_submitted(engine, observed);
  progress_.poll(whose);
  step.is_polled = place < progress_.num_polled_by_all();
  if (step.is_polled) polled = &step;
  return ErrorCode::kNone;
}

void Facet::take_sampled(Engine& engine, FlatLists<TokenId>& sampled) {
  const PlannedStep& step = engine.in_flight.front();
  ModelRunner::wait_for_forward(step, engine.ranks);
  sampled.clear();
  for (std::size_t part = 0; part < step.scheduled.size(); ++part) {
    const std::span<const TokenId> said = step.sampled.front()->tokens[part];
    const bool do_agree = std::ranges::all_of(step.sampled, [&](const auto& rank) {
      return std::ranges::equal(rank->tokens[part], said);
    });
    if (do_agree) {
      sampled.append(said);
    } else {
      sampled.push_back(toy_model::kDisagreement);
    }
    sampled.end_list();
  }
}

void Facet::take_submitted(Engine& engine, DeviceObserved& observed) {
  std::vector<DeviceTransfer>& submitted = observed.submitted.emplace();
  submitted.clear();
  for (EngineRank& rank : engine.ranks) rank.device_copies->take_submitted(submitted);
}

// ---- Draining ----

void Facet::begin_drain(Engine& engine) {
  for (EngineRank& rank : engine.ranks) {
    rank.device->fail_next(worker::Direction::kStore, worker::Fault::kNone);
    rank.device->fail_next(worker::Direction::kLoad, worker::Fault::kNone);
    rank.device_copies->set_eager(true);
  }
}

void Facet::end_drain(Engine& engine) {
  for (EngineRank& rank : engine.ranks) rank.device_copies->set_eager(false);
}

bool Facet::is_copying(const Engine& engine) {
  return std::ranges::any_of(
      engine.ranks, [](const EngineRank& rank) { return rank.device->counts().num_in_flight > 0; });
}

// ---- Observations ----

void Facet::observe(const Engine& engine, bool has_state, DeviceObserved& observed) const {
  std::uint32_t& num_transfers = observed.num_transfers.emplace();
  std::uint32_t& num_races = observed.num_races.emplace();
  std::uint32_t& num_misuses = observed.num_misuses.emplace();
  num_transfers = num_races = num_misuses = 0;
  for (const EngineRank& rank : engine.ranks) {
    const worker::Counts counts = rank.device->counts();
    num_transfers += counts.num_in_flight;
    num_races += counts.num_races;
    num_misuses += counts.num_misuses;
  }
  observed.num_steps_in_flight.emplace() = static_cast<std::uint32_t>(engine.in_flight.size());
  if (has_state && !setup_->tokens_only) observe_pages(engine, observed);
}

void Facet::observe_pages(const Engine& engine, DeviceObserved& observed) {
  KVPages& gpu = observed.gpu_kv.emplace();
  KVPages& cpu = observed.cpu_kv.emplace();
  gpu.clear();
  cpu.clear();
  for (std::uint32_t rank = 0; rank < engine.ranks.size(); ++rank) {
    engine.ranks[rank].device->show_pages(rank, gpu, cpu);
  }
}

}  // namespace kvfence::engine::on_device
