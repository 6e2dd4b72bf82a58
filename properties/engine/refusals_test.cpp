// Goal: what an assembly lacks is refused as the shared table says, and the rules of every assembly
// expect it so. Method: each assembly in its plainest configuration; every command type once as it
// is, then those whose members decide, each in a run of its own behind one request; what the
// reference answers goes to the table and to the rules, once as it is and once with another error.

#include "properties/engine/refusals.h"

#include <cstddef>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "contract/core/line.h"
#include "contract/core/observation.h"
#include "contract/core/status.h"
#include "contract/core/target.h"
#include "properties/engine/checks.h"
#include "scenarios/targets/targets.h"

namespace kvfence::engine {
namespace {

Config config_of(Assembly assembly) {
  Config config;
  config.num_gpu_blocks = 8;
  config.hash_block_size = 2;
  config.groups = {{.kind = KVCacheSpecKind::kFullAttention, .block_size = 2}};
  config.max_model_len = 16;
  config.max_num_batched_tokens = 16;
  make_assembly(assembly, config);
  return config;
}

template <std::size_t... kIndices>
std::vector<Command> each_once(std::index_sequence<kIndices...>) {
  return {Command(std::in_place_index<kIndices>)...};
}

AddRequest request(std::string id) {
  AddRequest added;
  added.id = std::move(id);
  added.tokens = {1, 2, 3};
  return added;
}

std::string_view verb_of(const Command& command) {
  return std::visit([](const auto& typed) { return std::decay_t<decltype(typed)>::kVerb; },
                    command);
}

template <class C>
Command at_consumer(C command) {
  command.engine = EngineRole::kConsumer;
  return command;
}

/// Every type as it is, and those whose members decide.
std::vector<Command> table() {
  std::vector<Command> commands =
      each_once(std::make_index_sequence<std::variant_size_v<Command>>());
  AddRequest remote = request("B");
  remote.do_remote_decode = true;
  AddRequest salted = request("B");
  salted.cache_salt = "salt";
  AddRequest adapted = request("B");
  adapted.lora_name = "adapter";
  AddRequest again = remote;
  again.id = "A";
  Update received;
  received.finished_recving = {"A"};
  Update sent_by_nobody;
  sent_by_nobody.finished_sending = {"nobody"};
  Update lost;
  lost.invalid_blocks = {1};
  Update sampled;
  sampled.token = 7;
  Update of_nobody;
  of_nobody.samples = {{"nobody", {1}}};
  const std::vector<Command> more = {
      request("B"),
      remote,
      salted,
      adapted,
      again,
      at_consumer(request("B")),
      at_consumer(remote),
      at_consumer(Schedule{}),
      at_consumer(Update{}),
      at_consumer(FinishRequests{}),
      at_consumer(FinishAllRequests{}),
      at_consumer(SetPauseState{}),
      at_consumer(ResetPrefixCache{}),
      received,
      sent_by_nobody,
      lost,
      sampled,
      of_nobody,
      HandOver{.request = "A", .id = "B"},
      UpdateDraftTokenIds{"A", {}},
      UpdateDraftTokenIds{"A", {1}},
      GrammarCompiled{"A"},
      ScriptConnector{.request = "A"},
      FinishRequests{{"A"}},
      FinishRequests{{"nobody"}},
      ResetPrefixCache{.reset_running_requests = true},
      ResetPrefixCache{.reset_connector = true},
      ResetPrefixCache{.connector_fails = true},
      Advance{"nowhere"},
      Advance{"compute", 1},
      FailNext{"compute"},
      FailNext{"load", 1},
      FailNext{"load", 0, "none"},
      FailNext{"load", 0, "sticky"},
  };
  commands.insert(commands.end(), more.begin(), more.end());
  return commands;
}

/// One request of the reference, and a command behind it.
struct Answered {
  ErrorCode error = ErrorCode::kNone;
  std::optional<ErrorCode> foreign;  ///< what the table says
  std::string alarm;                 ///< the member over which the rules trip, if they do
};

/// told: the rules are told this error in the place of the answer's.
Answered answer(Assembly assembly, const Command& command, std::optional<ErrorCode> told = {}) {
  const kvfence::Setup setup =
      prepared(EngineTarget::description(), kvfence::Config(config_of(assembly)));
  const auto side = engine_sides().make_reference();
  const auto rules = checks_of(assembly).make_rules(setup);
  const auto world = EngineTarget::description().make_world(setup);
  EXPECT_FALSE(side->reset(setup));
  Answered answered;
  std::size_t step = 0;
  for (const Command& each : {Command(request("A")), command}) {
    const kvfence::Command erased(each);
    kvfence::Observation shown;
    world->apply(erased);
    EXPECT_FALSE(side->apply(erased, *world, Observe::kState, shown));
    auto& typed = shown.numbers.reuse<Observation>();
    answered.error = typed.error;
    answered.foreign = kvfence::detail::refusal_of_foreign(each, setup.as<EngineSetup>(),
                                                           typed_world<World>(*world));
    if (step > 0 && told) typed.error = *told;
    const auto found = rules->check(erased, shown, *world, step++);
    if (found) answered.alarm = found->field;
  }
  return answered;
}

std::string printed(const Command& command) { return print(to_line(kvfence::Command(command))); }

class Refusals : public ::testing::TestWithParam<AssemblyInfo> {};
INSTANTIATE_TEST_SUITE_P(EveryAssembly, Refusals, ::testing::ValuesIn(kAssemblies),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(Refusals, AreThoseOfTheReferenceAndOfTheRules) {
  const Assembly assembly = GetParam().assembly;
  std::size_t num_foreign = 0;
  for (const Command& command : table()) {
    SCOPED_TRACE(printed(command));
    const Answered answered = answer(assembly, command);
    EXPECT_EQ(answered.alarm, "");
    if (!answered.foreign) continue;
    ++num_foreign;
    EXPECT_EQ(to_text(answered.error), to_text(*answered.foreign));
    EXPECT_EQ(answer(assembly, command, ErrorCode::kNone).alarm, "error");
    EXPECT_EQ(answer(assembly, command, ErrorCode::kQueueEmpty).alarm, "error");
  }
  EXPECT_GT(num_foreign, 10U);
}

/// What is left out is refused for other names, or for what the facet was told.
TEST_P(Refusals, AreAllThatTheAssemblyLacks) {
  std::set<std::string_view> left_out;
  for (const Command& command : table()) {
    const Answered answered = answer(GetParam().assembly, command);
    const bool lacks =
        answered.error == ErrorCode::kNotInConfig || answered.error == ErrorCode::kUnknownRequest;
    if (lacks && !answered.foreign) left_out.insert(verb_of(command));
  }
  std::set<std::string_view> known = {FinishRequests::kVerb};
  if (GetParam().assembly != Assembly::kOffloadingOnDevice) known.insert(Update::kVerb);
  if (GetParam().assembly == Assembly::kPrefillDecode) {
    known.insert({HandOver::kVerb, nixl::LoseNotice::kVerb, nixl::RepeatNotice::kVerb});
  }
  EXPECT_EQ(left_out, known);
}

}  // namespace
}  // namespace kvfence::engine
