/// Draws for two engines over NIXL: a router, a transport that is eager, lazy or uneven between the
/// ranks, and a clock that reaches deadlines.

#include "properties/engine/rooms.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/connectors/disaggregated/transport.h"
#include "properties/kv_cache/group_draws.h"

namespace kvfence::engine::nixl {
namespace {

constexpr std::uint32_t kLaterOnDevices = 4;
/// Length of the lists of recent events.
constexpr std::size_t kLatelyMax = 4;

template <class T>
void remember(std::vector<T>& list, T element) {
  list.push_back(std::move(element));
  if (list.size() > kLatelyMax) list.erase(list.begin());
}

enum class Action : std::uint8_t { kHandOver, kHandOverAgain, kRepeatNotice, kClock };
constexpr std::uint32_t kWeights[] = {32, 3, 4, 12};

class PairDraws final : public Draws {
 public:
  PairDraws(const Config& config, Choices& choices)
      : record_(*config.connector<Record>()),
        decode_in_(choices.once_in(3) ? 2 : 8),
        part_in_(choices.once_in(2) ? 2 : 8),
        fail_in_(choices.once_in(2) ? 3 : 10),
        read_late_in_(draw_lateness(config.consumer_ranks, choices)),
        notice_late_in_(draw_lateness(config.ranks, choices)) {
    // On devices a step takes many commands.
    if (!config.has_device()) return;
    for (std::uint32_t& late_in : read_late_in_) late_in *= kLaterOnDevices;
  }

  void adjust(Habits& habits, Choices& /*choices*/) const override {
    habits.skip_in = 16;
    habits.burst_max = 1;
  }

  std::span<const std::uint32_t> weights() const override { return kWeights; }
  bool bends(std::string_view member) const override {
    return member == "do_remote_decode" || member == "stop_tokens";
  }

  void take_in(const Picture& picture, const Observation& now) override {
    if (const auto* handed_over = picture.accepted<HandOver>(now)) {
      std::erase(prefills_, handed_over->request);
      remember(handed_over_, handed_over->request);
    } else if (const auto* delivered = picture.accepted<DeliverNotice>(now)) {
      remember(delivered_, delivered->notice);
    } else if (picture.accepted<Update>(now) && now.finished_prefills.has_value()) {
      for (const FinishedPrefill& prefill : *now.finished_prefills) {
        prefills_.push_back(prefill.request);
      }
    }
    if (has_ended(now)) prefills_.clear();
    if (now.reads.has_value()) reads_ = *now.reads;
    if (now.notices.has_value()) notices_ = *now.notices;
  }

  /// The transport progresses.
  std::optional<Command> next(Picture& picture, Choices& choices) override {
    for (const ReadState& read : reads_) {
      if (!read.is_under_way() || read.rank >= read_late_in_.size()) continue;
      if (!picture.comes(read_late_in_[read.rank], choices)) continue;
      AdvanceRead command{read.read, TransferProgress::kFinished};
      const bool is_fresh = read.progress == TransferProgress::kSubmitted;
      if (is_fresh && choices.once_in(part_in_)) {
        command.progress = TransferProgress::kPart;
      } else if (record_.transport_may_fail && choices.once_in(fail_in_)) {
        command.progress = TransferProgress::kFailed;
      }
      return command;
    }
    for (const NoticeState& notice : notices_) {
      if (notice.delivered || notice.remote_rank >= notice_late_in_.size()) continue;
      if (!picture.comes(notice_late_in_[notice.remote_rank], choices)) continue;
      if (record_.transport_may_fail && choices.once_in(fail_in_)) return LoseNotice{notice.notice};
      return DeliverNotice{notice.notice};
    }
    // Requests that are never read are released at their deadline.
    const bool waits = picture.is_in_tail && picture.have_ended() && !picture.are_gone();
    is_late_ = waits && !is_late_;
    if (is_late_) return AdvanceClock{record_.deadline + 1};
    return std::nullopt;
  }

  std::optional<Command> act(std::size_t place, Picture& picture, Choices& choices) override {
    switch (static_cast<Action>(place)) {
      case Action::kHandOver: {
        if (!prefills_.empty()) return hand_over(pick(choices, prefills_), picture, choices);
        // Now and then a request that the producer has not reported.
        const std::vector<RequestState>& known = picture.engine().known;
        if (known.empty() || !choices.once_in(12)) return std::nullopt;
        return hand_over(pick(choices, known).id, picture, choices);
      }
      case Action::kHandOverAgain:
        if (handed_over_.empty()) return std::nullopt;
        // Where reads cannot fail a second reader is refused; few are sent.
        if (!reports_failed_reads(picture.config.groups) && !choices.once_in(6)) {
          return std::nullopt;
        }
        return hand_over(pick(choices, handed_over_), picture, choices);
      case Action::kRepeatNotice:
        if (delivered_.empty() || !record_.transport_may_fail) return std::nullopt;
        return RepeatNotice{pick(choices, delivered_)};
      case Action::kClock:
        break;
    }
    // A little, a heartbeat's interval, a renewal, or a whole deadline.
    const std::array<Seconds, 5> spans = {1, 1 + record_.deadline / 6, 1 + record_.deadline / 3,
                                          record_.deadline * 2 / 3, record_.deadline};
    return AdvanceClock{pick(choices, spans)};
  }

  std::optional<Command> bent(Picture& /*picture*/, Choices& choices) override {
    if (!choices.once_in(6)) return std::nullopt;
    switch (choices.below(5)) {
      case 0:
        return LoseNotice{notices_.empty() ? 7 : pick(choices, notices_).notice};
      case 1:
        return RepeatNotice{delivered_.empty() ? 7 : pick(choices, delivered_)};
      case 2:
        return DeliverNotice{choices.below(16)};
      case 3:
        return AdvanceClock{kSecondsMax - choices.below(2)};
      default:
        return AdvanceRead{reads_.empty() ? choices.below(8) : pick(choices, reads_).read,
                           static_cast<TransferProgress>(choices.below(4))};
    }
  }

  void add_to(AddRequest& command, const Picture& picture, Choices& choices) override {
    const bool is_local = command.engine == EngineRole::kConsumer || choices.once_in(8);
    command.do_remote_decode = !is_local;
    if (!is_local && (has_window(picture.config.groups) || !choices.once_in(decode_in_))) {
      command.max_tokens = 1;
    }
    if (choices.once_in(8)) command.stop_token_ids = {1};
  }
  using Draws::add_to;

 private:
  static Command hand_over(std::string request, Picture& picture, Choices& choices) {
    HandOver command;
    command.request = std::move(request);
    command.id = picture.new_name();
    command.max_tokens = 1 + choices.below(picture.habits.output_max);
    if (picture.config.policy == SchedulingPolicy::kPriority) command.priority = choices.below(3);
    picture.arrival_time += choices.below(2);
    command.arrival_time = picture.arrival_time;
    command.skip_reading_prefix_cache = choices.once_in(picture.habits.skip_in);
    return command;
  }

  const Record record_;
  const std::uint32_t decode_in_;            ///< one request in so many decodes at the producer
  const std::uint32_t part_in_;              ///< one advance in so many does not reach the end
  const std::uint32_t fail_in_;              ///< one end in so many is a failure, if reads can fail
  std::vector<std::uint32_t> read_late_in_;  ///< by the consumer's rank
  const std::vector<std::uint32_t> notice_late_in_;  ///< by the producer's

  std::vector<ReadState> reads_;
  std::vector<NoticeState> notices_;
  std::vector<NoticeId> delivered_;       ///< lately
  std::vector<std::string> prefills_;     ///< not handed over yet
  std::vector<std::string> handed_over_;  ///< lately
  bool is_late_ = false;                  ///< the tail's last command advanced the clock
};

}  // namespace

std::unique_ptr<Draws> make_draws(const Config& config, Choices& choices) {
  return std::make_unique<PairDraws>(config, choices);
}

namespace {

/// Draws groups with windows, of one block size.
void draw_groups_of_pair(Choices& choices, Config& config) {
  constexpr std::string_view kShapes[] = {"fw", "wf", "ft", "fww", "w"};
  draw_groups(kShapes, choices, config);
  for (KVCacheSpec& group : config.groups) {
    group.block_size = config.hash_block_size;
    if (!group.is_full_attention()) group.sliding_window = std::max(2U, group.sliding_window);
  }
}

}  // namespace

Record draw_pair(Choices& choices, Config& config) {
  config.engines = 2;
  config.consumer_num_gpu_blocks = choices.once_in(2) ? 5 + choices.below(16) : 0;
  config.groups = {full(config.hash_block_size)};
  const kvfence::Rules rules = rules_of(config.profile);
  const bool has_windows =
      !config.has_device() && rules.finish_drops_by_computed_tokens && choices.once_in(3);
  if (has_windows) draw_groups_of_pair(choices, config);
  config.ranks = config.consumer_ranks = 1 + choices.below(2);
  const std::uint32_t ratio = choices.once_in(8) ? 4 : 1 + choices.below(2);
  (choices.once_in(2) ? config.ranks : config.consumer_ranks) *= ratio;
  constexpr std::array<Seconds, 4> kDeadlines = {0, 5, 12, 30};
  // Reads of a window cannot fail.
  if (has_windows) return {.deadline = 0};
  Record record;
  record.deadline = pick(choices, kDeadlines);
  record.transport_may_fail = choices.once_in(2);
  return record;
}

Config draw_config(Choices& choices) {
  Config config = draw_small_engine(Assembly::kPrefillDecode, choices);
  config.edit_connector<Record>() = draw_pair(choices, config);
  return completed(std::move(config), choices);
}

}  // namespace kvfence::engine::nixl
