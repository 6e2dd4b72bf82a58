#include "scenarios/replay/engine_replay.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "contract/core/check.h"
#include "contract/engine/engine_setup.h"
#include "contract/engine/toy_model.h"
#include "properties/engine/checks.h"

namespace kvfence {
namespace {

/// Limit of consecutive steps that neither compute nor report nor end anything: far more than the
/// two steps in flight that may separate a cause from its effect.
constexpr std::uint32_t kStandstillMax = 16;

/// Blocks that are held without requests: the null block.
constexpr std::uint32_t kReferencedAtRest = 1;

class EngineReplay {
 public:
  EngineReplay(std::span<const MooncakeRequest> requests, const EngineReplayOptions& options,
               ReplaySides& sides, const ReplayProgress& progress)
      : config_(config_of(options, requests)),
        options_(options),
        sides_(sides),
        progress_(progress) {
    const std::size_t num_requests = std::min(requests.size(), options.requests_max);
    for (const MooncakeRequest& request : requests.first(num_requests)) {
      requests_.push_back(in_toy_tokens(request, options.block_size));
    }
    result_.replayed.resize(num_requests);
    sequences_.resize(num_requests);
  }

  EngineReplayResult run() {
    sides_.start(prepared(EngineTarget::description(), Config(config_)));
    while (!is_over() && (next_ < requests_.size() || !is_at_rest())) {
      add_arrivals();
      if (!is_over()) make_step();
      if (progress_) progress_(num_ended_, requests_.size());
    }
    while (!is_over() && *seen().num_steps_in_flight > 0) update();
    if (!is_over() && send(engine::Drain{}, /*want_state=*/true)) check_end();
    static_cast<ReplayEnd&>(result_) = sides_.end();
    return std::move(result_);
  }

 private:
  bool is_over() const { return sides_.is_over(); }
  const engine::Observation& seen() const { return sides_.seen().as<engine::Observation>(); }

  /// Whether there are no requests, and the last stores have ended.
  bool is_at_rest() const {
    return seen().num_unfinished == 0 && !seen().has_finished && *seen().num_transfers == 0 &&
           seen().num_referenced_blocks == kReferencedAtRest;
  }

  /// As ReplaySides.
  bool send(engine::Command command, bool want_state = false,
            std::initializer_list<ErrorCode> may_refuse = {}) {
    if (!sides_.send(Command(std::move(command)), want_state, may_refuse)) return false;
    result_.peak_referenced = std::max(result_.peak_referenced, seen().num_referenced_blocks);
    // In lockstep the rules find it before.
    if (*seen().num_races > 0) {
      return sides_.diverge("num_races", "0", std::to_string(*seen().num_races),
                            "two accesses to the same bytes are not ordered");
    }
    if (*seen().num_misuses > 0) {
      return sides_.diverge("num_misuses", "0", std::to_string(*seen().num_misuses),
                            "a call that the runtime's documentation forbids");
    }
    return true;
  }

  void add_arrivals() {
    while (!is_over() && next_ < requests_.size() &&
           (next_ == 0 || seen().num_unfinished < options_.concurrency)) {
      add_request(next_++);
    }
  }

  void add_request(std::size_t number) {
    const MooncakeRequest& request = requests_[number];
    engine::AddRequest command;
    command.id = request_name(number);
    command.tokens = prompt_of(request, options_.block_size);
    command.max_tokens = request.output_length;
    command.arrival_time = static_cast<std::uint32_t>(number);
    ++result_.requests;
    result_.replayed[number].prompt_tokens = request.input_length;
    sequences_[number].tokens = command.tokens;
    if (!send(std::move(command), /*want_state=*/false, {ErrorCode::kNoTokens})) return;
    if (seen().error == ErrorCode::kNone) return;
    ++result_.refused;
    ++num_ended_;
  }

  void make_step() {
    if (!send(engine::Schedule{})) return;
    const std::size_t num_ended_before = num_ended_;
    const bool computes = take_plan(seen());
    const bool has_ended_one = num_ended_ > num_ended_before;
    if (is_over() || !send(engine::Execute{})) return;
    take_transfers(*seen().submitted);
    if (!run_transfers() || !send(engine::Poll{})) return;
    check_progress(computes || has_ended_one || !seen().ended->empty());
    // After a step without tokens nothing new can be planned.
    while (!is_over() && *seen().num_steps_in_flight > 0 &&
           (!computes || *seen().num_steps_in_flight == config_.max_concurrent_batches)) {
      update();
    }
  }

  /// Whether the step has tokens.
  bool take_plan(const engine::Observation& plan) {
    const bool computes = !plan.scheduled->empty();
    ++(computes ? result_.steps : result_.idle_steps);
    for (const engine::ScheduledNew& entry : *plan.new_reqs) {
      const std::size_t number = request_number(entry.request);
      ReplayedRequest& request = result_.replayed[number];
      Sequence& sequence = sequences_[number];
      sequence.is_scheduled = true;
      // The last token of a prompt that was found whole is computed again.
      request.cpu_hit_tokens = std::min(sequence.loaded_tokens, entry.num_computed_tokens);
      request.gpu_hit_tokens = entry.num_computed_tokens - request.cpu_hit_tokens;
      result_.prompt_tokens += request.prompt_tokens;
      result_.cpu_hit_tokens += request.cpu_hit_tokens;
      result_.gpu_hit_tokens += request.gpu_hit_tokens;
    }
    for (const std::string& victim : *plan.preempted) {
      ++result_.replayed[request_number(victim)].preemptions;
      ++result_.preemptions;
    }
    if (plan.never_fits.has_value() && !plan.never_fits->empty()) {
      ++result_.never_fit;
      ++num_ended_;
    }
    return computes;
  }

  void take_transfers(const std::vector<engine::DeviceTransfer>& transfers) {
    for (const engine::DeviceTransfer& transfer : transfers) {
      CopiesMade& copies = transfer.store ? result_.stored : result_.loaded;
      ++copies.transfers;
      copies.blocks += transfer.gpu_blocks.size();
      Sequence& sequence = sequences_[request_number(transfer.request)];
      if (transfer.store || sequence.is_scheduled) continue;
      sequence.loaded_tokens +=
          static_cast<std::uint32_t>(transfer.gpu_blocks.size()) * options_.block_size;
    }
  }

  bool run_transfers() {
    for (const std::string_view stream : {"store", "load"}) {
      for (std::uint32_t count = 0; count < options_.transfers_a_step; ++count) {
        if (!send(engine::Advance{{}, std::string(stream)})) return false;
        if (!*seen().advanced) break;
      }
    }
    return true;
  }

  void check_progress(bool has_moved) {
    num_standing_ = has_moved ? 0 : num_standing_ + 1;
    if (is_over() || num_standing_ <= kStandstillMax) return;
    sides_.diverge("num_unfinished", "0", std::to_string(seen().num_unfinished),
                   "requests are unfinished and no step computes or reports anything");
  }

  void update() {
    if (!send(engine::Update{})) return;
    for (const engine::RequestOutput& output : *seen().outputs) {
      const std::size_t number = request_number(output.request);
      if (!take_tokens(number, output.tokens)) return;
      if (is_finished(output.status) && !end_request(number)) return;
    }
  }

  bool take_tokens(std::size_t number, const std::vector<TokenId>& tokens) {
    std::vector<TokenId>& sequence = sequences_[number].tokens;
    for (const TokenId token : tokens) {
      const TokenId expected = toy_model::sample_without_cache(std::nullopt, sequence);
      if (token != expected) {
        return sides_.diverge("outputs", std::to_string(expected), std::to_string(token),
                              request_name(number) + " differs from a run without a cache");
      }
      sequence.push_back(token);
      ++result_.replayed[number].output_tokens;
      ++result_.output_tokens;
    }
    return true;
  }

  bool end_request(std::size_t number) {
    ++num_ended_;
    const std::uint32_t wanted = requests_[number].output_length;
    const std::uint32_t generated = result_.replayed[number].output_tokens;
    if (generated != wanted) {
      return sides_.diverge("outputs", std::to_string(wanted) + " tokens",
                            std::to_string(generated) + " tokens",
                            request_name(number) + " ended with another number of tokens");
    }
    ++result_.completed;
    // No more commands follow.
    sequences_[number].tokens = {};
    return true;
  }

  void check_end() {
    if (seen().num_referenced_blocks != kReferencedAtRest || *seen().num_transfers > 0) {
      sides_.diverge("num_referenced_blocks", std::to_string(kReferencedAtRest),
                     std::to_string(seen().num_referenced_blocks),
                     "after the last request nothing is held or under way");
    } else if (num_ended_ != requests_.size()) {
      sides_.diverge("requests", std::to_string(requests_.size()), std::to_string(num_ended_),
                     "every request ends");
    }
  }

  /// A request that has not ended.
  struct Sequence {
    std::vector<TokenId> tokens;  ///< prompt and output
    bool is_scheduled = false;    ///< or was
    std::uint32_t loaded_tokens = 0;
  };

  engine::Config config_;
  const EngineReplayOptions& options_;
  ReplaySides& sides_;
  const ReplayProgress& progress_;
  std::vector<MooncakeRequest> requests_;  ///< in toy tokens
  std::vector<Sequence> sequences_;        ///< by number of the request
  std::size_t next_ = 0;                   ///< to arrive
  std::size_t num_ended_ = 0;
  std::uint32_t num_standing_ = 0;  ///< consecutive steps without effect
  EngineReplayResult result_;
};

}  // namespace

MooncakeRequest in_toy_tokens(const MooncakeRequest& request, std::uint32_t block_size) {
  const auto scaled = [&](std::uint32_t num_tokens) {
    const std::uint64_t product = std::uint64_t{num_tokens} * block_size;
    return static_cast<std::uint32_t>((product + kMooncakeBlockTokens - 1) / kMooncakeBlockTokens);
  };
  MooncakeRequest made = request;
  made.input_length = scaled(request.input_length);
  made.output_length = scaled(request.output_length);
  return made;
}

engine::Config config_of(const EngineReplayOptions& options,
                         std::span<const MooncakeRequest> requests) {
  std::uint32_t longest = 2;
  for (const MooncakeRequest& traced : requests) {
    const MooncakeRequest request = in_toy_tokens(traced, options.block_size);
    longest = std::max(longest, request.input_length + request.output_length);
  }
  engine::Config config;
  make_assembly(engine::Assembly::kOffloadingOnDevice, config);
  config.edit_connector<engine::offloading::Record>().num_cpu_blocks = options.cpu_blocks;
  config.num_gpu_blocks = options.gpu_blocks;
  config.hash_block_size = options.block_size;
  config.hash_algorithm = HashAlgorithm::kXxhashCbor;  // the other costs more, changes no figure
  config.profile = options.profile;
  config.groups = {{.kind = KVCacheSpecKind::kFullAttention, .block_size = options.block_size}};
  config.max_model_len = longest;
  config.max_num_batched_tokens = options.max_num_batched_tokens;
  config.max_num_seqs = options.concurrency;
  config.async_scheduling = options.async_scheduling;
  config.max_concurrent_batches = options.async_scheduling ? 2 : 1;
  return config;
}

std::optional<InputError> validate(const EngineReplayOptions& options,
                                   std::span<const MooncakeRequest> requests) {
  if (options.state_every == 0) return option_error("state_every=0", "at least 1");
  if (options.transfers_a_step == 0) return option_error("transfers_a_step=0", "at least 1");
  const auto setup = EngineTarget::prepare(config_of(options, requests), {}, {});
  if (!setup) return setup.error();
  return std::nullopt;
}

EngineReplayResult replay_traffic(std::span<const MooncakeRequest> requests,
                                  const EngineReplayOptions& options, Implementation& expected,
                                  Implementation* actual, const ReplayProgress& progress) {
  KVFENCE_CHECK(!validate(options, requests), "a replay with options that were not validated");
  ReplaySides sides(checks_of(engine::Assembly::kOffloadingOnDevice), expected, actual,
                    options.state_every, kEnginePromise);
  if (actual != nullptr) sides.keep_commands();
  return EngineReplay(requests, options, sides, progress).run();
}

}  // namespace kvfence
