/// Draws for engines with a synchronous connector: other engines write, lose and damage files of
/// the same prompts, in whole or in part; file operations fail.

#include "properties/engine/rooms.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/connectors/synchronous/shared_storage.h"
#include "contract/connectors/synchronous/synchronous_connector.h"
#include "properties/engine/shown_requests.h"
#include "properties/kv_cache/group_draws.h"

namespace kvfence::engine::files {
namespace {

using Tokens = std::vector<TokenId>;

constexpr std::string_view kShapes[] = {"w", "fw", "wf", "f", "f", "f"};

enum class Action : std::uint8_t { kWriteEntry, kRemoveEntry, kRemoveOrCutFile, kFailNextFile };
constexpr std::uint32_t kWeights[] = {8, 4, 2, 2};

/// A cut leaves half of a file.
constexpr std::uint32_t kCutsToNothing = 12;

class FileDraws final : public Draws {
 public:
  FileDraws(const Config& config, Choices& choices)
      : block_size_(config.hash_block_size),
        part_in_(choices.once_in(3) ? 2 : 12),
        resumable_in_(choices.once_in(3) ? 8 : 1) {
    const auto* const example = config.connector<ExampleRecord>();
    keeps_files_ = example != nullptr;
    num_layers_ = config.ranks * (example ? example->num_layers
                                          : config.connector<DecodeBenchRecord>()->num_layers);
  }

  std::span<const std::uint32_t> weights() const override { return kWeights; }

  void take_in(const Picture& picture, const Observation& now) override {
    if (const auto* added = picture.accepted<AddRequest>(now)) {
      tokens_[added->id] = added->tokens;
    } else if (const auto* handed_over = picture.accepted<HandOver>(now)) {
      tokens_[handed_over->id] = picture.world->requests().find(handed_over->id)->spec().tokens;
    } else if (const auto* entry = picture.accepted<WriteEntry>(now)) {
      entries_.push_back(entry->tokens);
    } else if (const auto* planned = picture.accepted<Schedule>(now)) {
      const std::vector<std::string>& preempted = now.of(planned->engine).preempted.or_empty();
      victims_.insert(victims_.end(), preempted.begin(), preempted.end());
    } else if (const auto* updated = picture.accepted<Update>(now)) {
      take_in_update(now.of(updated->engine));
    }
  }

  std::optional<Command> next(Picture& /*picture*/, Choices& choices) override {
    if (must_repair_) return repair(choices);
    if (victims_.empty()) return std::nullopt;
    const Tokens& tokens = tokens_[victims_.front()];
    victims_.pop_front();
    if (!keeps_files_ || !choices.once_in(resumable_in_)) return std::nullopt;
    return write(choices, whole_blocks(tokens, std::max<std::size_t>(tokens.size(), 1) - 1));
  }

  std::optional<Command> act(std::size_t place, Picture& picture, Choices& choices) override {
    if (!keeps_files_ && !choices.once_in(16)) return std::nullopt;
    if (num_cuts_left_ > 0) {
      --num_cuts_left_;
      return cut_;
    }
    const std::uint32_t layer = choices.below(num_layers_);
    switch (static_cast<Action>(place)) {
      case Action::kWriteEntry:
        return write(choices, draw_tokens(picture, choices));
      case Action::kRemoveEntry:
        return RemoveEntry{draw_tokens(picture, choices)};
      case Action::kRemoveOrCutFile:
        if (choices.once_in(2)) return RemoveFile{draw_tokens(picture, choices), layer};
        cut_ = TruncateFile{draw_tokens(picture, choices), layer};
        num_cuts_left_ = choices.once_in(8) ? kCutsToNothing : 0;
        return cut_;
      case Action::kFailNextFile:
        break;
    }
    return FailNextFile{layer, pick(choices, kStorageOperations)};
  }

  std::optional<Command> bent(Picture& picture, Choices& choices) override {
    if (!choices.once_in(6)) return std::nullopt;
    WriteEntry entry = write(choices, draw_tokens(picture, choices));
    if (choices.once_in(2)) {
      entry.num_files += 1;
    } else {
      entry.tokens.push_back(0);
    }
    return entry;
  }

  /// File names depend on tokens only.
  void add_to(AddRequest& command, const Picture& /*picture*/, Choices& /*choices*/) override {
    command.cache_salt.reset();
    command.lora_name.reset();
    command.lora_id = 0;
  }
  using Draws::add_to;

 private:
  void take_in_update(const EngineObservation& now) {
    for (const RequestOutput& output : now.outputs.or_empty()) {
      Tokens& tokens = tokens_[output.request];
      tokens.insert(tokens.end(), output.tokens.begin(), output.tokens.end());
    }
    if (!has_elements(now.failed)) return;
    victims_.clear();
    must_repair_ = true;
    failed_folder_ = now.failed->front().folder;
  }

  Tokens whole_blocks(const Tokens& tokens, std::size_t num_tokens) const {
    const std::size_t num_whole = std::min(num_tokens, tokens.size()) / block_size_ * block_size_;
    return {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(num_whole)};
  }

  /// Tokens whose folder may exist or be looked up: those that a prompt is stored under, those of
  /// its lookup, those written before, or any leading blocks.
  Tokens draw_tokens(const Picture& picture, Choices& choices) const {
    if (!entries_.empty() && choices.once_in(3)) return pick(choices, entries_);
    if (picture.names.empty()) return {};
    const Tokens& tokens = tokens_.at(picture.draw_recent_name(choices));
    const std::size_t num_but_one = tokens.size() - 1;
    switch (choices.below(3)) {
      case 0:
        return whole_blocks(tokens, num_but_one);
      case 1:
        return whole_blocks(tokens, std::max<std::size_t>(num_but_one, 1) - 1);
      default:
        return whole_blocks(tokens, choices.below(static_cast<std::uint32_t>(tokens.size()) + 1));
    }
  }

  WriteEntry write(Choices& choices, Tokens tokens) const {
    return {std::move(tokens),
            choices.once_in(part_in_) ? choices.below(num_layers_) : num_layers_};
  }

  /// Mostly removes or rewrites the folder that ended the engine; otherwise it ends the next engine
  /// too.
  Command repair(Choices& choices) {
    must_repair_ = false;
    std::vector<Tokens> named = entries_;
    for (const auto& [name, tokens] : tokens_) {
      for (std::size_t end = 0; end <= tokens.size(); end += block_size_) {
        named.push_back(whole_blocks(tokens, end));
      }
    }
    const auto found = std::ranges::find_if(
        named, [&](const Tokens& tokens) { return folder_name(tokens) == failed_folder_; });
    if (found == named.end() || choices.once_in(6)) return Schedule{};
    if (choices.once_in(3)) return write(choices, *found);
    return RemoveEntry{*found};
  }

  const std::uint32_t block_size_;
  const std::uint32_t part_in_;       ///< one entry in so many is not written to its end
  const std::uint32_t resumable_in_;  ///< one victim in so many finds what it will load
  bool keeps_files_ = true;
  std::uint32_t num_layers_ = 1;  ///< of all ranks

  std::map<std::string, Tokens> tokens_;  ///< by name, outputs included
  std::vector<Tokens> entries_;           ///< written by other engines
  std::deque<std::string> victims_;       ///< whose tokens another engine may write
  bool must_repair_ = false;
  std::string failed_folder_;
  TruncateFile cut_;
  std::uint32_t num_cuts_left_ = 0;
};

}  // namespace

std::unique_ptr<Draws> make_draws(const Config& config, Choices& choices) {
  return std::make_unique<FileDraws>(config, choices);
}

Config draw_config(Choices& choices) {
  Config config = draw_small_engine(Assembly::kSynchronous, choices);
  config.enable_caching = !choices.once_in(3);
  config.groups = {full(config.hash_block_size)};
  config.policy = SchedulingPolicy::kFCFS;
  config.async_scheduling = false;
  config.ranks = choices.once_in(2) ? 1 + choices.below(3) : 1;
  const std::uint32_t num_layers = 1 + choices.below(2);
  if (!choices.once_in(3)) {
    config.connectors->front() = ExampleRecord{num_layers};
  } else {
    DecodeBenchRecord record{num_layers, std::nullopt};
    if (choices.once_in(12)) record.decode_bench_hma = choices.once_in(2);
    config.connectors->front() = record;
    draw_groups(kShapes, choices, config);
  }
  return completed(std::move(config), choices);
}

}  // namespace kvfence::engine::files
