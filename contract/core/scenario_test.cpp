// Goal: a file holds one episode or several, with expectations or with digests, and says what is
// wrong with it and where. Method: small documents of the pool, each of one point.

#include "contract/core/scenario.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "contract/pool/block_pool_target.h"

namespace kvfence {
namespace {

const Target& target() { return BlockPoolTarget::description(); }

Document document_of(std::string_view text) {
  const Parsed<Document> document = parse_document(text, "a.kvs");
  EXPECT_TRUE(document) << text;
  return *document;
}

std::string error_of(std::string_view text) {
  const auto parsed = scenarios_from_document(target(), document_of(text), "a.kvs");
  return parsed ? "no error" : parsed.error().to_text();
}

TEST(Episodes, BeginWithTheirTargetAndTheCommentsAboveIt) {
  const std::string first = "# one\n\ntarget block_pool\nconfig num_gpu_blocks=4\ntake_events\n";
  const std::string second = "# two\ntarget block_pool\n# inside\ntake_events\n# end\n";
  const std::vector<Document> episodes = episodes_of(document_of(first + second));
  ASSERT_EQ(episodes.size(), 2u);
  EXPECT_EQ(print(episodes[0]), first);
  EXPECT_EQ(print(episodes[1]), second);
  EXPECT_EQ(episodes_of(document_of("# nothing\n")).size(), 1u);
  EXPECT_EQ(episodes_of(document_of("target block_pool\ntarget eviction\n")).size(), 2u);
}

TEST(Episodes, AreNumberedWhereThereAreSeveral) {
  const std::string one = "target block_pool\ntake_events\n";
  const auto alone = scenarios_from_document(target(), document_of(one));
  ASSERT_TRUE(alone);
  ASSERT_EQ(alone->size(), 1u);
  EXPECT_FALSE(alone->front().episode);
  const auto both = scenarios_from_document(target(), document_of(one + one));
  ASSERT_TRUE(both);
  ASSERT_EQ(both->size(), 2u);
  EXPECT_EQ((*both)[1].episode, 1u);
  EXPECT_TRUE((*both)[0] == (*both)[1]);
}

TEST(Episodes, NameTheLineOfAnErrorInTheWholeFile) {
  const std::string one = "target block_pool\ntake_events\n";
  EXPECT_EQ(error_of(one + one + "nope\n").substr(0, 26), "a.kvs:5:1: found 'nope', e");
  const auto parsed = scenario_from_document(target(), document_of(one + one), "a.kvs");
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().to_text(),
            "a.kvs:3:1: found a second 'target', expected one scenario (--episode says which)");
}

TEST(DigestsLine, ComesBackAsItWas) {
  const std::string text =
      "target block_pool\n" + print(config_line(default_config(target()))) +
      "\ndigests members=[error blocks] sparse_state=true recorder=\"--sut 'x y'\"\n"
      "take_events\ntake_events -> digest=0x0123456789abcdef\n";
  const auto scenario = scenario_from_document(target(), document_of(text));
  ASSERT_TRUE(scenario) << scenario.error().to_text();
  EXPECT_TRUE(scenario->has_sparse_state());
  EXPECT_EQ(print(to_document(*scenario)), text);
}

TEST(Values, OfTheWrongKindSayWhatWasExpected) {
  const std::string head = "target block_pool\n";
  EXPECT_EQ(error_of(head + "config hash_seed=[1]\n"),
            "a.kvs:2:8: found hash_seed=[1], expected a word or a quoted string");
  EXPECT_EQ(
      error_of(head + "cache_full_blocks request=A blocks=[1] num_cached_blocks=0 "
                      "num_full_blocks=1 block_size=4 group=0 block_mask=[1]\n"),
      "a.kvs:2:99: found block_mask=[1], expected a list of flags such as [true false] or none");
  for (const std::string number : {"4294967296", "-1"}) {
    EXPECT_EQ(
        error_of(head + "config num_gpu_blocks=" + number + "\n"),
        "a.kvs:2:8: found num_gpu_blocks=" + number + ", expected an integer from 0 to 4294967295");
  }
}

TEST(Erased, ACopyOfNothingIsNothing) {
  Config config = default_config(target());
  const Config nothing;
  config = nothing;
  EXPECT_FALSE(config.has_value());
}

TEST(DigestsLine, IsCheckedWithItsDigests) {
  const std::string head = "target block_pool\n";
  const std::string form = head + "digests members=[error]\n";
  const auto starts = [](const std::string& text, std::string_view error) {
    EXPECT_EQ(error_of(text).substr(0, error.size()), error);
  };
  starts(form + "digests members=[error]\n", "a.kvs:3:1: found a second 'digests', expected one");
  starts(form + "config num_gpu_blocks=4\nconfig num_gpu_blocks=4\n",
         "a.kvs:4:1: found a second 'config', expected one");
  starts(form + "take_events\nconfig num_gpu_blocks=4\n",
         "a.kvs:4:1: found 'config' after a command, expected config before every command");
  starts(head + "take_events\ndigests members=[error]\n",
         "a.kvs:3:1: found 'digests' after a command, expected digests before every command");
  starts(head + "digests\n", "a.kvs:2:1: found digests without members");
  starts(head + "digests members=[error gone]\n",
         "a.kvs:2:1: found member 'gone', expected one of error");
  starts(head + "digests members=[gone]\n",
         "a.kvs:2:1: found member 'gone', expected one of error");
  starts(head + "digests here members=[error]\n", "a.kvs:2:1: found 'digests here'");
  starts(head + "take_events -> digest=0x0123456789abcdef\n", "a.kvs:2:16: found key 'digest'");
  for (const char* const digest : {"-> digest=0x0123456789abcd", "-> digest=1", "-> error=none",
                                   "->", "-> digest=0x0123456789abcdef error=none"}) {
    starts(form + "take_events " + digest + "\n",
           "a.kvs:3:1: found '" + std::string(digest) + "', expected '-> digest=0x' and 16 hex");
  }
}

}  // namespace
}  // namespace kvfence
