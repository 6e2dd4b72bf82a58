#pragma once

/// Puts any cache policy that satisfies the concept behind the interface that a lockstep drives.

#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "contract/core/check.h"
#include "contract/core/implementation.h"
#include "contract/core/state_digest.h"
#include "contract/eviction/cache_policy.h"
#include "contract/eviction/eviction_target.h"
#include "properties/core/driver.h"
#include "properties/eviction/key_list.h"

namespace kvfence {

/// make_policy builds the policy from its configuration: the place where a planted variant gets its
/// bug.
template <CachePolicy Policy, class MakePolicy>
class EvictionDriver final : public DriverOf<EvictionTarget> {
 public:
  EvictionDriver(std::string name, MakePolicy make_policy)
      : name_(std::move(name)), make_policy_(std::move(make_policy)) {}

  std::string name() const override { return name_; }

  std::optional<ImplementationFailure> start(const Config&, const Setup& setup) override {
    policy_.emplace(make_policy_(setup));
    return std::nullopt;
  }

  void submit_typed(const Command& command, const World&, Observe observe) override {
    observation_.found.reset();
    observation_.success.reset();
    observation_.evicted.reset();
    observation_.error =
        std::visit([&](const auto& alternative) { return run(alternative); }, command);
    observation_.size = policy_->size();
    policy_->lists(lists_);
    show_lists(lists_, observe == Observe::kState, observation_);
  }

  void collect_typed(Observation& observation) override { observation = std::move(observation_); }

  /// Without the storage of single calls, whose views are of keys that are gone.
  std::unique_ptr<Implementation> clone() const override {
    auto copy = std::make_unique<EvictionDriver>(name_, make_policy_);
    copy->policy_ = policy_;
    return copy;
  }
  void assign(const Implementation& other) override {
    policy_ = static_cast<const EvictionDriver&>(other).policy_;
  }
  void add_to(StateHash& hash) const override { add_state(hash, *policy_); }

  const Policy& policy() const { return *policy_; }

 private:
  ErrorCode run(const eviction::Get& command) {
    std::vector<eviction::Entry>& found = observation_.found.emplace();
    found.clear();
    BlockStatus status;
    if (policy_->get(key_of_number(command.key), status)) {
      found.push_back(entry_of(command.key, status));
    }
    return ErrorCode::kNone;
  }

  ErrorCode run(const eviction::Insert& command) {
    return policy_->insert(key_of_number(command.key), command.slot);
  }

  ErrorCode run(const eviction::Remove& command) {
    return policy_->remove(key_of_number(command.key));
  }

  ErrorCode run(const eviction::MakeReady& command) {
    return policy_->make_ready(key_of_number(command.key));
  }

  ErrorCode run(const eviction::Acquire& command) {
    return policy_->acquire(key_of_number(command.key));
  }

  ErrorCode run(const eviction::Release& command) {
    return policy_->release(key_of_number(command.key));
  }

  ErrorCode run(const eviction::Touch& command) {
    policy_->touch(keys_.of(command.keys));
    return ErrorCode::kNone;
  }

  ErrorCode run(const eviction::Evict& command) {
    evicted_.clear();
    const bool success =
        policy_->evict(command.num_blocks, keys_.of(command.protected_keys), evicted_);
    observation_.success.emplace() = success;
    // What a refused call may have appended is shown: it should have appended nothing.
    if (success || !evicted_.empty()) victims_of(evicted_, observation_.evicted.emplace());
    return ErrorCode::kNone;
  }

  ErrorCode run(const eviction::Clear&) {
    policy_->clear();
    return ErrorCode::kNone;
  }

  std::string name_;
  MakePolicy make_policy_;
  std::optional<Policy> policy_;
  Observation observation_;
  OffloadKeyList keys_;
  std::vector<EvictedBlock> evicted_;
  PolicyLists lists_;
};

/// A driver of policies that make_policy(config) makes.
template <class MakePolicy>
std::unique_ptr<Implementation> make_eviction_driver(std::string name, MakePolicy make_policy) {
  using Policy = std::invoke_result_t<MakePolicy&, const CachePolicyConfig&>;
  return std::make_unique<EvictionDriver<Policy, MakePolicy>>(std::move(name),
                                                              std::move(make_policy));
}

/// A driver of policies that are made from their configuration alone.
template <CachePolicy Policy>
std::unique_ptr<Implementation> make_eviction_driver(std::string name) {
  return make_eviction_driver(std::move(name),
                              [](const CachePolicyConfig& config) { return Policy(config); });
}

}  // namespace kvfence
