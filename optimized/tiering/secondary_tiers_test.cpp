// Goal: a spec that lists tiers gets them, a connector above file tiers finds what an earlier one
// stored, and what is wrong is named. Method: the spec factory, the tier factory and the connector
// one after the other, over a temporary folder; the slots are written as a GPU would.

#include "optimized/tiering/secondary_tiers.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "contract/connectors/offloading/offloading_spec_factory.h"
#include "contract/tiering/tier_files.h"
#include "optimized/files/temporary_folder.h"
#include "optimized/tiering/tiering_manager.h"

namespace kvfence::optimized {
namespace {

constexpr std::uint32_t kNumSlots = 4;
constexpr std::size_t kSlotBytes = 48;

OffloadingSpecContext context() {
  OffloadingSpecContext context;
  context.kv_cache.groups = {{.block_size = 16}};
  context.kv_cache.pool.num_gpu_blocks = 10;
  context.kv_cache.pool.rules = rules_of(Profile::kV023);
  context.page_size_bytes = {kSlotBytes};
  context.kv_cache_tensors = {10 * kSlotBytes};
  return context;
}

/// Of a spec that lists these tiers.
OffloadingSpec spec_of(const std::string& tiers) {
  const auto line =
      parse_line("spec spec_name=TieringOffloadingSpec cpu_bytes_to_use=" +
                 std::to_string(kNumSlots * kSlotBytes) + " secondary_tiers=" + tiers);
  EXPECT_TRUE(line);
  auto spec = built_in_offloading_specs().create_spec(line->fields, context());
  EXPECT_TRUE(spec) << spec.error().to_text();
  return *spec;
}

/// A manager above the tiers of a spec, with the slots that it needs.
class Engine {
 public:
  explicit Engine(const std::string& tiers)
      : bytes_(kNumSlots * kSlotBytes), manager_(make(tiers)) {}
  ~Engine() {
    for (SecondaryTierHandle& tier : manager_.tiers()) tier.shutdown();
  }

  void store(OffloadKeyView key) {
    bool stored = false;
    PrepareStoreOutput out;
    ASSERT_EQ(manager_.prepare_store({&key, 1}, {"A"}, stored, out), ErrorCode::kNone);
    ASSERT_TRUE(stored);
    fill_block(key, view().slot(out.slots.front()));
    ASSERT_EQ(manager_.complete_store({&key, 1}, {"A"}, true), ErrorCode::kNone);
    wait();
  }

  LookupResult look_up(OffloadKeyView key) { return manager_.lookup(key, {"A"}); }

  /// Of a key that was found.
  bool is_whole(OffloadKeyView key) {
    std::vector<SlotId> slots;
    EXPECT_EQ(manager_.prepare_load({&key, 1}, slots), ErrorCode::kNone);
    EXPECT_EQ(manager_.complete_load({&key, 1}), ErrorCode::kNone);
    return holds_block(key, view().slot(slots.front()));
  }

  /// Steps end until no job is under way.
  void wait() {
    for (manager_.on_schedule_end(); manager_.num_jobs() > 0; manager_.on_schedule_end()) {
      std::this_thread::yield();
    }
  }

 private:
  PrimaryKvView view() { return {bytes_.data(), kSlotBytes, kNumSlots}; }

  TieringOffloadingManager make(const std::string& tiers) {
    const OffloadingSpec spec = spec_of(tiers);
    auto made = built_in_secondary_tiers().create_secondary_tiers(view(), spec);
    EXPECT_TRUE(made) << made.error().to_text();
    return TieringOffloadingManager(spec.manager, std::move(*made));
  }

  std::vector<std::byte> bytes_;
  TieringOffloadingManager manager_;
};

std::string key_of(char letter) { return std::string(32, letter) + std::string(4, '\0'); }

TEST(SecondaryTiers, WhatOneEngineStoredInFilesAnotherOneFinds) {
  const TemporaryFolder folder("secondary_tiers_test");
  const std::string tiers =
      "[(example) (fs root_dir=\"" + folder.path() + "\" n_read_threads=1 n_write_threads=1)]";
  const std::string key = key_of('a');
  Engine(tiers).store(key);
  Engine other(tiers);
  EXPECT_EQ(other.look_up(key), LookupResult::kPending);
  other.wait();
  EXPECT_EQ(other.look_up(key), LookupResult::kHit);
  EXPECT_TRUE(other.is_whole(key));
  EXPECT_EQ(other.look_up(key_of('b')), LookupResult::kMiss);
}

/// Another model, or the same with another layout, has a folder of its own.
TEST(SecondaryTiers, FilesOfAnotherModelAreNotFound) {
  const TemporaryFolder folder("secondary_tiers_test");
  const std::string tier = "(fs root_dir=\"" + folder.path() + "\" n_read_threads=1";
  const std::string key = key_of('a');
  Engine("[" + tier + ")]").store(key);
  EXPECT_EQ(Engine("[" + tier + " model_name=other)]").look_up(key), LookupResult::kMiss);
}

TEST(SecondaryTiers, EachBadSettingIsNamed) {
  std::vector<std::byte> bytes(kNumSlots * kSlotBytes);
  const PrimaryKvView view{bytes.data(), kSlotBytes, kNumSlots};
  const auto error_of = [](const std::string& tiers, PrimaryKvView primary) {
    return built_in_secondary_tiers()
        .create_secondary_tiers(primary, spec_of(tiers))
        .error()
        .to_text();
  };
  EXPECT_NE(error_of("[(obj)]", view).find("found a tier of type obj, expected one of example, fs"),
            std::string::npos);
  EXPECT_NE(error_of("[(example x=1)]", view).find("found example with x=1, expected no settings"),
            std::string::npos);
  EXPECT_NE(error_of("[(fs)]", view).find("found this fs tier, expected"), std::string::npos);
  EXPECT_NE(error_of("[(fs root_dir=3)]", view).find("found fs with root_dir=3, expected a text"),
            std::string::npos);
  EXPECT_NE(error_of("[(fs root_dir=a n_read_threads=-1)]", view)
                .find("found fs with n_read_threads=-1, expected a whole number from 0 to 1024"),
            std::string::npos);
  EXPECT_NE(error_of("[(fs root_dir=a custom=1)]", view).find("expected one of root_dir, "),
            std::string::npos);
  EXPECT_NE(error_of("[(fs root_dir=a)]", {}).find("found an fs tier below slots without bytes"),
            std::string::npos);
}

}  // namespace
}  // namespace kvfence::optimized
