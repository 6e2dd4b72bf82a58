#include "scenarios/audit/auditor.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>
#include <vector>

#include "scenarios/audit/audit_test_rig.h"
#include "scenarios/audit/encode.h"

namespace kvfence::audit {
namespace {

/// The blocks of a request whose tokens are first, first + 1, ..., four per block.
class Prompt {
 public:
  explicit Prompt(TokenId first, std::size_t num_blocks = 4,
                  HashFunction function = HashFunction::kSha256Cbor) {
    BlockHasher hasher;
    BlockHash parent = hasher.none_hash(function, "0");
    for (std::size_t block = 0; block < num_blocks; ++block) {
      for (TokenId token = 0; token < 4; ++token) tokens_.push_back(first++);
      HashedBlock content;
      content.tokens = std::span(tokens_).last(4);
      content.has_tags = true;
      EXPECT_TRUE(hasher.hash(function, parent, content, parent));
      hashes.push_back(parent);
    }
  }

  /// Blocks [begin, end) as they are stored.
  StoredText text(std::size_t begin, std::size_t end) const {
    StoredText text;
    for (std::size_t block = begin; block < end; ++block) text.hashes.push_back(hashes[block]);
    if (begin > 0) text.parent = hashes[begin - 1];
    const auto at = [&](std::size_t block) {
      return tokens_.begin() + static_cast<std::ptrdiff_t>(4 * block);
    };
    text.tokens.assign(at(begin), at(end));
    return text;
  }
  std::string stored(std::size_t begin, std::size_t end) const {
    return audit::stored(text(begin, end));
  }

  std::vector<std::string> hashes;

 private:
  std::vector<TokenId> tokens_;
};

/// Messages of one engine, numbered as they are sent.
class Engine {
 public:
  explicit Engine(const AuditRules& how = {})
      : auditor({how.checks, std::size_t{1} << 20}), rules_(how) {}

  Engine& send(const std::vector<std::string>& events, std::uint64_t rank = 0) {
    return send_as(next_++, events, rank);
  }
  Engine& send_as(std::uint64_t sequence, const std::vector<std::string>& events,
                  std::uint64_t rank = 0) {
    return send_payload(sequence, batch_of(events, rank));
  }
  Engine& send_payload(std::uint64_t sequence, const std::string& payload) {
    next_ = sequence + 1;
    auditor.take({"engine", {"kv", sequence, payload}, 2});
    return *this;
  }

  /// Ends the run: the names of the findings, in order. The evidence of each gives it again.
  std::vector<std::string> found() {
    auditor.finish();
    std::vector<std::string> names;
    for (const Finding& finding : auditor.findings().kept()) {
      names.emplace_back(text_of(finding.rule).name);
      Auditor again({rules_.checks, 0});
      for (const Arrival& arrival : auditor.evidence_of(finding)) again.take(arrival);
      again.finish();
      EXPECT_EQ(again.findings().size(), 1U) << finding.to_text();
      EXPECT_EQ(again.findings().count(finding.rule), 1U) << finding.to_text();
    }
    return names;
  }

  Auditor auditor;

 private:
  AuditRules rules_;
  std::uint64_t next_ = 0;
};

using Names = std::vector<std::string>;
const Prompt& prompt() {
  static const Prompt kPrompt(100);
  return kPrompt;
}
const Prompt& other() {
  static const Prompt kOther(5000);
  return kOther;
}

TEST(Auditor, FindsNothingInWhatACorrectEngineDoes) {
  Engine engine;
  const std::string hash = prompt().hashes[3];
  StoredText on_cpu{{prompt().hashes[3]}, "", {}, 0, "CPU"};
  StoredText in_window = other().text(2, 4);
  in_window.kind = "sliding_window";
  StoredText passed_over = other().text(0, 4);
  passed_over.kind = "sliding_window";
  passed_over.hashes = {other().hashes[3]};
  engine.send({prompt().stored(0, 3)})
      .send({prompt().stored(3, 4), prompt().stored(0, 4)})  // two blocks with one hash
      .send({removed(hash), removed(hash)})
      .send({prompt().stored(3, 4)})
      .send({stored(on_cpu), removed("never seen", "CPU")})
      .send({stored(in_window), stored(passed_over)})
      .send({cleared(), cleared()})
      .send({prompt().stored(0, 4), removed(prompt().hashes[3])})
      .send({});
  EXPECT_EQ(engine.found(), Names{});
  const CheckCounts counts = engine.auditor.check_counts();
  EXPECT_EQ(counts.duplicates, 5U);
  EXPECT_EQ(counts.clears, 2U);
  EXPECT_GT(counts.hashes_checked, 10U);
  EXPECT_EQ(engine.auditor.holdings().gpu_blocks, 3U);
  EXPECT_EQ(engine.auditor.views()[0].hashes, "sha256_cbor with seed '0'");
}

TEST(Auditor, FindsNothingWhereEventsLackExtraKeys) {
  // The salt belongs to the first block, which was skipped.
  StoredText salted = prompt().text(0, 4);
  salted.hashes = {std::string(32, 's')};
  Engine engine;
  engine.send({other().stored(0, 4)}).send({stored(salted)});
  EXPECT_EQ(engine.found(), Names{});
  EXPECT_EQ(engine.auditor.check_counts().hashes_not_checked, 1U);
}

TEST(Auditor, FindsNothingInABlockThatIsHashedWithItsLastItemAlone) {
  // scenarios/cases/block_pool/hashing/append_sees_the_last_image_only.kvs
  using Keys = std::vector<EventExtraKey>;
  const EventExtraKey cat{EventExtraKey::Kind::kItem, "cat", 0};
  const EventExtraKey dog{EventExtraKey::Kind::kItem, "dog", 1};
  const EventExtraKey salt{EventExtraKey::Kind::kText, "salt", {}};
  const auto names_of = [&](const Keys& hashed, WireRelease release) {
    const Keys published = {cat, dog, salt};
    BlockHasher hasher;
    StoredEvent event;
    event.token_ids = {1, 2, 3, 4};
    event.block_size = 4;
    HashedBlock block;
    block.tokens = event.token_ids;
    block.extra_keys = &hashed;
    block.has_tags = release == WireRelease::kV033;
    BlockHash hash;
    EXPECT_TRUE(hasher.hash(HashFunction::kSha256Cbor, prompt().hashes[1], block, hash));
    event.block_hashes = {{hash}};
    event.parent_block_hash = EventHash{prompt().hashes[1]};
    event.medium = "GPU";
    event.extra_keys.emplace().emplace_back(published);
    const EventBatch batch{1.5, {event}, 0};
    Engine engine;
    engine.send({prompt().stored(0, 2)}).send_payload(1, encode(batch, release));
    return engine.found();
  };
  EXPECT_EQ(names_of({cat, dog, salt}, WireRelease::kV019), Names{});
  EXPECT_EQ(names_of({dog, salt}, WireRelease::kV019), Names{});
  EXPECT_EQ(names_of({dog, salt}, WireRelease::kV023), Names{});
  EXPECT_EQ(names_of({cat, salt}, WireRelease::kV023), Names{"wrong_hash"});
  // Repaired in 0.33.
  EXPECT_EQ(names_of({cat, dog, salt}, WireRelease::kV033), Names{});
  EXPECT_EQ(names_of({dog, salt}, WireRelease::kV033), Names{"wrong_hash"});
}

TEST(Auditor, FindsNothingInPartsOfBlocks) {
  // A part comes first, under a hash that no block carries; then its block, which is promoted.
  StoredText part = prompt().text(1, 2);
  StoredText whole = prompt().text(0, 4);
  whole.block_size = 16;
  whole.hashes = {prompt().hashes[3]};
  Engine engine;
  engine.send({stored(part)}).send({removed(part.hashes[0]), stored(whole), stored(part)});
  EXPECT_EQ(engine.found(), Names{});
  // If no larger block follows, it was not a part.
  EXPECT_EQ(Engine().send({stored(part)}).send({other().stored(0, 2)}).found(),
            Names{"unknown_parent"});
}

TEST(Auditor, APartOfABlockDoesNotShowHowWholeOnesAreHashed) {
  const Prompt longer(100, 12);
  const auto whole = [&](std::size_t begin) {
    StoredText text = longer.text(begin, begin + 4);
    text.block_size = 16;
    text.hashes = {longer.hashes[begin + 3]};
    return text;
  };
  // Not computed, since four hashes make this block and none of them has all extra keys.
  StoredText with_lookahead = whole(0);
  with_lookahead.lookahead = {7};
  for (const std::string& first : {longer.stored(0, 1), stored(with_lookahead)}) {
    Engine engine;
    engine.send({first, longer.stored(4, 5), stored(whole(4)), stored(whole(8))});
    EXPECT_EQ(engine.found(), Names{});
    EXPECT_GE(engine.auditor.check_counts().hashes_checked, 2U);
  }
}

TEST(Auditor, FindsMalformedPayloadsOnce) {
  const std::string moved = Pack().list(1).text("BlockMoved").done();
  Engine engine;
  engine.send({prompt().stored(0, 2), moved, prompt().stored(2, 4)}).send({moved});
  EXPECT_EQ(engine.found(), Names{"malformed"});
  EXPECT_EQ(engine.auditor.holdings().gpu_blocks, 4U);
  EXPECT_EQ(Engine().send({prompt().stored(0, 2)}).send_payload(1, "garbage").found(),
            Names{"malformed"});
  EXPECT_EQ(Engine().send_payload(std::uint64_t{1} << 63, batch_of({})).found(),
            Names{"malformed"});
}

TEST(Auditor, ShowsNoControlCharactersOfAPublisher) {
  Engine engine;
  engine.send({Pack().list(1).text("Moved\x1b[2J\n\x7f").done()});
  EXPECT_EQ(engine.found(), Names{"malformed"});
  const std::string text = engine.auditor.findings().kept().front().to_text();
  EXPECT_NE(text.find("an event 'Moved\\x1b[2J\\x0a\\x7f' at byte 11"), std::string::npos) << text;
}

TEST(Auditor, FindsCountsThatDoNotFit) {
  StoredText text = prompt().text(0, 2);
  text.tokens.pop_back();
  EXPECT_EQ(Engine().send({stored(text)}).found(), Names{"token_counts"});
  text.tokens.clear();
  EXPECT_EQ(Engine().send({stored(text)}).found(), Names{"token_counts"});
  text = prompt().text(0, 2);
  text.hashes.push_back(prompt().hashes[2]);
  EXPECT_EQ(Engine().send({stored(text)}).found(), Names{"token_counts"});
  Pack both;
  both.map(6).text("type").text("BlockStored").text("block_hashes").list(1).bytes("hash");
  both.text("token_ids").tokens({1, 2, 3, 4}).text("block_size").number(4);
  both.text("extra_keys").list(1).nil().text("lookahead_token_ids").list(2).list(0).list(0);
  Engine engine;
  EXPECT_EQ(engine.send({both.done()}).found(), Names{"token_counts"});
  EXPECT_EQ(engine.auditor.findings().kept()[0].found, "lookahead of 2 blocks");
}

TEST(Auditor, FindsUnknownParents) {
  Engine never;
  StoredText text = prompt().text(2, 4);
  text.parent = std::string(32, 'x');
  never.send({prompt().stored(0, 2), stored(text)}).send({removed(std::string(32, 'x'))});
  EXPECT_EQ(never.found(), Names{"unknown_parent"});
  // The removal of a held block is published: after that finding its real removal is not reported.
  Engine gone;
  gone.send({prompt().stored(0, 2), removed(prompt().hashes[1]), prompt().stored(2, 4)})
      .send({removed(prompt().hashes[3]), removed(prompt().hashes[1])});
  EXPECT_EQ(gone.found(), Names{"unknown_parent"});
}

TEST(Auditor, FindsThatABlockBeforeTheParentIsGone) {
  // The removal of the first block is published, although it is still in use.
  const Prompt longer(100, 6);
  const std::vector<std::string> removals = {removed(longer.hashes[5]), removed(longer.hashes[0])};
  EXPECT_EQ(Engine()
                .send({longer.stored(0, 3)})
                .send({longer.stored(3, 4), removed(longer.hashes[0])})
                .send({longer.stored(4, 5)})
                .send({longer.stored(5, 6)})
                .send(removals)
                .found(),
            Names{"unknown_parent"});
  // Blocks removed in any order and stored again form a whole chain again.
  EXPECT_EQ(Engine()
                .send({longer.stored(0, 3), removed(longer.hashes[0])})
                .send({longer.stored(0, 1), longer.stored(3, 4)})
                .send({removed(longer.hashes[1]), removed(longer.hashes[2])})
                .found(),
            Names{});
}

TEST(Auditor, FindsNothingWhereAGroupOfNoKindLetsItsFirstBlocksGo) {
  // 0.19 does not say that a model has a sliding window.
  const Prompt longer(100, 6);
  StoredText last = longer.text(4, 6);
  last.kind = "";
  Engine engine;
  engine.send({longer.stored(0, 4), removed(longer.hashes[0]), stored(last)});
  EXPECT_EQ(engine.found(), Names{});
}

TEST(Auditor, AMirrorFilledByAReplayIsComplete) {
  Engine whole;
  Engine healed;
  const auto payload_of_number = [](std::uint64_t sequence) {
    const Prompt one(static_cast<TokenId>(100 * sequence));
    std::vector<std::string> events = {one.stored(0, 4)};
    if (sequence % 3 == 0) events.push_back(removed(one.hashes[3]));
    return batch_of(events);
  };
  for (std::uint64_t sequence = 0; sequence < 300; ++sequence) {
    whole.send_payload(sequence, payload_of_number(sequence));
    if (sequence % 7 == 3) continue;
    const Arrival arrival{"engine", {"kv", sequence, payload_of_number(sequence)}};
    if (const auto first = healed.auditor.missing_before(arrival)) {
      healed.auditor.take({"engine", {"kv", *first, payload_of_number(*first)}, 0, true});
    }
    healed.auditor.take(arrival);
  }
  EXPECT_EQ(whole.found(), Names{});
  EXPECT_EQ(healed.found(), Names{});
  EXPECT_EQ(healed.auditor.counts().replayed, 43U);
  EXPECT_EQ(healed.auditor.views(true)[0].held, whole.auditor.views(true)[0].held);
  EXPECT_EQ(healed.auditor.holdings().gpu_blocks, 1100U);
}

TEST(Auditor, FindsRemovalsOfWhatIsNotHeld) {
  EXPECT_EQ(Engine().send({removed("never"), removed("never")}).found(),
            Names{"removed_never_stored"});
  const std::string hash = prompt().hashes[0];
  EXPECT_EQ(Engine().send({prompt().stored(0, 1), removed(hash)}).send({removed(hash)}).found(),
            Names{"removed_too_often"});
  EXPECT_EQ(Engine()
                .send({prompt().stored(0, 1), prompt().stored(0, 1)})
                .send({removed(hash), removed(hash), removed(hash)})
                .found(),
            Names{"removed_too_often"});
}

TEST(Auditor, FindsEventsOfWhatWasCleared) {
  EXPECT_EQ(Engine()
                .send({prompt().stored(0, 2), cleared()})
                .send({removed(prompt().hashes[0]), removed(prompt().hashes[1])})
                .found(),
            Names{"removed_after_clear"});
  EXPECT_EQ(Engine()
                .send({prompt().stored(0, 2), cleared()})
                .send({prompt().stored(2, 3), other().stored(0, 1)})
                .found(),
            Names{"removed_after_clear"});
}

TEST(Auditor, FindsWrongHashesOfEachFunction) {
  for (std::size_t function = 0; function < words_of(HashFunction{}).size(); ++function) {
    const Prompt right(100, 4, static_cast<HashFunction>(function));
    for (std::size_t wrong = 0; wrong < 4; ++wrong) {
      StoredText text = right.text(0, 4);
      text.hashes[wrong] = std::string(text.hashes[wrong].size(), 'x');
      // Before the function is known, and after. The block is removed under its right hash.
      const std::vector<std::string> removals = {removed(right.hashes[3]),
                                                 removed(right.hashes[wrong])};
      EXPECT_EQ(Engine().send({stored(text)}).send({right.stored(0, 1)}).send(removals).found(),
                Names{"wrong_hash"});
      EXPECT_EQ(Engine().send({right.stored(0, 1)}).send({stored(text)}).send(removals).found(),
                Names{"wrong_hash"});
      // It is removed under the wrong hash, and comes back under it.
      EXPECT_EQ(Engine()
                    .send({right.stored(0, 1), stored(text), removed(text.hashes[wrong])})
                    .send({stored(text), removed(text.hashes[wrong])})
                    .found(),
                Names{"wrong_hash"});
    }
    StoredText under_another = right.text(2, 4);
    under_another.parent = right.hashes[0];
    EXPECT_EQ(Engine().send({right.stored(0, 2), stored(under_another)}).found(),
              Names{"wrong_hash"});
  }
}

TEST(Auditor, ChecksHashesUnderARandomSeed) {
  // The first block's parent is not known; those after it are still recomputed.
  const Prompt right(100);
  StoredText first{{std::string(32, 'r')}, "", {1, 2, 3, 4}};
  BlockHasher hasher;
  BlockHash second;
  const std::vector<TokenId> tokens = {5, 6, 7, 8};
  ASSERT_TRUE(hasher.hash(HashFunction::kSha256, first.hashes[0], {tokens}, second));
  StoredText next{{second}, first.hashes[0], tokens};
  Engine engine;
  engine.send({stored(first), stored(next)});
  EXPECT_EQ(engine.found(), Names{});
  EXPECT_EQ(engine.auditor.views()[0].hashes,
            "sha256, except first blocks, whose seed is not known");
  next.tokens[0] = 9;
  EXPECT_EQ(Engine()
                .send({stored(first), stored({{second}, first.hashes[0], tokens})})
                .send({stored(next)})
                .found(),
            Names{"wrong_hash"});
}

TEST(Auditor, FindsHashesOfAnotherKindThanTheUserNames) {
  AuditRules rules;
  rules.checks.hash_function = HashFunction::kXxhashCbor;
  Auditor auditor(rules);
  auditor.take({"engine", {"", 0, batch_of({prompt().stored(0, 4)})}});
  auditor.finish();
  EXPECT_EQ(auditor.findings().count(Rule::kWrongHash), 1U);
}

TEST(Auditor, FindsOneHashOfTwoContents) {
  // Hashes that cannot be recomputed: compared with what they stood for before.
  StoredText first{{"a", "b"}, "", {1, 2, 3, 4, 5, 6, 7, 8}};
  StoredText second{{"b"}, "a", {5, 6, 7, 8}};
  EXPECT_EQ(Engine().send({stored(first), stored(second)}).found(), Names{});
  second.tokens[3] = 9;
  EXPECT_EQ(Engine().send({stored(first), stored(second)}).found(), Names{"two_contents"});
}

TEST(Auditor, FindsMoreBlocksThanThereAre) {
  for (const std::uint64_t blocks : {8U, 7U}) {
    AuditRules rules;
    rules.checks.blocks_max = blocks;
    Engine engine(rules);
    engine.send({prompt().stored(0, 4), prompt().stored(0, 4)}).send({other().stored(0, 4)});
    EXPECT_EQ(engine.found(), blocks == 8 ? Names{} : Names{"too_many_blocks"});
  }
}

TEST(Auditor, DoesNotCountBlocksThatMayOnlyHaveBeenReportedAgain) {
  // Since 0.33 a block that is used again may be reported as stored; it is removed once.
  for (const std::uint64_t blocks : {6U, 5U}) {
    AuditRules rules;
    rules.checks.blocks_max = blocks;
    Engine engine(rules);
    engine.send({prompt().stored(0, 4), prompt().stored(0, 4), prompt().stored(0, 2)})
        .send({removed(prompt().hashes[3]), removed(prompt().hashes[2])})
        .send({prompt().stored(2, 3), removed(prompt().hashes[2])})
        .send({other().stored(0, 2)})
        .send({prompt().stored(2, 4)});
    EXPECT_EQ(engine.found(), blocks == 6 ? Names{} : Names{"too_many_blocks"});
  }
}

TEST(Auditor, DoesNotCountWhatSglangMayOnlyHaveReportedAgain) {
  AuditRules rules;
  rules.checks.blocks_max = 1;
  Engine engine(rules);
  const auto stored_number = [](std::uint64_t hash) {
    return Pack()
        .list(6)
        .text("BlockStored")
        .list(1)
        .number(hash)
        .nil()
        .list(1)
        .number(hash)
        .number(1)
        .nil()
        .done();
  };
  const std::string gone = Pack().list(2).text("BlockRemoved").list(1).number(7).done();
  engine.send({stored_number(7), stored_number(7), gone, stored_number(8)});
  EXPECT_EQ(engine.found(), Names{});
}

TEST(Auditor, ForgetsBlocksOfOtherMediaBeforeTheyAreTooMany) {
  for (const std::size_t on_gpu : {2U, 3U}) {
    AuditRules rules;
    rules.checks.mirror_blocks_max = 2;
    Engine engine(rules);
    for (const char* const hash : {"a", "b", "c", "d", "e"}) {
      engine.send({stored({{hash}, "", {}, 0, "STORAGE"})});
    }
    engine.send({prompt().stored(0, on_gpu)});
    EXPECT_EQ(engine.found(), on_gpu == 2 ? Names{} : Names{"too_many_blocks"});
    EXPECT_EQ(engine.auditor.holdings().other_blocks, 0U);
  }
}

TEST(Auditor, ShowsOfATooFullPoolWhatFillsIt) {
  AuditRules rules;
  rules.checks.blocks_max = 3;
  const Prompt third(9000);
  Engine engine(rules);
  engine.send({prompt().stored(0, 1), other().stored(0, 2)})
      .send({removed(other().hashes[1])})  // came with one that is held
      .send({prompt().stored(0, 1)})       // again, and this is the last time
      .send({third.stored(0, 1), removed(third.hashes[0])})
      .send({prompt().stored(1, 3)});
  EXPECT_EQ(engine.found(), Names{"too_many_blocks"});
  const auto evidence = engine.auditor.evidence_of(engine.auditor.findings().kept().front());
  const std::vector<std::vector<std::string>> expected = {{other().stored(0, 2)},
                                                          {removed(other().hashes[1])},
                                                          {prompt().stored(0, 1)},
                                                          {prompt().stored(1, 3)}};
  ASSERT_EQ(evidence.size(), expected.size());
  for (std::size_t part = 0; part < expected.size(); ++part) {
    DecodedBatch found;
    DecodedBatch sent;
    ASSERT_TRUE(decode(evidence[part].message.payload, found));
    ASSERT_TRUE(decode(batch_of(expected[part]), sent));
    EXPECT_EQ(found.batch, sent.batch) << part;
  }
}

TEST(Auditor, FindsWhatIsMissingRepeatedAndOutOfOrder) {
  const auto begin = [] { return Engine().send({prompt().stored(0, 1)}).auditor.counts(); };
  EXPECT_EQ(begin().messages, 1U);
  // Findings that the lost message could explain are not reported: a removal, a parent.
  EXPECT_EQ(Engine()
                .send({prompt().stored(0, 1)})
                .send_as(2, {removed(other().hashes[0]), prompt().stored(2, 3)})
                .found(),
            Names{"lost"});
  // After a clear they are.
  EXPECT_EQ(Engine()
                .send({prompt().stored(0, 1)})
                .send_as(2, {cleared(), removed(other().hashes[0])})
                .found(),
            (Names{"lost", "removed_never_stored"}));
  EXPECT_EQ(Engine()
                .send({prompt().stored(0, 1)})
                .send_as(0, {prompt().stored(0, 1)})
                .send({prompt().stored(1, 2)})
                .found(),
            Names{"repeated"});
  EXPECT_EQ(Engine()
                .send({prompt().stored(0, 1)})
                .send_as(2, {prompt().stored(2, 3)})
                .send_as(1, {prompt().stored(1, 2)})
                .send_as(3, {prompt().stored(3, 4)})
                .found(),
            Names{"reordered"});
}

TEST(Auditor, FindsASilentRestart) {
  EXPECT_EQ(Engine()
                .send({prompt().stored(0, 4)})
                .send({removed(prompt().hashes[3])})
                .send_as(0, {other().stored(0, 1)})
                .send({removed(prompt().hashes[0])})
                .found(),
            Names{"restarted"});
  // The new one has nothing, and may compute other hashes.
  const Prompt of_another(100, 4, HashFunction::kXxhash);
  EXPECT_EQ(Engine()
                .send({prompt().stored(0, 4)})
                .send_as(0, {of_another.stored(0, 4)})
                .send({removed("never")})
                .found(),
            (Names{"restarted", "removed_never_stored"}));
  EXPECT_EQ(Engine()
                .send({prompt().stored(0, 4)})
                .send_as(0, {cleared()})
                .send({prompt().stored(0, 4)})
                .found(),
            Names{});
}

TEST(Auditor, TwoEnginesUnderOneNameAreNotReportedForEver) {
  Engine engine;
  for (std::uint64_t sequence = 0; sequence < 100; ++sequence) {
    engine.send_as(sequence, {prompt().stored(0, 1)}).send_as(sequence, {other().stored(0, 1)});
  }
  EXPECT_EQ(engine.found(), Names(16, "restarted"));
  EXPECT_NE(engine.auditor.findings().kept().back().found.find("several engines"),
            std::string::npos);
}

TEST(Auditor, FindsABatchUnderAnotherRank) {
  EXPECT_EQ(Engine()
                .send({prompt().stored(0, 1)})
                .send({prompt().stored(1, 2)}, 3)
                .send({prompt().stored(2, 3)})
                .found(),
            Names{"wrong_rank"});
  // The last message may be from another publisher, which the audit joins under way.
  EXPECT_EQ(Engine().send({prompt().stored(0, 1)}).send({prompt().stored(1, 2)}, 3).found(),
            Names{});
}

TEST(Auditor, FindsNothingInRanksOnOneEndpoint) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    Engine engine;
    std::array<std::uint64_t, 3> next = {};
    for (std::uint64_t& number : next) number = random() % 4;
    for (int message = 0; message < 30; ++message) {
      const std::size_t rank = random() % next.size();
      const Prompt one(static_cast<TokenId>(1000 * rank + 10 * next[rank]), 1);
      engine.send_as(next[rank]++, {one.stored(0, 1)}, rank);
    }
    EXPECT_EQ(engine.found(), Names{}) << seed;
    for (const StreamView& view : engine.auditor.views()) EXPECT_EQ(view.next, next[*view.rank]);
  }
}

TEST(Auditor, AcceptsAnEngineThatItJoinsUnderWay) {
  EXPECT_EQ(Engine().send_as(7, {removed(prompt().hashes[0]), prompt().stored(2, 3)}).found(),
            Names{});
}

TEST(Auditor, AReplayHealsAGap) {
  Engine engine;
  engine.send({prompt().stored(0, 1)});
  const Arrival late{"engine", {"kv", 2, batch_of({prompt().stored(2, 3)})}};
  EXPECT_EQ(engine.auditor.missing_before(late), 1U);
  Arrival replayed{"engine", {"kv", 1, batch_of({prompt().stored(1, 2)})}};
  EXPECT_EQ(engine.auditor.missing_before(replayed), std::nullopt);
  replayed.is_replayed = true;
  engine.auditor.take(replayed);
  engine.auditor.take(late);
  EXPECT_TRUE(engine.auditor.views()[0].is_certain);
  EXPECT_EQ(engine.found(), Names{});
  EXPECT_EQ(engine.auditor.holdings().gpu_blocks, 3U);
}

TEST(Auditor, EvidenceIsOfOneRunOfTheEngine) {
  AuditRules rules;
  rules.checks.blocks_max = 3;
  const Prompt third(9000);
  Engine engine(rules);
  engine.send({other().stored(0, 3)})
      .send({removed(other().hashes[2])})
      .send_as(0, {prompt().stored(0, 3)})
      .send({third.stored(0, 1)})
      .send_as(0, {other().stored(0, 2)});
  EXPECT_EQ(engine.found(), (Names{"restarted", "too_many_blocks", "restarted"}));
  // A restart at the number of another rank is recognized with the next message.
  const std::string hash = prompt().hashes[0];
  EXPECT_EQ(Engine()
                .send({prompt().stored(0, 1)})
                .send({prompt().stored(1, 2)})
                .send({prompt().stored(2, 3)})
                .send_as(0, {other().stored(0, 1)}, 1)
                .send({other().stored(1, 2)}, 1)
                .send({cleared(), prompt().stored(0, 1)})
                .send({removed(hash), removed(hash)})
                .found(),
            Names{"removed_too_often"});
}

TEST(Auditor, AReplayHealsTheBeginningOfAnEngineThatCameBack) {
  Engine engine;
  engine.send({prompt().stored(0, 1)}).send({prompt().stored(1, 2)}).send({other().stored(0, 1)});
  // It is received again after its first two messages.
  const std::vector<std::string> again = {batch_of({other().stored(0, 2)}),
                                          batch_of({removed(other().hashes[1])}),
                                          batch_of({prompt().stored(0, 4)})};
  const Arrival late{"engine", {"kv", 2, again[2]}};
  ASSERT_EQ(engine.auditor.missing_before(late), 0U);
  engine.auditor.take({"engine", {"kv", 0, again[0]}, 0, true});
  engine.auditor.take({"engine", {"kv", 1, again[1]}, 0, true});
  engine.auditor.take(late);
  EXPECT_TRUE(engine.auditor.views()[0].is_certain);
  EXPECT_EQ(engine.auditor.holdings().gpu_blocks, 5U);
  EXPECT_EQ(engine.found(), Names{"restarted"});
}

TEST(Auditor, AReplayIsAskedForOnceAGap) {
  const auto number = [](std::uint64_t sequence, std::uint64_t time) {
    return Arrival{"engine", {"kv", sequence, batch_of({removed(std::to_string(time))})}};
  };
  Auditor auditor({});
  // The audit joins an engine under way.
  EXPECT_EQ(auditor.missing_before(number(4, 0)), 0U);
  auditor.take(number(4, 0));
  EXPECT_EQ(auditor.missing_before(number(5, 0)), std::nullopt);
  EXPECT_EQ(auditor.missing_before(number(7, 0)), 5U);
  auditor.take(number(7, 0));
  EXPECT_EQ(auditor.missing_before(number(8, 0)), std::nullopt);
  EXPECT_EQ(auditor.missing_before(number(9, 0)), 8U);
  // A late one, the same again, and one of an engine that restarted.
  EXPECT_EQ(auditor.missing_before(number(2, 0)), std::nullopt);
  EXPECT_EQ(auditor.missing_before(number(4, 0)), std::nullopt);
  EXPECT_EQ(auditor.missing_before(number(4, 1)), 0U);
}

}  // namespace
}  // namespace kvfence::audit
