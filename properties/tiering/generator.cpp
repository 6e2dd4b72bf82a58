/// Draws configurations and commands for target tiering: few slots, up to three tiers, sometimes
/// with file tiers among them, runs of keys as requests have them, swarm weights, and arguments
/// that mostly fit the state that the manager and its tiers show.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/core/lists.h"
#include "contract/tiering/file_fault.h"
#include "contract/tiering/file_tier.h"
#include "contract/tiering/tiering_target.h"
#include "properties/core/invariant_values.h"
#include "properties/draws/choices.h"
#include "properties/draws/swarm.h"
#include "properties/eviction/keys.h"
#include "properties/targets/rooms.h"
#include "properties/tiering/draw_short_transfer.h"

namespace kvfence::tiering {
namespace {

/// How many keys and jobs count as recent.
constexpr std::size_t kRecentMax = 6;

/// The usual weight of each command.
constexpr VerbSwarm<Command>::UsualWeights kWeights = {{
    {Lookup::kVerb, 16},        {Touch::kVerb, 4},
    {PrepareLoad::kVerb, 5},    {CompleteLoad::kVerb, 5},
    {PrepareStore::kVerb, 12},  {CompleteStore::kVerb, 12},
    {OnNewRequest::kVerb, 3},   {OnRequestFinished::kVerb, 2},
    {OnScheduleEnd::kVerb, 12}, {ResetCache::kVerb, 0},
    {TakeEvents::kVerb, 3},     {TierFinish::kVerb, 16},
    {TierAskAgain::kVerb, 2},   {TierAdd::kVerb, 2},
    {TierDrop::kVerb, 2},       {TierFaults::kVerb, 10},
    {TierDamage::kVerb, 6},     {TierRestart::kVerb, 1},
    {TierWriter::kVerb, 4},
}};
/// A reset is drawn once in so many commands.
constexpr std::uint32_t kResetOnceIn = 256;
/// With so many jobs under way, which hold most of the primary tier, nothing could be promoted.
constexpr std::size_t kManyJobs = 3;

/// A command about the files of a tier.
bool is_of_files(std::string_view verb) {
  return verb == TierFaults::kVerb || verb == TierDamage::kVerb || verb == TierRestart::kVerb ||
         verb == TierWriter::kVerb;
}

void remember(std::vector<std::uint32_t>& recent, std::uint32_t number) {
  std::erase(recent, number);
  recent.push_back(number);
  if (recent.size() > kRecentMax) recent.erase(recent.begin());
}

constexpr std::uint32_t kNumRequests = 4;

std::string draw_request(Choices& choices) {
  return std::string(1, static_cast<char>('A' + skewed(choices, kNumRequests)));
}

class Generator final : public GeneratorFor<TieringTarget> {
 public:
  /// Draws the weights of this episode.
  Generator(const Config& config, Choices& choices)
      : num_tiers_(config.num_tiers),
        file_tiers_(config.file_tiers),
        swarm_(kWeights, kWildHabits, choices),
        ends_jobs_(!choices.once_in(4)),
        keys_(config.capacity) {
    // Nothing else happens without ready blocks and jobs that end.
    swarm_.raise(
        {PrepareStore::kVerb, CompleteStore::kVerb, OnScheduleEnd::kVerb, TierFinish::kVerb}, 2);
    // Some episodes leave files alone; without file tiers most do.
    for (const auto& [verb, weight] : kWeights) {
      if (!is_of_files(verb)) continue;
      if (file_tiers_.empty()) swarm_.set(verb, choices.once_in(4) ? 1 : 0);
      if (!file_tiers_.empty() && choices.once_in(6)) swarm_.set(verb, 0);
    }
  }

  /// The next command, given what a manager shows.
  Command next(Choices& choices, const Observation& now, const World& /*world*/) override {
    see(now);
    if (choices.once_in(kResetOnceIn)) return ResetCache{};
    if (ends_jobs_ && jobs_.size() >= kManyJobs && choices.once_in(3)) return draw_finish(choices);
    if (is_to_open_ && choices.once_in(8)) return draw_restart(choices);
    const auto is_without_work = [this](std::string_view verb) { return is_idle(verb); };
    return draw(choices, swarm_.draw_unless(is_without_work, choices));
  }

  /// Jobs succeed, stores and loads complete, requests finish; then caches are reset.
  std::optional<Command> next_of_tail(const Observation& now, const World& /*world*/) override {
    see(now);
    for (const Transfer& job : jobs_) {
      if (!ended_.insert(*job.job).second) continue;
      return TierFinish{job.tier, *job.job, true};
    }
    if (!loading_.empty()) return CompleteLoad{loading_};
    if (!storing_.empty()) return CompleteStore{storing_, "A", true};
    if (!jobs_.empty()) return OnScheduleEnd{};
    const std::uint32_t now_at = num_resets_++;
    if (now_at < kNumRequests)
      return OnRequestFinished{std::string(1, static_cast<char>('A' + now_at))};
    const Command last[] = {OnScheduleEnd{}, ResetCache{}, TakeEvents{}, OnScheduleEnd{}};
    const std::size_t at = now_at - kNumRequests;
    if (at < std::size(last)) return last[at];
    for (std::uint32_t tier = 0; tier < tiers_.size(); ++tier) {
      if (at < std::size(last) + tiers_.size() && !tiers_[tier].held.empty()) {
        return TierDrop{tier, tiers_[tier].held};
      }
    }
    ended_.clear();
    num_resets_ = 0;
    return std::nullopt;
  }

 private:
  using Keys = std::vector<std::uint32_t>;

  /// If the state is not observed after every command, the last observed one is near enough.
  void see(const Observation& now) {
    const bool is_missed = now.result.has_value() && *now.result == LookupResult::kMiss;
    if (is_missed && !looked_up_.empty() && contains(below_, looked_up_.back())) {
      remember(doubted_, looked_up_.back());
    }
    keys_.see(now);
    if (!eviction::shows_lists(now) || !now.jobs.has_value() || !now.pending.has_value() ||
        !now.tiers.has_value()) {
      return;
    }
    jobs_ = *now.jobs;
    tiers_ = *now.tiers;
    Keys promoted;
    Keys cascaded;
    for (const auto* transfers : {&*now.jobs, &*now.pending}) {
      for (const Transfer& transfer : *transfers) {
        Keys& keys = transfer.promotion ? promoted : cascaded;
        keys.insert(keys.end(), transfer.keys.begin(), transfer.keys.end());
      }
    }
    storing_.clear();
    loading_.clear();
    below_.clear();
    for (std::uint32_t key : keys_.writing()) {
      if (!contains(promoted, key)) storing_.push_back(key);
    }
    for (const eviction::Entry* block : now.blocks()) {
      const auto num_cascades = std::ranges::count(cascaded, block->key);
      if (block->readers > num_cascades) loading_.push_back(block->key);
    }
    for (const TierState& tier : tiers_) {
      for (std::uint32_t key : tier.held) {
        if (!contains(keys_.held(), key)) below_.push_back(key);
      }
    }
    see_failed_promotions(promoted);
  }

  /// Keys whose promotion ended without the block in the primary tier.
  void see_failed_promotions(const Keys& promoted) {
    for (std::uint32_t key : promoted_) {
      if (!contains(promoted, key) && contains(below_, key)) remember(doubted_, key);
    }
    promoted_ = promoted;
  }

  /// Whether the command would have nothing to work on.
  bool is_idle(std::string_view verb) const {
    if (verb == PrepareLoad::kVerb) return keys_.ready().empty();
    if (verb == CompleteLoad::kVerb) return loading_.empty();
    if (verb == CompleteStore::kVerb) return storing_.empty();
    if (verb == TierFinish::kVerb) return jobs_.empty();
    if (verb == TierAskAgain::kVerb || verb == TierAdd::kVerb || verb == TierDrop::kVerb) {
      return num_tiers_ == 0;
    }
    if (is_of_files(verb)) return file_tiers_.empty();
    return verb == Touch::kVerb && keys_.held().empty();
  }

  Command draw(Choices& choices, std::string_view verb) {
    if (verb == Lookup::kVerb) {
      const std::uint32_t key = draw_key_to_look_up(choices);
      remember(looked_up_, key);
      // A request looks up several keys in a row.
      if (looking_up_.empty() || choices.once_in(3)) looking_up_ = draw_request(choices);
      return Lookup{key, looking_up_};
    }
    if (verb == Touch::kVerb) {
      const bool ghosts = !keys_.ghosts().empty() && choices.once_in(3);
      return Touch{keys_.some_of(ghosts ? keys_.ghosts() : keys_.held(), 4, choices),
                   draw_request(choices)};
    }
    if (verb == PrepareLoad::kVerb) return PrepareLoad{keys_.some_of(keys_.ready(), 3, choices)};
    if (verb == CompleteLoad::kVerb) {
      const bool any = choices.once_in(8);
      return CompleteLoad{keys_.some_of(any ? keys_.reading() : loading_, 3, choices)};
    }
    if (verb == PrepareStore::kVerb) {
      return PrepareStore{draw_keys_to_store(choices), draw_request(choices)};
    }
    if (verb == CompleteStore::kVerb) {
      const bool any = choices.once_in(8);
      Keys keys = keys_.some_of(any ? keys_.held() : storing_, 4, choices);
      if (choices.once_in(64)) keys.clear();
      return CompleteStore{std::move(keys), draw_request(choices), !choices.once_in(6)};
    }
    if (verb == OnNewRequest::kVerb) {
      OnNewRequest command{draw_request(choices), {}};
      for (std::uint32_t tier = 0; tier < num_tiers_; ++tier) {
        if (choices.once_in(2)) command.request_level.push_back(tier);
      }
      if (choices.once_in(64)) command.request_level.push_back(num_tiers_);
      return command;
    }
    if (verb == OnRequestFinished::kVerb) return OnRequestFinished{draw_request(choices)};
    if (verb == OnScheduleEnd::kVerb) return OnScheduleEnd{};
    if (verb == TierFinish::kVerb) return draw_finish(choices);
    if (verb == TierFaults::kVerb) return draw_faults(choices);
    if (verb == TierDamage::kVerb) return draw_damage(choices);
    if (verb == TierRestart::kVerb) return draw_restart(choices);
    if (verb == TierWriter::kVerb) return draw_writer(choices);
    if (verb == TakeEvents::kVerb) return TakeEvents{};
    const std::uint32_t tier = draw_tier(choices);
    if (verb == TierAskAgain::kVerb) {
      return TierAskAgain{tier, draw_key_to_look_up(choices), choices.below(3)};
    }
    if (verb == TierAdd::kVerb) return TierAdd{tier, keys_.some_of({}, 3, choices)};
    const Keys held = tier < tiers_.size() ? tiers_[tier].held : Keys();
    return TierDrop{tier, keys_.some_of(held, 2, choices)};
  }

  /// Doubted keys without a block in the primary tier.
  Keys doubted_below() const {
    Keys keys = doubted_;
    std::erase_if(keys, [this](std::uint32_t key) { return !contains(below_, key); });
    return keys;
  }

  /// A key that a tier could provide, one that was looked up, or any.
  std::uint32_t draw_key_to_look_up(Choices& choices) const {
    const Keys doubted = doubted_below();
    if (!doubted.empty() && choices.once_in(3)) return keys_.one_of(doubted, choices);
    if (!below_.empty() && choices.once_in(2)) return keys_.one_of(below_, choices);
    if (!looked_up_.empty() && choices.once_in(2)) return keys_.one_of(looked_up_, choices);
    return keys_.any(choices);
  }

  /// The keys of a request: consecutive ones.
  Keys draw_keys_to_store(Choices& choices) const {
    const std::uint32_t length = choices.once_in(32) ? 0 : draw_length(choices, 5);
    const Keys doubted = doubted_below();
    if (!doubted.empty() && choices.once_in(3)) return {keys_.one_of(doubted, choices)};
    // A missed key is computed and stored, although a tier may have it.
    const Keys& missed = choices.once_in(2) ? looked_up_ : below_;
    const bool is_missed = !missed.empty() && choices.once_in(3);
    const std::uint32_t first = is_missed ? keys_.one_of(missed, choices) : keys_.any(choices);
    Keys keys;
    for (std::uint32_t at = 0; at < length; ++at) keys.push_back((first + at) % keys_.num_keys());
    if (!keys_.held().empty() && choices.once_in(3)) {
      keys.push_back(keys_.one_of(keys_.held(), choices));
    }
    if (!keys.empty() && choices.once_in(32)) keys.push_back(keys.front());
    return keys;
  }

  /// Mostly a job under way that was not reported yet.
  TierFinish draw_finish(Choices& choices) {
    TierFinish command;
    command.success = !choices.once_in(5);
    command.tier = draw_tier(choices);
    command.job = skewed(choices, 4);
    if (jobs_.empty() || choices.once_in(48)) return command;
    Transfer job = pick(choices, jobs_);
    for (int tries = 0; tries < 4 && contains(finished_, *job.job); ++tries) {
      job = pick(choices, jobs_);
    }
    command.job = *job.job;
    if (!choices.once_in(32)) command.tier = job.tier;
    remember(finished_, command.job);
    return command;
  }

  std::uint32_t draw_tier(Choices& choices) const {
    return num_tiers_ == 0 || choices.once_in(64) ? num_tiers_ : choices.below(num_tiers_);
  }

  /// Mostly a file tier.
  std::uint32_t draw_file_tier(Choices& choices) const {
    if (file_tiers_.empty() || choices.once_in(64)) return draw_tier(choices);
    return pick(choices, file_tiers_);
  }

  /// Mostly an operation that a job of the tier will soon perform.
  FileOperation draw_operation(std::uint32_t tier, Choices& choices) const {
    constexpr std::array<FileOperation, 4> kOfLoads = {
        FileOperation::kRead, FileOperation::kOpen, FileOperation::kSize, FileOperation::kRemove};
    // Operations of an opening besides those of a store.
    constexpr std::array<FileOperation, 6> kOfOpening = {
        FileOperation::kLock, FileOperation::kList,   FileOperation::kRemove,
        FileOperation::kSize, FileOperation::kCreate, FileOperation::kWrite};
    constexpr std::array<FileOperation, 10> kOperations = {
        FileOperation::kWrite,     FileOperation::kRead,   FileOperation::kRemove,
        FileOperation::kRename,    FileOperation::kClose,  FileOperation::kSize,
        FileOperation::kOpen,      FileOperation::kCreate, FileOperation::kSync,
        FileOperation::kMakeFolder};
    const bool loads = std::ranges::any_of(
        jobs_, [tier](const Transfer& job) { return job.promotion && job.tier == tier; });
    if (loads && choices.once_in(2)) return kOfLoads[skewed(choices, kOfLoads.size())];
    if (is_to_open_) return kOfOpening[skewed(choices, kOfOpening.size())];
    return kOperations[choices.once_in(2) ? skewed(choices, kOperations.size())
                                          : choices.below(kOperations.size())];
  }

  /// Faults of operations that a store or load of a block will soon perform.
  TierFaults draw_faults(Choices& choices) {
    TierFaults command{draw_file_tier(choices), {}};
    is_to_open_ = choices.once_in(8);
    // A file that the tier writes when it is opened can neither be completely written nor removed.
    if (is_to_open_ && choices.once_in(6)) {
      command.faults = {{FileOperation::kSize, 0, FileError::kEIO, 0},
                        {FileOperation::kWrite, 0, FileError::kEIO, 0},
                        {FileOperation::kRemove, choices.below(3), FileError::kEIO, 0}};
      return command;
    }
    const std::uint32_t num_faults = choices.once_in(16) ? 0 : 1 + choices.below(3);
    for (std::uint32_t count = 0; count < num_faults; ++count) {
      Fault& fault = command.faults.emplace_back();
      fault.operation = draw_operation(command.tier, choices);
      fault.call = skewed(choices, is_to_open_ ? 8 : 3);
      const bool moves =
          fault.operation == FileOperation::kRead || fault.operation == FileOperation::kWrite;
      if ((moves && choices.once_in(2)) || choices.once_in(64)) {
        fault.num_bytes = draw_short_transfer(choices);
        continue;
      }
      fault.fails_with = static_cast<FileError>(1 + choices.below(kNumFileErrors - 1));
    }
    return command;
  }

  TierRestart draw_restart(Choices& choices) {
    is_to_open_ = false;
    return {draw_file_tier(choices), choices.once_in(4)};
  }

  /// Mostly with small numbers, and around the last one.
  TierWriter draw_writer(Choices& choices) const {
    constexpr std::array<WriterAct, 7> kActs = {
        WriterAct::kClaims, WriterAct::kClaims, WriterAct::kWrites, WriterAct::kWrites,
        WriterAct::kDies,   WriterAct::kDies,   WriterAct::kStrays};
    const std::uint32_t tier = draw_file_tier(choices);
    const bool is_large = choices.once_in(12);
    const std::uint32_t number = is_large ? kWritersMax - 1 + choices.below(2) : choices.below(4);
    return {tier, number, pick(choices, kActs)};
  }

  /// Mostly of an existing block.
  TierDamage draw_damage(Choices& choices) {
    // A second flip of a bit repairs the file.
    if (last_flip_ && choices.once_in(4)) return *last_flip_;
    TierDamage command;
    command.tier = draw_file_tier(choices);
    const Keys held = command.tier < tiers_.size() ? tiers_[command.tier].held : Keys();
    command.key = keys_.one_of(held, choices);
    command.damage = pick(choices, kFileDamages);
    command.at = command.damage == FileDamage::kReplace
                     ? keys_.one_of(held, choices)
                     : choices.below(8 * (kBlockFileHeaderBytes + kBlockBytes));
    // A file of no bytes.
    if (command.damage == FileDamage::kTruncate && choices.once_in(4)) command.at = 0;
    if (command.damage == FileDamage::kFlip) last_flip_ = command;
    return command;
  }

  std::uint32_t num_tiers_;
  Keys file_tiers_;  ///< places
  VerbSwarm<Command> swarm_;
  bool ends_jobs_;  ///< before many are under way
  eviction::DrawnKeys keys_;
  std::vector<Transfer> jobs_;
  std::vector<TierState> tiers_;
  Keys below_;  ///< in a tier and not in the primary one
  std::optional<TierDamage> last_flip_;
  Keys storing_;                   ///< being written by a store
  Keys loading_;                   ///< being read by a load
  std::string looking_up_;         ///< the request of the last lookup
  Keys looked_up_;                 ///< recently, oldest first
  Keys promoted_;                  ///< waiting for a promotion or under way in one
  Keys doubted_;                   ///< recently missed or not promoted, although a tier holds them
  Keys finished_;                  ///< jobs, recently
  std::set<std::uint32_t> ended_;  ///< jobs, in a tail
  bool is_to_open_ = false;        ///< the last plan is about opening a tier
  std::uint32_t num_resets_ = 0;   ///< commands of a tail since nothing is under way
};

}  // namespace

Config draw_config(Choices& choices) {
  Config config;
  static_cast<eviction::Config&>(config) = eviction::draw_config(choices);
  config.profile = Config().profile;
  config.enable_events = !choices.once_in(4);
  config.num_tiers = choices.once_in(16) ? 0 : 1 + choices.below(3);
  if (!choices.once_in(2)) return config;
  for (std::uint32_t tier = 0; tier < config.num_tiers; ++tier) {
    if (!choices.once_in(3)) config.file_tiers.push_back(tier);
  }
  return config;
}

GeneratorSuite<TieringTarget> generators() { return generator_suite<Generator>(draw_config); }

}  // namespace kvfence::tiering
