#pragma once

/// The lines between kvfence and an outside implementation, whatever the target; each way one line
/// at a time, commands ahead of their answers:
///
///     target block_pool          -> implementation=vllm version="0.19.0" observes=[error blocks]
///     config num_gpu_blocks=8    ->
///     observe state=false        ->
///     get_new_blocks num_blocks=1    -> error=none blocks=[1] num_free_blocks=6 ...
///
/// `observes` names the members of the observation that the implementation reports; without it,
/// all. `target` and `config` may be answered by `-> unsupported="why"`; a line that the child does
/// not understand, by `-> malformed="why"`. At the end of its input the child exits.

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/implementation.h"
#include "contract/core/line.h"
#include "scenarios/protocol/child_process.h"

namespace kvfence {

struct OutsideOptions {
  std::chrono::milliseconds answer_timeout{10'000};
  std::chrono::milliseconds start_timeout{60'000};  ///< for the answer to `target`
  ChildProcessOptions child;
};

/// One child and the conversation with it. Any failure ends the child; start() begins with a fresh
/// one.
class OutsideSession {
 public:
  explicit OutsideSession(std::string command, OutsideOptions options = {});

  /// What the child said of itself, "vllm 0.19.0"; before that, its command.
  const std::string& name() const { return name_; }

  bool is_running() const { return child_ != nullptr; }

  /// Starts a child and says `target`. `members`: what an observation of the target has, in order.
  /// Errors: kUnavailable: the shell cannot run the command, or the child does not have the target.
  std::optional<ImplementationFailure> start(std::string_view target,
                                             const std::vector<std::string_view>& members);

  /// Whether the child reports the member of that index.
  bool reports(std::size_t member_index) const { return reports_[member_index]; }

  /// Says `config`, with nothing outstanding, and waits for the answer.
  std::optional<ImplementationFailure> configure(const Line& config);

  /// Where lines to the child are put, each with its newline; flush() hands them over.
  std::string& outgoing() { return outgoing_; }
  void flush();

  /// The fields of the next answer, valid until the next call; flushes before it waits.
  std::optional<ImplementationFailure> read_reply(const std::vector<Field>*& fields);
  /// The next answer has to be a bare `->`.
  std::optional<ImplementationFailure> read_bare_reply();
  /// An answer while nothing is outstanding.
  std::optional<ImplementationFailure> check_nothing_unasked();

  /// The child's last answer is not what it should be. Ends the child.
  ImplementationFailure babbled(std::string_view found, std::string_view expected);
  /// The first key of the last answer that is not a member that the child reports; ends the child.
  ImplementationFailure unknown_key(const std::vector<std::string_view>& members);

 private:
  std::optional<ImplementationFailure> read_parsed(std::chrono::milliseconds timeout);
  /// The failure that an answer to `target` or `config` stands for, if it is `unsupported`.
  std::optional<ImplementationFailure> read_unsupported() const;
  std::optional<ImplementationFailure> read_handshake(const std::vector<std::string_view>& members);
  ImplementationFailure ended();
  ImplementationFailure fail(std::string message);

  std::string command_;
  OutsideOptions options_;
  std::string name_;
  std::unique_ptr<ChildProcess> child_;
  bool has_answered_ = false;  ///< the child that runs
  std::vector<bool> reports_;
  std::string outgoing_;
  Line reply_;
};

}  // namespace kvfence
