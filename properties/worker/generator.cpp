/// Draws configurations and commands for target worker: few blocks, so that transfers meet, and
/// arguments that mostly fit the transfers under way.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "contract/core/lists.h"
#include "contract/worker/worker_target.h"
#include "properties/core/invariant_values.h"
#include "properties/draws/choices.h"
#include "properties/draws/swarm.h"
#include "properties/targets/rooms.h"

namespace kvfence::worker {
namespace {

/// The usual weight of each command.
constexpr VerbSwarm<Command>::UsualWeights kWeights = {{
    {GetFinished::kVerb, 10},
    {TransferAsync::kVerb, 16},
    {StartKVTransfers::kVerb, 8},
    {Wait::kVerb, 3},
    {Shutdown::kVerb, 0},
    {Forward::kVerb, 12},
    {Advance::kVerb, 24},
    {FailNext::kVerb, 2},
}};
/// A shutdown is drawn once in so many commands: nothing happens after it.
constexpr std::uint32_t kShutdownOnceIn = 256;

constexpr std::array<Stream, 3> kStreams = {Stream::kCompute, Stream::kStore, Stream::kLoad};
constexpr std::array<Fault, 5> kFaultKinds = {Fault::kCopy, Fault::kWait, Fault::kRecord,
                                              Fault::kLate, Fault::kPartial};
/// A device is lost once in so many faults: nothing runs after it.
constexpr std::uint32_t kStickyOnceIn = 8;
/// Mostly there is one rank, and devices are commanded.
constexpr std::uint32_t kFreeOnceIn = 3;
constexpr std::uint32_t kRanksOnceIn = 4;
constexpr std::array<Schedule, 4> kFreeSchedules = {Schedule::kEager, Schedule::kLazy,
                                                    Schedule::kRandom, Schedule::kPriority};
constexpr std::array<Layout, 5> kLayouts = {Layout::kBlocksFirst, Layout::kKVFirst,
                                            Layout::kCrossLayers, Layout::kMamba, Layout::kPadded};
constexpr std::array<Path, 4> kPaths = {Path::kBatched, Path::kLooped, Path::kStrided,
                                        Path::kKernel};

class Generator final : public GeneratorFor<WorkerTarget> {
 public:
  /// Draws the weights of this episode.
  Generator(const Config& config, Choices& choices)
      : config_(config), swarm_(kWeights, kWildHabits, choices) {
    // Nothing else happens without transfers that run and forwards that fill blocks.
    swarm_.raise({TransferAsync::kVerb, Advance::kVerb, Forward::kVerb, GetFinished::kVerb});
    // A free device makes progress by itself, and a poll ends all that is in flight.
    if (!config.is_commanded()) {
      swarm_.set(Advance::kVerb, 8);
      swarm_.set(GetFinished::kVerb, 5);
    }
  }

  /// The next command, given what a worker shows.
  Command next(Choices& choices, const Observation& now, const World& /*world*/) override {
    see(now);
    if (choices.once_in(kShutdownOnceIn)) {
      last_ = Shutdown{};
    } else {
      last_ = draw(choices, swarm_.draw(choices));
    }
    return last_;
  }

  /// Advances every stream of every rank in turn.
  std::optional<Command> next_of_tail(const Observation& now, const World& /*world*/) override {
    see(now);
    const auto num_streams = static_cast<std::uint32_t>(kStreams.size());
    const std::uint32_t turn = num_turns_++ % (num_streams * config_.num_ranks + 2);
    if (turn == 0 && num_turns_ > 1 && jobs_.empty()) {
      num_turns_ = 0;
      return std::nullopt;
    }
    if (turn == 0) {
      last_ = StartKVTransfers{};
    } else if (turn == num_streams * config_.num_ranks + 1) {
      last_ = GetFinished{};
    } else {
      last_ = Advance{kStreams[turn % num_streams], /*steps=*/0, (turn - 1) / num_streams};
    }
    return last_;
  }

 private:
  /// Applies the result of the last command.
  void see(const Observation& now) {
    if (const auto* submitted = std::get_if<TransferAsync>(&last_)) {
      if (now.error == ErrorCode::kNone) jobs_.push_back(*submitted);
    }
    if (!now.finished_jobs.has_value()) return;
    for (const Ended& job : *now.finished_jobs) {
      std::erase_if(jobs_, [&](const TransferAsync& other) { return other.job_id == job.job_id; });
    }
  }

  Command draw(Choices& choices, std::string_view verb) {
    if (verb == TransferAsync::kVerb) return draw_transfer(choices);
    if (verb == StartKVTransfers::kVerb) return StartKVTransfers{};
    if (verb == Forward::kVerb) return draw_forward(choices);
    if (verb == Advance::kVerb) return draw_advance(choices);
    if (verb == FailNext::kVerb) return draw_fault(choices);
    if (verb == Wait::kVerb) {
      Wait command;
      const std::uint32_t count = 1 + skewed(choices, 3);
      for (std::uint32_t index = 0; index < count; ++index) {
        const bool is_known = !jobs_.empty() && !choices.once_in(16);
        command.jobs.push_back(is_known ? pick(choices, jobs_).job_id
                                        : choices.below(next_job_ + 2));
      }
      return command;
    }
    return GetFinished{};
  }

  Command draw_transfer(Choices& choices) {
    TransferAsync command;
    command.direction = choices.once_in(2) ? Direction::kLoad : Direction::kStore;
    command.job_id = next_job_++;
    if (!jobs_.empty() && choices.once_in(24)) command.job_id = pick(choices, jobs_).job_id;
    command.block_index = choices.once_in(2) ? choices.below(2 * config_.block_size_factor) : 0;
    const std::uint32_t skipped = command.block_index % config_.block_size_factor;
    const std::uint32_t num_places = config_.num_cpu_blocks * config_.block_size_factor;
    std::uint32_t count = draw_length(choices, 4);
    if (choices.once_in(24)) count = 0;
    count = std::min({count, config_.num_gpu_blocks, num_places - skipped});
    command.gpu_blocks = some_of(
        config_.num_gpu_blocks, count,
        [&](std::uint32_t block) { return !is_used(block, true, command.direction); }, choices);
    const std::size_t num_cpu_blocks = num_cpu_blocks_for(
        command.gpu_blocks.size(), command.block_index, config_.block_size_factor);
    command.cpu_blocks = some_of(
        config_.num_cpu_blocks, static_cast<std::uint32_t>(num_cpu_blocks),
        [&](std::uint32_t block) { return !is_used(block, false, command.direction); }, choices);
    // GPU blocks in excess of the CPU blocks.
    const auto num_fitting =
        static_cast<std::uint32_t>(command.cpu_blocks.size()) * config_.block_size_factor;
    if (num_fitting < skipped + command.gpu_blocks.size() && !choices.once_in(8)) {
      command.gpu_blocks.resize(num_fitting > skipped ? num_fitting - skipped : 0);
      if (command.gpu_blocks.empty()) command.cpu_blocks.clear();
    }
    if (choices.once_in(48)) command.cpu_blocks.push_back(choices.below(config_.num_cpu_blocks));
    if (!command.gpu_blocks.empty() && choices.once_in(48)) {
      command.gpu_blocks.front() = config_.num_gpu_blocks + choices.below(2);
    }
    if (!command.cpu_blocks.empty() && choices.once_in(48)) {
      command.cpu_blocks.back() = config_.num_cpu_blocks + choices.below(2);
    }
    if (choices.once_in(32)) command.has_event = false;
    return command;
  }

  Command draw_forward(Choices& choices) {
    Forward command;
    command.writes = some_of(
        config_.num_gpu_blocks, choices.below(3),
        [&](std::uint32_t block) { return !is_used(block, true, {}); }, choices);
    command.reads = some_of(
        config_.num_gpu_blocks, choices.below(4),
        [&](std::uint32_t block) {
          const bool is_written = contains(command.writes, block);
          return !is_written && !is_used(block, true, Direction::kStore);
        },
        choices);
    if (choices.once_in(64)) command.reads.push_back(config_.num_gpu_blocks);
    return command;
  }

  Command draw_advance(Choices& choices) const {
    Advance command{pick(choices, kStreams)};
    if (choices.once_in(4)) command.steps = 1 + choices.below(6);
    command.rank = draw_rank(choices);
    return command;
  }

  Command draw_fault(Choices& choices) const {
    FailNext command{pick(choices, kFaultKinds)};
    if (choices.once_in(kStickyOnceIn)) command.fault = Fault::kSticky;
    command.rank = draw_rank(choices);
    return command;
  }

  std::uint32_t draw_rank(Choices& choices) const {
    if (config_.num_ranks > 1) return choices.below(config_.num_ranks);
    return choices.once_in(128) ? 1 : 0;
  }

  /// Up to `count` different numbers below the bound, mostly such that `is_free`.
  template <class IsFree>
  std::vector<std::uint32_t> some_of(std::uint32_t bound, std::uint32_t count, IsFree is_free,
                                     Choices& choices) const {
    std::vector<std::uint32_t> numbers;
    const bool is_careless = choices.once_in(16);
    for (std::uint32_t tries = 0; numbers.size() < count && tries < 4 * count; ++tries) {
      const std::uint32_t number = choices.below(bound);
      const bool is_again = contains(numbers, number);
      if (is_careless || (!is_again && is_free(number))) numbers.push_back(number);
    }
    return numbers;
  }

  /// Whether a transfer under way in another direction names it.
  bool is_used(std::uint32_t number, bool on_gpu, std::optional<Direction> direction) const {
    return std::ranges::any_of(jobs_, [&](const TransferAsync& job) {
      const std::vector<std::uint32_t>& blocks = on_gpu ? job.gpu_blocks : job.cpu_blocks;
      return job.direction != direction && contains(blocks, number);
    });
  }

  Config config_;
  VerbSwarm<Command> swarm_;
  std::vector<TransferAsync> jobs_;  ///< taken, not reported
  Command last_;
  std::uint32_t next_job_ = 0;
  std::uint32_t num_turns_ = 0;  ///< of a tail
};

}  // namespace

Config draw_config(Choices& choices) {
  Config config;
  config.layout = pick(choices, kLayouts);
  config.path = pick(choices, kPaths);
  const bool is_large = choices.once_in(8);
  config.num_gpu_blocks = 2 + choices.below(is_large ? 31 : 7);
  config.num_cpu_blocks = 1 + choices.below(is_large ? 31 : 6);
  config.block_size_factor = 1 + choices.below(3);
  config.batch_entries_max = choices.once_in(2) ? 1 + choices.below(4) : 64;
  config.host_address_differs = choices.once_in(4);
  if (choices.once_in(kFreeOnceIn)) config.schedule = pick(choices, kFreeSchedules);
  config.seed = 1 + choices.below(1000);
  if (choices.once_in(kRanksOnceIn)) config.num_ranks = 2 + choices.below(2);
  return config;
}

GeneratorSuite<WorkerTarget> generators() { return generator_suite<Generator>(draw_config); }

}  // namespace kvfence::worker
