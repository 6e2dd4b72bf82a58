#include "properties/engine/refusals.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <variant>

#include "contract/engine/engine_role.h"
#include "contract/worker/worker.h"

namespace kvfence::detail {
namespace {

using Refusal = std::optional<ErrorCode>;

Refusal not_there_if(bool is_refused) {
  return is_refused ? Refusal(ErrorCode::kNotInConfig) : std::nullopt;
}

bool is_new(const std::string& name, const engine::World& world) {
  const engine::World::Entry* const entry = world.find(name);
  return entry && entry->is_new;
}

bool has_engine(EngineRole role, const EngineSetup& setup) {
  return static_cast<std::size_t>(role) < setup.schedulers.size();
}

ErrorCode refusal_of_names(const std::vector<std::string>& names, const engine::World& world) {
  const bool are_known = std::all_of(names.begin(), names.end(), [&](const std::string& name) {
    return world.find(name) != nullptr;
  });
  return are_known ? ErrorCode::kNone : ErrorCode::kUnknownRequest;
}

/// step: the oldest one in flight; null if there is none.
ErrorCode refusal_of_update(const std::vector<engine::Sample>& samples,
                            const std::vector<engine::ScheduledRequest>* step,
                            const engine::World& world) {
  for (const engine::Sample& sample : samples) {
    if (!world.find(sample.request)) return ErrorCode::kUnknownRequest;
  }
  if (!step) return ErrorCode::kNoStepInFlight;
  std::size_t num_named = 0;
  for (const engine::ScheduledRequest& scheduled : *step) {
    const auto named =
        std::find_if(samples.begin(), samples.end(),
                     [&](const engine::Sample& each) { return each.request == scheduled.request; });
    if (named == samples.end()) continue;
    ++num_named;
    if (named->tokens.size() != (scheduled.samples ? 1 : 0)) return ErrorCode::kWrongTokenCount;
  }
  return num_named == samples.size() ? ErrorCode::kNone : ErrorCode::kWrongTokenCount;
}

/// Of a pair ends of their own come of what requests sample.
bool can_end_with(RequestStatus status, const EngineSetup& setup) {
  if (!setup.nixl) return is_finished(status);
  return status == RequestStatus::kFinishedAborted || status == RequestStatus::kFinishedError;
}

template <class C, class... Types>
inline constexpr bool kIsOneOf = (std::is_same_v<C, Types> || ...);

/// What of a request the assembly lacks.
bool is_foreign(const engine::AddRequest& added, const EngineSetup& setup) {
  if (!has_engine(added.engine, setup)) return true;
  const bool is_producer_of_pair = setup.nixl && added.engine == EngineRole::kProducer;
  if (added.do_remote_decode && !is_producer_of_pair) return true;
  const bool reads_groups =
      setup.scheduler().kv_cache.groups.size() > 1 && !added.skip_reading_prefix_cache;
  if (setup.has_workers() && reads_groups) return true;
  return setup.files && (added.cache_salt || added.lora_name);
}

/// What each command needs, once its engine is there. The rest needs nothing of its own.
class ForeignTo {
 public:
  ForeignTo(const EngineSetup& setup, const engine::World& world) : setup_(setup), world_(world) {}

  template <class C>
  Refusal operator()(const C& command) const {
    using namespace engine;  // NOLINT: the names of all commands
    if constexpr (requires { command.engine; } && !std::is_same_v<C, AddRequest>) {
      if (!has_engine(command.engine, setup_)) return ErrorCode::kNotInConfig;
    }
    if constexpr (kIsOneOf<C, offloading::TierFinish, offloading::TierAskAgain, offloading::TierAdd,
                           offloading::TierDrop, offloading::TierFaults, offloading::TierDamage>) {
      return not_there_if(!has_tiers());
    } else if constexpr (std::is_same_v<C, offloading::ReportTransferAgain>) {
      return not_there_if(!setup_.offloading || setup_.device);
    } else if constexpr (std::is_same_v<C, simple::AdvanceCopy>) {
      return not_there_if(!setup_.simple);
    } else if constexpr (kIsOneOf<C, files::WriteEntry, files::RemoveEntry, files::RemoveFile,
                                  files::TruncateFile, files::FailNextFile>) {
      return not_there_if(!setup_.files);
    } else if constexpr (kIsOneOf<C, nixl::AdvanceRead, nixl::DeliverNotice, nixl::LoseNotice,
                                  nixl::RepeatNotice, nixl::AdvanceClock, HandOver>) {
      return not_there_if(!setup_.nixl);
    } else if constexpr (kIsOneOf<C, Execute, Poll, Drain>) {
      return not_there_if(!setup_.device);
    } else {
      return refusal(command);
    }
  }

 private:
  template <class C>
  Refusal refusal(const C&) const {
    return std::nullopt;
  }

  Refusal refusal(const engine::AddRequest& added) const {
    return not_there_if(is_new(added.id, world_) && is_foreign(added, setup_));
  }

  /// On a device the transfers are the device's.
  Refusal refusal(const engine::offloading::AdvanceTransfer& advance) const {
    const bool could_be = advance.progress != TransferProgress::kSubmitted;
    return not_there_if(!setup_.offloading || (setup_.device && could_be));
  }

  Refusal refusal(const engine::Update& update) const {
    const bool reports = !update.finished_recving.empty() || !update.finished_sending.empty() ||
                         !update.invalid_blocks.empty();
    if (setup_.device) {
      const bool samples =
          update.token != engine::Update().token || update.accepted > 0 || !update.samples.empty();
      return not_there_if(samples || reports);
    }
    if (!setup_.has_workers() || !reports) return std::nullopt;
    std::vector<std::string> names = update.finished_recving;
    names.insert(names.end(), update.finished_sending.begin(), update.finished_sending.end());
    for (const engine::Sample& sample : update.samples) names.push_back(sample.request);
    return known_or(names, ErrorCode::kNotInConfig);
  }

  Refusal refusal(const engine::UpdateDraftTokenIds& drafts) const {
    const SchedulerConfig& config = setup_.scheduler();
    const bool takes_them =
        drafts.tokens.size() <= config.num_speculative_tokens && !config.async_scheduling;
    return known_or({drafts.request}, not_there_if(!takes_them));
  }

  Refusal refusal(const engine::GrammarCompiled& compiled) const {
    return known_or({compiled.request}, std::nullopt);
  }

  Refusal refusal(const engine::ScriptConnector& script) const {
    return known_or({script.request}, not_there_if(!setup_.is_scripted));
  }

  Refusal refusal(const engine::ResetPrefixCache& reset) const {
    return not_there_if(
        (setup_.has_workers() && (reset.reset_running_requests || reset.connector_fails)) ||
        (has_tiers() && reset.reset_connector));
  }

  Refusal refusal(const engine::Advance& command) const {
    return not_there_if(!setup_.device || !has_rank(command.rank) ||
                        !worker::stream_from_text(command.stream));
  }

  Refusal refusal(const engine::FailNext& command) const {
    const auto direction = worker::direction_from_text(command.stream);
    const auto fault = worker::fault_from_text(command.fault);
    const bool can_be = fault == worker::Fault::kCopy || fault == worker::Fault::kWait ||
                        fault == worker::Fault::kRecord;
    if (!setup_.device || !has_rank(command.rank) || !direction || !can_be) {
      return ErrorCode::kNotInConfig;
    }
    const bool is_plain = setup_.windows == std::vector<std::uint32_t>{0};
    return not_there_if(*direction == worker::Direction::kLoad && !is_plain);
  }

  bool has_tiers() const { return setup_.offloading && setup_.offloading->spec.has_tiers; }
  bool has_rank(std::uint32_t rank) const { return rank < setup_.num_ranks.front(); }

  Refusal known_or(const std::vector<std::string>& names, Refusal otherwise) const {
    const ErrorCode unknown = refusal_of_names(names, world_);
    return unknown != ErrorCode::kNone ? Refusal(unknown) : otherwise;
  }

  const EngineSetup& setup_;
  const engine::World& world_;
};

}  // namespace

std::optional<ErrorCode> refusal_of_foreign(const engine::Command& command,
                                            const EngineSetup& setup, const engine::World& world) {
  return std::visit(ForeignTo(setup, world), command);
}

ErrorCode refusal_of_request(const engine::AddRequest& added, const EngineSetup& setup,
                             const engine::World& world) {
  if (!is_new(added.id, world)) return ErrorCode::kAlreadyDeclared;
  if (is_foreign(added, setup)) return ErrorCode::kNotInConfig;
  const std::size_t num_tokens = added.tokens.size();
  if (num_tokens == 0 || added.max_tokens == 0) return ErrorCode::kNoTokens;
  if (added.min_tokens > added.max_tokens) return ErrorCode::kBadRange;
  const SchedulerConfig& config = setup.schedulers[static_cast<std::size_t>(added.engine)];
  const std::uint32_t longest = config.kv_cache.max_model_len;
  const bool fits = num_tokens < longest && num_tokens + added.min_tokens <= longest;
  return fits ? ErrorCode::kNone : ErrorCode::kBeyondModelLength;
}

std::optional<ErrorCode> refusal_of_engine(const engine::Command& command, const EngineSetup& setup,
                                           const engine::World& world,
                                           std::span<const InFlight> in_flight) {
  if (const auto foreign = refusal_of_foreign(command, setup, world)) return foreign;
  const auto of = [&](EngineRole role) { return static_cast<std::size_t>(role); };
  if (const auto* added = std::get_if<engine::AddRequest>(&command)) {
    return refusal_of_request(*added, setup, world);
  }
  if (const auto* planned = std::get_if<engine::Schedule>(&command)) {
    const std::uint32_t most = setup.schedulers[of(planned->engine)].max_concurrent_batches;
    const bool has_room = in_flight[of(planned->engine)].num_steps < most;
    return has_room ? ErrorCode::kNone : ErrorCode::kStepsInFlight;
  }
  if (const auto* update = std::get_if<engine::Update>(&command)) {
    return refusal_of_update(update->samples, in_flight[of(update->engine)].oldest, world);
  }
  const auto of_end = [&](RequestStatus status) {
    return can_end_with(status, setup) ? ErrorCode::kNone : ErrorCode::kBadRange;
  };
  if (const auto* ended = std::get_if<engine::FinishRequests>(&command)) {
    const ErrorCode unknown = refusal_of_names(ended->requests, world);
    return unknown != ErrorCode::kNone ? unknown : of_end(ended->status);
  }
  if (const auto* all_ended = std::get_if<engine::FinishAllRequests>(&command)) {
    return of_end(all_ended->status);
  }
  return std::nullopt;
}

}  // namespace kvfence::detail
