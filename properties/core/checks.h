#pragma once

/// What the generic harness needs to know of a target beyond its contract: its invariants, its
/// reachability goals, its generator. Each target specialises this in its own `<target>_checks.h`.

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

/// Each declaration's name and what it says.
template <class Declarations, class Declaration>
std::vector<std::pair<std::string, std::string>> names_and_texts(
    const Declarations& declarations, std::string_view Declaration::*text) {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const Declaration& declaration : declarations) {
    rows.emplace_back(declaration.name, declaration.*text);
  }
  return rows;
}

/// The symbols of a target that has no others than those of its requests: a base for its Checks.
template <class World>
struct RequestSymbols {
  static std::optional<std::string> resolve(const World& world, std::string_view symbol) {
    return world.requests().resolve(symbol);
  }
  static std::optional<std::string> symbol_of(const World& world, std::string_view bytes) {
    return world.requests().symbol_of(bytes);
  }
};

/// The same for a target whose observations hold no bytes.
template <class World>
struct NoSymbols {
  static std::optional<std::string> resolve(const World&, std::string_view) { return std::nullopt; }
  static std::optional<std::string> symbol_of(const World&, std::string_view) {
    return std::nullopt;
  }
};

}  // namespace kvfence
