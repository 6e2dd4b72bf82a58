#pragma once

/// An implementation at the other end of a pipe, as a lockstep drives it.

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/core/check.h"
#include "contract/core/declare.h"
#include "contract/core/implementation.h"
#include "contract/core/scenario.h"
#include "scenarios/protocol/outside_session.h"

namespace kvfence {

/// Speaks the protocol of outside_session.h with a child that a shell command starts. The child
/// starts at the first reset(), and again at the next one after a failure; in between, one child
/// serves all resets.
template <class Target>
class OutsideImplementation final : public Implementation<Target> {
 public:
  using typename Implementation<Target>::Config;
  using typename Implementation<Target>::World;
  using typename Implementation<Target>::Command;
  using typename Implementation<Target>::Observation;

  explicit OutsideImplementation(std::string command, OutsideOptions options = {})
      : session_(std::move(command), options), members_(field_names<Observation>()) {}

  std::string name() const override { return session_.name(); }

  /// Set where the last reset() failed because the child cannot do the target or the configuration:
  /// nothing is wrong with it, there is nothing to compare.
  const std::optional<std::string>& unsupported() const { return session_.unsupported(); }

  std::optional<ImplementationFailure> reset(const Config& config) override {
    discard_outstanding();
    if (!session_.is_running()) {
      if (auto failure = session_.start(Target::kName, members_)) return failure;
      observes_state_ = true;
    }
    return session_.configure(config_line<Target>(config));
  }

  std::size_t window() const override { return 256; }

  std::optional<ImplementationFailure> submit(const Command& command, const World&,
                                              Observe observe) override {
    KVFENCE_CHECK(outstanding_.size() < window(), "more commands than the window holds");
    if (outstanding_.empty()) {
      if (auto failure = session_.check_nothing_unasked()) return failure;
    }
    std::string& out = session_.outgoing();
    const bool wants_state = observe == Observe::kState;
    const bool says_observe = wants_state != observes_state_;
    if (says_observe) {
      out += wants_state ? "observe state=true\n" : "observe state=false\n";
      observes_state_ = wants_state;
    }
    print_to(out, to_line(command));
    out += '\n';
    outstanding_.push_back({says_observe});
    // Well before the window is full, so that the child works while the caller goes on.
    constexpr std::size_t kFlushBytes = 4096;
    if (out.size() >= kFlushBytes) session_.flush();
    return std::nullopt;
  }

  std::optional<ImplementationFailure> collect(Observation& observation) override {
    KVFENCE_CHECK(!outstanding_.empty(), "no command is outstanding");
    const Outstanding oldest = outstanding_.front();
    outstanding_.pop_front();
    if (oldest.follows_observe) {
      if (auto failure = session_.read_bare_reply()) return failure;
    }
    const std::vector<Field>* fields = nullptr;
    if (auto failure = session_.read_reply(fields)) return failure;
    return read_observation(*fields, observation);
  }

 private:
  /// A command whose answer was not collected yet.
  struct Outstanding {
    bool follows_observe = false;  ///< a bare answer to `observe` comes first
  };

  /// After a divergence the answers to later commands are of no interest, nor is how they fail.
  void discard_outstanding() {
    const std::vector<Field>* fields = nullptr;
    for (; !outstanding_.empty(); outstanding_.pop_front()) {
      if (!session_.is_running()) continue;
      if (outstanding_.front().follows_observe && session_.read_bare_reply()) continue;
      static_cast<void>(session_.read_reply(fields));
    }
  }

  std::optional<ImplementationFailure> read_observation(const std::vector<Field>& fields,
                                                        Observation& observation) {
    const DeclaredObject members = object_of(observation);
    std::size_t num_read = 0;
    for (std::size_t index = 0; index < members.size(); ++index) {
      if (!session_.reports(index)) continue;
      const MemberRef member = members[index];
      if (const Field* field = find_field(fields, member.declaration().name)) {
        ++num_read;
        std::string expected;
        if (!member.assign(field->value, expected)) {
          return session_.babbled(field->key + "=" + print(field->value), expected);
        }
      } else if (!member.reset()) {
        const std::string name(member.declaration().name);
        return session_.babbled("an answer to a command without " + name, name + "=...");
      }
    }
    if (num_read != fields.size()) return session_.unknown_key(members_);
    return std::nullopt;
  }

  OutsideSession session_;
  std::vector<std::string_view> members_;
  std::deque<Outstanding> outstanding_;
  bool observes_state_ = true;
};

}  // namespace kvfence
