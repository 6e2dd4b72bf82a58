/// Draws for engines with an OffloadingConnector over scripted copies: few slots of CPU memory,
/// tiers below them in some episodes, copy engines and tiers that are eager, lazy or uneven, and
/// damaged files.

#include "properties/engine/rooms.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/connectors/kv_connector_stats.h"
#include "contract/connectors/offloading/offloading_spec_factory.h"
#include "contract/core/check.h"
#include "contract/engine/engine_setup.h"
#include "properties/core/left_out.h"
#include "properties/tiering/draw_short_transfer.h"

namespace kvfence::engine::offloading {
namespace {

/// Of two windows the longer one is asked first, and the shorter one loses its blocks first.
constexpr std::string_view kShapes[] = {"Fw", "Ft", "Fm", "Fwm", "Fww", "Ff", "wfw", "w", "m", "nt",
                                        "nt", "nt", "nw", "nw",  "Fa",  "a",  "f",   "f", "f"};

enum class Action : std::uint8_t { kReportAgain, kChangeTier, kLogStats };
constexpr std::uint32_t kWeights[] = {2, 16, 3};

constexpr std::size_t kReportedMax = 4;        // transfers that may be reported again
constexpr std::size_t kEndedTierJobsMax = 32;  // to end no tier job twice

const LeftOut kFailedWindow(
    LeftOut::By::kGenerator, "engine.offloading: a load of a window that fails",
    "upstream goes on as if the null blocks before the failed ones had been computed",
    "engine/offloading/left_out/a_load_of_a_window_that_fails.kvs");

bool has_ended(const EngineTransfer& transfer) {
  return transfer.progress == TransferProgress::kFinished ||
         transfer.progress == TransferProgress::kFailed;
}

void draw_tiers(Choices& choices, Record& record) {
  record.spec_name = kTieringOffloadingSpec;
  record.store_threshold = choices.once_in(8) ? 1 : 0;  // both let all blocks pass
  record.request_level_policy = false;
  record.num_tiers = choices.once_in(16) ? 0 : 1 + choices.below(3);
  const bool has_files = choices.once_in(2);
  for (std::uint32_t tier = 0; tier < record.num_tiers; ++tier) {
    if (choices.once_in(4)) record.request_level_tiers.push_back(tier);
    if (has_files && !choices.once_in(3)) record.file_tiers.push_back(tier);
  }
}

/// Makes transfers of a few blocks as large as a bucket's bound, or nearly.
std::uint32_t draw_block_bytes(Choices& choices) {
  const double bound = kOffloadSizeBuckets[choices.below(kOffloadSizeBuckets.size())];
  return static_cast<std::uint32_t>(bound) / (1 + choices.below(4)) + choices.below(3) - 1;
}

void draw_record(Choices& choices, Config& config) {
  Record& record = config.edit_connector<Record>();
  record.num_cpu_blocks = choices.once_in(3) ? 1 + choices.below(4) : 4 + choices.below(6);
  record.block_size_factor = choices.once_in(2) ? 2 + choices.below(2) : 1;
  record.eviction_policy = choices.once_in(2) ? EvictionPolicy::kARC : EvictionPolicy::kLRU;
  if (choices.once_in(6)) {
    record.store_threshold = 1 + choices.below(3);
    if (!choices.once_in(8)) record.max_tracker_size = 1 + choices.below(12);
  }
  record.offload_prompt_only = choices.once_in(3);
  record.request_level_policy = choices.once_in(4);
  record.transfers_may_fail = choices.once_in(2);
  if (config.profile != Profile::kV019 && choices.once_in(3)) draw_tiers(choices, record);
  if (choices.once_in(2)) record.block_bytes = draw_block_bytes(choices);
  if (choices.once_in(2)) {
    record.engine_labels.resize(1 + choices.below(3));
    for (std::uint32_t& label : record.engine_labels) label = choices.below(2);
  }
  if (config.external_blocks_after_hits.value_or(false) && !choices.once_in(4)) {
    // Room for a hit of all groups in the GPU's cache, and for a longer one in the CPU's.
    config.num_gpu_blocks *= 2;
    record.num_cpu_blocks *= 2;
    if (choices.once_in(2)) record.block_size_factor = 1;
  }
  if (config.groups.size() == 2 && !config.groups.front().is_full_attention()) {
    // Two windows: with these sizes one of them ends the hit of the other now and then.
    record.num_cpu_blocks = 5 + choices.below(3);
    record.block_size_factor = 1;
  }
}

class OffloadingDraws final : public Draws {
 public:
  OffloadingDraws(const Config& config, Choices& choices, EngineRole role)
      : role_(role),
        record_(*config.connector<Record>()),
        num_ranks_(num_ranks_of(config, role)),
        num_groups_(static_cast<std::uint32_t>(config.groups.size())) {
    const Parsed<EngineSetup> setup = EngineTarget::prepare(config, {}, {});
    KVFENCE_CHECK(setup, "commands for a configuration that was not validated");
    spec_ = setup->offloading->spec;
    is_windowed_ = num_groups_ == 1 && !config.groups.front().is_full_attention();
    part_in_ = choices.once_in(2) ? 2 : 8;
    fail_in_ = choices.once_in(2) ? 3 : 10;
    late_in_ = draw_lateness(num_ranks_, choices);
    tier_late_in_ = 1 + choices.below(choices.once_in(2) ? 3 : 12);
    is_newest_first_ = choices.once_in(4);
    tier_fail_in_ = choices.once_in(2) ? 4 : 20;
    found_in_ = choices.once_in(2) ? 2 : 6;
    spoiled_in_ = choices.once_in(4) ? 40 : 3;
  }

  std::span<const std::uint32_t> weights() const override { return kWeights; }
  bool bends(std::string_view member) const override { return member == "max_offload_tokens"; }

  void take_in(const Picture& /*picture*/, const Observation& both) override {
    const EngineObservation& now = both.of(role_);
    if (now.tier_jobs.has_value()) tier_jobs_ = *now.tier_jobs;
    if (!now.transfers.has_value()) return;
    for (const EngineTransfer& transfer : transfers_) {
      const bool is_there = std::ranges::any_of(*now.transfers, [&](const EngineTransfer& other) {
        return other.rank == transfer.rank && other.job == transfer.job;
      });
      if (!is_there) reported_.push_back(transfer);
    }
    while (reported_.size() > kReportedMax) reported_.erase(reported_.begin());
    transfers_ = *now.transfers;
  }

  std::optional<Command> next(Picture& picture, Choices& choices) override {
    if (auto command = copy(picture, choices)) return command;
    if (auto command = end_tier_job(picture, choices)) return command;
    if (auto command = fill(choices, *picture.world)) return command;
    const auto* added = picture.last ? std::get_if<AddRequest>(&*picture.last) : nullptr;
    if (!added || record_.num_tiers == 0 || !choices.once_in(found_in_)) return std::nullopt;
    if (num_groups_ == 1 || !choices.once_in(4)) {
      return change_tier(choices, added->id, *picture.world);
    }
    filled_ = added->id;
    next_filled_ = 0;
    return fill(choices, *picture.world);
  }

  std::optional<Command> act(std::size_t place, Picture& picture, Choices& choices) override {
    switch (static_cast<Action>(place)) {
      case Action::kReportAgain: {
        if (reported_.empty()) return std::nullopt;
        const EngineTransfer& transfer = pick(choices, reported_);
        return ReportTransferAgain{role_, transfer.rank, transfer.job};
      }
      case Action::kChangeTier:
        if (picture.names.empty() || record_.num_tiers == 0) return std::nullopt;
        return change_tier(choices, picture.draw_recent_name(choices), *picture.world);
      case Action::kLogStats:
        break;
    }
    return LogStats{role_, choices.below(num_engine_idxs_)};
  }

  std::optional<Command> bent(Picture& picture, Choices& choices) override {
    if (record_.spec_name == kTieringOffloadingSpec && choices.once_in(4)) {
      return bent_tier(picture, choices);
    }
    if (!choices.once_in(6)) return std::nullopt;
    if (choices.once_in(6)) return LogStats{role_, choices.below(num_engine_idxs_ + 2)};
    AdvanceTransfer advance{role_, choices.below(num_ranks_ + 1), choices.below(24),
                            static_cast<TransferProgress>(1 + choices.below(3))};
    if (!transfers_.empty() && choices.once_in(2)) advance.job = pick(choices, transfers_).job;
    if (advance.progress == TransferProgress::kFailed && is_windowed_) {
      advance.progress = TransferProgress::kPart;
    }
    return advance;
  }

  void add_to(AddRequest& command, const Picture& /*picture*/, Choices& choices) override {
    if (command.engine != role_) return;
    const auto length = static_cast<std::uint32_t>(command.tokens.size());
    if (choices.once_in(12)) command.max_offload_tokens = choices.below(length + 2);
  }
  using Draws::add_to;

 private:
  /// A copy engine's next command, if any.
  std::optional<Command> copy(const Picture& picture, Choices& choices) const {
    for (std::size_t at = 0; at < transfers_.size(); ++at) {
      const EngineTransfer& transfer =
          transfers_[is_newest_first_ ? transfers_.size() - 1 - at : at];
      if (has_ended(transfer) || transfer.rank >= num_ranks_) continue;
      if (!picture.comes(late_in_[transfer.rank], choices)) continue;
      AdvanceTransfer command{role_, transfer.rank, transfer.job};
      command.microseconds = choices.once_in(4) ? 0 : 1 + choices.below(9);
      const bool is_fresh = transfer.progress == TransferProgress::kSubmitted;
      if (is_fresh && choices.once_in(part_in_)) {
        command.progress = TransferProgress::kPart;
      } else if (may_fail(transfer) && choices.once_in(fail_in_)) {
        command.progress = TransferProgress::kFailed;
      }
      return command;
    }
    return std::nullopt;
  }

  /// The rest would be refused: a failed load of several groups, a failed store with hold.
  bool may_fail(const EngineTransfer& transfer) const {
    if (!record_.transfers_may_fail) return false;
    return transfer.store || (num_groups_ == 1 && !kFailedWindow(is_windowed_));
  }

  /// Ends a job of a tier, if one is due.
  std::optional<Command> end_tier_job(const Picture& picture, Choices& choices) {
    for (const TierTransfer& job : tier_jobs_) {
      const auto ended = std::ranges::find(ended_tier_jobs_, *job.job);
      if (ended != ended_tier_jobs_.end() || !picture.comes(tier_late_in_, choices)) continue;
      if (auto command = spoil(choices, job, *picture.world)) return command;
      ended_tier_jobs_.push_back(*job.job);
      if (ended_tier_jobs_.size() > kEndedTierJobsMax) {
        ended_tier_jobs_.erase(ended_tier_jobs_.begin());
      }
      return TierFinish{job.tier, *job.job, !choices.once_in(tier_fail_in_)};
    }
    return std::nullopt;
  }

  /// Damages files of a tier before its job ends, or lets file operations fail, if drawn.
  std::optional<Command> spoil(Choices& choices, const TierTransfer& job,
                               const World& world) const {
    const std::vector<std::uint32_t>& places = record_.file_tiers;
    if (!std::binary_search(places.begin(), places.end(), job.tier)) return std::nullopt;
    if (job.keys.empty() || !choices.once_in(spoiled_in_)) return std::nullopt;
    // Files to be written do not exist yet.
    if (!job.promotion || choices.once_in(4)) return draw_fault(choices, job);
    const Request* const prompt = world.requests().find(job.request);
    const std::string& key = pick(choices, job.keys);
    for (GroupId group = 0; prompt && group < num_groups_; ++group) {
      for (std::uint32_t block = 0;; ++block) {
        const auto found = key_of_prompt_block(spec_, *prompt, group, block);
        if (!found) break;
        if (*found == key) return draw_damage(choices, job, block, group);
      }
    }
    return std::nullopt;
  }

  static Command draw_fault(Choices& choices, const TierTransfer& job) {
    constexpr std::array<FileOperation, 4> kOfLoads = {
        FileOperation::kRead, FileOperation::kOpen, FileOperation::kSize, FileOperation::kRemove};
    constexpr std::array<FileOperation, 5> kOfStores = {
        FileOperation::kWrite, FileOperation::kCreate, FileOperation::kRename,
        FileOperation::kClose, FileOperation::kSize};
    tiering::Fault fault;
    fault.operation = job.promotion ? pick(choices, kOfLoads) : pick(choices, kOfStores);
    fault.call = choices.below(3);
    const bool moves =
        fault.operation == FileOperation::kRead || fault.operation == FileOperation::kWrite;
    if (moves && choices.once_in(2)) {
      fault.num_bytes = tiering::draw_short_transfer(choices);
    } else {
      fault.fails_with = static_cast<FileError>(1 + choices.below(kNumFileErrors - 1));
    }
    return TierFaults{job.tier, {fault}};
  }

  Command draw_damage(Choices& choices, const TierTransfer& job, std::uint32_t block,
                      GroupId group) const {
    const auto num_bits =
        static_cast<std::uint32_t>(8 * (kBlockFileHeaderBytes + slot_bytes_of(spec_)));
    TierDamage damage{job.tier, job.request, block, group};
    // Only a digest detects a flipped bit.
    damage.damage = !choices.once_in(3) ? FileDamage::kFlip : pick(choices, kFileDamages);
    const bool is_replaced = damage.damage == FileDamage::kReplace;
    damage.at = choices.below(is_replaced ? block + 1 : num_bits);
    return damage;
  }

  /// Blocks of the prompt.
  std::uint32_t num_blocks_of(const std::string& request, GroupId group, const World& world) const {
    const Request* const prompt = world.requests().find(request);
    std::uint32_t num_blocks = 0;
    while (prompt && key_of_prompt_block(spec_, *prompt, group, num_blocks)) ++num_blocks;
    return num_blocks;
  }

  static std::vector<std::uint32_t> first_blocks(std::uint32_t num_blocks) {
    std::vector<std::uint32_t> blocks(num_blocks);
    std::iota(blocks.begin(), blocks.end(), 0U);
    return blocks;
  }

  /// Some tier gets the first blocks of each group, for different numbers of tokens: the groups cut
  /// each other's hits.
  std::optional<Command> fill(Choices& choices, const World& world) {
    while (!filled_.empty() && next_filled_ < num_groups_) {
      const GroupId group = next_filled_++;
      const std::uint32_t num_blocks = num_blocks_of(filled_, group, world);
      if (num_blocks == 0) continue;
      return TierAdd{choices.below(record_.num_tiers), filled_,
                     first_blocks(1 + choices.below(num_blocks)), group};
    }
    filled_.clear();
    return std::nullopt;
  }

  /// Changes blocks of a request in a tier, if it has full blocks: its first ones, which requests
  /// with the same prefix share, or any one.
  std::optional<Command> change_tier(Choices& choices, const std::string& request,
                                     const World& world) const {
    const GroupId group = choices.below(num_groups_);
    const std::uint32_t num_blocks = num_blocks_of(request, group, world);
    if (num_blocks == 0) return std::nullopt;
    const std::uint32_t tier = choices.below(record_.num_tiers);
    std::vector<std::uint32_t> blocks = {choices.below(num_blocks)};
    if (!choices.once_in(4)) blocks = first_blocks(blocks.front() + 1);
    switch (choices.below(6)) {
      case 0:
        return TierAskAgain{tier, request, blocks.back(), group, choices.below(3)};
      case 1:
        return TierDrop{tier, request, std::move(blocks), group};
      default:
        return TierAdd{tier, request, std::move(blocks), group};
    }
  }

  Command bent_tier(const Picture& picture, Choices& choices) const {
    const std::uint32_t tier = choices.below(record_.num_tiers + 1);
    const std::uint32_t number = choices.below(24);
    if (choices.once_in(4)) return TierFaults{tier, {tiering::Fault{}}};
    if (choices.once_in(2)) return TierFinish{tier, number, choices.once_in(2)};
    const std::string name = picture.draw_name(choices);
    const GroupId group = choices.below(num_groups_ + choices.below(2));
    if (choices.once_in(2)) return TierAskAgain{tier, name, number, group, 1};
    if (choices.once_in(2)) return TierAdd{tier, name, {number}, group};
    return TierDrop{tier, name, {number}, group};
  }

  const EngineRole role_;
  const Record record_;
  const std::uint32_t num_ranks_;
  const std::uint32_t num_groups_;
  const std::uint32_t num_engine_idxs_ = static_cast<std::uint32_t>(record_.engine_labels.size());
  OffloadingSpec spec_;
  bool is_windowed_ = false;   ///< the only group has a window
  std::uint32_t part_in_ = 4;  ///< one advance in so many does not reach the end
  std::uint32_t fail_in_ = 6;  ///< one end in so many is a failure, if transfers can fail
  std::vector<std::uint32_t> late_in_;
  std::uint32_t tier_late_in_ = 1;  ///< a tier's job ends in one command of so many
  std::uint32_t tier_fail_in_ = 8;  ///< one tier job in so many fails
  std::uint32_t spoiled_in_ = 6;    ///< one job of a file tier in so many is damaged
  std::uint32_t found_in_ = 4;      ///< a tier has blocks of one new request in so many
  bool is_newest_first_ = false;    ///< transfers end newest first
  std::string filled_;              ///< tiers get this request's blocks, group by group
  GroupId next_filled_ = 0;

  std::vector<EngineTransfer> transfers_;
  std::vector<EngineTransfer> reported_;  ///< lately
  std::vector<TierTransfer> tier_jobs_;
  std::vector<std::uint32_t> ended_tier_jobs_;  ///< recent; not polled yet
};

}  // namespace

std::unique_ptr<Draws> make_draws(const Config& config, Choices& choices, EngineRole role) {
  return std::make_unique<OffloadingDraws>(config, choices, role);
}

Config draw_without_drafts(Choices& choices) {
  Config config = draw_small_engine(Assembly::kOffloading, choices);
  config.ranks = 1 + choices.below(3);
  if (config.profile != Profile::kV019) draw_groups(kShapes, choices, config);
  draw_record(choices, config);
  return config;
}

Config draw_config(Choices& choices) { return completed(draw_without_drafts(choices), choices); }

}  // namespace kvfence::engine::offloading
