// Goal: every code, release and rule has its own name, which reads back; each release its rules.
// Method: walk the whole of each enumeration; compare the presets with the differences, spelled
// out.

#include <gtest/gtest.h>

#include <set>

#include "contract/core/rules.h"
#include "contract/core/status.h"

namespace kvfence {
namespace {

TEST(ErrorCode, EveryCodeReadsBack) {
  std::set<std::string_view> names;
  for (int index = 0; index < kNumErrorCodes; ++index) {
    const auto code = static_cast<ErrorCode>(index);
    EXPECT_EQ(from_text<ErrorCode>(to_text(code)), code) << to_text(code);
    EXPECT_FALSE(to_text(code).empty()) << index;
    names.insert(to_text(code));
  }
  EXPECT_EQ(names.size(), std::size_t{kNumErrorCodes});
}

TEST(ErrorCode, NamesStandForTheirCodes) {
  EXPECT_EQ(to_text(ErrorCode::kNone), "none");
  EXPECT_EQ(to_text(ErrorCode::kUnknownRequest), "unknown_request");
  EXPECT_EQ(to_text(ErrorCode::kUnknownBlock), "unknown_block");
  EXPECT_EQ(to_text(ErrorCode::kNoFreeBlocks), "no_free_blocks");
  EXPECT_EQ(to_text(ErrorCode::kNotInProfile), "not_in_profile");
  EXPECT_EQ(to_text(ErrorCode::kCachingDisabled), "caching_disabled");
  EXPECT_EQ(to_text(ErrorCode::kBadBlockSize), "bad_block_size");
  EXPECT_EQ(to_text(ErrorCode::kBadRange), "bad_range");
  EXPECT_EQ(to_text(ErrorCode::kBadMask), "bad_mask");
  EXPECT_EQ(to_text(ErrorCode::kMissingHash), "missing_hash");
  EXPECT_EQ(to_text(ErrorCode::kAlreadyHashed), "already_hashed");
  EXPECT_EQ(to_text(ErrorCode::kDoubleFree), "double_free");
}

TEST(ErrorCode, UnknownNamesGiveNothing) {
  for (std::string_view text : {"", "None", "no_free_block", "no_free_blocks ", "kNone"}) {
    EXPECT_EQ(from_text<ErrorCode>(text), std::nullopt) << text;
  }
}

TEST(Profile, EveryProfileReadsBack) {
  EXPECT_EQ(to_text(Profile::kV019), "v0.19");
  EXPECT_EQ(to_text(Profile::kV023), "v0.23");
  for (Profile profile : kProfiles) {
    EXPECT_EQ(from_text<Profile>(to_text(profile)), profile) << to_text(profile);
  }
  for (std::string_view text : {"", "v0.20", "0.19", "v0.19.0"}) {
    EXPECT_EQ(from_text<Profile>(text), std::nullopt) << text;
  }
}

TEST(Rules, EveryFieldHasItsOwnNameAndMember) {
  // One byte per rule: a member that is missing from the list would leave the sizes apart.
  EXPECT_EQ(kRuleFields.size() * sizeof(bool), sizeof(Rules));
  std::set<std::string_view> names;
  for (const RuleField& field : kRuleFields) {
    names.insert(field.name);
    EXPECT_FALSE(field.doc.empty()) << field.name;
    const Rules defaults;
    Rules rules;
    rules.*field.member = !(defaults.*field.member);
    int num_changed = 0;
    for (const RuleField& other : kRuleFields) {
      num_changed += rules.*other.member != defaults.*other.member ? 1 : 0;
    }
    EXPECT_EQ(num_changed, 1) << field.name;
  }
  EXPECT_EQ(names.size(), kRuleFields.size());
}

TEST(Rules, NamesStandForTheirMembers) {
  const auto member_of = [](std::string_view name) -> bool Rules::* {
    for (const RuleField& field : kRuleFields) {
      if (field.name == name) return field.member;
    }
    return nullptr;
  };
  EXPECT_EQ(member_of("free_blocks_prepend"), &Rules::free_blocks_prepend);
  EXPECT_EQ(member_of("cache_full_blocks_mask"), &Rules::cache_full_blocks_mask);
  EXPECT_EQ(member_of("events_carry_group"), &Rules::events_carry_group);
}

TEST(Rules, V019HasNoneOfTheLaterOptions) { EXPECT_EQ(rules_of(Profile::kV019), Rules{}); }

TEST(Rules, V023HasThemAllButSinksAndWhatCameLater) {
  const Rules rules = rules_of(Profile::kV023);

  for (const RuleField& field : kRuleFields) {
    const bool is_missing = field.name == "sink_groups" ||
                            field.name == "multi_connector_shares_blocks" ||
                            field.name == "external_blocks_after_hits";
    EXPECT_EQ(rules.*field.member, !is_missing) << field.name;
  }
}

}  // namespace
}  // namespace kvfence
