#pragma once

/// An offloading manager for a caller that never asks for the state.
///
/// An OffloadDriver reads the policy's lists after every command, also to get ARC's target. That
/// costs the whole capacity, and a run of one side for its figures does not need it.

#include <cstdint>

#include "contract/offload/offloading_manager.h"

namespace kvfence {

/// The manager, with a policy that shows empty lists and a target of 0.
template <class Manager>
class UnlistedOffloadingManager : public Manager {
 public:
  using Manager::Manager;

  class Policy {
   public:
    explicit Policy(std::uint32_t size) : size_(size) {}
    std::uint32_t size() const { return size_; }
    void lists(PolicyLists& out) const { out = {}; }

   private:
    std::uint32_t size_;
  };
  Policy policy() const { return Policy(Manager::policy().size()); }
};

}  // namespace kvfence
