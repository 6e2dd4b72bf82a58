#pragma once

/// Two schedulers that get the same calls and have to give the same answers.
///
/// Compared are: every refusal; every member of every SchedulerOutput and EngineCoreOutputs,
/// drafts, block lists, statistics and events included; the numbers behind each call; and after
/// every n-th step the whole state: the three places, each request with its tables, the free queue,
/// reference counts and keys. Requests are compared by name, since each side gives out its own
/// indices.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/replay/scheduler_side.h"

namespace kvfence {

class SchedulersInLockstep final : public SchedulerSide {
 public:
  /// A replay sees the answers of `expected`. state_every: steps, at least 1.
  SchedulersInLockstep(std::unique_ptr<SchedulerSide> expected,
                       std::unique_ptr<SchedulerSide> actual, std::uint32_t state_every);

  ErrorCode add_request(const NewRequest& request, RequestIndex& out) override;
  ErrorCode schedule(SchedulerOutput& out) override;
  ErrorCode update_from_output(const SchedulerOutput& step, const ModelRunnerOutput& result,
                               EngineCoreOutputs& out) override;
  ErrorCode update_draft_token_ids(RequestIndex request, std::span<const TokenId> tokens) override;
  SchedulerNumbers numbers() override { return expected_->numbers(); }
  void observe_state(SchedulerState& out) override { expected_->observe_state(out); }
  const std::optional<Divergence>& divergence() const override { return divergence_; }

 private:
  /// Which request an index stands for, on one side.
  using Names = std::vector<std::string>;

  /// A member of an answer as line-language text, so that a difference can be shown.
  struct Member {
    std::string_view name;
    std::vector<std::string> elements;
    bool is_list = true;
  };
  using Members = std::vector<Member>;

  static Members members_of(const SchedulerOutput& output, const Names& names);
  static Members members_of(const EngineCoreOutputs& outputs, const Names& names);
  static Members members_of(const SchedulerState& state);

  void compare(ErrorCode expected, ErrorCode actual);
  void compare(const Members& expected, const Members& actual);
  void compare_numbers();
  void compare_state();
  void diverge(std::string field, std::string expected, std::string actual);

  std::unique_ptr<SchedulerSide> expected_;
  std::unique_ptr<SchedulerSide> actual_;
  std::uint32_t state_every_;
  std::uint64_t num_steps_ = 0;
  std::string_view operation_;  ///< the call under way
  Names expected_names_;
  Names actual_names_;
  std::vector<RequestIndex> actual_index_;    ///< by the index of the expected side
  bool has_equal_indices_ = true;             ///< so far: answers can be compared as they are
  std::deque<SchedulerOutput> actual_steps_;  ///< in flight
  EngineCoreOutputs actual_outputs_;
  SchedulerState expected_state_;
  SchedulerState actual_state_;
  std::optional<Divergence> divergence_;
};

}  // namespace kvfence
