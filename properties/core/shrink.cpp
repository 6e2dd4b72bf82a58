#include "properties/core/shrink.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "contract/core/declare.h"
#include "contract/core/lists.h"
#include "properties/core/simplify.h"

namespace kvfence {
namespace {

using NumberList = std::vector<std::uint32_t>;
using NameList = std::vector<std::string>;

// ---- The parts of a scenario ----

/// The members of an object that have that type and domain.
template <class T>
std::vector<T*> members_of(const DeclaredObject& object, Domain domain) {
  std::vector<T*> found;
  for (std::size_t index = 0; index < object.size(); ++index) {
    T* const member = get_if<T>(object[index]);
    if (member && object[index].domain() == domain) found.push_back(member);
  }
  return found;
}

// Visitors of all numbers, lists and names of a scenario, for changes in several commands at once.
// In each, step counts from 1; 0 is the configuration. The members of the configuration come first,
// then those of each command in order; after a list of declared structs each of their members. If
// the scenario may change, the visited values may change, too.

void for_each_member_of(const DeclaredObject& object,
                        const std::function<void(const MemberRef&)>& visit) {
  for (std::size_t index = 0; index < object.size(); ++index) {
    const MemberRef member = object[index];
    visit(member);
    for (const DeclaredObject& element : member.elements()) {
      for (std::size_t part = 0; part < element.size(); ++part) visit(element[part]);
    }
  }
}

/// The numbers of a list of undeclared records, through their printed value.
void visit_numbers_of_value(const MemberRef& member,
                            const std::function<void(std::uint32_t&)>& visit) {
  const Value value = member.value();
  if (!value.get_if<Value::List>()) return;
  bool is_edited = false;
  const Value edited = map_integers(value, [&](std::int64_t integer) {
    auto number = static_cast<std::uint32_t>(integer);
    if (std::int64_t{number} != integer) return integer;
    visit(number);
    is_edited = is_edited || std::int64_t{number} != integer;
    return std::int64_t{number};
  });
  std::string expected;
  if (is_edited) member.assign(edited, expected);
}

void for_each_member(const Scenario& scenario,
                     const std::function<void(const MemberRef&, std::size_t step)>& visit) {
  for_each_member_of(scenario.config.declared(),
                     [&](const MemberRef& member) { visit(member, 0); });
  for (std::size_t step = 0; step < scenario.steps.size(); ++step) {
    for_each_member_of(scenario.steps[step].command.declared(),
                       [&](const MemberRef& member) { visit(member, step + 1); });
  }
}

/// Lists of numbers.
void for_each_list(const Scenario& scenario,
                   const std::function<void(NumberList& list, Domain, std::size_t step)>& visit) {
  for_each_member(scenario, [&](const MemberRef& member, std::size_t step) {
    if (auto* list = get_if<NumberList>(member)) visit(*list, member.domain(), step);
  });
}

/// Numbers of 32 bits, including those in lists and their records.
void for_each_number(
    const Scenario& scenario,
    const std::function<void(std::uint32_t& number, Domain, std::size_t step)>& visit) {
  for_each_member(scenario, [&](const MemberRef& member, std::size_t step) {
    const Domain domain = member.domain();
    if (auto* number = get_if<std::uint32_t>(member)) {
      visit(*number, domain, step);
    } else if (auto* maybe = get_if<std::optional<std::uint32_t>>(member)) {
      if (*maybe) visit(**maybe, domain, step);
    } else if (auto* list = get_if<NumberList>(member)) {
      for (std::uint32_t& element : *list) visit(element, domain, step);
    } else if (member.elements().empty()) {
      visit_numbers_of_value(member, [&](std::uint32_t& found) { visit(found, domain, step); });
    }
  });
}

/// Names of requests, including those in lists.
void for_each_request(const Scenario& scenario,
                      const std::function<void(std::string& name, std::size_t step)>& visit) {
  for_each_member(scenario, [&](const MemberRef& member, std::size_t step) {
    if (auto* name = get_if<std::string>(member)) {
      if (member.domain() == Domain::kRequest) visit(*name, step);
    } else if (auto* names = get_if<NameList>(member)) {
      if (member.domain() != Domain::kRequests) return;
      for (std::string& each : *names) visit(each, step);
    }
  });
}

// ---- Shrinking ----

/// What shrinking makes smaller, most important first. A member at its default costs nothing, so
/// the plain value is preferred to a shorter word.
struct ScenarioSize {
  std::size_t num_commands = 0;
  std::size_t num_characters = 0;  ///< of the members that are not at their default
  std::string text;                ///< a tie-break: 0 before 9, A before B

  friend auto operator<=>(const ScenarioSize&, const ScenarioSize&) = default;
};

std::size_t num_characters(const DeclaredObject& object) {
  std::size_t total = 0;
  for (std::size_t index = 0; index < object.size(); ++index) {
    const MemberRef member = object[index];
    // A smaller number is always plainer, the default or not.
    const bool is_number = get_if<std::uint32_t>(member) != nullptr;
    if (is_number || !member.is_default()) total += print(member.value()).size();
  }
  return total;
}

ScenarioSize size_of(const Scenario& scenario) {
  ScenarioSize size;
  size.num_commands = scenario.steps.size();
  size.num_characters = num_characters(scenario.config.declared());
  for (std::size_t step = 0; step < scenario.steps.size(); ++step) {
    size.num_characters += num_characters(scenario.steps[step].command.declared());
  }
  size.text = print(to_document(scenario));
  return size;
}

/// One shrinking. Each pass proposes edits of the smallest scenario so far; attempt() judges them.
class Shrinker {
 public:
  /// Both have to outlive it.
  Shrinker(const StillFails& still_fails, const ShrinkOptions& options)
      : still_fails_(still_fails), options_(options) {}

  ShrinkResult run(Scenario failing) {
    best_ = failing;
    for (Step& step : best_.steps) step.expectation.reset();
    best_.digests.reset();
    size_ = size_of(best_);
    ++tries_;
    const Parsed<Setup> setup = prepare(best_);
    if (!setup || !still_fails_(best_, *setup))
      return {std::move(failing), tries_, 0, false, false};
    cut_tail();
    std::size_t accepted_before = 0;
    do {
      accepted_before = accepted_;
      remove_commands();
      simplify_arguments();
      simplify_config();
      exhaust(&Shrinker::shorten_one_run);
      merge_requests();
      fold_tokens();
      shorten_steps();
      for (const std::vector<Domain>& domains : related_domains()) {
        shorten_lists(domains);
        replace_values(domains);
      }
      lower_counts();
      // Expensive passes run only when nothing else helps.
      if (accepted_ == accepted_before) exhaust(&Shrinker::drop_one_request_with_jobs);
      if (accepted_ == accepted_before) exhaust(&Shrinker::drop_one_run_with_jobs);
      if (accepted_ == accepted_before) remove_pairs();
      if (accepted_ == accepted_before) fold_keys();
      if (accepted_ == accepted_before) drop_pairs_with_counts();
      if (accepted_ == accepted_before) exhaust(&Shrinker::lower_one_pair_of_counts);
      if (accepted_ == accepted_before) exhaust(&Shrinker::drop_some_steps_with_blocks);
    } while (accepted_ != accepted_before);
    return {std::move(best_), tries_, accepted_, true, !out_of_tries()};
  }

 private:
  using Edited = Scenario;

  // Beyond these sizes the quadratic passes cost more tries than they are worth.
  static constexpr std::size_t kPairsCommandsMax = 64;
  static constexpr std::size_t kPairsNumbersMax = 24;
  static constexpr std::size_t kMergeValuesMax = 32;
  static constexpr std::size_t kNeighboursMax = 3;
  static constexpr std::size_t kPeriodMax = 4;  ///< of repeated commands
  static constexpr std::uint32_t kJobsMax = 4;  ///< that are dropped with a request

  std::size_t num_steps() const { return best_.steps.size(); }
  bool out_of_tries() const { return tries_ >= options_.tries_max; }

  /// Applies edit to a copy, and keeps the copy if it is smaller and still fails.
  bool attempt(const std::function<void(Edited&)>& edit) {
    return attempt_if([&](Edited& scenario) {
      edit(scenario);
      return true;
    });
  }

  /// The same; edit returns false if it is impossible.
  bool attempt_if(const std::function<bool(Edited&)>& edit) {
    if (out_of_tries()) return false;
    Edited candidate = best_;
    // An edit may change nothing: cheaper to see before the candidate is printed.
    if (!edit(candidate) || candidate == best_) return false;
    ScenarioSize size = size_of(candidate);
    if (!(size < size_)) return false;
    // Known to pass: near the fixpoint rounds try the same scenarios again.
    if (!seen_.insert(std::hash<std::string>{}(size.text)).second) return false;
    const Parsed<Setup> setup = prepare(candidate);
    if (!setup) return false;
    ++tries_;
    const bool fails = still_fails_(candidate, *setup);
    if (fails) {
      best_ = std::move(candidate);
      size_ = std::move(size);
      ++accepted_;
    }
    if (options_.progress) options_.progress(tries_, num_steps());
    return fails;
  }

  /// Each accepted edit changes the places, so the search starts over.
  void exhaust(bool (Shrinker::*edit_once)()) {
    while ((this->*edit_once)()) {
    }
  }

  static void erase(Edited& scenario, std::size_t begin, std::size_t end) {
    erase_range(scenario.steps, begin, end);
  }

  bool keep_first(std::size_t num_commands) {
    return attempt([&](Edited& scenario) { erase(scenario, num_commands, scenario.steps.size()); });
  }

  /// Cuts everything after the failing command; bisects if it is not known.
  void cut_tail() {
    if (options_.failing_step && *options_.failing_step < num_steps()) {
      if (*options_.failing_step + 1 == num_steps()) return;
      if (keep_first(*options_.failing_step + 1)) return;
    }
    std::size_t passes = 0;
    while (passes + 1 < num_steps()) {
      const std::size_t middle = passes + (num_steps() - passes) / 2;
      if (!keep_first(middle)) passes = middle;
    }
  }

  void remove_commands() {
    simplify::remove_chunks(num_steps(), [&](std::size_t begin, std::size_t end) {
      return attempt([&](Edited& scenario) { erase(scenario, begin, end); });
    });
  }

  /// Removes two commands that only make sense together: allocate and free.
  void remove_pairs() {
    if (num_steps() > kPairsCommandsMax) return;
    for (std::size_t second = num_steps(); second-- > 1;) {
      for (std::size_t first = second; first-- > 0;) {
        const bool removed = attempt([&](Edited& scenario) {
          erase(scenario, second, second + 1);
          erase(scenario, first, first + 1);
        });
        if (!removed) continue;
        second = std::min(second, num_steps());
        break;
      }
    }
  }

  /// Drops a request together with its jobs: the numbers of later jobs count them, so no command can
  /// be removed alone.
  bool drop_one_request_with_jobs() {
    const NumberList firsts = first_jobs();
    if (firsts.empty()) return false;
    std::set<std::string> names;
    for_each_request(best_, [&](const std::string& name, std::size_t) { names.insert(name); });
    for (const std::string& name : names) {
      for (std::size_t at = firsts.size(); at-- > 0;) {
        for (std::uint32_t num_jobs = 1; num_jobs <= kJobsMax; ++num_jobs) {
          const std::uint32_t first = firsts[at];
          if (attempt([&](Edited& scenario) { drop(scenario, name, first, num_jobs); })) {
            return true;
          }
        }
      }
    }
    return false;
  }

  /// The named jobs, and those just before a named one, which may not be named themselves.
  NumberList first_jobs() const {
    std::set<std::uint32_t> firsts;
    for (const std::uint32_t number : distinct_values({Domain::kNumber})) {
      for (std::uint32_t back = 0; back <= std::min(number, kJobsMax); ++back) {
        firsts.insert(number - back);
      }
    }
    return {firsts.begin(), firsts.end()};
  }

  /// Removes the commands that are about this request alone or name one of these jobs. The numbers
  /// of later jobs decrease.
  static void drop(Edited& scenario, const std::string& request, std::uint32_t first_job,
                   std::uint32_t num_jobs) {
    std::vector<bool> goes(scenario.steps.size());
    for (std::size_t step = 0; step < goes.size(); ++step) {
      goes[step] = is_about(scenario.steps[step].command.declared(), request);
    }
    for_each_number(scenario, [&](std::uint32_t& number, Domain domain, std::size_t step) {
      if (domain != Domain::kNumber || number < first_job) return;
      if (number - first_job < num_jobs) {
        goes[step - 1] = true;
      } else {
        number -= num_jobs;
      }
    });
    for (std::size_t step = goes.size(); step-- > 0;) {
      if (goes[step]) erase(scenario, step, step + 1);
    }
  }

  static bool is_about(const DeclaredObject& command, const std::string& request) {
    const auto names_it = [&](const std::string* name) { return *name == request; };
    const auto lists_it_alone = [&](const NameList* names) { return *names == NameList{request}; };
    return std::ranges::any_of(members_of<std::string>(command, Domain::kRequest), names_it) ||
           std::ranges::any_of(members_of<NameList>(command, Domain::kRequests), lists_it_alone);
  }

  /// Simplifies each member of the configuration, or of a step's command.
  void simplify_members(const std::function<DeclaredObject(const Edited&)>& place) {
    // A copy: best_ changes while its members are visited.
    const Edited before = best_;
    const DeclaredObject object = place(before);
    for (std::size_t index = 0; index < object.size(); ++index) {
      const MemberRef member = object[index];
      // An empty name is not plainer.
      if (member.domain() == Domain::kRequest) continue;
      simplify::value(member.value(), member.default_value(), [&](const Value& simpler) {
        return attempt_if([&](Edited& scenario) {
          std::string expected;
          return place(scenario)[index].assign(simpler, expected);
        });
      });
    }
  }

  void simplify_arguments() {
    for (std::size_t step = 0; step < num_steps() && !out_of_tries(); ++step) {
      simplify_members(
          [step](const Edited& scenario) { return scenario.steps[step].command.declared(); });
    }
  }

  void simplify_config() {
    simplify_members([](const Edited& scenario) { return scenario.config.declared(); });
  }

  /// Merges two requests into one, and names the remaining ones A, B, C.
  void merge_requests() {
    std::vector<std::string> names;
    for_each_request(best_, [&](const std::string& name, std::size_t) {
      if (!contains(names, name)) names.push_back(name);
    });
    for (std::size_t rank = 0; rank < names.size(); ++rank) {
      const std::string& from = names[rank];
      bool merged = false;
      for (const std::string& to : names) {
        if (merged) break;
        if (to == from) continue;
        // First without the declaration, else with it.
        merged = attempt([&](Edited& scenario) { rename(scenario, from, to, true); }) ||
                 attempt([&](Edited& scenario) { rename(scenario, from, to, false); });
      }
      constexpr std::size_t kNumLetters = 26;
      if (merged || rank >= kNumLetters) continue;
      const std::string letter(1, static_cast<char>('A' + static_cast<int>(rank)));
      // A letter that is in use would merge two requests.
      if (contains(names, letter)) continue;
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
    for (std::size_t from = num_steps(); from-- > 1;) {
      if (!tokens_of(best_.steps[from].command.declared()).list) continue;
      for (std::size_t into = from; into-- > 0;) {
        const bool folded = attempt([&](Edited& scenario) {
          const Tokens source = tokens_of(scenario.steps[from].command.declared());
          const Tokens target = tokens_of(scenario.steps[into].command.declared());
          if (!source.list || !target.list || source.request != target.request) return;
          target.list->insert(target.list->end(), source.list->begin(), source.list->end());
          erase(scenario, from, from + 1);
        });
        if (folded) break;
      }
    }
  }

  /// Merges two commands of a kind that list keys: concatenates the lists and adds the counts.
  void fold_keys() {
    if (num_steps() > kPairsCommandsMax) return;
    for (std::size_t second = num_steps(); second-- > 1;) {
      for (std::size_t first = second; first-- > 0;) {
        if (fold_keys(first, second) || fold_keys(second, first)) break;
      }
    }
  }

  /// Tries both orders of the lists.
  bool fold_keys(std::size_t into, std::size_t from) {
    for (const bool to_the_front : {true, false}) {
      const bool folded = attempt([&](Edited& scenario) {
        if (kind_of(scenario, into) == kind_of(scenario, from) &&
            append_keys(scenario.steps[into].command.declared(),
                        scenario.steps[from].command.declared(), to_the_front)) {
          erase(scenario, from, from + 1);
        }
      });
      if (folded) return true;
    }
    return false;
  }

  static const DeclaredStruct* kind_of(const Edited& scenario, std::size_t step) {
    return &scenario.steps[step].command.declared().type();
  }

  /// False if such a command lists no keys. Requires: both are of the same kind.
  static bool append_keys(const DeclaredObject& target, const DeclaredObject& source,
                          bool to_the_front) {
    const auto lists = members_of<NumberList>(target, Domain::kKeys);
    const auto others = members_of<NumberList>(source, Domain::kKeys);
    for (std::size_t at = 0; at < lists.size(); ++at) {
      NumberList& list = *lists[at];
      list.insert(to_the_front ? list.begin() : list.end(), others[at]->begin(), others[at]->end());
    }
    const auto counts = members_of<std::uint32_t>(target, Domain::kCount);
    const auto other_counts = members_of<std::uint32_t>(source, Domain::kCount);
    for (std::size_t at = 0; at < counts.size(); ++at) *counts[at] += *other_counts[at];
    return !lists.empty();
  }

  struct Tokens {
    std::string request;
    NumberList* list = nullptr;  ///< null if the command has none
  };

  static Tokens tokens_of(const DeclaredObject& command) {
    Tokens found;
    for (const auto* name : members_of<std::string>(command, Domain::kRequest)) {
      found.request = *name;
    }
    for (NumberList* list : members_of<NumberList>(command, Domain::kTokens)) found.list = list;
    return found;
  }

  /// Removes a block from one command: from its lists and masks, and from counts of leading blocks.
  void shorten_steps() {
    for (std::size_t step = 0; step < num_steps(); ++step) {
      std::size_t longest = 0;
      const DeclaredObject command = best_.steps[step].command.declared();
      for (const NumberList* list : members_of<NumberList>(command, Domain::kBlocks)) {
        longest = std::max(longest, list->size());
      }
      simplify::remove_chunks(longest, [&](std::size_t begin, std::size_t end) {
        return attempt([&](Edited& scenario) {
          remove_blocks(scenario.steps[step].command.declared(), begin, end);
        });
      });
    }
  }

  static void remove_blocks(const DeclaredObject& command, std::size_t begin, std::size_t end) {
    using Mask = std::optional<std::vector<bool>>;
    for (NumberList* list : members_of<NumberList>(command, Domain::kBlocks)) {
      erase_range(*list, begin, end);
    }
    for (Mask* mask : members_of<Mask>(command, Domain::kMask)) {
      if (*mask) erase_range(**mask, begin, end);
    }
    for (std::uint32_t* count : members_of<std::uint32_t>(command, Domain::kBlockCount)) {
      if (*count <= begin) continue;
      *count -= static_cast<std::uint32_t>(std::min<std::size_t>(*count, end) - begin);
    }
  }

  /// Erases [begin, end), as far as the list goes.
  template <class List>
  static void erase_range(List& list, std::size_t begin, std::size_t end) {
    list.erase(list.begin() + static_cast<std::ptrdiff_t>(std::min(begin, list.size())),
               list.begin() + static_cast<std::ptrdiff_t>(std::min(end, list.size())));
  }

  /// Domains in which equal numbers mean the same thing.
  static std::vector<std::vector<Domain>> related_domains() {
    return {{Domain::kBlocks},
            {Domain::kTokens},
            {Domain::kGroup, Domain::kGroups},
            {Domain::kKey, Domain::kKeys},
            {Domain::kNumber},
            {Domain::kBlockSize, Domain::kPlain}};
  }

  NumberList distinct_values(const std::vector<Domain>& domains) const {
    std::set<std::uint32_t> values;
    for_each_number(best_, [&](std::uint32_t number, Domain domain, std::size_t) {
      if (contains(domains, domain)) values.insert(number);
    });
    return {values.begin(), values.end()};
  }

  /// Edits every list of these domains.
  bool attempt_on_lists(const std::vector<Domain>& domains,
                        const std::function<void(NumberList&)>& edit) {
    return attempt([&](Edited& scenario) {
      for_each_list(scenario, [&](NumberList& list, Domain domain, std::size_t) {
        if (contains(domains, domain)) edit(list);
      });
    });
  }

  /// For lists that have to stay equal: removes a value, or the element at one index, from all.
  void shorten_lists(const std::vector<Domain>& domains) {
    for (std::uint32_t value : distinct_values(domains)) {
      attempt_on_lists(domains, [&](NumberList& list) { std::erase(list, value); });
    }
    std::size_t longest = 0;
    for_each_list(best_, [&](const NumberList& list, Domain domain, std::size_t) {
      if (contains(domains, domain)) longest = std::max(longest, list.size());
    });
    simplify::remove_chunks(longest, [&](std::size_t begin, std::size_t end) {
      return attempt_on_lists(domains, [&](NumberList& list) { erase_range(list, begin, end); });
    });
  }

  /// Replaces a value by a smaller one in all commands at once.
  void replace_values(const std::vector<Domain>& domains) {
    const NumberList values = distinct_values(domains);
    attempt([&](Edited& scenario) {
      for_each_number(scenario, [&](std::uint32_t& number, Domain domain, std::size_t) {
        if (contains(domains, domain)) number = 0;
      });
    });
    for (std::size_t rank = values.size(); rank-- > 0;) {
      const std::uint32_t from = values[rank];
      // Merging comes before renumbering; a value's rank is where renumbering ends.
      NumberList targets{0};
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
      if (contains(domains, domain) && number == from) number = to;
    });
  }

  static bool is_count(Domain domain) {
    return domain == Domain::kCount || domain == Domain::kTokenCount ||
           domain == Domain::kBlockCount || domain == Domain::kHashIndex ||
           domain == Domain::kNumber || domain == Domain::kPlain;
  }

  /// A number that is a count: its place in the order of for_each_number, its value and step.
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

  /// Lowers the numbers at these places by `by`, and all block ids from `first_block` on. Does not
  /// change numbers that would fall below 0.
  static void lower(Edited& scenario, const std::vector<std::size_t>& ordinals, std::uint32_t by,
                    std::optional<std::uint32_t> first_block) {
    std::size_t ordinal = 0;
    for_each_number(scenario, [&](std::uint32_t& number, Domain domain, std::size_t) {
      const bool is_listed = contains(ordinals, ordinal);
      const bool is_shifted = first_block && domain == Domain::kBlocks && number >= *first_block;
      if ((is_listed || is_shifted) && number >= by) number -= by;
      ++ordinal;
    });
  }

  /// Lowers as above, and removes the commands from `begin` to `end`.
  bool attempt_lower(const std::vector<std::size_t>& ordinals, std::uint32_t by,
                     std::optional<std::uint32_t> first_block, std::size_t begin = 0,
                     std::size_t end = 0) {
    return attempt([&](Edited& scenario) {
      lower(scenario, ordinals, by, first_block);
      erase(scenario, begin, end);
    });
  }

  using ShiftStarts = std::vector<std::optional<std::uint32_t>>;

  /// Adds the block ids from which a shift makes a difference.
  ShiftStarts shift_starts(ShiftStarts starts = {}) const {
    for (std::uint32_t block : distinct_values({Domain::kBlocks})) starts.push_back(block);
    return starts;
  }

  /// Lowers all counts at once; drops or lowers an allocation together with the ids of later blocks.
  void lower_counts() {
    while (attempt([](Edited& scenario) {
      for_each_number(scenario, [](std::uint32_t& number, Domain domain, std::size_t) {
        const bool says_how_many = domain == Domain::kCount || domain == Domain::kTokenCount;
        if (says_how_many && number > 0) --number;
      });
    })) {
    }
    exhaust(&Shrinker::lower_one_count_with_blocks);
  }

  bool lower_one_count_with_blocks() {
    for (const Count& count : counts()) {
      if (count.step == 0) continue;
      for (const auto& start : shift_starts()) {
        if (attempt_lower({}, count.value, start, count.step - 1, count.step)) return true;
        if (lower_together({count.ordinal}, count.value, start)) return true;
      }
    }
    return false;
  }

  /// The size of a pool and the allocation that drains it: two counts, and the last block ids.
  bool lower_one_pair_of_counts() {
    const std::vector<Count> found = counts();
    if (found.size() > kPairsNumbersMax) return false;
    const ShiftStarts starts = shift_starts({std::nullopt});
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

  /// A few repeated commands, such as plan and update, and the number of repetitions: a count, or a
  /// list of tokens of which each repetition takes one.
  bool shorten_one_run() {
    const ShiftStarts starts = shift_starts({std::nullopt});
    for (const Run& run : runs()) {
      for (std::size_t by = run.num_repeats; by > 0; by /= 2) {
        for (const auto& start : starts) {
          if (shorten_run(run.begin, by * run.period, by, start)) return true;
        }
      }
    }
    return false;
  }

  /// Removes `length` commands from `begin` on, and `by` from one count or list up to there. A count
  /// of blocks decreases by less.
  bool shorten_run(std::size_t begin, std::size_t length, std::size_t by,
                   std::optional<std::uint32_t> start) {
    const std::size_t end = begin + length;
    for (const Count& count : counts()) {
      if (count.step > end) break;
      for (auto amount = static_cast<std::uint32_t>(by); amount > 0; amount /= 2) {
        if (count.value < amount) continue;
        if (attempt_lower({count.ordinal}, amount, start, begin, end)) return true;
      }
    }
    std::size_t num_lists = 0;
    for_each_list(best_, [&](const NumberList&, Domain, std::size_t step) {
      if (step <= end) ++num_lists;
    });
    for (std::size_t chosen = 0; chosen < num_lists; ++chosen) {
      const bool shortened = attempt([&](Edited& scenario) {
        std::size_t at = 0;
        for_each_list(scenario, [&](NumberList& list, Domain, std::size_t) {
          if (at++ == chosen) list.resize(list.size() - std::min(by, list.size()));
        });
        lower(scenario, {}, 1, start);
        erase(scenario, begin, end);
      });
      if (shortened) return true;
    }
    return false;
  }

  /// Any two neighbours, and a count of them.
  void drop_pairs_with_counts() {
    if (num_steps() > kPairsCommandsMax) return;
    for (std::size_t begin = num_steps(); begin-- > 0;) {
      if (begin + 2 <= num_steps()) shorten_run(begin, 2, 1, std::nullopt);
    }
  }

  /// One repetition of repeated commands, a count of them, and their jobs; the numbers of later jobs
  /// decrease.
  bool drop_one_run_with_jobs() {
    if (distinct_values({Domain::kNumber}).empty()) return false;
    for (const Run& run : runs()) {
      const std::size_t end = run.begin + run.period;
      for (std::uint32_t num_jobs = 1; num_jobs <= kJobsMax; ++num_jobs) {
        for (const Count& count : counts()) {
          if (count.step > end) break;
          const bool dropped = attempt([&](Edited& scenario) {
            lower(scenario, {count.ordinal}, 1, std::nullopt);
            for_each_number(scenario, [&](std::uint32_t& number, Domain domain, std::size_t step) {
              if (domain == Domain::kNumber && step > end) number -= std::min(number, num_jobs);
            });
            erase(scenario, run.begin, end);
          });
          if (dropped) return true;
        }
      }
    }
    return false;
  }

  struct Run {
    std::size_t begin = 0;
    std::size_t period = 0;       ///< commands
    std::size_t num_repeats = 0;  ///< repetitions after the commands at begin
  };

  std::vector<Run> runs() const {
    std::vector<Run> found;
    for (std::size_t period = 2; period <= kPeriodMax; ++period) {
      for (std::size_t begin = 0; begin + 2 * period <= num_steps(); ++begin) {
        Run run{begin, period, 0};
        while (repeats(begin + period * (run.num_repeats + 1), period)) ++run.num_repeats;
        if (run.num_repeats == 0) continue;
        found.push_back(run);
        begin += period * run.num_repeats;
      }
    }
    return found;
  }

  /// Whether the commands from `index` on repeat those before them.
  bool repeats(std::size_t index, std::size_t period) const {
    if (index + period > num_steps()) return false;
    for (std::size_t at = index; at < index + period; ++at) {
      if (!(best_.steps[at].command == best_.steps[at - period].command)) return false;
    }
    return true;
  }

  /// Drops neighbouring commands that only keep a block in use, together with the block: lowers the
  /// ids after it and the size of the pool.
  bool drop_some_steps_with_blocks() {
    std::vector<std::vector<std::size_t>> sizes{{}};
    for (const Count& count : counts()) {
      if (count.step == 0) sizes.push_back({count.ordinal});
    }
    for (std::size_t length = 1; length <= kNeighboursMax; ++length) {
      for (std::size_t end = num_steps(); end >= length; --end) {
        for (const auto& start : shift_starts()) {
          for (const std::vector<std::size_t>& size : sizes) {
            if (attempt_lower(size, 1, start, end - length, end)) return true;
          }
        }
      }
    }
    return false;
  }

  /// By as much as possible, then half of it, down to one.
  bool lower_together(const std::vector<std::size_t>& ordinals, std::uint32_t most,
                      std::optional<std::uint32_t> start) {
    for (std::uint32_t by = most; by > 0; by /= 2) {
      if (attempt_lower(ordinals, by, start)) return true;
    }
    return false;
  }

  const StillFails& still_fails_;
  const ShrinkOptions& options_;
  Edited best_;
  ScenarioSize size_;
  std::unordered_set<std::size_t> seen_;
  std::size_t tries_ = 0;
  std::size_t accepted_ = 0;
};

}  // namespace

ShrinkResult shrink(Scenario failing, const StillFails& still_fails, const ShrinkOptions& options) {
  return Shrinker(still_fails, options).run(std::move(failing));
}

}  // namespace kvfence
