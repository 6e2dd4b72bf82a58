// Goal: shrinking ends at the smallest possible scenario, also if several commands have to change
// together. Method: a toy target, predicates that say what is needed, exact final texts.

#include "properties/core/shrink.h"
#include "contract/core/describe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "contract/eviction/eviction_target.h"
#include "contract/kv_cache/kv_cache_target.h"

namespace kvfence {
namespace {

using kvfence::operator==;

struct Open {
  static constexpr Verb kVerb{"open", ""};
  std::string name;
  std::vector<std::uint32_t> tokens;
  std::optional<std::string> salt;
  static void declare(auto& fields) {
    fields.add("name", &Open::name, Domain::kRequest, "");
    fields.add("tokens", &Open::tokens, Domain::kTokens, "");
    fields.optional("salt", &Open::salt, Domain::kText, "");
  }
};

struct Take {
  static constexpr Verb kVerb{"take", ""};
  std::uint32_t count = 0;
  static void declare(auto& fields) { fields.add("count", &Take::count, Domain::kCount, ""); }
};

struct Use {
  static constexpr Verb kVerb{"use", ""};
  std::vector<std::uint32_t> blocks;
  std::uint32_t num_full = 0;
  bool back = false;
  std::optional<std::vector<bool>> mask;
  static void declare(auto& fields) {
    fields.add("blocks", &Use::blocks, Domain::kBlocks, "");
    fields.optional("num_full", &Use::num_full, Domain::kBlockCount, "");
    fields.optional("back", &Use::back, Domain::kFlag, "");
    fields.optional("mask", &Use::mask, Domain::kMask, "");
  }
};

struct Close {
  static constexpr Verb kVerb{"close", ""};
  std::string name;
  static void declare(auto& fields) { fields.add("name", &Close::name, Domain::kRequest, ""); }
};

struct End {
  static constexpr Verb kVerb{"end", ""};
  std::uint32_t job = 0;
  static void declare(auto& fields) { fields.add("job", &End::job, Domain::kNumber, ""); }
};

struct Note {
  static constexpr std::string_view kWord = "note";
  std::string name;
  std::vector<std::uint32_t> tokens;
  static void declare(auto& fields) {
    fields.add("name", &Note::name, Domain::kRequest, "");
    fields.add("tokens", &Note::tokens, Domain::kTokens, "");
  }
};

struct Report {
  static constexpr Verb kVerb{"report", ""};
  std::vector<std::string> names;
  std::vector<Note> notes;
  static void declare(auto& fields) {
    fields.optional("names", &Report::names, Domain::kRequests, "");
    fields.optional("notes", &Report::notes, Domain::kSamples, "");
  }
};

struct Toy {
  static constexpr std::string_view kName = "toy";
  struct Config {
    std::uint32_t size = 8;
    bool fast = true;
    std::optional<bool> prepend;
    static void declare(auto& fields) {
      fields.add("size", &Config::size, "");
      fields.add("fast", &Config::fast, "");
      fields.optional("prepend", &Config::prepend, "");
    }
  };
  using Command = std::variant<Open, Take, Use, Close, Report, End>;
  struct Observation {
    std::uint32_t seen = 0;
    static void declare(auto& fields) {
      fields.add("seen", &Observation::seen, Domain::kState, "");
    }
  };
  struct World {
    void apply(const Command&) {}
  };
  using Setup = Config;
  static constexpr std::string_view kDoc = "";
  static Parsed<Setup> prepare(const Config& config, std::string_view, Position) {
    if (config.size > 0) return config;
    return InputError{{}, {}, "size=0", "at least 1"};
  }
  static const Target& description() {
    static const Target kDescription = describe<Toy>();
    return kDescription;
  }
};

using ToyScenario = Scenario;
using Fails = std::function<bool(const Scenario& scenario)>;

ShrinkResult shrink(Scenario failing, const Fails& fails, const ShrinkOptions& options = {}) {
  return kvfence::shrink(
      std::move(failing), [&](const Scenario& tried, const Setup&) { return fails(tried); },
      options);
}

ToyScenario scenario(const std::string& text) {
  const Parsed<Document> document = parse_document("target toy\n" + text);
  EXPECT_TRUE(document);
  const Parsed<ToyScenario> parsed = scenario_from_document(Toy::description(), *document);
  EXPECT_TRUE(parsed) << parsed.error().to_text();
  return *parsed;
}

/// Without the target line.
std::string text_of(const ToyScenario& scenario) {
  return print(to_document(scenario)).substr(std::string("target toy\n").size());
}

template <class Alternative>
std::vector<Alternative> all(const ToyScenario& scenario) {
  std::vector<Alternative> found;
  for (const Step& step : scenario.steps) {
    const auto& typed = step.command.as<Toy::Command>();
    if (const auto* command = std::get_if<Alternative>(&typed)) found.push_back(*command);
  }
  return found;
}

/// Shrinks, checks that the result is a fixpoint, and returns its text.
template <class StillFails>
std::string shrunk(const std::string& text, StillFails still_fails) {
  const ShrinkResult result = shrink(scenario(text), still_fails);
  EXPECT_TRUE(result.reproduced);
  EXPECT_TRUE(result.at_fixpoint);
  EXPECT_TRUE(still_fails(result.scenario));
  const ShrinkResult again = shrink(result.scenario, still_fails);
  EXPECT_EQ(again.accepted, 0u) << text_of(again.scenario);
  return text_of(result.scenario);
}

bool takes_three_before_a_close(const ToyScenario& scenario) {
  bool taken = false;
  for (const Step& step : scenario.steps) {
    const auto& command = step.command.as<Toy::Command>();
    const auto* take = std::get_if<Take>(&command);
    taken = taken || (take && take->count >= 3);
    if (taken && std::get_if<Close>(&command)) return true;
  }
  return false;
}

TEST(Shrink, KeepsOnlyTheCommandsThatMatter) {
  const std::string text =
      "config size=60 fast=false prepend=true\n"
      "open name=first tokens=[4 5 6]\n"
      "take count=1\n"
      "take count=900\n"
      "use blocks=[4 5] back=true\n"
      "close name=first\n"
      "take count=7\n"
      "close name=second\n";

  EXPECT_EQ(shrunk(text, takes_three_before_a_close),
            "config size=1 fast=true\n"
            "take count=3\n"
            "close name=A\n");
}

TEST(Shrink, SimplifiesEveryKindOfArgument) {
  const auto fails = [](const ToyScenario& candidate) {
    const std::vector<Open> opens = all<Open>(candidate);
    const std::vector<Use> uses = all<Use>(candidate);
    return opens.size() == 1 && uses.size() == 1 && opens[0].tokens.size() >= 2 &&
           uses[0].mask.has_value() && !uses[0].mask->empty();
  };

  EXPECT_EQ(shrunk("open name=r tokens=[700 800 900 1000] salt=pepper\n"
                   "use blocks=[3 1 2] back=true mask=[false true false]\n",
                   fails),
            "config size=1 fast=true\n"
            "open name=A tokens=[0 0]\n"
            "use blocks=[] mask=[true]\n");
}

TEST(Shrink, FindsThresholdsInLogarithmicTime) {
  const ShrinkResult result = shrink(scenario("config size=1 fast=true\ntake count=4000000000\n"),
                                     [](const ToyScenario& candidate) {
                                       const std::vector<Take> takes = all<Take>(candidate);
                                       return takes.size() == 1 && takes[0].count >= 2'000'000'001;
                                     });

  EXPECT_EQ(text_of(result.scenario), "config size=1 fast=true\ntake count=2000000001\n");
  EXPECT_LT(result.tries, 200u);
}

TEST(Shrink, ReplacesABlockIdInAllCommands) {
  const auto fails = [](const ToyScenario& candidate) {
    const std::vector<Use> uses = all<Use>(candidate);
    return uses.size() == 2 && !uses[0].blocks.empty() && uses[0].blocks == uses[1].blocks &&
           uses[0].blocks[0] != 0;
  };

  EXPECT_EQ(shrunk("use blocks=[7]\ntake count=1\nuse blocks=[7]\n", fails),
            "config size=1 fast=true\nuse blocks=[1]\nuse blocks=[1]\n");
}

TEST(Shrink, ShortensListsThatHaveToStayEqual) {
  const auto fails = [](const ToyScenario& candidate) {
    const std::vector<Use> uses = all<Use>(candidate);
    return uses.size() == 2 && uses[0].blocks.size() >= 2 && uses[0].blocks == uses[1].blocks;
  };

  EXPECT_EQ(shrunk("use blocks=[4 9 5 6]\nuse blocks=[4 9 5 6]\n", fails),
            "config size=1 fast=true\nuse blocks=[0 0]\nuse blocks=[0 0]\n");
}

TEST(Shrink, ShortensAlikeListsOfEqualElements) {
  const auto fails = [](const ToyScenario& candidate) {
    const std::vector<Open> opens = all<Open>(candidate);
    return opens.size() == 2 && !opens[0].tokens.empty() && opens[0].tokens == opens[1].tokens;
  };

  EXPECT_EQ(shrunk("open name=A tokens=[0 0 0 0 0]\nopen name=A tokens=[0 0 0 0 0]\n", fails),
            "config size=1 fast=true\nopen name=A tokens=[0]\nopen name=A tokens=[0]\n");
}

TEST(Shrink, KeepsBlockIdsApartWhereTheyHaveToBe) {
  const auto fails = [](const ToyScenario& candidate) {
    const std::vector<Use> uses = all<Use>(candidate);
    return uses.size() == 2 && uses[0].blocks.size() == 2 && uses[0].blocks == uses[1].blocks &&
           uses[0].blocks[0] != uses[0].blocks[1];
  };

  EXPECT_EQ(shrunk("use blocks=[14 9]\nuse blocks=[14 9]\n", fails),
            "config size=1 fast=true\nuse blocks=[0 1]\nuse blocks=[0 1]\n");
}

TEST(Shrink, MergesRequests) {
  const auto fails = [](const ToyScenario& candidate) {
    // Every closed name was opened before, and something is closed.
    std::map<std::string, bool> open;
    bool any = false;
    for (const Step& step : candidate.steps) {
      const auto& typed = step.command.as<Toy::Command>();
      if (const auto* opened = std::get_if<Open>(&typed)) open[opened->name] = true;
      const auto* closed = std::get_if<Close>(&typed);
      if (closed && !open[closed->name]) return false;
      any = any || closed;
    }
    return any && all<Close>(candidate).size() == 2;
  };

  EXPECT_EQ(shrunk("open name=reader tokens=[1]\nopen name=writer tokens=[1]\n"
                   "close name=writer\nclose name=reader\n",
                   fails),
            "config size=1 fast=true\n"
            "open name=A tokens=[]\nclose name=A\nclose name=A\n");
}

TEST(Shrink, NamesRequestsThatCannotBeMerged) {
  const auto fails = [](const ToyScenario& candidate) {
    const std::vector<Close> closes = all<Close>(candidate);
    return closes.size() == 2 && closes[0].name != closes[1].name;
  };

  EXPECT_EQ(shrunk("close name=writer\nclose name=reader\n", fails),
            "config size=1 fast=true\nclose name=A\nclose name=B\n");
}

TEST(Shrink, DropsAndRenamesNamesInLists) {
  const auto fails = [](const ToyScenario& candidate) {
    const std::vector<Close> closes = all<Close>(candidate);
    const std::vector<Report> reports = all<Report>(candidate);
    if (closes.size() != 1 || reports.size() != 1) return false;
    const std::vector<std::string>& names = reports[0].names;
    return names.size() >= 2 && names[0] != names[1] && names[1] == closes[0].name;
  };

  EXPECT_EQ(shrunk("close name=writer\nreport names=[reader writer third reader]\n", fails),
            "config size=1 fast=true\nclose name=A\nreport names=[B A]\n");
}

TEST(Shrink, SimplifiesRecordsFromWithin) {
  const auto fails = [](const ToyScenario& candidate) {
    const std::vector<Close> closes = all<Close>(candidate);
    const std::vector<Report> reports = all<Report>(candidate);
    if (closes.size() != 1 || reports.size() != 1) return false;
    for (const Note& note : reports[0].notes) {
      if (note.name == closes[0].name && note.tokens.size() >= 2) return true;
    }
    return false;
  };

  EXPECT_EQ(shrunk("close name=writer\n"
                   "report names=[third] notes=[(note name=reader tokens=[7]) "
                   "(note name=writer tokens=[5 9 6])]\n",
                   fails),
            "config size=1 fast=true\n"
            "close name=A\n"
            "report notes=[(note name=A tokens=[0 0])]\n");
}

TEST(Shrink, ShortensARunTogetherWithItsCount) {
  const auto fails = [](const ToyScenario& candidate) {
    const std::vector<Take> takes = all<Take>(candidate);
    const std::size_t num_pairs = all<Open>(candidate).size();
    return takes.size() == 1 && num_pairs == takes[0].count && num_pairs > 1 &&
           num_pairs == all<Close>(candidate).size();
  };
  std::string text = "take count=7\n";
  for (int pair = 0; pair < 7; ++pair) text += "open name=A tokens=[]\nclose name=A\n";

  EXPECT_EQ(shrunk(text, fails),
            "config size=1 fast=true\ntake count=2\n"
            "open name=A tokens=[]\nclose name=A\nopen name=A tokens=[]\nclose name=A\n");
}

TEST(Shrink, ReplacesATokenInAllRequests) {
  const auto fails = [](const ToyScenario& candidate) {
    const std::vector<Open> opens = all<Open>(candidate);
    return opens.size() == 2 && opens[0].tokens.size() == 2 && opens[0].tokens == opens[1].tokens &&
           opens[0].tokens[0] > opens[0].tokens[1];
  };

  EXPECT_EQ(shrunk("open name=A tokens=[501 77]\nopen name=A tokens=[501 77]\n", fails),
            "config size=1 fast=true\nopen name=A tokens=[1 0]\nopen name=A tokens=[1 0]\n");
}

TEST(Shrink, RemovesPairsThatBelongTogether) {
  const auto fails = [](const ToyScenario& candidate) {
    return all<Open>(candidate).size() == all<Close>(candidate).size() &&
           all<Take>(candidate).size() == 1;
  };

  EXPECT_EQ(shrunk("open name=A tokens=[]\nopen name=A tokens=[]\ntake count=5\nclose name=A\n"
                   "close name=A\n",
                   fails),
            "config size=1 fast=true\ntake count=0\n");
}

/// The use of the block that the last take handed out; takes hand out 1, 2, 3 ...
bool uses_the_last_block_taken(const ToyScenario& scenario) {
  std::uint32_t last = 0;
  for (const Step& step : scenario.steps) {
    const auto& typed = step.command.as<Toy::Command>();
    if (const auto* take = std::get_if<Take>(&typed)) last += take->count;
    const auto* use = std::get_if<Use>(&typed);
    if (use && last > 0 && use->blocks == std::vector<std::uint32_t>{last}) return true;
  }
  return false;
}

TEST(Shrink, DropsAnAllocationAndRenumbersTheBlocksAfterIt) {
  EXPECT_EQ(shrunk("take count=3\ntake count=2\nuse blocks=[5]\n", uses_the_last_block_taken),
            "config size=1 fast=true\ntake count=1\nuse blocks=[1]\n");
}

TEST(Shrink, ShrinksAPoolTogetherWithTheAllocationThatDrainsIt) {
  const auto fails = [](const ToyScenario& candidate) {
    const std::vector<Take> takes = all<Take>(candidate);
    return takes.size() == 1 && takes[0].count >= 1 &&
           takes[0].count + 1 == candidate.config.as<Toy::Config>().size;
  };

  EXPECT_EQ(shrunk("config size=1000\ntake count=999\n", fails),
            "config size=2 fast=true\ntake count=1\n");
}

TEST(Shrink, ShrinksAPoolTogetherWithTheIdOfItsLastBlock) {
  const auto fails = [](const ToyScenario& candidate) {
    const std::vector<Take> takes = all<Take>(candidate);
    return takes.size() == 1 && takes[0].count + 1 == candidate.config.as<Toy::Config>().size &&
           uses_the_last_block_taken(candidate);
  };

  EXPECT_EQ(shrunk("config size=100\ntake count=99\nuse blocks=[99]\n", fails),
            "config size=2 fast=true\ntake count=1\nuse blocks=[1]\n");
}

TEST(Shrink, FoldsTokensIntoTheDeclaration) {
  const auto fails = [](const ToyScenario& candidate) {
    std::size_t num_tokens = 0;
    for (const Open& open : all<Open>(candidate)) num_tokens += open.tokens.size();
    return num_tokens >= 3;
  };

  EXPECT_EQ(
      shrunk("open name=A tokens=[1]\nopen name=A tokens=[2]\nopen name=A tokens=[3]\n", fails),
      "config size=1 fast=true\nopen name=A tokens=[0 0 0]\n");
}

TEST(Shrink, TakesABlockOutOfListMaskAndCountTogether) {
  const auto fails = [](const ToyScenario& candidate) {
    const std::vector<Use> uses = all<Use>(candidate);
    return uses.size() == 1 && uses[0].mask && uses[0].blocks.size() == uses[0].mask->size() &&
           uses[0].num_full == uses[0].mask->size() &&
           std::count(uses[0].mask->begin(), uses[0].mask->end(), false) == 1;
  };

  EXPECT_EQ(shrunk("use blocks=[4 5 6 7] num_full=4 mask=[true true false true]\n", fails),
            "config size=1 fast=true\nuse blocks=[0] num_full=1 mask=[false]\n");
}

TEST(Shrink, DropsCommandsThatHoldABlockTogetherWithTheBlock) {
  // The last block is used in the end, and each block before it was used alone.
  const auto fails = [](const ToyScenario& candidate) {
    const std::vector<Use> uses = all<Use>(candidate);
    for (std::size_t index = 0; index < uses.size(); ++index) {
      if (uses[index].blocks != std::vector{static_cast<std::uint32_t>(index + 1)}) return false;
    }
    return !uses.empty() && uses.size() + 1 == candidate.config.as<Toy::Config>().size;
  };

  EXPECT_EQ(shrunk("config size=4\nuse blocks=[1]\nuse blocks=[2]\nuse blocks=[3]\n", fails),
            "config size=2 fast=true\nuse blocks=[1]\n");
}

TEST(Shrink, DropsARequestWhoseJobsNoCommandNames) {
  // Each open of a new name makes a job; the last one ends.
  const auto fails = [](const ToyScenario& candidate) {
    std::set<std::string> names;
    for (const Open& open : all<Open>(candidate)) {
      if (!names.insert(open.name).second) return false;
    }
    const std::vector<End> ends = all<End>(candidate);
    return ends.size() == 1 && ends[0].job + 1 == names.size();
  };

  EXPECT_EQ(shrunk("open name=A tokens=[]\nopen name=B tokens=[]\nopen name=C tokens=[]\n"
                   "end job=2\n",
                   fails),
            "config size=1 fast=true\nopen name=A tokens=[]\nend job=0\n");
}

TEST(Shrink, DropsARepetitionWithItsCountAndItsJobs) {
  // The take says how many rounds there are, and each makes a job; the one after them ends.
  const auto fails = [](const ToyScenario& candidate) {
    const std::vector<Take> takes = all<Take>(candidate);
    const std::vector<End> ends = all<End>(candidate);
    const std::size_t num_rounds = all<Use>(candidate).size();
    return takes.size() == 1 && ends.size() == 1 && num_rounds > 0 &&
           all<Close>(candidate).size() == num_rounds && takes[0].count == num_rounds &&
           ends[0].job == num_rounds;
  };

  EXPECT_EQ(shrunk("take count=3\nuse blocks=[]\nclose name=A\nuse blocks=[]\nclose name=A\n"
                   "use blocks=[]\nclose name=A\nend job=3\n",
                   fails),
            "config size=1 fast=true\ntake count=1\nuse blocks=[]\nclose name=A\nend job=1\n");
}

TEST(Shrink, PrefersTheDefaultToTheShorterWord) {
  const auto fails = [](const ToyScenario&) { return true; };

  // `false` is the longer word, and `true` the default.
  EXPECT_EQ(shrunk("config size=3 fast=false prepend=false\n", fails), "config size=1 fast=true\n");
}

TEST(Shrink, ProposesOnlyValidConfigurations) {
  const ShrinkResult result = shrink(scenario("take count=1\n"), [](const ToyScenario& tried) {
    EXPECT_TRUE(prepare(tried));
    return true;
  });

  EXPECT_EQ(text_of(result.scenario), "config size=1 fast=true\n");
}

/// num_takes numbered takes with a close after number `at`.
ToyScenario long_scenario(std::uint32_t num_takes, std::uint32_t at) {
  ToyScenario made(Toy::description());
  for (std::uint32_t number = 0; number < num_takes; ++number) {
    made.steps.emplace_back().command = Command(Toy::Command(Take{number}));
    if (number == at) made.steps.emplace_back().command = Command(Toy::Command(Close{"x"}));
  }
  return made;
}

TEST(Shrink, CutsEverythingAfterTheFailingStepAtOnce) {
  std::vector<std::size_t> sizes;
  ShrinkOptions options;
  options.failing_step = 401;
  options.progress = [&](std::size_t, std::size_t num_commands) { sizes.push_back(num_commands); };

  shrink(long_scenario(1000, 400), takes_three_before_a_close, options);

  ASSERT_FALSE(sizes.empty());
  EXPECT_EQ(sizes.front(), 402u);
}

TEST(Shrink, FindsTheFailingStepByBisection) {
  std::vector<std::size_t> sizes;
  ShrinkOptions options;
  options.tries_max = 12;  // the first run, and one for each halving of 1001 and what rounding adds
  options.progress = [&](std::size_t, std::size_t num_commands) { sizes.push_back(num_commands); };

  shrink(long_scenario(1000, 400), takes_three_before_a_close, options);

  ASSERT_FALSE(sizes.empty());
  EXPECT_EQ(sizes.back(), 402u);
}

TEST(Shrink, StaysWithinItsTries) {
  std::size_t runs = 0;
  ShrinkOptions options;
  options.tries_max = 20;

  const ShrinkResult result = shrink(
      long_scenario(1000, 400),
      [&](const ToyScenario& candidate) {
        ++runs;
        return takes_three_before_a_close(candidate);
      },
      options);

  EXPECT_EQ(runs, 20u);
  EXPECT_EQ(result.tries, 20u);
  EXPECT_FALSE(result.at_fixpoint);
  EXPECT_TRUE(takes_three_before_a_close(result.scenario));
}

TEST(Shrink, IsDeterministic) {
  const auto once = shrink(long_scenario(300, 200), takes_three_before_a_close);
  const auto twice = shrink(long_scenario(300, 200), takes_three_before_a_close);

  EXPECT_EQ(once.scenario, twice.scenario);
  EXPECT_EQ(once.tries, twice.tries);
  EXPECT_EQ(once.accepted, twice.accepted);
}

TEST(Shrink, NeverRunsTheSameScenarioTwice) {
  std::map<std::string, int> runs;

  shrink(long_scenario(30, 20), [&](const ToyScenario& candidate) {
    ++runs[text_of(candidate)];
    return takes_three_before_a_close(candidate);
  });

  for (const auto& run : runs) EXPECT_EQ(run.second, 1) << run.first;
}

TEST(Shrink, ReturnsAScenarioThatDoesNotFailAgain) {
  const ToyScenario given = scenario("take count=1 -> seen=3\nclose name=x\n");

  const ShrinkResult result = shrink(given, takes_three_before_a_close);

  EXPECT_FALSE(result.reproduced);
  EXPECT_EQ(result.tries, 1u);
  EXPECT_EQ(result.scenario, given);
}

TEST(Shrink, DropsExpectations) {
  const auto fails = [](const ToyScenario& candidate) { return candidate.steps.size() == 2; };
  const ShrinkResult dropped =
      shrink(scenario("take count=1 -> seen=3\ntake count=2 -> seen=4\n"), fails);
  EXPECT_EQ(text_of(dropped.scenario), "config size=1 fast=true\ntake count=0\ntake count=0\n");
}

/// Shrinks a scenario of that target and returns its text without the target line.
template <class Target, class StillFails>
std::string shrunk_text(const std::string& text, StillFails still_fails) {
  const std::string target_line = "target " + std::string(Target::kName) + "\n";
  const Parsed<Document> document = parse_document(target_line + text);
  EXPECT_TRUE(document);
  const auto parsed = scenario_from_document(Target::description(), *document);
  EXPECT_TRUE(parsed) << parsed.error().to_text();
  const ShrinkResult result = shrink(*parsed, still_fails);
  EXPECT_TRUE(result.reproduced);
  EXPECT_TRUE(result.at_fixpoint);
  return print(to_document(result.scenario)).substr(target_line.size());
}

TEST(Shrink, SimplifiesRecordsInAConfiguration) {
  const auto fails = [](const Scenario& candidate) {
    const auto& groups = candidate.config.as<kv_cache::Config>().groups;
    return std::any_of(groups.begin(), groups.end(), [](const KVCacheSpec& spec) {
      return spec.kind == KVCacheSpecKind::kMamba && spec.mamba_align &&
             spec.num_speculative_blocks >= 2;
    });
  };

  const std::string text = shrunk_text<KVCacheTarget>(
      "config num_gpu_blocks=20 hash_block_size=4 max_model_len=40 groups=[(full block_size=8) "
      "(mamba block_size=4 align=true spec_blocks=5) (sliding block_size=4 window=9)]\n",
      fails);

  // Block sizes and hash_block_size only shrink together.
  EXPECT_NE(text.find(" hash_block_size=1 "), std::string::npos) << text;
  EXPECT_NE(text.find(" groups=[(mamba block_size=1 align=true spec_blocks=2)]"), std::string::npos)
      << text;
  EXPECT_NE(text.find(" max_model_len=1 "), std::string::npos) << text;
}

TEST(Shrink, TreatsTokenCountsAsCounts) {
  const auto fails = [](const Scenario& candidate) {
    std::uint32_t num_tokens = 0;
    std::uint32_t num_computed = 0;
    for (const auto& step : candidate.steps) {
      const auto* slots =
          std::get_if<kv_cache::AllocateSlots>(&step.command.as<kv_cache::Command>());
      if (!slots) continue;
      if (slots->num_computed_tokens != num_computed) return false;
      num_computed += slots->num_new_tokens;
      num_tokens += slots->num_new_tokens;
    }
    return num_tokens >= 3;
  };

  const std::string text = shrunk_text<KVCacheTarget>(
      "config num_gpu_blocks=20\n"
      "allocate_slots request=r7 num_computed_tokens=0 num_new_tokens=9 num_lookahead_tokens=2\n"
      "allocate_slots request=r7 num_computed_tokens=9 num_new_tokens=5\n",
      fails);

  EXPECT_EQ(text.substr(text.find('\n') + 1),
            "allocate_slots request=A num_computed_tokens=0 num_new_tokens=3\n");
}

TEST(Shrink, LowersTokenCountsOfSeveralCommandsTogether) {
  const auto fails = [](const Scenario& candidate) {
    if (candidate.steps.size() != 2) return false;
    const auto* slots =
        std::get_if<kv_cache::AllocateSlots>(&candidate.steps[0].command.as<kv_cache::Command>());
    const auto* cached =
        std::get_if<kv_cache::CacheBlocks>(&candidate.steps[1].command.as<kv_cache::Command>());
    return slots && cached && slots->num_new_tokens >= 2 &&
           slots->num_new_tokens == cached->num_computed_tokens;
  };

  const std::string text = shrunk_text<KVCacheTarget>(
      "config num_gpu_blocks=20\n"
      "allocate_slots request=r7 num_computed_tokens=0 num_new_tokens=9\n"
      "cache_blocks request=r7 num_computed_tokens=9\n",
      fails);

  EXPECT_EQ(text.substr(text.find('\n') + 1),
            "allocate_slots request=A num_computed_tokens=0 num_new_tokens=2\n"
            "cache_blocks request=A num_computed_tokens=2\n");
}

TEST(Shrink, FoldsCommandsThatListKeys) {
  const auto fails = [](const Scenario& candidate) {
    std::vector<std::uint32_t> newest_first;
    std::uint32_t num_evicted = 0;
    for (const auto& step : candidate.steps) {
      if (const auto* touch = std::get_if<eviction::Touch>(&step.command.as<eviction::Command>())) {
        newest_first.insert(newest_first.begin(), touch->keys.begin(), touch->keys.end());
      } else if (const auto* evict =
                     std::get_if<eviction::Evict>(&step.command.as<eviction::Command>())) {
        num_evicted += evict->num_blocks;
      }
    }
    return newest_first == std::vector<std::uint32_t>{1, 0} && num_evicted >= 3;
  };

  const std::string text = shrunk_text<EvictionTarget>(
      "config policy=lru capacity=1\n"
      "touch keys=[0]\n"
      "evict num_blocks=1 protected=[2]\n"
      "touch keys=[1]\n"
      "evict num_blocks=2\n",
      fails);

  // The second touch comes last, so its keys come first.
  EXPECT_EQ(text.substr(text.find('\n') + 1), "touch keys=[1 0]\nevict num_blocks=3\n");
}

}  // namespace
}  // namespace kvfence
