// Goal: a connector is loaded when it is first asked for, and what is wrong is said by name.
// Method: loaders that count; a shared library that is built beside this test.

#include "contract/connectors/kv_connector_registry.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "contract/engine/engine_target.h"

namespace kvfence {
namespace {

using Names = std::vector<std::string>;

constexpr const char* kLibrary = KVFENCE_TEST_CONNECTOR_LIBRARY;

KVConnectorRegistry::Loader counting(int& num_loads) {
  return [&num_loads] {
    ++num_loads;
    return Parsed<KVConnectorClass>(KVConnectorClass());
  };
}

TEST(KVConnectorRegistry, ALoaderRunsOnceAndOnlyWhenAsked) {
  int num_a = 0;
  int num_b = 0;
  KVConnectorRegistry registry;
  EXPECT_FALSE(registry.register_connector("b", counting(num_b)));
  EXPECT_FALSE(registry.register_connector("a", counting(num_a)));
  EXPECT_EQ(registry.names(), (Names{"a", "b"}));
  EXPECT_EQ(num_a + num_b, 0);
  EXPECT_TRUE(registry.get("a"));
  EXPECT_TRUE(registry.get("a"));
  EXPECT_EQ(num_a, 1);
  EXPECT_EQ(num_b, 0);
}

TEST(KVConnectorRegistry, ALoaderThatFailedRunsAgain) {
  int num_loads = 0;
  KVConnectorRegistry registry;
  (void)registry.register_connector("a", [&]() -> Parsed<KVConnectorClass> {
    if (++num_loads == 1) return InputError{"somewhere", {}, "nothing", "something"};
    return KVConnectorClass();
  });
  const auto failed = registry.get("a");
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().to_text(), "somewhere: found nothing, expected something");
  EXPECT_TRUE(registry.get("a"));
  EXPECT_EQ(num_loads, 2);
}

TEST(KVConnectorRegistry, ANameIsTakenOnce) {
  int num_loads = 0;
  KVConnectorRegistry registry;
  (void)registry.register_connector("a", counting(num_loads));
  for (const auto& error : {registry.register_connector("a", counting(num_loads)),
                            registry.register_library("a", "f")}) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->to_text(), "found connector a registered twice, expected each name once");
  }
  EXPECT_TRUE(registry.get("a"));
  EXPECT_EQ(num_loads, 1);
}

TEST(KVConnectorRegistry, AnUnknownNameListsTheKnownOnes) {
  int num_loads = 0;
  KVConnectorRegistry registry;
  EXPECT_EQ(registry.get("c").error().to_text(),
            "found connector c, expected nothing, since none is registered");
  (void)registry.register_connector("b", counting(num_loads));
  (void)registry.register_connector("a", counting(num_loads));
  EXPECT_EQ(registry.get("c").error().to_text(), "found connector c, expected one of a, b");
  EXPECT_EQ(num_loads, 0);
}

TEST(KVConnectorRegistry, ACopyLoadsForItself) {
  int num_loads = 0;
  KVConnectorRegistry registry;
  (void)registry.register_connector("a", counting(num_loads));
  KVConnectorRegistry copy = registry;
  (void)registry.get("a");
  (void)copy.get("a");
  EXPECT_EQ(num_loads, 2);
  (void)copy.register_connector("b", counting(num_loads));
  EXPECT_EQ(registry.names(), Names{"a"});
}

/// Notes what it was given.
KVConnectorRegistry::Combiner noting(std::vector<Names>& children) {
  return [&children](const std::vector<KVConnectorChildClass>& given) {
    Names& names = children.emplace_back();
    for (const KVConnectorChildClass& child : given) names.push_back(child.name);
    return KVConnectorClass();
  };
}

TEST(KVConnectorRegistry, AConnectorOverOthersIsNamedWithThem) {
  int num_a = 0;
  int num_b = 0;
  std::vector<Names> children;
  KVConnectorRegistry registry;
  (void)registry.register_connector("a", counting(num_a));
  (void)registry.register_connector("b", counting(num_b));
  EXPECT_FALSE(registry.register_combiner("over", noting(children)));
  EXPECT_TRUE(registry.register_combiner("over", noting(children)));
  EXPECT_EQ(registry.names(), (Names{"a", "b", "over"}));
  EXPECT_TRUE(registry.get("over(b a b)"));
  EXPECT_EQ(children, (std::vector<Names>{{"b", "a", "b"}}));
  EXPECT_EQ(num_a + num_b, 2);
  children.clear();
  EXPECT_TRUE(registry.get("over(a over(b) over(over(a b)))"));
  EXPECT_EQ(children, (std::vector<Names>{{"b"}, {"a", "b"}, {"over"}, {"a", "over", "over"}}));
}

TEST(KVConnectorRegistry, WhatIsWrongWithChildrenIsSaid) {
  int num_loads = 0;
  std::vector<Names> children;
  KVConnectorRegistry registry;
  (void)registry.register_connector("a", counting(num_loads));
  (void)registry.register_combiner("over", noting(children));
  const auto text = [&](const char* name) { return registry.get(name).error().to_text(); };
  EXPECT_EQ(text("over"), "found connector over without children, expected over(CHILD ...)");
  EXPECT_EQ(text("over()"), "found connector over without children, expected over(CHILD ...)");
  EXPECT_EQ(text("over(a over)"),
            "found connector over without children, expected over(CHILD ...)");
  EXPECT_EQ(text("a(a)"), "found connector a with children, expected a alone");
  EXPECT_EQ(text("c(a)"), "found connector c, expected one of a, over");
  EXPECT_EQ(text("over(a c)"), "found connector c, expected one of a, over");
  EXPECT_EQ(text("over(a  a)"), "found connector , expected one of a, over");
  EXPECT_EQ(text("over(a a"),
            "found no end of the children of connector over, expected a parenthesis");
  EXPECT_EQ(text("over("), "found connector , expected one of a, over");
  EXPECT_EQ(text("over(a) a"), "found \" a\" behind connector over, expected nothing there");
  EXPECT_EQ(text("over(a))"), "found \")\" behind connector over, expected nothing there");
  EXPECT_EQ(text("over(over(a)(a))"),
            "found \"(a))\" behind connector over, expected a space or a closing parenthesis");
  EXPECT_EQ(text("a a"), "found connector a a, expected one of a, over");
}

TEST(KVConnectorRegistry, AConnectorComesOutOfALibrary) {
  KVConnectorRegistry registry;
  EXPECT_FALSE(registry.register_library("outside", kLibrary));
  const auto found = registry.get("outside");
  ASSERT_TRUE(found) << found.error().to_text();
  const ConnectorSetup setup;
  EXPECT_TRUE(found->make_scheduler(setup)->clone()->reset_cache());
  EXPECT_TRUE(found->make_worker(setup, 1)->clone());
}

TEST(KVConnectorRegistry, WhatALibraryLacksIsSaidByPathAndSymbol) {
  KVConnectorRegistry registry;
  EXPECT_FALSE(registry.register_library("no file", "no/such/file.so"));
  EXPECT_FALSE(registry.register_library("no slash", "no_such_file.so"));
  EXPECT_FALSE(registry.register_library("no symbol", kLibrary, "no_such_symbol"));
  EXPECT_FALSE(registry.register_library("half", kLibrary, "half_a_connector"));
  const auto text = [&](const char* name) { return registry.get(name).error().to_text(); };
  const std::string library = kLibrary;
  EXPECT_EQ(text("no file").find("no/such/file.so: found "), 0U) << text("no file");
  EXPECT_NE(text("no file").find("expected a shared library with the symbol kvfence_connector"),
            std::string::npos)
      << text("no file");
  EXPECT_EQ(text("no slash").find("no_such_file.so: found ./no_such_file.so: "), 0U)
      << text("no slash");
  EXPECT_EQ(text("no symbol").find(library + ": found "), 0U) << text("no symbol");
  EXPECT_NE(text("no symbol").find("expected a shared library with the symbol no_such_symbol"),
            std::string::npos)
      << text("no symbol");
  EXPECT_EQ(
      text("half"),
      library + ": found half a connector, expected half_a_connector to fill in both members");
}

}  // namespace
}  // namespace kvfence
