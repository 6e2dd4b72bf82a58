#include <cstddef>
#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "properties/core/rules_test_support.h"
#include "properties/targets/rooms.h"

namespace kvfence::eviction {
namespace {

/// "1 2? 3+2": block 1 is idle, 2 is not ready, 3 has two readers. A block's slot is its key.
std::vector<Entry> blocks(const std::string& text) {
  std::vector<Entry> entries;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const auto key = static_cast<std::uint32_t>(std::stoul(word));
    const std::size_t plus = word.find('+');
    const auto readers = plus == std::string::npos
                             ? std::uint32_t{0}
                             : static_cast<std::uint32_t>(std::stoul(word.substr(plus + 1)));
    entries.push_back({key, key, word.back() != '?', readers});
  }
  return entries;
}

std::vector<std::uint32_t> keys(const std::string& text) {
  std::vector<std::uint32_t> numbers;
  for (const Entry& entry : blocks(text)) numbers.push_back(entry.key);
  return numbers;
}

std::vector<Victim> victims(const std::string& text) {
  std::vector<Victim> evicted;
  for (std::uint32_t key : keys(text)) evicted.push_back({key, key});
  return evicted;
}

/// A policy whose observations are written by hand.
class Scene {
 public:
  // What the next observation shows.
  std::string t1;
  std::string t2;
  std::string b1;
  std::string b2;
  double target = 0;

  Observation show(ErrorCode error = ErrorCode::kNone) const {
    Observation shown;
    shown.error = error;
    shown.t1.emplace() = blocks(t1);
    shown.t2.emplace() = blocks(t2);
    shown.b1.emplace() = keys(b1);
    shown.b2.emplace() = keys(b2);
    shown.size = static_cast<std::uint32_t>(blocks(t1).size() + blocks(t2).size());
    shown.target_t1_size = target;
    return shown;
  }

  Observation evicted(const std::string& text) const {
    Observation shown = show();
    shown.success.emplace() = true;
    shown.evicted.emplace() = victims(text);
    return shown;
  }
  Observation failed() const {
    Observation shown = show();
    shown.success.emplace() = false;
    return shown;
  }
  Observation found(const std::string& text) const {
    Observation shown = show();
    shown.found.emplace() = blocks(text);
    return shown;
  }

  /// The verdict on such an answer; the scene does not change.
  std::optional<Divergence> verdict(const Command& command, const Observation& shown) const {
    return run_.verdict(command, shown, World());
  }
  std::optional<Divergence> verdict(const Command& command) const {
    return verdict(command, show());
  }

  /// Continues after a right answer.
  void pass(const Command& command, const Observation& shown) {
    run_.pass(command, shown, World());
  }
  void pass(const Command& command) { pass(command, show()); }

  /// Blocks that are ready, oldest first.
  void store(const std::vector<std::uint32_t>& stored) {
    for (std::uint32_t key : stored) {
      const std::string before = t1;
      t1 = before + " " + std::to_string(key) + "?";
      pass(Insert{key, key});
      t1 = before + " " + std::to_string(key);
      pass(MakeReady{key});
    }
  }

  /// T1 is 1 2, T2 is 3 4.
  void fill() {
    store({1, 2, 4, 3});
    t1 = "1 2";
    t2 = "3 4";
    pass(Touch{{4, 3}});
  }

 private:
  WatchedRun<EvictionTarget> run_{[] {
    return rules().make(CachePolicyConfig{EvictionPolicy::kARC, 4, true});
  }};
};

/// The verdict names this invariant and this place.
void expect_broken(const std::optional<Divergence>& found, std::string_view id,
                   std::string_view field) {
  kvfence::expect_broken(rules().rows, found, id, field);
}

TEST(EvictionInvariants, AreNumberedInOrderAndNamedOnce) {
  expect_numbered_and_named_once(rules().rows, "eviction.");
}

TEST(EvictionInvariants, AKeyHasOnePlace) {
  Scene scene;
  scene.fill();
  scene.t2 = "3 4 1";
  expect_broken(scene.verdict(Touch{{1}}), "eviction.1", "t1");
  scene.t1 = "2 2";
  expect_broken(scene.verdict(Touch{{1}}), "eviction.1", "t1");
  scene.t1 = "2";
  scene.b1 = "1";
  expect_broken(scene.verdict(Touch{{1}}), "eviction.1", "t1");
  scene.b1 = "";
  scene.pass(Touch{{1}});
}

TEST(EvictionInvariants, SizesAreBounded) {
  Scene scene;
  scene.fill();
  Observation shown = scene.show();
  shown.size = 3;
  expect_broken(scene.verdict(Touch{{}}, shown), "eviction.2", "size");
  for (double wrong : {-1.0, 4.5}) {
    shown = scene.show();
    shown.target_t1_size = wrong;
    expect_broken(scene.verdict(Touch{{}}, shown), "eviction.2", "target_t1_size");
  }
  scene.b1 = "11 12 13 14 15";
  expect_broken(scene.verdict(Touch{{}}), "eviction.2", "b1");
  scene.b1 = "";
  scene.t1 = "1 2 5?";
  expect_broken(scene.verdict(Insert{5, 5}), "eviction.2", "size");
}

TEST(EvictionInvariants, BlocksAreHeldAsAsked) {
  Scene scene;
  scene.t1 = "1";
  expect_broken(scene.verdict(Insert{1, 1}), "eviction.3", "t1[0].ready");
  scene.t1 = "1?";
  expect_broken(scene.verdict(Insert{1, 7}), "eviction.3", "t1[0].slot");
  scene.pass(Insert{1, 1});
  expect_broken(scene.verdict(MakeReady{1}), "eviction.3", "t1[0].ready");
  scene.t1 = "1";
  scene.pass(MakeReady{1});
  expect_broken(scene.verdict(Acquire{1}), "eviction.3", "t1[0].readers");
  expect_broken(scene.verdict(Get{1}, scene.found("")), "eviction.3", "found[0]");
  expect_broken(scene.verdict(Get{9}, scene.found("9")), "eviction.3", "found[0]");
  scene.pass(Get{1}, scene.found("1"));
  Observation shown = scene.show();
  shown.t1.emplace().clear();  // though it counts
  expect_broken(scene.verdict(Touch{{1}}, shown), "eviction.3", "t1");
  shown.t1.emplace() = blocks("9");
  expect_broken(scene.verdict(Touch{{1}}, shown), "eviction.3", "t1[0]");
}

TEST(EvictionInvariants, NothingInUseIsEvicted) {
  Scene scene;
  scene.fill();
  scene.t1 = "1+1 2";
  scene.pass(Acquire{1});
  // Being read, too few, too many, one twice, one that is not held, a protected one.
  for (const char* wrong : {"1 3", "2", "2 3 4", "2 2", "2 9", "2 4"}) {
    SCOPED_TRACE(wrong);
    expect_broken(scene.verdict(Evict{2, {4}}, scene.evicted(wrong)), "eviction.4", "evicted");
  }
  scene.t1 = "1+1";
  scene.t2 = "4";
  scene.b1 = "2";
  scene.b2 = "3";
  Observation wrong_slot = scene.evicted("2 3");
  wrong_slot.evicted.emplace()[1].slot = 9;
  expect_broken(scene.verdict(Evict{2, {4}}, wrong_slot), "eviction.4", "evicted");
  scene.pass(Evict{2, {4}}, scene.evicted("2 3"));
}

TEST(EvictionInvariants, OnlyWhatIsReadyIsRead) {
  Scene scene;
  scene.t1 = "1?";
  scene.pass(Insert{1, 1});
  expect_broken(scene.verdict(Acquire{1}), "eviction.5", "error");
  expect_broken(scene.verdict(Acquire{2}), "eviction.5", "error");
  expect_broken(scene.verdict(Release{1}), "eviction.5", "error");
}

TEST(EvictionInvariants, ClearForgetsEverything) {
  Scene scene;
  scene.store({1});
  scene.t1 = "";
  scene.b1 = "1";
  scene.pass(Evict{1, {}}, scene.evicted("1"));
  expect_broken(scene.verdict(Clear{}), "eviction.6", "t1");
  scene.b1 = "";
  scene.target = 1;
  expect_broken(scene.verdict(Clear{}), "eviction.6", "target_t1_size");
  scene.target = 0;
  scene.pass(Clear{});
}

TEST(EvictionInvariants, RefusedChangesNothing) {
  Scene scene;
  scene.fill();
  scene.t1 = "2 1";
  expect_broken(scene.verdict(Evict{5, {}}, scene.failed()), "eviction.7", "t1[0].key");
  expect_broken(scene.verdict(Insert{1, 0}, scene.show(ErrorCode::kAlreadyStored)), "eviction.7",
                "t1[0].key");
  scene.t1 = "1 2";
  scene.target = 1;
  expect_broken(scene.verdict(Release{1}, scene.show(ErrorCode::kNotReading)), "eviction.7",
                "target_t1_size");
  scene.target = 0;
  scene.pass(Evict{5, {}}, scene.failed());
}

}  // namespace
}  // namespace kvfence::eviction
