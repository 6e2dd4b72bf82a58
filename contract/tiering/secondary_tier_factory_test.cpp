// Goal: tiers are made from what a spec lists, in order, and what is wrong is named. Method: a type
// that records what it got.

#include "contract/tiering/secondary_tier_factory.h"

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/connectors/offloading/offloading_connector.h"
#include "contract/tiering/secondary_tier.h"

namespace kvfence {
namespace {

using Names = std::vector<std::string>;

Field field_of(const std::string& text) { return {"secondary_tiers", *parse_value(text), {1, 3}}; }

/// Holds nothing.
struct EmptyTier final : Cloning<EmptyTier, SecondaryTier> {
  LookupResult lookup(OffloadKeyView, const RequestContext&) override {
    return LookupResult::kMiss;
  }
  void submit_store(const TierJob&) override {}
  void submit_load(const TierJob&) override {}
  void get_finished_jobs(std::vector<JobResult>&) override {}
};

/// Makes empty tiers, and records what it was called with.
SecondaryTierBuilder recording(Names& calls) {
  return [&calls](const SecondaryTierConfig& config, const PrimaryKvView& primary,
                  const OffloadingSpec& spec, const std::string& file) {
    calls.push_back(config.type + " " + std::to_string(config.settings.size()) + " " +
                    std::to_string(primary.num_slots) + " " +
                    std::to_string(spec.block_size_factor));
    if (find_field(config.settings, "bad")) {
      return Parsed<SecondaryTierHandle>(
          InputError{file, config.settings.front().position, "bad", "good"});
    }
    return Parsed<SecondaryTierHandle>(SecondaryTierHandle(std::make_unique<EmptyTier>()));
  };
}

OffloadingSpec spec_of(const std::string& text) {
  OffloadingSpec spec;
  spec.block_size_factor = 2;
  spec.secondary_tiers = *secondary_tiers_from(field_of(text));
  return spec;
}

TEST(SecondaryTierFactory, MakesWhatASpecLists) {
  Names calls;
  SecondaryTierFactory factory;
  EXPECT_FALSE(factory.register_tier("b", recording(calls)));
  EXPECT_FALSE(factory.register_tier("a", recording(calls)));
  PrimaryKvView primary;
  primary.num_slots = 7;
  const auto tiers = factory.create_secondary_tiers(primary, spec_of("[(b) (a x=1 y=2) (b)]"));
  ASSERT_TRUE(tiers) << tiers.error().to_text();
  EXPECT_EQ(tiers->size(), 3U);
  EXPECT_EQ(calls, (Names{"b 0 7 2", "a 2 7 2", "b 0 7 2"}));
  EXPECT_TRUE(factory.create_secondary_tiers(primary, spec_of("[]"))->empty());
}

TEST(SecondaryTierFactory, NamesWhatIsWrong) {
  Names calls;
  SecondaryTierFactory factory;
  EXPECT_FALSE(factory.register_tier("b", recording(calls)));
  EXPECT_FALSE(factory.register_tier("a", recording(calls)));
  const auto taken = factory.register_tier("a", recording(calls));
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->to_text(), "found tier a registered twice, expected each type once");
  const auto error_of = [&](const std::string& text) {
    return factory.create_secondary_tiers({}, spec_of(text), "f.kvs").error().to_text();
  };
  EXPECT_EQ(error_of("[(a) (c)]"), "f.kvs: found a tier of type c, expected one of a, b");
  EXPECT_EQ(error_of("[(b bad=1)]"), "f.kvs:1:5: found bad, expected good");
}

TEST(SecondaryTiers, GoToAndFroAsAValue) {
  for (const char* text : {"[]", "[(fs root_dir=kv n_read_threads=2) (example)]"}) {
    const auto configs = secondary_tiers_from(field_of(text));
    ASSERT_TRUE(configs);
    EXPECT_EQ(print(to_value(*configs)), text);
  }
}

}  // namespace
}  // namespace kvfence
