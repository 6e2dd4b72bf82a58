// Goal: reports are right, above all the reference's side under `expected`. Method: golden texts.

#include "properties/report/report.h"

#include <gtest/gtest.h>

namespace kvfence {
namespace {

Document document(std::string_view text) {
  Parsed<Document> parsed = parse_document(text);
  EXPECT_TRUE(parsed) << text;
  return *parsed;
}

Report agreement() {
  Report report;
  report.target = "block_pool";
  report.source = "random, seed 7";
  report.expected_name = "reference";
  report.actual_name = "optimized";
  report.seed = 7;
  report.commands = 1000;
  report.seconds = 0.25;
  return report;
}

Report disagreement() {
  Report report = agreement();
  report.disagreements = 1;
  report.divergence = Divergence{1,         "lockstep", "free_queue[1]",
                                 "[3 2 1]", "[3 10 2]", "free_queue must equal the reference's"};
  report.scenario = document(
      "# shrunk\n"
      "target block_pool\n"
      "config num_gpu_blocks=4\n"
      "get_new_blocks num_blocks=3\n"
      "free_blocks blocks=[3 2 1]\n");
  report.commands_before_shrinking = 812;
  report.reproduce = "kvfence run failure.kvs";
  return report;
}

TEST(ReportText, OfAnAgreement) {
  Report report = agreement();
  report.numbers = {{"episodes", 5}};
  report.reach = {{"eviction", 12, 1}, {"refused", 3, 0}};

  EXPECT_EQ(to_text(report),
            "agree block_pool: optimized equals reference\n"
            "  source     random, seed 7\n"
            "  ran        1,000 commands in 0.25 s, 4,000 per second, 0 disagreements\n"
            "  episodes   5\n"
            "  reached    2 of 2 situations, the rarest refused, 3 times\n");
}

TEST(ReportText, NamesTheOraclesIfOneIsLeftOut) {
  Report report = agreement();
  report.oracles = *oracles_of("rules,expectation");
  EXPECT_EQ(to_text(report),
            "agree block_pool: optimized holds\n"
            "  source     random, seed 7\n"
            "  ran        1,000 commands in 0.25 s, 4,000 per second, 0 disagreements\n"
            "  oracles    expectation,rules alone\n");
  EXPECT_NE(to_json(report).find(R"("oracles":"expectation,rules")"), std::string::npos);
}

TEST(ReportText, ListsWhatTheVerdictDoesNotCover) {
  Report report = agreement();
  report.compared = {"error", "blocks", std::string(90, 'x')};
  report.unreported = {"events", "keys"};
  report.corrections = 1;
  report.refusals.add("profile v0.23, only v0.19 is known", 4'500);
  report.refusals.add("no sinks");

  EXPECT_EQ(to_text(report),
            "agree block_pool: optimized equals reference\n"
            "  source     random, seed 7\n"
            "  ran        1,000 commands in 0.25 s, 4,000 per second, 0 disagreements\n"
            "  compared   error blocks\n"
            "             " +
                std::string(90, 'x') +
                "\n"
                "  unreported events keys\n"
                "  corrected  1 fault of what it drives\n"
                "  refused    4,501 configurations, others drawn instead:\n"
                "             4,500  profile v0.23, only v0.19 is known\n"
                "             1  no sinks\n");
  EXPECT_NE(to_json(report).find(R"("corrections":1,"unreported":["events","keys"],)"
                                 R"("refused":{"profile v0.23, only v0.19 is known":4500,)"
                                 R"("no sinks":1})"),
            std::string::npos);
}

TEST(ReportText, SaysIfAllMembersAreCompared) {
  Report report = agreement();
  report.compared = {"error", "blocks"};
  EXPECT_NE(to_text(report).find("  compared   all 2 members\n"), std::string::npos);
  EXPECT_NE(to_json(report).find(R"("compared":["error","blocks"])"), std::string::npos);
}

TEST(ReportText, OfADisagreementShowsTheReferenceAsExpected) {
  EXPECT_EQ(to_text(disagreement()),
            "FAIL block_pool: optimized differs from reference\n"
            "  rule       free_queue must equal the reference's\n"
            "  seen by    lockstep\n"
            "  step       1 (command 2 of 2): free_blocks blocks=[3 2 1]\n"
            "  field      free_queue[1]\n"
            "  expected   [3 2 1]   reference\n"
            "  actual     [3 10 2]  optimized\n"
            "                ^\n"
            "  source     random, seed 7\n"
            "  ran        1,000 commands in 0.25 s, 4,000 per second, 1 disagreement\n"
            "scenario, 2 commands, shrunk from 812:\n"
            "  # shrunk\n"
            "  target block_pool\n"
            "  config num_gpu_blocks=4\n"
            "  get_new_blocks num_blocks=3\n"
            "> free_blocks blocks=[3 2 1]\n"
            "reproduce: kvfence run failure.kvs\n");
}

TEST(ReportText, MarksTheEndWhereOneListIsShorter) {
  Report report = disagreement();
  report.divergence->expected = "[3]";
  report.divergence->actual = "[3 2]";

  EXPECT_NE(to_text(report).find("  expected   [3]    reference\n"
                                 "  actual     [3 2]  optimized\n"
                                 "               ^\n"),
            std::string::npos)
      << to_text(report);
}

TEST(ReportText, CutsLongListsAroundTheDifference) {
  Report report = disagreement();
  report.divergence->expected = "[";
  for (int index = 0; index < 50; ++index) report.divergence->expected += "0 ";
  report.divergence->actual = report.divergence->expected + "8 6 7 8 9 10]";
  report.divergence->expected += "5 6 7 8 9 10]";

  EXPECT_NE(to_text(report).find("  expected   [... 0 0 0 5 6 7 8 ...]  reference\n"
                                 "  actual     [... 0 0 0 8 6 7 8 ...]  optimized\n"
                                 "                        ^\n"),
            std::string::npos)
      << to_text(report);
}

TEST(ReportText, ShowsTheCommandsBeforeTheStepOfALongScenario) {
  Report report = disagreement();
  std::string text = "target block_pool\nconfig num_gpu_blocks=4\n";
  for (int index = 0; index < 40; ++index) {
    text += "get_new_blocks num_blocks=" + std::to_string(index) + "\n";
  }
  report.scenario = document(text);
  report.divergence->step = 30;
  report.commands_before_shrinking = 0;

  const std::string rendered = to_text(report);

  EXPECT_NE(rendered.find("scenario, 40 commands; the last before the divergence:\n"
                          "  target block_pool\n"
                          "  config num_gpu_blocks=4\n"
                          "  get_new_blocks num_blocks=22\n"),
            std::string::npos)
      << rendered;
  EXPECT_NE(rendered.find("> get_new_blocks num_blocks=30\nreproduce: "), std::string::npos)
      << rendered;
}

TEST(ReportText, NamesTheRuleThatAnImplementationBreaks) {
  Report report = disagreement();
  report.divergence->oracle = "free_queue_is_the_unreferenced";
  const std::string rendered = to_text(report);

  EXPECT_EQ(rendered.substr(0, rendered.find('\n')),
            "FAIL block_pool: optimized breaks free_queue_is_the_unreferenced");
  EXPECT_NE(rendered.find("  expected   [3 2 1]\n  actual     [3 10 2]\n"), std::string::npos)
      << rendered;
}

TEST(ReportText, FailsWhereAGoalIsNotReached) {
  Report report = agreement();
  report.reach = {{"eviction", 0, 1}};

  EXPECT_FALSE(report.passed());
  EXPECT_EQ(to_text(report),
            "FAIL block_pool: 1 goal not reached\n"
            "  source     random, seed 7\n"
            "  ran        1,000 commands in 0.25 s, 4,000 per second, 0 disagreements\n"
            "  reached    0 of 1 situation\n"
            "  MISSED     eviction, 0 times, at least 1 wanted\n");
}

TEST(ReportJson, OfAnAgreement) {
  Report report = agreement();
  report.numbers = {{"episodes", 5}};
  report.reach = {{"eviction", 12, 1}};

  EXPECT_EQ(to_json(report),
            R"({"target":"block_pool","source":"random, seed 7","expected":"reference",)"
            R"("actual":"optimized","passed":true,"seed":7,"commands":1000,"seconds":0.25,)"
            R"("commands_per_second":4000.0,"disagreements":0,"numbers":{"episodes":5.0},)"
            R"("reach":{"eviction":{"count":12,"goal":1}}})");
}

TEST(ReportJson, OfADisagreementShowsTheReferenceAsExpected) {
  EXPECT_EQ(to_json(disagreement()),
            R"({"target":"block_pool","source":"random, seed 7","expected":"reference",)"
            R"("actual":"optimized","passed":false,"seed":7,"commands":1000,"seconds":0.25,)"
            R"("commands_per_second":4000.0,"disagreements":1,)"
            R"("divergence":{"step":1,"oracle":"lockstep","field":"free_queue[1]",)"
            R"("expected":"[3 2 1]","actual":"[3 10 2]",)"
            R"("message":"free_queue must equal the reference's"},)"
            R"("scenario":"# shrunk\ntarget block_pool\nconfig num_gpu_blocks=4\n)"
            R"(get_new_blocks num_blocks=3\nfree_blocks blocks=[3 2 1]\n",)"
            R"("commands_before_shrinking":812,"reproduce":"kvfence run failure.kvs"})");
}

TEST(ReportJson, SurvivesBytesThatAreNoText) {
  Report report = agreement();
  report.actual_name = "child \xff\"\n";

  const std::string json = to_json(report);

  EXPECT_NE(json.find(R"("actual":"child \ufffd\"\n")"), std::string::npos) << json;
}

TEST(ReportJunit, HoldsSeveralReports) {
  Report failed = agreement();
  failed.source = "a<b>&\"c\".kvs";
  failed.reach = {{"eviction", 0, 1}};

  EXPECT_EQ(to_junit({agreement(), failed}, {{"d.kvs", "d.kvs: found none"}}),
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
            "<testsuites tests=\"3\" failures=\"1\" errors=\"1\" time=\"0.5\">\n"
            "  <testsuite name=\"kvfence\" tests=\"3\" failures=\"1\" errors=\"1\" time=\"0.5\">\n"
            "    <testcase classname=\"kvfence.block_pool\" name=\"random, seed 7\""
            " time=\"0.25\"/>\n"
            "    <testcase classname=\"kvfence.block_pool\""
            " name=\"a&lt;b&gt;&amp;&quot;c&quot;.kvs\" time=\"0.25\">\n"
            "      <failure message=\"FAIL block_pool: 1 goal not reached\" type=\"reach\">"
            "FAIL block_pool: 1 goal not reached\n"
            "  source     a&lt;b&gt;&amp;&quot;c&quot;.kvs\n"
            "  ran        1,000 commands in 0.25 s, 4,000 per second, 0 disagreements\n"
            "  reached    0 of 1 situation\n"
            "  MISSED     eviction, 0 times, at least 1 wanted\n"
            "</failure>\n"
            "    </testcase>\n"
            "    <testcase classname=\"kvfence\" name=\"d.kvs\">\n"
            "      <error message=\"d.kvs: found none\"/>\n"
            "    </testcase>\n"
            "  </testsuite>\n"
            "</testsuites>\n");
}

TEST(ReportJunit, KeepsControlAndForeignBytesOutOfXml) {
  Report report = disagreement();
  report.divergence->message = std::string("child said \x01\xff and \0", 19);

  const std::string xml = to_junit({report});

  EXPECT_NE(xml.find("child said \\x01\\xff and \\x00\n"), std::string::npos) << xml;
  EXPECT_NE(xml.find("type=\"lockstep\">FAIL"), std::string::npos) << xml;
  EXPECT_NE(xml.find("&gt; free_blocks blocks=[3 2 1]\n"), std::string::npos) << xml;
}

TEST(Report, HasNoRateIfNoTimePassed) {
  Report report = agreement();
  report.seconds = 0;

  EXPECT_EQ(report.commands_per_second(), 0);
}

}  // namespace
}  // namespace kvfence
