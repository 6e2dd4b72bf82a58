#pragma once

/// An implementation at the other end of a pipe, as a lockstep drives it. Lines go both ways, one
/// at a time, commands ahead of their answers:
///
///     target block_pool          -> implementation=vllm version="0.19.0" observes=[error blocks]
///     config num_gpu_blocks=8    ->
///     observe state=false        ->
///     get_new_blocks num_blocks=1    -> error=none blocks=[1] num_free_blocks=6 ...
///
/// `observes` names the members of the observation that the implementation reports; without it,
/// all. `corrections` is the number of faults of its engine that the child corrects. The child may
/// answer `-> unsupported="why"` to `target` and `config`, and answers `-> malformed="why"` to a
/// line that it does not understand. At the end of its input the child exits.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/implementation.h"
#include "contract/core/line.h"
#include "contract/core/target.h"
#include "scenarios/protocol/child_process.h"

namespace kvfence {

struct OutsideOptions {
  std::chrono::milliseconds answer_timeout{10'000};
  std::chrono::milliseconds start_timeout{60'000};  ///< for the answer to `target`
  ChildProcessOptions child;
};

/// A child process, started by a shell command at the first reset(). A failure ends it, and the
/// next reset() starts another one; without failures one child serves all resets.
class OutsideImplementation final : public Implementation {
 public:
  OutsideImplementation(const Target& target, std::string command, OutsideOptions options = {});

  /// The name from the child's handshake, "vllm 0.19.0"; before that, its command.
  std::string name() const override { return name_; }
  std::optional<SelfDescription> described() const override;

  /// Starts the child, unless it runs, and reads its answer to `target`.
  /// Errors: kUnavailable: the shell cannot run the command, or the child does not have the target.
  std::optional<ImplementationFailure> start();
  /// What the child that failed wrote last to its stderr, as lines.
  const std::deque<std::string>& last_stderr() const { return last_stderr_; }

  std::optional<ImplementationFailure> reset(const Setup& setup) override;
  std::size_t window() const override { return 256; }
  std::optional<ImplementationFailure> submit(const Command& command, Observe observe) override;
  std::optional<ImplementationFailure> collect(Observation& observation) override;

  /// One round trip.
  std::optional<ImplementationFailure> apply(const Command& command, const World& world,
                                             Observe observe, Observation& observation) override;

 private:
  std::optional<ImplementationFailure> read_handshake();
  /// Checks that the child reports enough members for a comparison.
  std::optional<ImplementationFailure> check_reported();

  void flush();
  /// The next answer; flushes before it waits.
  std::optional<ImplementationFailure> read_reply(std::chrono::milliseconds timeout);
  /// The next answer, which has to be a bare `->`.
  std::optional<ImplementationFailure> read_bare_reply();
  /// The failure of an answer `unsupported` to `target` or `config`.
  std::optional<ImplementationFailure> read_unsupported() const;
  /// An answer while nothing is outstanding.
  std::optional<ImplementationFailure> check_nothing_unasked();
  /// Reads the answers to later commands after a divergence, and ignores them and their failures.
  void discard_outstanding();

  std::optional<ImplementationFailure> read_observation(Observation& observation);
  /// Takes over the members that the child reports.
  std::optional<ImplementationFailure> read_members(const DeclaredObject& observed);

  /// The failure for a malformed answer.
  ImplementationFailure malformed_output(std::string_view found, std::string_view expected);
  ImplementationFailure ended();
  ImplementationFailure fail(std::string message);

  const Target& target_;
  std::string command_;
  OutsideOptions options_;
  std::string name_;
  std::vector<std::string_view> members_;   ///< of an observation of the target
  std::vector<std::string_view> reported_;  ///< those that the child has
  std::uint32_t corrections_ = 0;
  std::unique_ptr<ChildProcess> child_;
  std::deque<std::string> last_stderr_;
  bool has_answered_ = false;  ///< the child that runs
  std::string outgoing_;
  Line reply_;
  /// Per command whose answer was not collected yet: a bare answer to `observe` comes first.
  std::deque<bool> follow_observe_;
  bool observes_state_ = true;
};

}  // namespace kvfence
