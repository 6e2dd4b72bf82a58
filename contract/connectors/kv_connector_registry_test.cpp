// Goal: a connector is loaded when it is first asked for, and what is wrong is said by name.
// Method: loaders that count; a shared library that is built beside this test.

#include "contract/connectors/kv_connector_registry.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "contract/connectors/disaggregated/disaggregated_connector.h"
#include "contract/connectors/offloading/offloading_setup.h"
#include "contract/connectors/simple/simple_cpu_offload.h"
#include "contract/connectors/synchronous/synchronous_connector.h"
#include "contract/engine/engine_target.h"

namespace kvfence {
namespace {

using Names = std::vector<std::string>;

constexpr const char* kLibrary = KVFENCE_TEST_CONNECTOR_LIBRARY;

KVConnectorRegistry::Loader counting(int& num_loads) {
  return [&num_loads] {
    ++num_loads;
    return Parsed<KVConnectorFactories>(KVConnectorFactories());
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
  (void)registry.register_connector("a", [&]() -> Parsed<KVConnectorFactories> {
    if (++num_loads == 1) return InputError{"somewhere", {}, "nothing", "something"};
    return KVConnectorFactories();
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

TEST(KVConnectorRegistry, AConnectorComesOutOfALibrary) {
  KVConnectorRegistry registry;
  EXPECT_FALSE(registry.register_library("outside", kLibrary));
  const auto found = registry.get("outside");
  ASSERT_TRUE(found) << found.error().to_text();
  EXPECT_EQ(found->kinds(), (Names{"offloading", "simple"}));
  EXPECT_EQ(found->half_kinds(), Names());
  const ConnectorSetup setup;
  EXPECT_TRUE(found->make_offloading(setup)->clone()->reset_cache());
  EXPECT_TRUE(found->make_offloading_worker(setup, 1)->clone());
  EXPECT_TRUE(found->make_simple({})->clone()->reset_cache());
  EXPECT_TRUE(found->make_simple_worker({})->clone());
}

TEST(KVConnectorRegistry, WhatALibraryLacksIsSaidByPathAndSymbol) {
  KVConnectorRegistry registry;
  EXPECT_FALSE(registry.register_library("no file", "no/such/file.so"));
  EXPECT_FALSE(registry.register_library("no slash", "no_such_file.so"));
  EXPECT_FALSE(registry.register_library("no symbol", kLibrary, "no_such_symbol"));
  EXPECT_FALSE(registry.register_library("half", kLibrary, "half_a_connector"));
  EXPECT_FALSE(registry.register_library("none", kLibrary, "no_connector"));
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
  EXPECT_EQ(text("half"), library +
                              ": found half a connector (simple), expected half_a_connector "
                              "to fill in every half of a kind");
  EXPECT_EQ(text("none"),
            library + ": found no connector, expected no_connector to fill in a kind");
}

TEST(KVConnectorFactories, APairNeedsEveryHalf) {
  KVConnectorFactories factories;
  factories.make_producer = [](const DisaggregatedSpec&) { return nullptr; };
  factories.make_consumer = [](const DisaggregatedSpec&) { return nullptr; };
  factories.make_producer_worker = [](const DisaggregatedSpec&, std::uint32_t, Transport&) {
    return nullptr;
  };
  EXPECT_EQ(factories.kinds(), Names());
  EXPECT_EQ(factories.half_kinds(), Names{"nixl"});
  factories.make_consumer_worker = factories.make_producer_worker;
  EXPECT_EQ(factories.kinds(), Names{"nixl"});
}

TEST(KVConnectorFactories, TakeReplacesWhatTheOtherOneHas) {
  KVConnectorFactories own;
  own.make_files_connector = [](const SynchronousConnectorSpec&, SharedStorage&) {
    return nullptr;
  };
  own.make_files_worker = [](const SynchronousConnectorSpec&, SharedStorage&, ScriptedKVCache&,
                             SynchronousWorkerReport&) { return nullptr; };
  int num_calls = 0;
  own.make_simple = [&](const SimpleCPUOffloadSpec&) { return ++num_calls, nullptr; };
  KVConnectorFactories other;
  other.make_simple = [](const SimpleCPUOffloadSpec&) { return nullptr; };
  other.make_simple_worker = [](const SimpleCPUOffloadSpec&) { return nullptr; };
  own.take(other);
  EXPECT_EQ(own.kinds(), (Names{"simple", "files"}));
  (void)own.make_simple({});
  EXPECT_EQ(num_calls, 0);
}

}  // namespace
}  // namespace kvfence
