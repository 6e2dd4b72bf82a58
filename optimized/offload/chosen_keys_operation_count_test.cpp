// Goal: a stranger who chooses the keys of a table cannot make its probes long. Method: count the
// slots looked at for keys that agree in all but 4 bytes, at any position. As a control, count them
// for keys that were chosen with the secret.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/table_secret.h"
#include "planted/optimized/base/key_set.h"
#include "planted/optimized/base/key_table.h"
#include "planted/optimized/base/repeat_finder.h"
#include "planted/optimized/base/request_ids.h"
#include "planted/optimized/offload/offloading_manager.h"
#include "planted/optimized/pool/block_hash_to_block_map.h"
#include "planted/optimized/pool/block_pool.h"
#include "properties/planted/switches.h"

namespace kvfence::planted::optimized {
namespace {

constexpr std::uint32_t kNumKeys = 4096;
constexpr TableSecret kSecret = {0x0123'4567'89AB'CDEF, 0x1357'9BDF'0246'8ACE};

/// At a load of 1/2 at most, an insertion probes 2.5 slots and a hit 1.5 on average.
constexpr double kProbesPerKeyMax = 4.5;
/// Of one insertion or lookup.
constexpr std::uint64_t kProbesMax = 40;

using Keys = std::vector<std::string>;

/// Keys that differ only in 4 bytes, which count from 0.
Keys keys_that_differ_at(std::size_t offset, std::size_t size) {
  Keys keys(kNumKeys, std::string(size, 'k'));
  for (std::uint32_t i = 0; i < kNumKeys; ++i) std::memcpy(&keys[i][offset], &i, sizeof(i));
  return keys;
}

/// The same, with a last step whose product is 0.
Keys keys_against(const TableSecret& secret, std::size_t size) {
  Keys keys = keys_that_differ_at(size - 8, size);
  for (std::string& key : keys) std::memcpy(&key[size - 16], &secret.first, sizeof(secret.first));
  return keys;
}

struct Probes {
  std::uint64_t all = 0;
  std::uint64_t most = 0;  ///< of one operation

  template <class Operation>
  void count(Operation operation) {
    const std::uint64_t before = operation_counts.probes;
    operation();
    const std::uint64_t cost = operation_counts.probes - before;
    all += cost;
    most = std::max(most, cost);
  }
  double per_key() const { return static_cast<double>(all) / kNumKeys; }
};

Probes probes_of_map(const Keys& keys, const TableSecret& secret) {
  BlockHashToBlockMap map(kNumKeys, keys[0].size(), secret);
  Probes probes;
  for (BlockId i = 0; i < kNumKeys; ++i) {
    probes.count([&] { map.insert(PackedKeyView(keys[i]), i); });
  }
  for (BlockId i = 0; i < kNumKeys; ++i) {
    probes.count([&] { EXPECT_EQ(map.get_one_block(PackedKeyView(keys[i])), i); });
  }
  return probes;
}

Probes probes_of_table(const Keys& keys, const TableSecret& secret) {
  struct Payload {
    std::uint32_t value = 0;
  };
  KeyTable<Payload> table(kNumKeys, secret);
  Probes probes;
  for (const std::string& key : keys) {
    probes.count([&] { table.insert(key, table.search(key)); });
  }
  for (std::uint32_t i = 0; i < kNumKeys; ++i) {
    probes.count([&] { EXPECT_EQ(table.find(keys[i]), i); });
  }
  return probes;
}

Probes probes_of_set(const Keys& keys, const TableSecret& secret) {
  KeySet set(secret);
  // Grown before, so that an insertion is one search.
  for (const std::string& key : keys_that_differ_at(0, keys[0].size())) set.insert(key);
  set.clear();
  Probes probes;
  for (const std::string& key : keys) probes.count([&] { set.insert(key); });
  for (const std::string& key : keys) probes.count([&] { EXPECT_TRUE(set.contains(key)); });
  return probes;
}

Probes probes_of_ids(const Keys& keys, const TableSecret& secret) {
  RequestIds ids(secret);
  const auto id_of = [&keys](RequestIndex request) { return std::string_view(keys[request]); };
  for (RequestIndex i = 0; i < kNumKeys; ++i) ids.insert(keys[i], i);
  Probes probes;
  for (RequestIndex i = 0; i < kNumKeys; ++i) {
    probes.count([&] { EXPECT_EQ(ids.find(keys[i], id_of), i); });
  }
  return probes;
}

/// One call for all keys.
Probes probes_of_repeats(const Keys& keys, const TableSecret& secret) {
  RepeatFinder finder(secret);
  const std::vector<OffloadKeyView> views(keys.begin(), keys.end());
  Probes probes;
  probes.count([&] { EXPECT_FALSE(finder.has_repeat(views)); });
  probes.most = 0;
  return probes;
}

/// Through the constructors, with keys against the constant that a lost secret would leave in use.
Probes probes_of_pool(const Keys& keys, const TableSecret& secret) {
  BlockPoolConfig config;
  config.num_gpu_blocks = kNumKeys + 1;
  config.table_secret = secret;
  BlockPool pool(config);
  Probes probes;
  for (BlockId i = 0; i < kNumKeys; ++i) {
    probes.count([&] { EXPECT_EQ(pool.cache_block(i + 1, keys[i]), ErrorCode::kNone); });
  }
  for (const std::string& key : keys) probes.count([&] { EXPECT_TRUE(pool.has_key(key)); });
  return probes;
}

/// Tracker, policy and repeat finder.
Probes probes_of_offloading(const Keys& keys, const TableSecret& secret) {
  OffloadingManagerConfig config;
  config.cache.capacity = kNumKeys;
  config.cache.table_secret = secret;
  config.store_threshold = 2;
  config.rules = rules_of(Profile::kV023);
  OffloadingManager manager(config);
  const std::vector<OffloadKeyView> views(keys.begin(), keys.end());
  LookupResult result = LookupResult::kMiss;
  for (int time = 0; time < 2; ++time) {
    for (const std::string& key : keys) manager.lookup_key(key, result);
  }
  Probes probes;
  for (const std::string& key : keys) {
    probes.count([&] { EXPECT_EQ(manager.lookup_key(key, result), ErrorCode::kNone); });
  }
  const std::uint64_t most = probes.most;
  PrepareStoreOutput out;
  bool stored = false;
  probes.count([&] { EXPECT_EQ(manager.prepare_store(views, stored, out), ErrorCode::kNone); });
  EXPECT_EQ(out.keys_to_store.size(), kNumKeys);
  probes.all /= 4;  // a key is looked for in the tracker, twice in the policy, and among the others
  probes.most = most;
  return probes;
}

struct Case {
  const char* name;
  Probes (*probes)(const Keys&, const TableSecret&);
  std::size_t size;  ///< bytes of a key that end where the last step of the hash does
  std::size_t rest;  ///< bytes after it
};

void PrintTo(const Case& of, std::ostream* out) { *out << of.name; }

class ChosenKeys : public testing::TestWithParam<Case> {
 protected:
  static Keys keys_against(const TableSecret& secret) {
    Keys keys = optimized::keys_against(secret, GetParam().size);
    for (std::string& key : keys) key.append(GetParam().rest, '\0');
    return keys;
  }
};

TEST_P(ChosenKeys, WhereKeysDifferDoesNotMatter) {
  const std::size_t size = GetParam().size + GetParam().rest;
  for (std::size_t offset = 0; offset + sizeof(std::uint32_t) <= size; ++offset) {
    SCOPED_TRACE(offset);
    const Probes probes = GetParam().probes(keys_that_differ_at(offset, size), kSecret);
    EXPECT_LE(probes.per_key(), kProbesPerKeyMax);
    EXPECT_LE(probes.most, kProbesMax);
  }
}

TEST_P(ChosenKeys, AgainstAnotherSecretDoNothing) {
  const Probes probes = GetParam().probes(keys_against(TableSecret()), kSecret);
  EXPECT_LE(probes.per_key(), kProbesPerKeyMax);
  EXPECT_LE(probes.most, kProbesMax);
}

// The bounds above are exceeded where the secret is known.
TEST_P(ChosenKeys, AgainstTheSecretAreOneChain) {
  EXPECT_GE(GetParam().probes(keys_against(kSecret), kSecret).per_key(), kNumKeys / 8);
}

TEST(TableSecret, EachDrawIsAnother) {
  const TableSecret secret = draw_table_secret();
  EXPECT_NE(secret.first, secret.second);
  EXPECT_FALSE(secret == draw_table_secret());
  EXPECT_FALSE(secret == TableSecret());
}

INSTANTIATE_TEST_SUITE_P(Tables, ChosenKeys,
                         testing::Values(Case{"map_xxhash", probes_of_map, 16, kGroupIdBytes},
                                         Case{"map_sha256", probes_of_map, 32, kGroupIdBytes},
                                         Case{"map_merged", probes_of_map, 48, kGroupIdBytes},
                                         Case{"pool", probes_of_pool, 32, kGroupIdBytes},
                                         Case{"key_table_xxhash", probes_of_table, 20, 0},
                                         Case{"key_table_sha256", probes_of_table, 36, 0},
                                         Case{"key_set", probes_of_set, 36, 0},
                                         Case{"request_ids", probes_of_ids, 24, 0},
                                         Case{"repeat_finder", probes_of_repeats, 36, 0},
                                         Case{"offloading_manager", probes_of_offloading, 36, 0}),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace kvfence::planted::optimized
