// An engine's configuration line: what is put together from it, and what is wrong with others.
#include "contract/engine/engine_target.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "contract/core/line.h"
#include "contract/core/target.h"
#include "contract/engine/engine_setup.h"

namespace kvfence {
namespace {

using engine::Assembly;
using engine::Config;
using engine::ConnectorList;

KVCacheSpec full_attention(std::uint32_t block_size) {
  return {.kind = KVCacheSpecKind::kFullAttention, .block_size = block_size};
}

Config config_of(Assembly assembly, std::uint32_t block_size = 4) {
  Config config;
  config.hash_block_size = block_size;
  config.groups = {full_attention(block_size)};
  make_assembly(assembly, config);
  return config;
}

/// The OffloadingConnector over a device.
Config on_device(std::uint32_t block_size = 4) {
  return config_of(Assembly::kOffloadingOnDevice, block_size);
}

engine::offloading::Record& offloading_of(Config& config) {
  return config.edit_connector<engine::offloading::Record>();
}

std::string error_of(Config config) {
  EngineTarget::complete(config);
  const auto setup = EngineTarget::prepare(config, {}, {});
  return setup ? "" : setup.error().to_text();
}

/// What is wrong with an engine over a device that is spoiled.
template <class Spoil>
std::string error_of(Spoil spoil) {
  Config config = on_device();
  spoil(config);
  return error_of(config);
}

/// What a configuration line says, or what is wrong with it.
Parsed<kvfence::Config> read(const std::string& line) {
  const Parsed<Line> parsed = parse_line(line);
  EXPECT_TRUE(parsed) << parsed.error().to_text();
  return config_from_line(EngineTarget::description(), *parsed);
}

std::string error_of_line(const std::string& line) {
  const auto config = read(line);
  return config ? "" : config.error().to_text();
}

std::string printed(const Config& config) { return print(config_line(kvfence::Config(config))); }

TEST(EngineSetup, IsThatOfTheConfiguration) {
  Config config = on_device(8);
  config.profile = Profile::kV023;
  config.num_gpu_blocks = 20;
  offloading_of(config).num_cpu_blocks = 6;
  offloading_of(config).block_size_factor = 2;
  offloading_of(config).eviction_policy = EvictionPolicy::kARC;

  const auto setup = EngineTarget::prepare(config, {}, {});

  ASSERT_TRUE(setup);
  EXPECT_EQ(setup->assembly, Assembly::kOffloadingOnDevice);
  ASSERT_TRUE(setup->device);
  EXPECT_EQ(setup->device->num_gpu_blocks, 20U);
  EXPECT_EQ(setup->device->num_cpu_blocks, 6U);
  EXPECT_EQ(setup->device->block_size, 8U);
  EXPECT_EQ(setup->device->block_size_factor, 2U);
  EXPECT_EQ(setup->scheduler().kv_cache.pool.num_gpu_blocks, 20U);
  ASSERT_TRUE(setup->offloading);
  EXPECT_EQ(setup->offloading->scheduler.kv_cache.pool.num_gpu_blocks, 20U);
}

TEST(EngineSetup, HasThePartsOfItsAssemblyAndNoOthers) {
  for (const engine::AssemblyInfo& info : engine::kAssemblies) {
    const auto setup = EngineTarget::prepare(config_of(info.assembly), {}, {});
    ASSERT_TRUE(setup) << info.name << ": " << setup.error().to_text();
    const bool is_multi = info.assembly == Assembly::kMulti || info.assembly == Assembly::kOnDevice;
    const bool has_offloading = info.assembly == Assembly::kOffloading ||
                                info.assembly == Assembly::kOffloadingOnDevice || is_multi;
    const bool is_pair = info.assembly == Assembly::kPrefillDecode;
    EXPECT_EQ(setup->assembly, info.assembly) << info.name;
    EXPECT_EQ(setup->offloading.has_value(), has_offloading) << info.name;
    EXPECT_EQ(setup->simple.has_value(), info.assembly == Assembly::kSimple || is_multi)
        << info.name;
    EXPECT_EQ(setup->children.size(), is_multi ? 2U : 0U) << info.name;
    EXPECT_EQ(setup->files.has_value(), info.assembly == Assembly::kSynchronous) << info.name;
    EXPECT_EQ(setup->nixl.has_value(), is_pair) << info.name;
    EXPECT_EQ(setup->device.has_value(), info.assembly == Assembly::kOffloadingOnDevice ||
                                             info.assembly == Assembly::kOnDevice)
        << info.name;
    EXPECT_EQ(setup->is_pair(), is_pair) << info.name;
    EXPECT_EQ(setup->num_ranks.size(), is_pair ? 2U : 1U) << info.name;
    EXPECT_EQ(setup->has_connector(), info.assembly != Assembly::kScheduler) << info.name;
    EXPECT_FALSE(setup->is_scripted) << info.name;
  }
}

TEST(EngineSetup, DistinguishesDevices) {
  Config config = on_device();
  EXPECT_TRUE(EngineTarget::prepare(config, {}, {})->is_virtual);
  config.device = engine::DeviceKind::kSymbols;
  const auto on_symbols = EngineTarget::prepare(config, {}, {});
  ASSERT_TRUE(on_symbols);
  EXPECT_TRUE(on_symbols->device);
  EXPECT_FALSE(on_symbols->is_virtual);
  EXPECT_EQ(on_symbols->assembly, Assembly::kOffloadingOnDevice);
}

TEST(EngineSetup, TakesWhatIsLargestAndSmallest) {
  EXPECT_EQ(error_of([](Config& c) { c.num_gpu_blocks = offloading_of(c).num_cpu_blocks = 4096; }),
            "");
  EXPECT_EQ(error_of([](Config& c) { c.num_gpu_blocks = 2, offloading_of(c).num_cpu_blocks = 1; }),
            "");
  EXPECT_EQ(error_of([](Config& c) { offloading_of(c).block_size_factor = 8; }), "");
  EXPECT_EQ(error_of([](Config& c) { c.ranks = 4; }), "");
  EXPECT_EQ(error_of([](Config& c) { c = on_device(32); }), "");
  EXPECT_EQ(error_of([](Config& c) { c = on_device(1); }), "");
}

TEST(EngineSetup, SaysWhatIsTooLarge) {
  EXPECT_EQ(error_of([](Config& c) { c.num_gpu_blocks = 4097; }),
            "found num_gpu_blocks=4097, expected at most 4096 on a device");
  EXPECT_EQ(error_of([](Config& c) { offloading_of(c).num_cpu_blocks = 4097; }),
            "found num_cpu_blocks=4097, expected at most 4096 on a device");
  EXPECT_EQ(error_of([](Config& c) { offloading_of(c).block_size_factor = 9; }),
            "found block_size_factor=9, expected at most 8 on a device");
  EXPECT_EQ(error_of([](Config& c) { c.ranks = 5; }),
            "found ranks=5, expected at most 4 on a device");
  EXPECT_EQ(error_of([](Config& c) { c = on_device(33); }),
            "found block_size=33, expected at most 32 on a device");
}

/// Scripted copies have no memory that could be too small.
TEST(EngineSetup, IsAsLargeAsOneLikesWithoutADevice) {
  const auto without_device = [](auto change) {
    Config config = config_of(Assembly::kOffloading);
    change(config);
    return error_of(config);
  };
  EXPECT_EQ(without_device([](Config& c) { c.num_gpu_blocks = 4097; }), "");
  EXPECT_EQ(without_device([](Config& c) { offloading_of(c).num_cpu_blocks = 4097; }), "");
  EXPECT_EQ(without_device([](Config& c) { offloading_of(c).block_size_factor = 9; }), "");
  EXPECT_EQ(without_device([](Config& c) { c.ranks = 5; }), "");
  EXPECT_EQ(without_device([](Config& c) { c = config_of(Assembly::kOffloading, 33); }), "");
}

TEST(EngineSetup, RefusesWhatItsPartsRefuse) {
  // Settings of the pool, the KV cache, the scheduler and the connector.
  EXPECT_NE(error_of([](Config& c) { c.num_gpu_blocks = 0; }), "");
  EXPECT_NE(error_of([](Config& c) { c.groups.clear(); }), "");
  EXPECT_NE(error_of([](Config& c) { c.max_model_len = 1; }), "");
  EXPECT_NE(error_of([](Config& c) { c.max_num_seqs = 0; }), "");
  EXPECT_NE(error_of([](Config& c) { c.max_concurrent_batches = 3; }), "");
  EXPECT_NE(error_of([](Config& c) { offloading_of(c).num_cpu_blocks = 0; }), "");
  EXPECT_NE(error_of([](Config& c) { offloading_of(c).block_size_factor = 0; }), "");
}

TEST(EngineSetup, RefusesRanksAndEnginesThatAreNotThere) {
  EXPECT_EQ(error_of([](Config& c) { c.ranks = 0; }), "found ranks=0, expected at least one rank");
  EXPECT_EQ(error_of([](Config& c) { c.consumer_ranks = 0; }),
            "found consumer_ranks=0, expected at least one rank");
  EXPECT_EQ(error_of([](Config& c) { c.engines = 2; }),
            "found engines=2, expected 1, unless under (nixl ...)");
  Config pair = config_of(Assembly::kPrefillDecode);
  pair.engines = 1;
  EXPECT_EQ(error_of(pair), "found engines=1, expected 2, under (nixl ...)");
}

TEST(EngineSetup, RefusesDevicesThatNobodyRuns) {
  for (const engine::AssemblyInfo& info : engine::kAssemblies) {
    const bool is_taken = info.assembly != Assembly::kSynchronous;
    Config config = config_of(info.assembly);
    config.device = engine::DeviceKind::kSymbols;
    EXPECT_EQ(error_of(config), is_taken ? ""
                                         : "found device=symbols, expected scripted, unless under "
                                           "(offloading ...), (simple ...), (nixl ...) or none")
        << info.name;
  }
  Config pair = config_of(Assembly::kPrefillDecode);
  pair.device = engine::DeviceKind::kSymbols;
  pair.consumer_ranks = 2;
  EXPECT_EQ(error_of(pair), "found consumer_ranks=2, expected 1, as ranks, on a device");
  Config config = config_of(Assembly::kOnDevice);
  config.connectors.reset();
  config.groups = {{.kind = KVCacheSpecKind::kSlidingWindow, .block_size = 4, .sliding_window = 4}};
  config.async_scheduling = true;
  config.num_speculative_tokens = 2;
  EXPECT_EQ(error_of(config),
            "found num_speculative_tokens=2, expected 0 with a window and async_scheduling, on a "
            "device");
  config.async_scheduling = false;
  EXPECT_EQ(error_of(config), "");
}

TEST(EngineSetup, GivesEachChildItsPagesOfADevice) {
  Config config = config_of(Assembly::kOnDevice);
  offloading_of(config).num_cpu_blocks = 3;
  offloading_of(config).block_size_factor = 2;
  config.edit_connector<engine::simple::Record>().num_cpu_blocks = 5;

  const auto setup = EngineTarget::prepare(config, {}, {});

  ASSERT_TRUE(setup) << setup.error().to_text();
  EXPECT_EQ(setup->device->num_cpu_blocks, 11U);
  EXPECT_EQ(setup->device->block_size_factor, 1U);
  // Slot 1 from its second page on, then slot 0.
  const engine::DeviceTransfer of_offloading{0, 4, "A", false, {7, 8}, {2}, {3}, {1, 0}};
  EXPECT_FALSE(setup->is_of_simple(4));
  EXPECT_EQ(setup->own_number(4), 2U);
  EXPECT_EQ(setup->cpu_pages_of(of_offloading), (std::vector<std::uint32_t>{3, 0}));
  const engine::DeviceTransfer of_simple{0, 5, "", false, {7}, {1}, {0}, {4}};
  EXPECT_TRUE(setup->is_of_simple(5));
  EXPECT_EQ(setup->cpu_pages_of(of_simple), std::vector<std::uint32_t>{10});

  Config pair = config;
  pair.engines = 2;
  pair.consumer_num_gpu_blocks = 7;
  pair.edit_connector<engine::MultiRecord>().children.front() = engine::nixl::Record();
  const auto two = EngineTarget::prepare(pair, {}, {});
  ASSERT_TRUE(two) << two.error().to_text();
  EXPECT_EQ(two->assembly, Assembly::kOnDevice);
  EXPECT_EQ(two->device->num_cpu_blocks, 5U);
  EXPECT_EQ(two->device->num_gpu_blocks, pair.num_gpu_blocks);
  EXPECT_EQ(two->consumer.device->num_gpu_blocks, 7U);

  config.connectors->clear();
  const auto alone = EngineTarget::prepare(config, {}, {});
  ASSERT_TRUE(alone);
  EXPECT_TRUE(alone->has_ranks());
  EXPECT_FALSE(alone->has_workers());
  EXPECT_EQ(alone->device->num_cpu_blocks, 1U);
}

TEST(EngineSetup, RefusesConnectorsThatADeviceCannotTake) {
  const std::string refusal = "found tiers or transfers_may_fail, expected neither on a device";
  EXPECT_EQ(error_of([](Config& c) { offloading_of(c).transfers_may_fail = true; }), refusal);
  EXPECT_EQ(error_of([](Config& c) {
              c.profile = Profile::kV023;
              offloading_of(c).spec_name = "TieringOffloadingSpec";
              offloading_of(c).num_tiers = 1;
            }),
            refusal);
}

TEST(EngineSetup, RefusesStatisticsOnADevice) {
  const std::string refusal = "found block_bytes or engine_labels, expected neither on a device";
  EXPECT_EQ(error_of([](Config& c) { offloading_of(c).block_bytes = 1; }), refusal);
  EXPECT_EQ(error_of([](Config& c) { offloading_of(c).engine_labels = {0, 0}; }), refusal);
}

TEST(EngineSetup, RefusesSeveralConnectors) {
  Config config = config_of(Assembly::kOffloading);
  config.connectors->push_back(engine::ScriptedRecord());
  EXPECT_EQ(error_of(config), "found several connectors, expected one, or none");
}

TEST(EngineSetup, RefusesPrioritiesUnderConnectorsOfFiles) {
  for (const engine::AssemblyInfo& info : engine::kAssemblies) {
    Config config = config_of(info.assembly);
    config.policy = SchedulingPolicy::kPriority;
    EXPECT_EQ(error_of(config), info.assembly == Assembly::kSynchronous
                                    ? "found policy=priority, expected fcfs, under (example ...)"
                                    : "")
        << info.name;
  }
  Config config = config_of(Assembly::kSynchronous);
  config.connectors = ConnectorList{engine::files::DecodeBenchRecord()};
  config.policy = SchedulingPolicy::kPriority;
  EXPECT_EQ(error_of(config), "found policy=priority, expected fcfs, under (decode_bench ...)");
}

TEST(EngineSetup, HasTheWindowsOfGroups) {
  Config config = on_device(2);
  config.profile = Profile::kV023;
  config.ranks = 2;
  config.tokens_only = true;
  config.groups = {full_attention(4),
                   {.kind = KVCacheSpecKind::kSlidingWindow, .block_size = 2, .sliding_window = 3}};

  const auto setup = EngineTarget::prepare(config, {}, {});

  ASSERT_TRUE(setup);
  EXPECT_EQ(setup->windows, (std::vector<std::uint32_t>{0, 3}));
  EXPECT_EQ(setup->device->num_groups, 2U);
  EXPECT_EQ(setup->device->block_size, 4U);
  EXPECT_FALSE(setup->device->looks_for_races);
  EXPECT_TRUE(setup->tokens_only);
  EXPECT_EQ(setup->num_ranks, std::vector<std::uint32_t>{2});
  EXPECT_EQ(setup->offloading->spec.num_workers, 2U);
}

TEST(EngineSetup, TakesGroupsOverNixlWhoseReadsDoNotFail) {
  Config config = config_of(Assembly::kPrefillDecode);
  config.profile = Profile::kV023;
  config.edit_connector<engine::nixl::Record>().deadline = 0;
  KVCacheSpec window = {
      .kind = KVCacheSpecKind::kSlidingWindow, .block_size = 4, .sliding_window = 2};
  config.groups = {full_attention(4), window};
  EXPECT_EQ(error_of(config), "");

  Config other = config;
  other.edit_connector<engine::nixl::Record>() = {.deadline = 5, .transport_may_fail = true};
  EXPECT_EQ(error_of(other),
            "found deadline=5 transport_may_fail=true, expected deadline=0 alone with a window or "
            "several groups: a failed read is not reported");
  other = config;
  other.profile = Profile::kV019;
  other.groups = {window};
  EXPECT_EQ(error_of(other),
            "found a window, expected rule finish_drops_by_computed_tokens: before, the producer "
            "gives back what is to be read");
  other = config;
  other.device = engine::DeviceKind::kSymbols;
  EXPECT_EQ(error_of(other), "found a window, expected none over NIXL, on a device");
  const std::string refusal =
      "found these groups, expected groups of one block size, of full attention or with a sliding "
      "window of at least 2 tokens";
  for (const KVCacheSpec& group :
       {KVCacheSpec{.kind = KVCacheSpecKind::kSlidingWindow, .block_size = 4, .sliding_window = 1},
        KVCacheSpec{.kind = KVCacheSpecKind::kSlidingWindow, .block_size = 8, .sliding_window = 2},
        KVCacheSpec{.kind = KVCacheSpecKind::kMamba, .block_size = 4}}) {
    config.groups.back() = group;
    EXPECT_EQ(error_of(config), refusal);
  }
}

TEST(EngineSetup, RefusesGroupsOfAnotherKind) {
  const auto with_mamba = [](Config& c) {
    c.profile = Profile::kV023;
    c.groups = {full_attention(c.hash_block_size),
                {.kind = KVCacheSpecKind::kMamba, .block_size = c.hash_block_size}};
  };
  EXPECT_EQ(error_of(with_mamba),
            "found a group of another kind, expected full attention or a sliding window");
}

TEST(EngineSetup, RefusesMambaInAlignModeUnderAConnectorOfV019WhereverItStands) {
  Config config = config_of(Assembly::kScheduler);
  const KVCacheSpec aligned = {
      .kind = KVCacheSpecKind::kMamba, .block_size = 4, .mamba_align = true};
  for (const std::size_t place : {0U, 1U}) {
    config.groups = {full_attention(4)};
    config.groups.insert(config.groups.begin() + static_cast<std::ptrdiff_t>(place), aligned);
    config.connectors->clear();
    EXPECT_EQ(error_of(config), "");
    config.connectors->emplace_back(engine::ScriptedRecord());
    config.profile = Profile::kV019;
    EXPECT_NE(error_of(config).find("no connector with a Mamba group in align mode"),
              std::string::npos);
    config.profile = Profile::kV023;
    EXPECT_EQ(error_of(config), "");
  }
}

TEST(EngineSetup, NamesThePlace) {
  Config config = on_device();
  offloading_of(config).block_size_factor = 9;

  const auto setup = EngineTarget::prepare(config, "a.kvs", {2, 8});

  ASSERT_FALSE(setup);
  EXPECT_EQ(setup.error().to_text(),
            "a.kvs:2:8: found block_size_factor=9, expected at most 8 on a device");
}

TEST(EngineAssembly, AloneCompletesTheConfiguration) {
  for (const engine::AssemblyInfo& info : engine::kAssemblies) {
    Config named = config_of(info.assembly);
    Config bare = named;
    bare.assembly = named.assembly = info.assembly;
    bare.connectors.reset();
    bare.device = Config().device;
    bare.engines = Config().engines;

    const kvfence::Setup setup = prepared(EngineTarget::description(), kvfence::Config(bare));
    EXPECT_EQ(setup.as<EngineSetup>().assembly, info.assembly) << info.name;
    // Later readers of the configuration find all of it.
    EXPECT_EQ(setup.config().as<Config>(), named) << info.name;
  }
}

TEST(EngineAssembly, LeavesADeviceAndEnginesThatAreNamed) {
  const auto named = [](Assembly assembly) {
    Config config = config_of(Assembly::kScheduler);
    config.connectors.reset();
    config.assembly = assembly;
    return config;
  };
  Config on_symbols = named(Assembly::kOffloadingOnDevice);
  on_symbols.device = engine::DeviceKind::kSymbols;
  EngineTarget::complete(on_symbols);
  const auto setup = EngineTarget::prepare(on_symbols, {}, {});
  ASSERT_TRUE(setup) << setup.error().to_text();
  EXPECT_EQ(setup->assembly, Assembly::kOffloadingOnDevice);
  EXPECT_FALSE(setup->is_virtual);
  EXPECT_EQ(on_symbols.device, engine::DeviceKind::kSymbols);

  Config contradiction = named(Assembly::kOffloading);
  contradiction.device = engine::DeviceKind::kVirtual;
  EXPECT_EQ(error_of(contradiction),
            "found assembly=offloading, expected assembly=offloading_on_device, as connectors and "
            "device say");
  Config too_many = named(Assembly::kOffloading);
  too_many.engines = 2;
  EXPECT_EQ(error_of(too_many), "found engines=2, expected 1, unless under (nixl ...)");
}

TEST(EngineAssembly, IsTheSchedulersWhereNothingIsSaid) {
  Config config = config_of(Assembly::kScheduler);
  config.connectors.reset();
  const auto setup = EngineTarget::prepare(config, {}, {});
  ASSERT_TRUE(setup);
  EXPECT_EQ(setup->assembly, Assembly::kScheduler);
  EXPECT_FALSE(setup->has_connector());

  config.connectors = ConnectorList{engine::ScriptedRecord()};
  const auto scripted = EngineTarget::prepare(config, {}, {});
  ASSERT_TRUE(scripted);
  EXPECT_EQ(scripted->assembly, Assembly::kScheduler);
  EXPECT_TRUE(scripted->is_scripted);
  EXPECT_TRUE(scripted->has_connector());
  EXPECT_FALSE(scripted->has_workers());
}

TEST(EngineAssembly, OfAnotherNameThanTheConnectorsIsAnError) {
  for (const engine::AssemblyInfo& info : engine::kAssemblies) {
    for (const engine::AssemblyInfo& other : engine::kAssemblies) {
      Config config = config_of(info.assembly);
      config.assembly = other.assembly;
      EXPECT_EQ(error_of(config), info.assembly == other.assembly
                                      ? ""
                                      : "found assembly=" + std::string(other.name) +
                                            ", expected assembly=" + std::string(info.name) +
                                            ", as connectors and device say");
    }
  }
}

TEST(EngineConfig, NamesTheWordsThatThereAre) {
  EXPECT_EQ(error_of_line("config assembly=submarine"),
            "1:8: found assembly=submarine, expected one of scheduler, offloading, "
            "offloading_on_device, on_device, simple, synchronous, prefill_decode, multi or none");
  EXPECT_EQ(error_of_line("config device=abacus"),
            "1:8: found device=abacus, expected one of scripted, symbols, virtual");
  EXPECT_EQ(error_of_line("config policy=lifo"),
            "1:8: found policy=lifo, expected one of fcfs, priority");
  EXPECT_EQ(error_of_line("config kv_load_failure_policy=hope"),
            "1:8: found kv_load_failure_policy=hope, expected one of fail, recompute");
  EXPECT_EQ(error_of_line("config hash_algorithm=md5"),
            "1:8: found hash_algorithm=md5, expected one of sha256_cbor, xxhash_cbor");
  EXPECT_EQ(error_of_line("config profile=v9"),
            "1:8: found profile=v9, expected one of v0.19, v0.23");
  EXPECT_NE(error_of_line("config connectors=[(offloading eviction_policy=fifo)]")
                .find("for eviction_policy=fifo in (offloading ...) one of lru, arc"),
            std::string::npos);
}

TEST(EngineAssembly, HasANameOfItsOwn) {
  for (const engine::AssemblyInfo& info : engine::kAssemblies) {
    EXPECT_EQ(to_text(info.assembly), info.name);
    EXPECT_EQ(from_text<engine::Assembly>(info.name), info.assembly);
    EXPECT_EQ(assembly_of(config_of(info.assembly)), info.assembly) << info.name;
  }
  EXPECT_EQ(from_text<engine::Assembly>("submarine"), std::nullopt);
}

/// Whether reading a line fails with a message that begins so and has each of these words.
::testing::AssertionResult fails(const std::string& line, const std::string& beginning,
                                 const std::vector<std::string>& words) {
  const std::string error = error_of_line(line);
  bool is_said = error.rfind(beginning, 0) == 0;
  for (const std::string& word : words) is_said &= error.find(word) != std::string::npos;
  return (is_said ? ::testing::AssertionSuccess() : ::testing::AssertionFailure()) << error;
}

TEST(EngineConnectors, ThatNobodyKnowsAreErrors) {
  EXPECT_TRUE(fails("config connectors=[(nonsense)]",
                    "1:8: found connectors=[(nonsense)], expected ",
                    {"(scripted)", "(offloading ...)", "(simple ...)", "(example ...)",
                     "(decode_bench ...)", "(nixl ...)"}));
  for (const char* const value : {"[offloading]", "(offloading)", "offloading", "1"}) {
    EXPECT_TRUE(fails("config connectors=" + std::string(value),
                      "1:8: found connectors=" + std::string(value) + ", expected connectors such",
                      {"[(offloading num_cpu_blocks=8)]"}));
  }
}

TEST(EngineConnectors, AreToldWithoutWhatWasFound) {
  const std::string error = error_of_line("config connectors=[(nonsense)]");
  EXPECT_EQ(error.find("not (nonsense)"), std::string::npos) << error;
}

TEST(EngineConnectors, WithAMemberThatTheyDoNotHaveAreErrors) {
  EXPECT_TRUE(fails("config connectors=[(simple num_cpu_block=3)]",
                    "1:8: found connectors=[(simple num_cpu_block=3)], expected ",
                    {"(simple ...)", "one of num_cpu_blocks, lazy_offload,",
                     "simple_offload_pins_hits", "key 'num_cpu_block'"}));
  EXPECT_TRUE(fails("config connectors=[(scripted num_layers=1)]",
                    "1:8: found connectors=[(scripted num_layers=1)], expected ",
                    {"(scripted ...)", "one of class, hma", "key 'num_layers'"}));
}

TEST(EngineConnectors, WithAMemberOfAnotherKindAreErrors) {
  EXPECT_TRUE(fails("config connectors=[(nixl deadline=soon)]",
                    "1:8: found connectors=[(nixl deadline=soon)], expected ",
                    {"(nixl ...)", "an integer from 0 to 4294967295", "deadline=soon"}));
}

TEST(EngineConnectors, ThatCannotBeChildrenAreErrors) {
  const auto error_of_children = [](const std::vector<engine::ConnectorRecord>& children) {
    return error_of([&](Config& config) {
      engine::MultiRecord multi;
      multi.children.assign(children.begin(), children.end());
      make_assembly(Assembly::kMulti, config);
      config.connectors->front() = multi;
    });
  };
  const std::string kinds =
      "found a child of another kind, expected (offloading ...), (simple ...), (example ...), "
      "(decode_bench ...), (nixl ...) or (scripted ...)";
  const std::string once =
      "found two children of one kind, expected each kind once, except (scripted ...)";
  EXPECT_EQ(error_of_children({}), "found children=[], expected at least one child");
  EXPECT_EQ(error_of_children({engine::MultiRecord()}), kinds);
  EXPECT_EQ(error_of_children({engine::offloading::Record(), engine::offloading::Record()}), once);
  EXPECT_EQ(error_of_children({engine::files::ExampleRecord(), engine::files::DecodeBenchRecord()}),
            once);
  EXPECT_EQ(error_of_children(std::vector<engine::ConnectorRecord>(9, engine::ScriptedRecord())),
            "found 9 children, expected at most 8");
}

TEST(EngineConnectors, BesideNixlAreThoseOfAPair) {
  const auto config_with = [](const engine::ConnectorRecord& other) {
    Config config = config_of(Assembly::kMulti);
    config.engines = 2;
    engine::MultiRecord multi;
    multi.children.emplace_back(other);
    multi.children.emplace_back(engine::nixl::Record());
    config.connectors->front() = multi;
    return config;
  };
  Config config = config_with(engine::offloading::Record());
  config.consumer_ranks = 2;
  config.consumer_num_gpu_blocks = 7;
  const auto setup = EngineTarget::prepare(config, {}, {});
  ASSERT_TRUE(setup);
  EXPECT_EQ(setup->assembly, Assembly::kMulti);
  ASSERT_TRUE(setup->nixl && setup->offloading && setup->consumer.offloading);
  EXPECT_EQ(setup->offloading->spec.num_workers, 1U);
  EXPECT_EQ(setup->consumer.offloading->spec.num_workers, 2U);
  EXPECT_EQ(setup->consumer.offloading->scheduler.kv_cache.pool.num_gpu_blocks, 7U);

  config.engines = 1;
  EXPECT_EQ(error_of(config), "found engines=1, expected 2, under (nixl ...)");

  engine::offloading::Record tiered;
  tiered.spec_name = "TieringOffloadingSpec";
  EXPECT_EQ(error_of(config_with(tiered)),
            "found spec_name=TieringOffloadingSpec, expected CPUOffloadingSpec, beside (nixl ...)");
  config = config_with(engine::files::ExampleRecord());
  EXPECT_EQ(error_of(config), "");
  config.consumer_ranks = 2;
  EXPECT_EQ(error_of(config),
            "found consumer_ranks=2, expected 1, as ranks, with files beside (nixl ...)");
  engine::ScriptedRecord scripted;
  EXPECT_EQ(error_of(config_with(scripted)), "");
  scripted.handshake = true;
  EXPECT_EQ(
      error_of(config_with(scripted)),
      "found (scripted handshake=true) before (nixl ...), expected handshake=false, or after it");
  engine::MultiRecord multi;
  multi.children.emplace_back(engine::nixl::Record());
  multi.children.emplace_back(scripted);
  config = config_with(scripted);
  config.connectors->front() = multi;
  EXPECT_EQ(error_of(config), "");
}

TEST(EngineConnectors, ThatAreScriptedCanBeSeveralChildren) {
  Config config = config_of(Assembly::kMulti);
  engine::MultiRecord multi;
  multi.children.emplace_back(engine::ScriptedRecord{"b", false});
  multi.children.emplace_back(engine::offloading::Record());
  multi.children.emplace_back(engine::ScriptedRecord());
  config.connectors->front() = multi;
  const auto setup = EngineTarget::prepare(config, {}, {});
  ASSERT_TRUE(setup);
  EXPECT_EQ(setup->assembly, Assembly::kMulti);
  EXPECT_FALSE(setup->is_scripted);
  EXPECT_TRUE(setup->has_workers());
  ASSERT_EQ(setup->children.size(), 3U);
  EXPECT_TRUE(setup->has_child(0, engine::ConnectorKind::kScripted));
  EXPECT_TRUE(setup->has_child(1, engine::ConnectorKind::kOffloading));
  EXPECT_FALSE(setup->has_child(3, engine::ConnectorKind::kScripted));
  EXPECT_EQ(setup->children.front().scripted.connector_class, "b");

  config.profile = Profile::kV023;
  config.enable_caching = false;
  config.groups.push_back(config.groups.front());
  EXPECT_EQ(error_of(config), "found 2 groups, expected one group, for children without hma");
}

TEST(EngineConnectors, OfFilesTakeNoRunAheadOutputs) {
  Config config = config_of(Assembly::kSynchronous);
  config.async_scheduling = true;
  const std::string alone = error_of(config);
  EXPECT_EQ(alone.find("found async_scheduling=true, expected false, under "), 0U) << alone;

  engine::MultiRecord multi;
  multi.children.emplace_back(engine::offloading::Record());
  multi.children.emplace_back(engine::files::ExampleRecord());
  make_assembly(Assembly::kMulti, config);
  config.connectors->front() = multi;
  const std::string as_child = error_of(config);
  EXPECT_EQ(as_child.find("found async_scheduling=true, expected false, under "), 0U) << as_child;
}

/// Each record, as it is and with every kind of member changed.
std::vector<engine::ConnectorRecord> all_records() {
  engine::offloading::Record offloading;
  offloading.num_cpu_blocks = 3;
  offloading.block_size_factor = 2;
  offloading.eviction_policy = EvictionPolicy::kARC;
  offloading.offload_prompt_only = false;
  offloading.transfers_may_fail = true;
  offloading.arc_refuses_with_idle_t1 = false;
  offloading.spec_name = "TieringOffloadingSpec";
  offloading.num_tiers = 3;
  offloading.request_level_tiers = {1, 2};
  offloading.file_tiers = {0};
  engine::simple::Record simple;
  simple.num_cpu_blocks = 5;
  simple.lazy_offload = true;
  simple.simple_offload_pins_hits = true;
  engine::files::ExampleRecord example;
  example.num_layers = 3;
  engine::files::DecodeBenchRecord decode_bench;
  decode_bench.num_layers = 2;
  decode_bench.decode_bench_hma = false;
  engine::nixl::Record nixl;
  nixl.deadline = 7;
  nixl.transport_may_fail = true;
  engine::MultiRecord multi;
  multi.children = {simple, offloading, engine::ScriptedRecord{"b", false}, example};
  return {
      engine::ScriptedRecord(),           multi,        engine::offloading::Record(),   offloading,
      engine::simple::Record(),           simple,       engine::files::ExampleRecord(), example,
      engine::files::DecodeBenchRecord(), decode_bench, engine::nixl::Record(),         nixl};
}

TEST(EngineConnectors, AreReadBackAsTheyArePrinted) {
  for (const engine::ConnectorRecord& record : all_records()) {
    Config config = on_device();
    config.assembly = Assembly::kOffloading;
    config.connectors = ConnectorList{record};
    config.ranks = 3;
    const std::string line = printed(config);
    const auto again = read(line);
    ASSERT_TRUE(again) << line << ": " << again.error().to_text();
    EXPECT_EQ(again->as<Config>(), config) << line;
    EXPECT_EQ(print(config_line(*again)), line);
  }
}

TEST(EngineConnectors, ThatAreNoneAreNotThoseThatNobodyNamed) {
  Config config = config_of(Assembly::kScheduler);
  EXPECT_NE(printed(config).find(" connectors=[]"), std::string::npos) << printed(config);
  EXPECT_EQ(read(printed(config))->as<Config>(), config);
  config.connectors.reset();
  EXPECT_EQ(printed(config).find("connectors="), std::string::npos) << printed(config);
  EXPECT_EQ(read(printed(config))->as<Config>(), config);
}

TEST(EngineConnectors, AreWrittenAsGroupsAre) {
  const auto config = read(
      "config hash_block_size=4 groups=[(full block_size=4)] "
      "connectors=[(offloading num_cpu_blocks=2 eviction_policy=arc)] device=virtual ranks=2");
  ASSERT_TRUE(config) << config.error().to_text();
  const Config& typed = config->as<Config>();
  ASSERT_TRUE(typed.connector<engine::offloading::Record>());
  EXPECT_EQ(typed.connector<engine::offloading::Record>()->num_cpu_blocks, 2U);
  EXPECT_EQ(typed.connector<engine::offloading::Record>()->eviction_policy, EvictionPolicy::kARC);
  EXPECT_FALSE(typed.connector<engine::simple::Record>());
  EXPECT_EQ(assembly_of(typed), Assembly::kOffloadingOnDevice);
}

}  // namespace
}  // namespace kvfence
