#pragma once

/// A case that the contract accepts and a generator does not draw or a rule does not judge. It is
/// declared beside the code that leaves it out, with the reason (`kvfence list left-out`).

#include <cstdint>
#include <string_view>
#include <vector>

namespace kvfence {

/// A constant at namespace scope; it registers itself in the list of all.
///
///   const LeftOut kEquals(LeftOut::By::kRule, "engine.22, equals", "why", "engine/.../x.kvs");
///   ...
///   if (is_broken && !kEquals(have_equals())) return broken(...);
class LeftOut {
 public:
  enum class By : std::uint8_t { kGenerator, kRule };

  /// name: of the rule or the assembly, and the case; scenario: shows why, below scenarios/cases/.
  /// All texts must outlive the object.
  LeftOut(By by, std::string_view name, std::string_view why, std::string_view scenario);
  LeftOut(const LeftOut&) = delete;
  LeftOut& operator=(const LeftOut&) = delete;

  /// Returns the condition under which the case is left out, and counts it.
  bool operator()(bool is_left_out) const {
    count_ += is_left_out ? 1 : 0;
    return is_left_out;
  }

  By by() const { return by_; }
  std::string_view name() const { return name_; }
  std::string_view why() const { return why_; }
  std::string_view scenario() const { return scenario_; }
  /// How often the case was left out in this process.
  std::uint64_t count() const { return count_; }

  /// All that are linked, sorted by name.
  static std::vector<const LeftOut*> all();

 private:
  By by_;
  std::string_view name_;
  std::string_view why_;
  std::string_view scenario_;
  mutable std::uint64_t count_ = 0;
};

}  // namespace kvfence
