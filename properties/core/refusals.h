#pragma once

/// Drawn configurations that the implementation does not support, by the reason that it gave.

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace kvfence {

struct Refusal {
  std::string why;
  std::uint64_t count = 0;
};

class Refusals {
 public:
  /// If there are more reasons, the later ones are counted together.
  static constexpr std::size_t kReasonsMax = 16;

  /// Cost: linear in the reasons.
  void add(std::string why, std::uint64_t count = 1) {
    for (Refusal& each : reasons_) {
      if (each.why == why) {
        each.count += count;
        return;
      }
    }
    if (reasons_.size() >= kReasonsMax && why != kOther) return add(kOther, count);
    reasons_.push_back({std::move(why), count});
  }
  void add(const Refusals& others) {
    for (const Refusal& each : others.reasons_) add(each.why, each.count);
  }

  const std::vector<Refusal>& reasons() const { return reasons_; }
  std::uint64_t count() const {
    std::uint64_t sum = 0;
    for (const Refusal& each : reasons_) sum += each.count;
    return sum;
  }

 private:
  static constexpr const char* kOther = "other reasons";

  std::vector<Refusal> reasons_;  ///< in the order in which they were first given
};

}  // namespace kvfence
