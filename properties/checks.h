#pragma once

/// What the generic harness needs to know of a target beyond its contract: its invariants, its
/// reachability goals, its generator. Each target specialises this in its own `<target>_checks.h`.

namespace kvfence {

/// A specialisation has
///   using Invariants, Reach, Generator
///     (a Reach whose goals depend on the configuration has start(const Config&), called before a
///     run)
///   static Invariants make_invariants(const Config&)
///   static std::vector<std::pair<std::string, std::string>> invariants(), goals()
///     (name, what it says)
///   static std::optional<std::string> resolve(const World&, std::string_view symbol)
///   static std::optional<std::string> symbol_of(const World&, std::string_view bytes)
template <class Target>
struct Checks;

}  // namespace kvfence
