/// Draws the answers and reports of scripted children of a MultiConnector.

#include "properties/engine/rooms.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "contract/core/lists.h"
#include "properties/core/invariant_values.h"
#include "properties/engine/shown_requests.h"

namespace kvfence::engine::multi {
namespace {

enum class Action : std::uint8_t { kScript, kFinishLoading };
constexpr std::uint32_t kWeights[] = {4, 6};

class ScriptedDraws final : public Draws {
 public:
  ScriptedDraws(const Config& config, Choices& choices, EngineRole role)
      : role_(role),
        num_ranks_(num_ranks_of(config, role)),
        has_groups_(config.groups.size() > 1),
        hit_in_(choices.once_in(4) ? 6 : 2),
        again_in_(choices.once_in(2) ? 6 : 24),
        hold_in_(choices.once_in(3) ? 6 : 1 + choices.below(2)),
        params_in_(choices.once_in(2) ? 3 : 24),
        late_in_(1 + choices.below(3)),
        fail_in_(choices.once_in(3) ? 3 : 12),
        phantom_in_(choices.once_in(4) ? 24 : 400) {
    const auto& children = config.connector<MultiRecord>()->children;
    for (std::uint32_t place = 0; place < children.size(); ++place) {
      if (std::holds_alternative<ScriptedRecord>(children[place].as_variant())) {
        places_.push_back(place);
      }
    }
  }

  std::span<const std::uint32_t> weights() const override { return kWeights; }
  bool bends(std::string_view member) const override {
    constexpr std::string_view kOwn[] = {
        "external_tokens", "load_async", "ask_again",        "hold_blocks",    "child",
        "params",          "reports",    "failing_children", "silent_children"};
    return contains(std::span(kOwn), member);
  }

  void take_in(const Picture& picture, const Observation& both) override {
    if (has_ended(both)) return forget();
    const EngineObservation& now = both.of(role_);
    if (const auto* added = accepted<AddRequest>(picture, both)) {
      for (const std::uint32_t place : places_) {
        if (place != added->child) to_script_.push_back({added->id, place});
      }
    } else if (const auto* handed_over = picture.accepted<HandOver>(both)) {
      const bool is_here = role_ == EngineRole::kConsumer;
      for (const std::uint32_t place : places_) {
        if (is_here) to_script_.push_back({handed_over->id, place});
      }
    }
    take_calls(now);
    if (accepted<Schedule>(picture, both)) {
      ended_.push_back(now.finished.or_empty());
    } else if (accepted<Update>(picture, both) && !ended_.empty()) {
      known_ended_.insert(ended_.front().begin(), ended_.front().end());
      ended_.pop_front();
    }
    if (now.tables.has_value()) tables_ = *now.tables;
    if (now.requests.has_value()) take_requests(*now.requests);
  }

  /// Scripts the other children for a new request right after it.
  std::optional<Command> next(Picture& picture, Choices& choices) override {
    while (!to_script_.empty()) {
      const auto [request, place] = std::move(to_script_.back());
      to_script_.pop_back();
      if (choices.once_in(4)) continue;
      return script(picture, request, place, choices);
    }
    return std::nullopt;
  }

  std::optional<Command> act(std::size_t place, Picture& picture, Choices& choices) override {
    if (picture.of(role_).known.empty()) return std::nullopt;
    if (static_cast<Action>(place) == Action::kFinishLoading) {
      for (const RequestState& state : picture.of(role_).known) {
        const bool loads = state.status == RequestStatus::kWaitingForRemoteKVs;
        if (loads && choices.once_in(2)) return FinishRequests{role_, {state.id}};
      }
      return std::nullopt;
    }
    // Not as arguments of one call: the compiler chooses their order.
    const std::uint32_t child = pick(choices, places_);
    return script(picture, pick(choices, picture.of(role_).known).id, child, choices);
  }

  std::optional<Command> bent(Picture& picture, Choices& choices) override {
    if (!choices.once_in(8)) return std::nullopt;
    const std::uint32_t place = choices.below(static_cast<std::uint32_t>(kNumChildrenMax) + 1);
    if (choices.once_in(2)) return script(picture, picture.draw_name(choices), place, choices);
    Update update;
    update.engine = role_;
    ChildReport& report = update.reports.emplace_back();
    report.child = place;
    report.rank = choices.below(num_ranks_ + 1);
    if (choices.once_in(2)) report.jobs.push_back(kNumChildJobsMax - choices.below(2));
    if (choices.once_in(3)) update.reports.push_back(report);
    return update;
  }

  void add_to(AddRequest& command, const Picture& /*picture*/, Choices& choices) override {
    if (command.engine != role_) return;
    command.child = pick(choices, places_);
    draw_with_params(static_cast<std::uint32_t>(command.tokens.size()), choices, command);
  }

  void add_to(ResetPrefixCache& command, const Picture& /*picture*/, Choices& choices) override {
    if (command.engine != role_) return;
    command.reset_connector = command.reset_connector || choices.once_in(2);
    for (const std::uint32_t place : places_) {
      if (choices.once_in(4)) {
        command.failing_children.push_back(place);
      } else if (choices.once_in(3)) {
        command.silent_children.push_back(place);
      }
    }
  }

  void add_to(Update& command, const Picture& picture, Choices& choices) override {
    if (command.engine != role_ || picture.of(role_).in_flight.empty()) return;
    for (const std::uint32_t child : places_) {
      for (std::uint32_t rank = 0; rank < num_ranks_; ++rank) {
        const ChildReport nothing{child, rank, {}, {}, {}, {}, {}};
        ChildReport report = nothing;
        draw_report(picture, choices, report);
        if (report != nothing) command.reports.push_back(std::move(report));
      }
    }
  }

 private:
  /// A worker's half of a child has to report a request as sent or received.
  struct Notice {
    std::string request;
    std::uint32_t child = 0;
    std::uint32_t rank = 0;
    bool received = false;
  };

  void forget() {
    to_script_.clear();
    notices_.clear();
    ended_.clear();
    known_ended_.clear();
    tables_.clear();
    loading_.clear();
  }

  /// As Picture::accepted, for commands to this engine.
  template <class Accepted>
  const Accepted* accepted(const Picture& picture, const Observation& now) const {
    const auto* const command = picture.accepted<Accepted>(now);
    return command && command->engine == role_ ? command : nullptr;
  }

  void take_calls(const EngineObservation& now) {
    for (const ConnectorCall& call : now.connector_calls.or_empty()) {
      if (!call.child) continue;
      if (call.method == "update_state_after_alloc" && call.num_tokens > 0) {
        loading_.push_back({call.request, *call.child, 0, true});
      } else if (call.method == "request_finished" && call.answer.starts_with("hold")) {
        add_notices(call.request, *call.child, /*received=*/false);
      }
    }
  }

  void add_notices(const std::string& request, std::uint32_t child, bool received) {
    for (std::uint32_t rank = 0; rank < num_ranks_; ++rank) {
      notices_.push_back({request, child, rank, received});
    }
  }

  void take_requests(const std::vector<RequestState>& requests) {
    const auto find = [&](const std::string& name) {
      return std::ranges::find(requests, name, &RequestState::id);
    };
    for (const Notice& load : std::exchange(loading_, {})) {
      const auto state = find(load.request);
      const bool waits =
          state != requests.end() && state->status == RequestStatus::kWaitingForRemoteKVs;
      if (waits) add_notices(load.request, load.child, /*received=*/true);
    }
    std::erase_if(notices_,
                  [&](const Notice& notice) { return find(notice.request) == requests.end(); });
    std::erase_if(known_ended_,
                  [&](const std::string& name) { return find(name) == requests.end(); });
  }

  Command script(const Picture& picture, const std::string& request, std::uint32_t place,
                 Choices& choices) const {
    ScriptConnector command;
    command.engine = role_;
    command.request = request;
    command.child = place;
    const auto& known = picture.of(role_).known;
    const auto state = std::ranges::find(known, request, &RequestState::id);
    draw_with_params(state == known.end() ? 8 : state->num_tokens, choices, command);
    return command;
  }

  void draw_with_params(std::uint32_t num_tokens, Choices& choices, ConnectorScript& script) const {
    draw_script(num_tokens, hit_in_, again_in_, hold_in_, choices, script);
    if (choices.once_in(params_in_)) script.params = "p" + std::to_string(choices.below(4));
  }

  /// Due notices are reported with a drawn delay; those of a request that ended only after its
  /// workers know of the end.
  void draw_report(const Picture& picture, Choices& choices, ChildReport& report) {
    for (std::size_t at = notices_.size(); at-- > 0;) {
      const Notice& notice = notices_[at];
      if (notice.child != report.child || notice.rank != report.rank) continue;
      const bool goes_on = notice.received && !has_finished(picture, notice.request);
      const bool is_known = goes_on || known_ended_.contains(notice.request) ||
                            (!ended_.empty() && contains(ended_.front(), notice.request));
      if ((!is_known && !choices.once_in(24)) || !picture.comes(late_in_, choices)) continue;
      auto& list = notice.received ? report.recving : report.sending;
      if (contains(report.sending, notice.request) || contains(report.recving, notice.request)) {
        continue;
      }
      list.push_back(notice.request);
      notices_.erase(notices_.begin() + static_cast<std::ptrdiff_t>(at));
    }
    if (choices.once_in(phantom_in_) && !picture.names.empty()) {
      (choices.once_in(2) ? report.sending : report.recving)
          .push_back(picture.draw_recent_name(choices));
    }
    if (!has_groups_ && choices.once_in(fail_in_)) add_invalid(choices, report);
    if (choices.once_in(4)) {
      for (std::uint32_t left = 1 + choices.below(2); left > 0; --left) {
        report.stats.push_back(next_number_++ % 64);
      }
    }
    if (choices.once_in(4)) {
      const JobId job = choices.below(4);
      report.jobs.assign(1 + choices.below(2), job);
    }
  }

  bool has_finished(const Picture& picture, const std::string& request) const {
    const auto* const state = find_by(picture.of(role_).known, &RequestState::id, request);
    return state && is_finished(state->status);
  }

  /// Mostly a block of a loading request.
  void add_invalid(Choices& choices, ChildReport& report) const {
    if (tables_.empty()) return;
    const RequestBlocks* table = &pick(choices, tables_);
    for (const Notice& notice : notices_) {
      if (!notice.received || notice.child != report.child || choices.once_in(3)) continue;
      if (const auto* own = find_by(tables_, &RequestBlocks::request, notice.request)) table = own;
    }
    const std::vector<BlockId>& blocks = table->blocks.front();
    if (blocks.empty()) return;
    const BlockId block = pick(choices, blocks);
    if (block != kNullBlockId) report.invalid.push_back(block);
  }

  const EngineRole role_;
  const std::uint32_t num_ranks_;
  const bool has_groups_;
  const std::uint32_t hit_in_;      ///< a child has a hit for one request in so many
  const std::uint32_t again_in_;    ///< it wants to be asked again for one in so many
  const std::uint32_t hold_in_;     ///< it holds one in so many at its end
  const std::uint32_t params_in_;   ///< it has parameters for one in so many
  const std::uint32_t late_in_;     ///< a notice that is due comes once in so many updates
  const std::uint32_t fail_in_;     ///< one report in so many has an invalid block
  const std::uint32_t phantom_in_;  ///< one in so many names a request that the child does not have
  std::vector<std::uint32_t> places_;

  std::vector<std::pair<std::string, std::uint32_t>> to_script_;
  std::vector<Notice> loading_;  ///< allocated in the last step; may or may not wait
  std::vector<Notice> notices_;
  std::deque<std::vector<std::string>> ended_;  ///< by step in flight
  std::set<std::string> known_ended_;           ///< the workers know their end
  std::vector<RequestBlocks> tables_;
  std::uint32_t next_number_ = 0;  ///< identifies statistics
};

}  // namespace

std::unique_ptr<Draws> make_scripted_draws(const Config& config, Choices& choices,
                                           EngineRole role) {
  return std::make_unique<ScriptedDraws>(config, choices, role);
}

}  // namespace kvfence::engine::multi
