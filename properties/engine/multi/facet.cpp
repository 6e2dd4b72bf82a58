#include "properties/engine/multi/facet.h"

#include <algorithm>

#include "contract/core/lists.h"
#include "properties/engine/engines.h"

namespace kvfence::engine::multi {
namespace {

MultiConnectorScheduler& multi(Engine& engine) {
  return static_cast<MultiConnectorScheduler&>(engine.connector());
}

}  // namespace

void Facet::restart() {
  scripted_->reports.clear();
  received_.clear();
}

ErrorCode Facet::take_reports(const Update& command, const EngineSetup& setup, Engine& engine) {
  auto& reports = scripted_->reports;
  reports.clear();
  for (const ChildReport& each : command.reports) {
    const bool is_there =
        setup.has_child(each.child, ConnectorKind::kScripted) && each.rank < engine.ranks.size();
    if (!is_there) return ErrorCode::kNotInConfig;
    if (std::ranges::any_of(each.jobs, [](JobId job) { return job >= kNumChildJobsMax; })) {
      return ErrorCode::kBadRange;
    }
    if (!reports.try_emplace({each.child, each.rank}, each).second) return ErrorCode::kListedTwice;
  }
  check_received(command, engine);
  return ErrorCode::kNone;
}

/// Upstream counts reports without checking who loads: it continues with half-loaded blocks, and
/// its assertions fail later.
void Facet::check_received(const Update& command, Engine& engine) {
  for (const ChildReport& each : command.reports) {
    const std::set<std::string> names(each.recving.begin(), each.recving.end());
    for (const std::string& name : names) {
      const bool loads = multi(engine).loading_child(name) == each.child;
      if (!loads || !received_.insert({name, each.rank}).second) {
        throw EngineEnded{ErrorCode::kNotLoading};
      }
    }
  }
}

void Facet::check_report(const AggregatedOutput& report, Engine& engine) {
  const std::vector<std::string>& received = report.finished_recving;
  std::erase_if(received_, [&](const auto& each) { return contains(received, each.first); });
  for (const std::string& name : report.finished_sending) {
    if (!contains(received, name) && multi(engine).loading_child(name)) {
      throw EngineEnded{ErrorCode::kNotFinished};
    }
  }
}

// ---- Observations ----

void Facet::observe_report(const AggregatedOutput& report, Observed& observed) {
  std::vector<ClassStats>& stats = observed.stats_of_children.emplace();
  stats.clear();
  for (const TransferOperationsOfClass& of_class : report.stats_of_children) {
    for (const TransferOperations& operations : of_class.stats) {
      stats.push_back({of_class.connector_class, operations.transfer_type, {}});
      for (const auto& op : operations.ops) stats.back().sizes.push_back(op.op_size);
    }
  }
}

void Facet::observe(Engine& engine, bool has_state, Observed& observed) {
  std::vector<ClientParams>& params = observed.client_params.emplace();
  params.clear();
  multi(engine).take_all_client_params(params);
  if (params.empty()) observed.client_params.reset();
  std::vector<ChosenConnector>& chosen = observed.chosen.emplace();
  multi(engine).chosen(chosen);
  observed.num_chosen.emplace() = static_cast<std::uint32_t>(chosen.size());
  std::vector<Extra>& extra = observed.extra_saves.emplace();
  extra.clear();
  multi(engine).extra_async_saves(extra_saves_);
  append_extra(std::nullopt, extra);
  for (std::uint32_t rank = 0; rank < engine.ranks.size(); ++rank) {
    static_cast<const MultiConnectorWorker&>(*engine.ranks[rank].worker)
        .extra_async_saves(extra_saves_);
    append_extra(rank, extra);
  }
  observed.num_extra_saves.emplace() = static_cast<std::uint32_t>(extra.size());
  std::ranges::sort(chosen, {}, &ChosenConnector::request);
  if (has_state) return;
  observed.extra_saves.reset();
  observed.chosen.reset();
}

void Facet::append_extra(std::optional<std::uint32_t> rank, std::vector<Extra>& all) {
  std::ranges::sort(extra_saves_, {}, &ExtraAsyncSaves::request);
  for (const ExtraAsyncSaves& each : extra_saves_) all.push_back({each, rank});
}

}  // namespace kvfence::engine::multi
