#include "properties/engine/on_device/facet.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "contract/core/check.h"
#include "contract/engine/toy_model.h"

namespace kvfence::engine::on_device {

void Facet::start(const EngineSetup& setup, EngineRole role) {
  setup_ = &setup;
  role_ = role;
  runner_.reset(setup);
}

void Facet::plan(const SchedulerObservation& shown, PlannedStep& step) {
  step.scheduled = *shown.scheduled;
  step.new_reqs = *shown.new_reqs;
  step.cached_reqs = *shown.cached_reqs;
}

// ---- Commands ----

ErrorCode Facet::run(const Execute&, const Around& around, DeviceObserved& observed) {
  std::list<PlannedStep>& in_flight = around.in_flight;
  const auto step =
      std::ranges::find_if(in_flight, [](const PlannedStep& each) { return !each.is_executed; });
  if (step == in_flight.end()) return ErrorCode::kNoStepInFlight;
  if (step != in_flight.begin() && !std::prev(step)->is_polled) return ErrorCode::kNoStepInFlight;
  const KVConnectorMetadata* const metadata = step->output.kv_connector_metadata.get();
  for (EngineRank& rank : around.ranks) {
    if (!rank.worker) continue;
    KVFENCE_CHECK(metadata, "such a connector always has metadata");
    rank.worker->handle_preemptions(*metadata);
    rank.worker->bind_connector_metadata(*metadata);
    rank.worker->start_load_kv();
  }
  runner_.take_in_blocks(*step);
  if (step->output.total_num_scheduled_tokens > 0) {
    runner_.enqueue_forward(*step, around.ranks);
    for (EngineRank& rank : around.ranks) {
      if (rank.worker) rank.worker->wait_for_save();
    }
  }
  step->is_executed = true;
  take_submitted(around.ranks, observed);
  return ErrorCode::kNone;
}

ErrorCode Facet::run(const Advance& command, const Around& around, DeviceObserved& observed) {
  const auto stream = from_text<worker::Stream>(command.stream);
  if (!stream || command.rank >= around.ranks.size()) return ErrorCode::kNotInConfig;
  observed.advanced.emplace() = around.ranks[command.rank].device->advance(*stream);
  return ErrorCode::kNone;
}

ErrorCode Facet::run(const FailNext& command, const Around& around, DeviceObserved&) {
  const auto direction = from_text<worker::Direction>(command.stream);
  const auto fault = from_text<worker::Fault>(command.fault);
  const bool can_be = fault == worker::Fault::kCopy || fault == worker::Fault::kWait ||
                      fault == worker::Fault::kRecord;
  if (!direction || !can_be || command.rank >= around.ranks.size()) return ErrorCode::kNotInConfig;
  if (!setup_->offloading || setup_->simple || setup_->nixl) return ErrorCode::kNotInConfig;
  if (*direction == worker::Direction::kLoad) {
    const bool is_plain = setup_->windows == std::vector<std::uint32_t>{0};
    if (!is_plain) return ErrorCode::kNotInConfig;
  } else if (!setup_->offloading->spec.manager.rules.offload_fences_reuse) {
    return ErrorCode::kNotInProfile;
  }
  around.ranks[command.rank].device->fail_next(*direction, *fault);
  return ErrorCode::kNone;
}

PlannedStep* Facet::poll(const Around& around, std::vector<KVConnectorWorkerOutput>& outputs,
                         DeviceObserved& observed) const {
  const auto step = std::ranges::find_if(around.in_flight,
                                         [](const PlannedStep& each) { return !each.is_polled; });
  if (step == around.in_flight.end() || !step->is_executed) return nullptr;
  outputs.resize(around.ranks.size());
  std::vector<EndedTransfer>& ended = observed.ended.emplace();
  ended.clear();
  for (std::size_t number = 0; number < around.ranks.size(); ++number) {
    EngineRank& rank = around.ranks[number];
    if (!rank.worker) continue;
    rank.worker->get_finished(step->finished, outputs[number]);
    rank.worker->clear_connector_metadata();
    rank.device_copies->take_ended(ended);
  }
  if (setup_->simple) take_submitted(around.ranks, observed);
  step->is_polled = true;
  return &*step;
}

void Facet::take_sampled(const PlannedStep& step, std::vector<EngineRank>& ranks,
                         FlatLists<TokenId>& sampled) {
  ModelRunner::wait_for_forward(step, ranks);
  sampled.clear();
  for (std::size_t part = 0; part < step.scheduled.size(); ++part) {
    std::vector<TokenId> said;
    for (const auto& rank : step.sampled) {
      if (rank->tokens[part]) said.push_back(*rank->tokens[part]);
    }
    if (!said.empty()) sampled.push_back(toy_model::agreed(said));
    sampled.end_list();
  }
}

void Facet::take_submitted(std::vector<EngineRank>& ranks, DeviceObserved& observed) {
  std::vector<DeviceTransfer>& submitted = observed.submitted.emplace();
  submitted.clear();
  for (EngineRank& rank : ranks) rank.device_copies->take_submitted(submitted);
}

// ---- Draining ----

void Facet::begin_drain(std::vector<EngineRank>& ranks) {
  for (EngineRank& rank : ranks) {
    rank.device->fail_next(worker::Direction::kStore, worker::Fault::kNone);
    rank.device->fail_next(worker::Direction::kLoad, worker::Fault::kNone);
    rank.device_copies->set_eager(true);
  }
}

void Facet::end_drain(std::vector<EngineRank>& ranks) {
  for (EngineRank& rank : ranks) rank.device_copies->set_eager(false);
}

bool Facet::is_copying(const std::vector<EngineRank>& ranks) {
  return std::ranges::any_of(
      ranks, [](const EngineRank& rank) { return rank.device->counts().num_in_flight > 0; });
}

// ---- Observations ----

void Facet::observe(const std::vector<EngineRank>& ranks, std::size_t num_steps, bool has_state,
                    DeviceObserved& observed) {
  std::uint32_t& num_transfers = observed.num_transfers.emplace();
  std::uint32_t& num_races = observed.num_races.emplace();
  std::uint32_t& num_misuses = observed.num_misuses.emplace();
  num_transfers = num_races = num_misuses = 0;
  for (const EngineRank& rank : ranks) {
    const worker::Counts counts = rank.device->counts();
    num_transfers += counts.num_in_flight;
    num_races += counts.num_races;
    num_misuses += counts.num_misuses;
  }
  observed.num_steps_in_flight.emplace() = static_cast<std::uint32_t>(num_steps);
  if (has_state && !setup_->tokens_only) observe_pages(ranks, observed);
}

void Facet::observe_pages(const std::vector<EngineRank>& ranks, DeviceObserved& observed) {
  KVPages& gpu = observed.gpu_kv.emplace();
  KVPages& cpu = observed.cpu_kv.emplace();
  gpu.clear();
  cpu.clear();
  for (std::uint32_t rank = 0; rank < ranks.size(); ++rank) {
    ranks[rank].device->show_pages(rank, gpu, cpu);
  }
}

}  // namespace kvfence::engine::on_device
