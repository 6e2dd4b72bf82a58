#include "scenarios/protocol/outside_implementation.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "contract/pool/block_pool_target.h"

namespace kvfence {
namespace {

using block_pool::Config;
using block_pool::GetNewBlocks;
using block_pool::Observation;
using block_pool::TakeEvents;
using std::chrono::milliseconds;

/// A child that is asked for block pools.
class Outside {
 public:
  explicit Outside(std::string command, OutsideOptions options)
      : outside_(BlockPoolTarget::description(), std::move(command), options) {}

  std::string name() const { return outside_.name(); }
  std::size_t window() const { return outside_.window(); }
  std::optional<ImplementationFailure> reset(const Config& config) {
    return outside_.reset(prepared(BlockPoolTarget::description(), kvfence::Config(config)));
  }
  std::optional<ImplementationFailure> submit(const block_pool::Command& command, Observe observe) {
    return outside_.submit(Command(command), observe);
  }
  std::optional<ImplementationFailure> collect(Observation& typed) {
    kvfence::Observation observation(typed);
    auto failure = outside_.collect(observation);
    typed = observation.as<Observation>();
    return failure;
  }

 private:
  OutsideImplementation outside_;
};

const std::string kHello = "-> implementation=toy version=\"1.0\"";
const std::string kNumbers =
    "num_free_blocks=6 num_empty=6 num_cached=0 num_referenced=2 num_cached_keys=0 usage=0.25";
const std::string kState = "free_queue=[2 3] ref_cnts=[0 1] keys=[0x 0x]";

OutsideOptions quiet() {
  OutsideOptions options;
  options.answer_timeout = options.start_timeout = milliseconds(30'000);
  options.child = {.grace = milliseconds(200), .pass_on_stderr = false};
  return options;
}

// A shell script that answers each line with the next of the replies, then runs `after`.
std::string canned(const std::vector<std::string>& replies,
                   const std::string& after = "cat >/dev/null") {
  std::string script = "r() { read -r line; printf '%s\\n' \"$line\" >&2; };";
  for (const std::string& reply : replies) script += "r; printf '%s\\n' '" + reply + "';";
  return script + after;
}

std::string message(const std::optional<ImplementationFailure>& failure) {
  if (!failure) return "no failure";
  using Kind = ImplementationFailure::Kind;
  const std::string what = failure->kind == Kind::kUnsupported   ? "unsupported: "
                           : failure->kind == Kind::kUnavailable ? "unavailable: "
                                                                 : "";
  return what + failure->message;
}

// The failure at the first answer to a command.
std::string first_answer_failure(const std::string& child) {
  Outside outside(child, quiet());
  Observation observation;
  if (auto failure = outside.reset(Config{})) return "at reset: " + failure->message;
  if (auto failure = outside.submit(TakeEvents{}, Observe::kState)) {
    return "at submit: " + failure->message;
  }
  return message(outside.collect(observation));
}

// The failure at the first answer to a command, where everything before it goes well.
std::string failure_of_reply(const std::string& reply) {
  return first_answer_failure(canned({kHello, "->", reply}));
}

std::string reset_failure(const std::string& child) {
  return message(Outside(child, quiet()).reset(Config{}));
}

TEST(OutsideImplementation, SpeaksTheProtocol) {
  testing::internal::CaptureStderr();
  {
    OutsideOptions options = quiet();
    options.child.pass_on_stderr = true;
    Outside outside(canned({kHello, "->", "-> error=none blocks=[1 2] " + kNumbers + " " + kState,
                            "->", "-> " + kNumbers + " error=no_free_blocks",
                            "-> error=none events=[(cleared)] " + kNumbers, "->",
                            "-> error=none events=[] " + kState + " " + kNumbers}),
                    options);
    Observation observation;
    ASSERT_FALSE(outside.reset(Config{}));
    EXPECT_EQ(outside.name(), "toy 1.0");

    ASSERT_FALSE(outside.submit(GetNewBlocks{2}, Observe::kState));
    ASSERT_FALSE(outside.submit(GetNewBlocks{9}, Observe::kNumbers));
    ASSERT_FALSE(outside.submit(TakeEvents{}, Observe::kNumbers));
    ASSERT_FALSE(outside.submit(TakeEvents{}, Observe::kState));

    ASSERT_EQ(message(outside.collect(observation)), "no failure");
    Observation expected;
    expected.blocks.emplace() = {1, 2};
    expected.num_free_blocks = expected.num_empty = 6;
    expected.num_referenced = 2;
    expected.usage = 0.25;
    expected.free_queue.emplace() = {2, 3};
    expected.ref_cnts.emplace() = {0, 1};
    expected.keys.emplace().resize(2);
    EXPECT_EQ(observation, expected);

    ASSERT_EQ(message(outside.collect(observation)), "no failure");
    expected.error = ErrorCode::kNoFreeBlocks;
    expected.blocks.reset();
    expected.free_queue.reset();
    expected.ref_cnts.reset();
    expected.keys.reset();
    EXPECT_EQ(observation, expected);

    ASSERT_EQ(message(outside.collect(observation)), "no failure");
    expected.error = ErrorCode::kNone;
    expected.events.emplace().emplace_back(AllBlocksCleared{});
    EXPECT_EQ(observation, expected);

    ASSERT_EQ(message(outside.collect(observation)), "no failure");
    EXPECT_TRUE(observation.keys.has_value());
    EXPECT_TRUE(observation.events->empty());
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "target block_pool\n" + print(config_line(kvfence::Config(Config{}))) +
                "\n"
                "get_new_blocks num_blocks=2\n"
                "observe state=false\n"
                "get_new_blocks num_blocks=9\n"
                "take_events\n"
                "observe state=true\n"
                "take_events\n");
}

TEST(OutsideImplementation, MembersThatItDoesNotReportKeepWhatTheyHeld) {
  Outside outside(canned({"-> implementation=toy observes=[error blocks usage]", "->",
                          "-> error=none usage=0.5"}),
                  quiet());
  ASSERT_EQ(message(outside.reset(Config{})), "no failure");
  EXPECT_EQ(outside.name(), "toy");
  ASSERT_FALSE(outside.submit(TakeEvents{}, Observe::kState));
  Observation observation;
  observation.blocks.emplace() = {1};
  observation.free_queue.emplace() = {7};
  observation.num_cached = 5;
  ASSERT_EQ(message(outside.collect(observation)), "no failure");
  EXPECT_FALSE(observation.blocks.has_value());
  EXPECT_EQ(*observation.free_queue, std::vector<BlockId>{7});
  EXPECT_EQ(observation.num_cached, 5U);
  EXPECT_EQ(observation.usage, 0.5);
}

TEST(OutsideImplementation, ObservesHasToNameMembers) {
  EXPECT_EQ(reset_failure(canned({"-> implementation=toy observes=[]"})).substr(0, 74),
            "sent malformed output: found observes=[], expected a list with one of erro");
  EXPECT_EQ(reset_failure(canned({"-> implementation=toy observes=[error colour]"})).substr(0, 66),
            "sent malformed output: found observes with colour, expected one of");
  EXPECT_EQ(reset_failure(canned({"-> implementation=toy observes=error"})),
            "sent malformed output: found observes=error, expected a list such as [error blocks]");
}

TEST(OutsideImplementation, ObservesHasToNameWhatCanBeCompared) {
  const std::string expected =
      ", expected error, and at least one member of an answer and one of the state";
  for (const auto& [observes, missing] : std::vector<std::pair<std::string, std::string>>{
           {"[blocks usage]", "error"},
           {"[error usage]", "any answer"},
           {"[error blocks]", "anything of the state"}}) {
    EXPECT_EQ(reset_failure(canned({"-> implementation=toy observes=" + observes})),
              "sent malformed output: found observes without " + missing + expected);
  }
}

TEST(OutsideImplementation, ListsWhatItDoesNotReport) {
  OutsideImplementation outside(
      BlockPoolTarget::description(),
      canned({"-> implementation=toy observes=[error hit blocks success events num_free_blocks "
              "num_empty num_cached num_referenced num_cached_keys usage free_queue] "
              "corrections=3"}),
      quiet());
  EXPECT_FALSE(outside.described());
  ASSERT_EQ(message(outside.start()), "no failure");
  ASSERT_TRUE(outside.described());
  EXPECT_EQ(outside.described()->unreported, (std::vector<std::string>{"ref_cnts", "keys"}));
  EXPECT_EQ(outside.described()->reported.size(), 12u);
  EXPECT_EQ(outside.described()->corrections, 3u);
}

TEST(OutsideImplementation, HandshakeHasToNameTheImplementation) {
  EXPECT_EQ(reset_failure(canned({"->"})),
            "sent malformed output: found no name in the answer to 'target', expected "
            "implementation=...");
  EXPECT_EQ(reset_failure(canned({"-> implementation=toy colour=red"})),
            "sent malformed output: found colour=red, expected only implementation, version, "
            "corrections, observes");
  EXPECT_EQ(reset_failure(canned({"-> implementation=7"})),
            "sent malformed output: found implementation=7, expected a word or a quoted string");
}

TEST(OutsideImplementation, ExitIsReportedWithTheLastLineOfStderr) {
  EXPECT_EQ(reset_failure("echo oh >&2; echo last >&2; exit 3"),
            "exited with status 3 while an answer was expected; last on its stderr: 'last'");
  EXPECT_EQ(first_answer_failure(canned({kHello, "->"}, "exit 4")).substr(0, 55),
            "exited with status 4 while an answer was expected; last");
  EXPECT_EQ(first_answer_failure(canned({kHello, "->"}, "kill -11 $$")).substr(0, 46),
            "was killed by signal 11 (Segmentation fault) w");
}

TEST(OutsideImplementation, CommandThatIsNotThere) {
  const std::string text = reset_failure("kvfence-no-such-command");
  EXPECT_EQ(text.substr(0, 35), "unavailable: exited with status 127");
  EXPECT_NE(text.find("kvfence-no-such-command"), std::string::npos) << text;
}

TEST(OutsideImplementation, TimesOutAtTheLimit) {
  OutsideOptions options = quiet();
  options.answer_timeout = milliseconds(200);
  Outside outside(canned({kHello, "->"}), options);
  ASSERT_EQ(message(outside.reset(Config{})), "no failure");
  ASSERT_FALSE(outside.submit(TakeEvents{}, Observe::kState));
  Observation observation;
  EXPECT_EQ(message(outside.collect(observation)).substr(0, 22), "timed out after 200 ms");

  options.start_timeout = milliseconds(100);
  EXPECT_EQ(
      message(Outside("cat >/dev/null", options).reset(Config{})),
      "timed out after 100 ms while an answer was expected, the first one: does it flush what "
      "it writes?");
}

TEST(OutsideImplementation, ClosedOutput) {
  EXPECT_EQ(first_answer_failure(canned({kHello, "->"}, "exec >&-; cat >/dev/null")).substr(0, 18),
            "closed its output ");
}

TEST(OutsideImplementation, MalformedOutput) {
  EXPECT_EQ(reset_failure("echo Loading the model...; cat >/dev/null").substr(0, 63),
            "sent malformed output: found 'Loading the model...' (column 13:");
  EXPECT_EQ(failure_of_reply("hello"),
            "sent malformed output: found 'hello', expected an answer, '-> key=value ...'");
  EXPECT_EQ(failure_of_reply("").substr(0, 40), "sent malformed output: found '', expecte");
  EXPECT_EQ(failure_of_reply("take_events -> error=none").substr(0, 44),
            "sent malformed output: found 'take_events ->");
  EXPECT_EQ(failure_of_reply("-> error=none colour=red " + kNumbers).substr(0, 45),
            "sent malformed output: found key 'colour' in ");
  EXPECT_EQ(
      failure_of_reply("->"),
      "sent malformed output: found an answer to a command without error, expected error=...");
  EXPECT_EQ(failure_of_reply("-> error=none"),
            "sent malformed output: found an answer to a command without num_free_blocks, expected "
            "num_free_blocks=...");
  EXPECT_EQ(first_answer_failure("head -c 1000 /dev/urandom | tr -d '\\n'; echo; cat >/dev/null")
                .substr(0, 40),
            "at reset: sent malformed output: found '");
}

TEST(OutsideImplementation, KeysMissingFromObservesAreMalformed) {
  EXPECT_EQ(
      first_answer_failure(canned({"-> implementation=toy observes=[error blocks num_free_blocks]",
                                   "->", "-> error=none num_free_blocks=1 usage=0.5"})),
      "sent malformed output: found key 'usage' in '-> error=none num_free_blocks=1 usage=0.5', "
      "expected "
      "one of error, blocks, num_free_blocks");
}

TEST(OutsideImplementation, WrongValues) {
  EXPECT_EQ(
      failure_of_reply("-> error=none blocks=7 " + kNumbers),
      "sent malformed output: found blocks=7, expected a list of integers from 0 to 4294967295");
  EXPECT_EQ(failure_of_reply("-> error=none hit=1 " + kNumbers),
            "sent malformed output: found hit=1, expected true or false");
  EXPECT_EQ(failure_of_reply("-> error=out_of_luck " + kNumbers).substr(0, 48),
            "sent malformed output: found error=out_of_luck, ");
}

TEST(OutsideImplementation, HugeLine) {
  EXPECT_EQ(first_answer_failure(canned({kHello, "->"}, "yes | tr -d '\\n'")).substr(0, 42),
            "wrote a line of more than 16777216 bytes w");
}

TEST(OutsideImplementation, UnexpectedAnswers) {
  EXPECT_EQ(reset_failure(canned({kHello + "\n-> error=none"})).substr(0, 23),
            "sent malformed output: ");
  // Two answers to `config`, written at once.
  EXPECT_EQ(first_answer_failure(canned({kHello, "->\n->"})).substr(0, 15), "at submit: sent");
}

TEST(OutsideImplementation, LineThatItDoesNotUnderstand) {
  EXPECT_EQ(failure_of_reply("-> malformed=\"no verb like that\""),
            "did not understand a line: \"no verb like that\"");
}

TEST(OutsideImplementation, UnsupportedIsToldFromFailure) {
  Outside target(canned({"-> unsupported=\"no such target\""}), quiet());
  EXPECT_EQ(message(target.reset(Config{})), "unavailable: no such target");

  Outside config(canned({kHello, "-> unsupported=\"needs 0.23.0\"", "->"}), quiet());
  EXPECT_EQ(message(config.reset(Config{})), "unsupported: needs 0.23.0");
  EXPECT_EQ(message(config.reset(Config{})), "no failure");

  Outside dead("exit 1", quiet());
  EXPECT_EQ(dead.reset(Config{})->kind, ImplementationFailure::Kind::kFailed);
  EXPECT_EQ(failure_of_reply("-> unsupported=later").substr(0, 29),
            "sent malformed output: found ");
}

TEST(OutsideImplementation, AFailedChildIsReplacedAtTheNextReset) {
  Outside outside(canned({kHello, "->"}, "exit 4"), quiet());
  Observation observation;
  for (int run = 0; run < 2; ++run) {
    ASSERT_EQ(message(outside.reset(Config{})), "no failure");
    ASSERT_FALSE(outside.submit(TakeEvents{}, Observe::kNumbers));
    EXPECT_EQ(message(outside.collect(observation)).substr(0, 20), "exited with status 4");
  }
  EXPECT_EQ(message(outside.submit(TakeEvents{}, Observe::kNumbers)), "no failure");
  EXPECT_EQ(message(outside.collect(observation)), "is not running");
}

TEST(OutsideImplementation, ResetDropsOutstandingAnswersAndKeepsTheChild) {
  const std::string one = "-> error=none num_free_blocks=1";
  const std::string two = "-> error=none num_free_blocks=2";
  Outside outside(canned({"-> implementation=toy observes=[error blocks num_free_blocks]", "->",
                          one, "->", one, one, "->", two}),
                  quiet());
  ASSERT_EQ(message(outside.reset(Config{})), "no failure");
  Observation observation;
  ASSERT_FALSE(outside.submit(TakeEvents{}, Observe::kState));
  ASSERT_FALSE(outside.submit(TakeEvents{}, Observe::kNumbers));
  ASSERT_FALSE(outside.submit(TakeEvents{}, Observe::kNumbers));
  ASSERT_EQ(message(outside.collect(observation)), "no failure");
  ASSERT_EQ(message(outside.reset(Config{})), "no failure");
  ASSERT_FALSE(outside.submit(TakeEvents{}, Observe::kNumbers));
  ASSERT_EQ(message(outside.collect(observation)), "no failure");
  EXPECT_EQ(observation.num_free_blocks, 2U);
}

TEST(OutsideImplementation, TheWholeWindowMayBeOutstanding) {
  Outside outside(canned({"-> implementation=toy observes=[error blocks num_free_blocks]", "->"},
                         "while read -r line; do echo '-> error=none num_free_blocks=1'; done"),
                  quiet());
  ASSERT_EQ(message(outside.reset(Config{})), "no failure");
  Observation observation;
  const GetNewBlocks command{1};
  for (std::size_t count = 0; count < outside.window(); ++count) {
    ASSERT_FALSE(outside.submit(command, Observe::kState));
  }
  for (std::size_t count = 0; count < outside.window(); ++count) {
    ASSERT_EQ(message(outside.collect(observation)), "no failure");
  }
}

}  // namespace
}  // namespace kvfence
