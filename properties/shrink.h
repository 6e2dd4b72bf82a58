#pragma once

/// Makes a failing scenario as small and plain as it gets while it still fails: fewer commands
/// first, then plainer arguments and configuration, then names and numbers changed in several
/// commands at once, which no change of a single argument can reach.
///
/// Generic over the target: it knows members, types and domains from the declarations alone.
/// Deterministic. It ends because every accepted step is smaller in one total order
/// (detail::ScenarioSize).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "contract/declare.h"
#include "contract/scenario.h"
#include "properties/scenario_walk.h"
#include "properties/simplify.h"

namespace kvfence {

struct ShrinkOptions {
  std::size_t tries_max = 20'000;           ///< runs of the predicate
  std::optional<std::size_t> failing_step;  ///< index of the command that failed, where known
  /// Only where an expectation is what fails: a step keeps or loses its expectation as a whole.
  bool keep_expectations = false;
  /// Told after every try.
  std::function<void(std::size_t tries, std::size_t num_commands)> progress;
};

template <class Target>
struct ShrinkResult {
  Scenario<Target> scenario;
  std::size_t tries = 0;
  std::size_t accepted = 0;
  bool reproduced = false;   ///< false: it did not fail when run again; the scenario is as given
  bool at_fixpoint = false;  ///< false: the tries ran out first
};

namespace detail {

/// What shrinking makes smaller, most important first. A member at its default costs nothing, so
/// that the plain value wins over a shorter word.
struct ScenarioSize {
  std::size_t num_commands = 0;
  std::size_t num_characters = 0;  ///< of the members that are not at their default
  std::string text;                ///< a tie-break: 0 before 9, A before B

  friend bool operator<(const ScenarioSize& a, const ScenarioSize& b) {
    return std::tie(a.num_commands, a.num_characters, a.text) <
           std::tie(b.num_commands, b.num_characters, b.text);
  }
};

template <class Struct>
std::size_t num_characters(const Struct& object) {
  const Struct defaults{};
  std::size_t total = 0;
  for_each_field<Struct>([&](const auto& declaration) {
    const auto& member = object.*declaration.member;
    // A smaller number is always plainer, the default or not.
    const bool is_number = std::is_same_v<std::remove_cvref_t<decltype(member)>, std::uint32_t>;
    if (is_number || !(member == defaults.*declaration.member)) {
      total += print(to_value(member)).size();
    }
  });
  return total;
}

template <class Target>
ScenarioSize size_of(const Scenario<Target>& scenario) {
  ScenarioSize size;
  size.num_commands = scenario.steps.size();
  size.num_characters = num_characters(scenario.config);
  for (const Step<Target>& step : scenario.steps) {
    size.num_characters += std::visit(
        [](const auto& alternative) { return num_characters(alternative); }, step.command);
    if (step.expectation) ++size.num_characters;
  }
  size.text = print(to_document(scenario));
  return size;
}

}  // namespace detail

/// One shrinking. Each pass proposes edits of the smallest scenario so far; attempt() judges them.
template <class Target>
class Shrinker {
 public:
  using StillFails = std::function<bool(const Scenario<Target>&)>;

  /// Both have to outlive it.
  Shrinker(const StillFails& still_fails, const ShrinkOptions& options)
      : still_fails_(still_fails), options_(options) {}

  ShrinkResult<Target> run(Scenario<Target> failing) {
    best_ = failing;
    if (!options_.keep_expectations) {
      for (Step<Target>& step : best_.steps) step.expectation.reset();
    }
    size_ = detail::size_of(best_);
    ++tries_;
    if (!still_fails_(best_)) return {std::move(failing), tries_, 0, false, false};
    cut_tail();
    std::size_t accepted_before = 0;
    do {
      accepted_before = accepted_;
      remove_commands();
      simplify_arguments();
      simplify_config();
      drop_expectations();
      shorten_runs();
      merge_requests();
      fold_tokens();
      shorten_steps();
      for (const std::vector<Domain>& domains : related_domains()) {
        shorten_lists(domains);
        replace_values(domains);
      }
      lower_counts();
      // The dear ones only where nothing else helps any more.
      if (accepted_ == accepted_before) remove_pairs();
      if (accepted_ == accepted_before) fold_keys();
      if (accepted_ == accepted_before) drop_pairs_with_counts();
      if (accepted_ == accepted_before) lower_pairs_of_counts();
      if (accepted_ == accepted_before) drop_steps_with_blocks();
    } while (accepted_ != accepted_before);
    return {std::move(best_), tries_, accepted_, true, !out_of_tries()};
  }

 private:
  using Edited = Scenario<Target>;

  // Beyond these sizes the quadratic passes cost more tries than they are worth.
  static constexpr std::size_t kPairsCommandsMax = 64;
  static constexpr std::size_t kPairsNumbersMax = 24;
  static constexpr std::size_t kMergeValuesMax = 32;
  static constexpr std::size_t kNeighboursMax = 3;

  bool out_of_tries() const { return tries_ >= options_.tries_max; }

  /// Applies edit to a copy, and keeps the copy if it is smaller and still fails.
  template <class Edit>
  bool attempt(Edit&& edit) {
    if (out_of_tries()) return false;
    Edited candidate = best_;
    edit(candidate);
    detail::ScenarioSize size = detail::size_of(candidate);
    if (!(size < size_)) return false;
    // Known to pass: rounds repeat themselves near the fixpoint.
    if (!seen_.insert(std::hash<std::string>{}(size.text)).second) return false;
    if (Target::validate(candidate.config, {}, {})) return false;
    ++tries_;
    const bool fails = still_fails_(candidate);
    if (fails) {
      best_ = std::move(candidate);
      size_ = std::move(size);
      ++accepted_;
    }
    if (options_.progress) options_.progress(tries_, best_.steps.size());
    return fails;
  }

  static void erase(Edited& scenario, std::size_t begin, std::size_t end) {
    erase_range(scenario.steps, begin, end);
  }

  bool keep_first(std::size_t num_commands) {
    return attempt([&](Edited& scenario) { erase(scenario, num_commands, scenario.steps.size()); });
  }

  /// Cuts what stands behind the failing command; bisects where it is not known.
  void cut_tail() {
    if (options_.failing_step && *options_.failing_step < best_.steps.size()) {
      if (*options_.failing_step + 1 == best_.steps.size()) return;
      if (keep_first(*options_.failing_step + 1)) return;
    }
    std::size_t passes = 0;
    while (passes + 1 < best_.steps.size()) {
      const std::size_t middle = passes + (best_.steps.size() - passes) / 2;
      if (!keep_first(middle)) passes = middle;
    }
  }

  void remove_commands() {
    simplify::remove_chunks(best_.steps.size(), [&](std::size_t begin, std::size_t end) {
      return attempt([&](Edited& scenario) { erase(scenario, begin, end); });
    });
  }

  /// Two commands that only make sense together: taking and giving back.
  void remove_pairs() {
    if (best_.steps.size() > kPairsCommandsMax) return;
    for (std::size_t second = best_.steps.size(); second-- > 1;) {
      for (std::size_t first = second; first-- > 0;) {
        const bool removed = attempt([&](Edited& scenario) {
          erase(scenario, second, second + 1);
          erase(scenario, first, first + 1);
        });
        if (!removed) continue;
        second = std::min(second, best_.steps.size());
        break;
      }
    }
  }

  /// Simplifies each member of a declared struct; place(scenario) is where the struct stands.
  template <class Struct, class Place>
  void simplify_members(const Struct& object, Place&& place) {
    const Struct defaults{};
    for_each_field<Struct>([&](const auto& declaration) {
      // A name is not plainer for being empty.
      if (declaration.domain == Domain::kRequest) return;
      const auto member = declaration.member;
      simplify::value(object.*member, defaults.*member, [&](const auto& simpler) {
        return attempt([&](Edited& scenario) { place(scenario).*member = simpler; });
      });
    });
  }

  void simplify_arguments() {
    for (std::size_t index = 0; index < best_.steps.size() && !out_of_tries(); ++index) {
      // A copy: best_ changes while its members are visited.
      const typename Target::Command command = best_.steps[index].command;
      std::visit(
          [&](const auto& alternative) {
            using Alternative = std::remove_cvref_t<decltype(alternative)>;
            simplify_members(alternative, [index](Edited& scenario) -> Alternative& {
              return std::get<Alternative>(scenario.steps[index].command);
            });
          },
          command);
    }
  }

  void simplify_config() {
    const typename Target::Config config = best_.config;
    simplify_members(config,
                     [](Edited& scenario) -> typename Target::Config& { return scenario.config; });
  }

  void drop_expectations() {
    for (std::size_t index = 0; index < best_.steps.size(); ++index) {
      if (!best_.steps[index].expectation) continue;
      attempt([&](Edited& scenario) { scenario.steps[index].expectation.reset(); });
    }
  }

  /// Makes two requests one, and gives those that are left the names A, B, C.
  void merge_requests() {
    std::vector<std::string> names;
    for_each_request(best_, [&](const std::string& name, std::size_t) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    });
    for (std::size_t rank = 0; rank < names.size(); ++rank) {
      const std::string& from = names[rank];
      bool merged = false;
      for (const std::string& to : names) {
        if (merged) break;
        if (to == from) continue;
        // Without what declares it first, and else with it.
        merged = attempt([&](Edited& scenario) { rename(scenario, from, to, true); }) ||
                 attempt([&](Edited& scenario) { rename(scenario, from, to, false); });
      }
      constexpr std::size_t kNumLetters = 26;
      if (merged || rank >= kNumLetters) continue;
      const std::string letter(1, static_cast<char>('A' + static_cast<int>(rank)));
      // A letter that is taken would merge instead.
      if (std::find(names.begin(), names.end(), letter) != names.end()) continue;
      attempt([&](Edited& scenario) { rename(scenario, from, letter, false); });
    }
  }

  static void rename(Edited& scenario, const std::string& from, const std::string& to,
                     bool drop_first) {
    std::size_t first = 0;
    for_each_request(scenario, [&](std::string& name, std::size_t step) {
      if (name != from) return;
      if (first == 0) first = step;
      name = to;
    });
    if (drop_first && first > 0) erase(scenario, first - 1, first);
  }

  /// Appends the tokens of a command to those of an earlier one of the same request, and drops it.
  void fold_tokens() {
    for (std::size_t from = best_.steps.size(); from-- > 1;) {
      for (std::size_t into = from; into-- > 0;) {
        const bool folded = attempt([&](Edited& scenario) {
          const Tokens source = tokens_of(scenario.steps[from]);
          const Tokens target = tokens_of(scenario.steps[into]);
          if (!source.list || !target.list || source.request != target.request) return;
          target.list->insert(target.list->end(), source.list->begin(), source.list->end());
          erase(scenario, from, from + 1);
        });
        if (folded) break;
      }
    }
  }

  /// Makes one command of two of a kind that list keys: the lists behind each other, the counts
  /// added.
  void fold_keys() {
    if (best_.steps.size() > kPairsCommandsMax) return;
    for (std::size_t second = best_.steps.size(); second-- > 1;) {
      for (std::size_t first = second; first-- > 0;) {
        if (fold_keys(first, second) || fold_keys(second, first)) break;
      }
    }
  }

  /// Tries both orders of the lists.
  bool fold_keys(std::size_t into, std::size_t from) {
    for (const bool to_the_front : {true, false}) {
      const bool folded = attempt([&](Edited& scenario) {
        auto& target = scenario.steps[into].command;
        const auto& source = scenario.steps[from].command;
        if (target.index() == source.index() && append_keys(target, source, to_the_front)) {
          erase(scenario, from, from + 1);
        }
      });
      if (folded) return true;
    }
    return false;
  }

  /// False if such a command lists no keys. Requires: both are of a kind
  static bool append_keys(typename Target::Command& target, const typename Target::Command& source,
                          bool to_the_front) {
    bool lists_keys = false;
    std::visit(
        [&](auto& into) {
          using Alternative = std::remove_cvref_t<decltype(into)>;
          const auto& from = std::get<Alternative>(source);
          for_each_field<Alternative>([&](const auto& declaration) {
            auto& member = into.*declaration.member;
            const auto& other = from.*declaration.member;
            using Member = std::remove_cvref_t<decltype(member)>;
            if constexpr (std::is_same_v<Member, std::vector<std::uint32_t>>) {
              if (declaration.domain != Domain::kKeys) return;
              lists_keys = true;
              member.insert(to_the_front ? member.begin() : member.end(), other.begin(),
                            other.end());
            } else if constexpr (std::is_same_v<Member, std::uint32_t>) {
              if (declaration.domain == Domain::kCount) member += other;
            }
          });
        },
        target);
    return lists_keys;
  }

  struct Tokens {
    std::string request;
    std::vector<std::uint32_t>* list = nullptr;  ///< null where the command has none
  };

  static Tokens tokens_of(Step<Target>& step) {
    Tokens found;
    for_each_member_of_command(step.command, [&](auto& member, Domain domain) {
      using Member = std::remove_cvref_t<decltype(member)>;
      if constexpr (std::is_same_v<Member, std::string>) {
        if (domain == Domain::kRequest) found.request = member;
      } else if constexpr (std::is_same_v<Member, std::vector<std::uint32_t>>) {
        if (domain == Domain::kTokens) found.list = &member;
      }
    });
    return found;
  }

  /// Takes a block out of one command: out of its lists and masks, and out of what counts leading
  /// blocks.
  void shorten_steps() {
    for (std::size_t index = 0; index < best_.steps.size(); ++index) {
      std::size_t longest = 0;
      for_each_member_of_command(best_.steps[index].command, [&](auto& member, Domain domain) {
        using Member = std::remove_cvref_t<decltype(member)>;
        if constexpr (std::is_same_v<Member, std::vector<std::uint32_t>>) {
          if (domain == Domain::kBlocks) longest = std::max(longest, member.size());
        }
      });
      simplify::remove_chunks(longest, [&](std::size_t begin, std::size_t end) {
        return attempt([&](Edited& scenario) {
          for_each_member_of_command(
              scenario.steps[index].command,
              [&](auto& member, Domain domain) { remove_blocks(member, domain, begin, end); });
        });
      });
    }
  }

  template <class Member>
  static void remove_blocks(Member& member, Domain domain, std::size_t begin, std::size_t end) {
    if constexpr (std::is_same_v<Member, std::vector<std::uint32_t>>) {
      if (domain == Domain::kBlocks) erase_range(member, begin, end);
    } else if constexpr (std::is_same_v<Member, std::optional<std::vector<bool>>>) {
      if (domain == Domain::kMask && member) erase_range(*member, begin, end);
    } else if constexpr (std::is_same_v<Member, std::uint32_t>) {
      if (domain != Domain::kBlockCount || member <= begin) return;
      member -= static_cast<std::uint32_t>(std::min<std::size_t>(member, end) - begin);
    }
  }

  /// Erases [begin, end), as far as the list goes.
  template <class List>
  static void erase_range(List& list, std::size_t begin, std::size_t end) {
    list.erase(list.begin() + static_cast<std::ptrdiff_t>(std::min(begin, list.size())),
               list.begin() + static_cast<std::ptrdiff_t>(std::min(end, list.size())));
  }

  /// Domains whose equal numbers mean the same thing.
  static std::vector<std::vector<Domain>> related_domains() {
    return {{Domain::kBlocks},
            {Domain::kTokens},
            {Domain::kGroup, Domain::kGroups},
            {Domain::kKey, Domain::kKeys},
            {Domain::kBlockSize, Domain::kSetting}};
  }

  static bool is_in(const std::vector<Domain>& domains, Domain domain) {
    return std::find(domains.begin(), domains.end(), domain) != domains.end();
  }

  std::vector<std::uint32_t> distinct_values(const std::vector<Domain>& domains) const {
    std::set<std::uint32_t> values;
    for_each_number(best_, [&](std::uint32_t number, Domain domain, std::size_t) {
      if (is_in(domains, domain)) values.insert(number);
    });
    return {values.begin(), values.end()};
  }

  /// Edits every list of these domains.
  template <class Edit>
  bool attempt_on_lists(const std::vector<Domain>& domains, Edit&& edit) {
    return attempt([&](Edited& scenario) {
      for_each_list(scenario, [&](std::vector<std::uint32_t>& list, Domain domain) {
        if (is_in(domains, domain)) edit(list);
      });
    });
  }

  /// Lists that have to stay alike: takes a value out of all of them, or what stands at one index.
  void shorten_lists(const std::vector<Domain>& domains) {
    for (std::uint32_t value : distinct_values(domains)) {
      attempt_on_lists(domains, [&](std::vector<std::uint32_t>& list) { std::erase(list, value); });
    }
    std::size_t longest = 0;
    for_each_list(best_, [&](const std::vector<std::uint32_t>& list, Domain domain) {
      if (is_in(domains, domain)) longest = std::max(longest, list.size());
    });
    simplify::remove_chunks(longest, [&](std::size_t begin, std::size_t end) {
      return attempt_on_lists(
          domains, [&](std::vector<std::uint32_t>& list) { erase_range(list, begin, end); });
    });
  }

  /// Replaces a value by a smaller one in all commands at once.
  void replace_values(const std::vector<Domain>& domains) {
    const std::vector<std::uint32_t> values = distinct_values(domains);
    attempt([&](Edited& scenario) {
      for_each_number(scenario, [&](std::uint32_t& number, Domain domain, std::size_t) {
        if (is_in(domains, domain)) number = 0;
      });
    });
    for (std::size_t rank = values.size(); rank-- > 0;) {
      const std::uint32_t from = values[rank];
      // Merging comes before renumbering; a value's rank is where renumbering ends.
      std::vector<std::uint32_t> targets{0};
      if (values.size() <= kMergeValuesMax) {
        targets.insert(targets.end(), values.begin(),
                       values.begin() + static_cast<std::ptrdiff_t>(rank));
      }
      targets.push_back(static_cast<std::uint32_t>(rank));
      targets.push_back(from / 2);
      if (from > 0) targets.push_back(from - 1);
      for (std::uint32_t to : targets) {
        if (attempt([&](Edited& scenario) { replace(scenario, domains, from, to); })) break;
      }
    }
  }

  static void replace(Edited& scenario, const std::vector<Domain>& domains, std::uint32_t from,
                      std::uint32_t to) {
    for_each_number(scenario, [&](std::uint32_t& number, Domain domain, std::size_t) {
      if (is_in(domains, domain) && number == from) number = to;
    });
  }

  static bool is_count(Domain domain) {
    return domain == Domain::kCount || domain == Domain::kTokenCount ||
           domain == Domain::kBlockCount || domain == Domain::kHashIndex ||
           domain == Domain::kSetting;
  }

  /// A number that says how many: its place in the order of for_each_number, its value and step.
  struct Count {
    std::size_t ordinal = 0;
    std::uint32_t value = 0;
    std::size_t step = 0;
  };

  std::vector<Count> counts() const {
    std::vector<Count> found;
    std::size_t ordinal = 0;
    for_each_number(best_, [&](std::uint32_t number, Domain domain, std::size_t step) {
      if (is_count(domain) && number > 0) found.push_back({ordinal, number, step});
      ++ordinal;
    });
    return found;
  }

  /// Lowers the numbers at these places by `by`, and all block ids from `first_block` on. Leaves
  /// alone what would fall below 0.
  static void lower(Edited& scenario, const std::vector<std::size_t>& ordinals, std::uint32_t by,
                    std::optional<std::uint32_t> first_block) {
    std::size_t ordinal = 0;
    for_each_number(scenario, [&](std::uint32_t& number, Domain domain, std::size_t) {
      const bool is_listed = std::find(ordinals.begin(), ordinals.end(), ordinal) != ordinals.end();
      const bool is_shifted = first_block && domain == Domain::kBlocks && number >= *first_block;
      if ((is_listed || is_shifted) && number >= by) number -= by;
      ++ordinal;
    });
  }

  /// The block ids from which on a shift makes a difference.
  std::vector<std::optional<std::uint32_t>> shift_starts() const {
    std::vector<std::optional<std::uint32_t>> starts;
    for (std::uint32_t block : distinct_values({Domain::kBlocks})) starts.push_back(block);
    return starts;
  }

  /// Lowers all counts at once; drops or lowers an allocation together with the ids of the blocks
  /// that came after it.
  void lower_counts() {
    while (attempt([](Edited& scenario) {
      for_each_number(scenario, [](std::uint32_t& number, Domain domain, std::size_t) {
        const bool says_how_many = domain == Domain::kCount || domain == Domain::kTokenCount;
        if (says_how_many && number > 0) --number;
      });
    })) {
    }
    // Each accepted edit changes the places, so the search starts over.
    while (lower_one_count_with_blocks()) {
    }
  }

  bool lower_one_count_with_blocks() {
    for (const Count& count : counts()) {
      if (count.step == 0) continue;
      for (const auto& start : shift_starts()) {
        const bool dropped = attempt([&](Edited& scenario) {
          lower(scenario, {}, count.value, start);
          erase(scenario, count.step - 1, count.step);
        });
        if (dropped || lower_together({count.ordinal}, count.value, start)) return true;
      }
    }
    return false;
  }

  void lower_pairs_of_counts() {
    while (lower_one_pair_of_counts()) {
    }
  }

  /// A pool and what drains it: two counts, and the ids of the blocks at its end.
  bool lower_one_pair_of_counts() {
    const std::vector<Count> found = counts();
    if (found.size() > kPairsNumbersMax) return false;
    std::vector<std::optional<std::uint32_t>> starts = shift_starts();
    starts.insert(starts.begin(), std::nullopt);
    for (const auto& start : starts) {
      for (std::size_t first = 0; first < found.size(); ++first) {
        for (std::size_t second = first + 1; second < found.size(); ++second) {
          const std::uint32_t most = std::min(found[first].value, found[second].value);
          if (lower_together({found[first].ordinal, found[second].ordinal}, most, start)) {
            return true;
          }
        }
      }
    }
    return false;
  }

  void shorten_runs() {
    while (shorten_one_run()) {
    }
  }

  /// A pair of commands that repeats itself, such as plan and update, and what says how often: a
  /// count, or the tokens that each pair takes one of.
  bool shorten_one_run() {
    std::vector<std::optional<std::uint32_t>> starts = shift_starts();
    starts.insert(starts.begin(), std::nullopt);
    for (const Run& run : runs()) {
      for (std::size_t by = run.num_repeats; by > 0; --by) {
        for (const auto& start : starts) {
          if (shorten_run(run.begin, by, start)) return true;
        }
      }
    }
    return false;
  }

  /// Takes `by` pairs out from `begin` on, and as much out of one count or list. A count of blocks
  /// goes down by less.
  bool shorten_run(std::size_t begin, std::size_t by, std::optional<std::uint32_t> start) {
    for (const Count& count : counts()) {
      for (auto amount = static_cast<std::uint32_t>(by); amount > 0; amount /= 2) {
        if (count.value < amount) continue;
        const bool shortened = attempt([&](Edited& scenario) {
          lower(scenario, {count.ordinal}, amount, start);
          erase(scenario, begin, begin + 2 * by);
        });
        if (shortened) return true;
      }
    }
    std::size_t num_lists = 0;
    for_each_list(best_, [&](const std::vector<std::uint32_t>&, Domain) { ++num_lists; });
    for (std::size_t chosen = 0; chosen < num_lists; ++chosen) {
      const bool shortened = attempt([&](Edited& scenario) {
        std::size_t at = 0;
        for_each_list(scenario, [&](std::vector<std::uint32_t>& list, Domain) {
          if (at++ == chosen) list.resize(list.size() - std::min(by, list.size()));
        });
        lower(scenario, {}, 1, start);
        erase(scenario, begin, begin + 2 * by);
      });
      if (shortened) return true;
    }
    return false;
  }

  /// Any neighbours, and what counts them.
  void drop_pairs_with_counts() {
    if (best_.steps.size() > kPairsCommandsMax) return;
    for (std::size_t begin = best_.steps.size(); begin-- > 0;) {
      if (begin + 2 <= best_.steps.size()) shorten_run(begin, 1, std::nullopt);
    }
  }

  struct Run {
    std::size_t begin = 0;
    std::size_t num_repeats = 0;  ///< of the pair at begin, itself not counted
  };

  std::vector<Run> runs() const {
    std::vector<Run> found;
    for (std::size_t begin = 0; begin + 3 < best_.steps.size(); ++begin) {
      Run run{begin, 0};
      while (is_pair_like_the_one_before(begin + 2 * (run.num_repeats + 1))) ++run.num_repeats;
      if (run.num_repeats == 0) continue;
      found.push_back(run);
      begin += 2 * run.num_repeats;
    }
    return found;
  }

  bool is_pair_like_the_one_before(std::size_t index) const {
    return index + 1 < best_.steps.size() &&
           best_.steps[index].command == best_.steps[index - 2].command &&
           best_.steps[index + 1].command == best_.steps[index - 1].command;
  }

  void drop_steps_with_blocks() {
    while (drop_some_steps_with_blocks()) {
    }
  }

  /// Neighbouring commands that only keep a block away: drops them, and with them the block, from
  /// the ids behind it and from the size of the pool.
  bool drop_some_steps_with_blocks() {
    std::vector<std::vector<std::size_t>> sizes{{}};
    for (const Count& count : counts()) {
      if (count.step == 0) sizes.push_back({count.ordinal});
    }
    for (std::size_t length = 1; length <= kNeighboursMax; ++length) {
      for (std::size_t end = best_.steps.size(); end >= length; --end) {
        for (const auto& start : shift_starts()) {
          for (const std::vector<std::size_t>& size : sizes) {
            const bool dropped = attempt([&](Edited& scenario) {
              lower(scenario, size, 1, start);
              erase(scenario, end - length, end);
            });
            if (dropped) return true;
          }
        }
      }
    }
    return false;
  }

  /// By as much as goes, then half of it, down to one.
  bool lower_together(const std::vector<std::size_t>& ordinals, std::uint32_t most,
                      std::optional<std::uint32_t> start) {
    for (std::uint32_t by = most; by > 0; by /= 2) {
      if (attempt([&](Edited& scenario) { lower(scenario, ordinals, by, start); })) return true;
    }
    return false;
  }

  const StillFails& still_fails_;
  const ShrinkOptions& options_;
  Edited best_;
  detail::ScenarioSize size_;
  std::unordered_set<std::size_t> seen_;
  std::size_t tries_ = 0;
  std::size_t accepted_ = 0;
};

/// The smallest scenario found for which still_fails(const Scenario<Target>&) holds; the predicate
/// has to run it from the start, and should ask for the same kind of failure.
///
/// Cost: at most options.tries_max runs; a scenario is printed once for each.
template <class Target>
ShrinkResult<Target> shrink(
    Scenario<Target> failing,
    const std::type_identity_t<std::function<bool(const Scenario<Target>&)>>& still_fails,
    const ShrinkOptions& options = {}) {
  return Shrinker<Target>(still_fails, options).run(std::move(failing));
}

}  // namespace kvfence
