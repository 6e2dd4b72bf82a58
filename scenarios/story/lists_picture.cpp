#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "contract/core/joined.h"
#include "contract/core/line.h"
#include "contract/core/lists.h"
#include "contract/eviction/eviction_target.h"
#include "scenarios/story/explain_picture.h"
#include "scenarios/story/observed_member.h"

namespace kvfence {
namespace {

using Entries = std::vector<eviction::Entry>;
using Ghosts = std::vector<std::uint32_t>;

/// The four lists of an observation.
struct Lists {
  const Entries* t1;
  const Entries* t2;
  const Ghosts* b1;
  const Ghosts* b2;
};

/// Nothing where it has no state.
std::optional<Lists> find_lists(const Observation& observation) {
  const Lists lists{
      find_observed<Entries>(observation, "t1"), find_observed<Entries>(observation, "t2"),
      find_observed<Ghosts>(observation, "b1"), find_observed<Ghosts>(observation, "b2")};
  if (!lists.t1 || !lists.t2 || !lists.b1 || !lists.b2) return std::nullopt;
  return lists;
}

std::string status_text(const eviction::Entry& block) {
  if (!block.ready) return "?";
  return block.readers > 0 ? "+" + std::to_string(block.readers) : "";
}

std::string blocks_text(const Entries& blocks) {
  if (blocks.empty()) return "-";
  return joined(blocks, " ", [](const eviction::Entry& block) {
    return std::to_string(block.key) + status_text(block);
  });
}

std::string ghosts_text(const Ghosts& ghosts) {
  if (ghosts.empty()) return "-";
  return joined(ghosts, " ", [](std::uint32_t key) { return std::to_string(key); });
}

std::set<std::uint32_t> keys_of(const Lists& expected, const Lists& actual) {
  std::set<std::uint32_t> keys;
  for (const Lists* lists : {&expected, &actual}) {
    for (const Entries* blocks : {lists->t1, lists->t2}) {
      for (const eviction::Entry& block : *blocks) keys.insert(block.key);
    }
    keys.insert(lists->b1->begin(), lists->b1->end());
    keys.insert(lists->b2->begin(), lists->b2->end());
  }
  return keys;
}

/// "T1?", "T2+1", "B1", or "." for a key that stands nowhere.
std::string place_of(const Lists& lists, std::uint32_t key) {
  for (const auto& [name, blocks] : {std::pair{"T1", lists.t1}, std::pair{"T2", lists.t2}}) {
    const auto block = std::ranges::find(*blocks, key, &eviction::Entry::key);
    if (block != blocks->end()) return name + status_text(*block);
  }
  for (const auto& [name, ghosts] : {std::pair{"B1", lists.b1}, std::pair{"B2", lists.b2}}) {
    if (contains(*ghosts, key)) return name;
  }
  return ".";
}

class ListsPicture final : public ScenePicture {
 public:
  explicit ListsPicture(bool is_arc) : is_arc_(is_arc) {}

  bool has_state(const Observation& observation) const override {
    return find_lists(observation).has_value();
  }

  std::string legend() const override {
    return "5 idle   5? being written   5+2 read by two   oldest first, by key";
  }

  std::string heading() const override {
    return is_arc_ ? "T1 | T2 | B1 | B2, target of T1" : "blocks, oldest first";
  }

  std::string row(const Observation& observation) const override {
    const Lists lists = *find_lists(observation);
    std::string row = blocks_text(*lists.t1);
    if (is_arc_) {
      row += " | " + blocks_text(*lists.t2) + " | " + ghosts_text(*lists.b1) + " | " +
             ghosts_text(*lists.b2) + ", " + print(to_value(target_of(observation)));
    }
    if (const auto* free_slots = find_observed<std::uint32_t>(observation, "num_free_slots")) {
      row += "   free slots " + std::to_string(*free_slots);
    }
    return row;
  }

  std::string marks(const Observation& expected, const Observation& actual) const override {
    const Lists a = *find_lists(expected);
    const Lists b = *find_lists(actual);
    return different({{*a.t1 != *b.t1, is_arc_ ? "T1" : "the blocks"},
                      {*a.t2 != *b.t2, "T2"},
                      {*a.b1 != *b.b1, "B1"},
                      {*a.b2 != *b.b2, "B2"},
                      {target_of(expected) != target_of(actual), "the target"}});
  }

  /// Of each key.
  std::string histories(const Scenes& scenes) const override {
    const auto expected = find_lists(scenes.back().expected);
    const auto actual = find_lists(scenes.back().actual);
    if (!expected || !actual) return "";
    std::string text;
    std::size_t num_shown = 0;
    for (std::uint32_t key : keys_of(*expected, *actual)) {
      if (num_shown == kHistoriesMax) break;
      if (place_of(*expected, key) == place_of(*actual, key)) continue;
      const auto shown_of = [key](const Observation& observation) -> std::optional<std::string> {
        const auto lists = find_lists(observation);
        if (!lists) return std::nullopt;
        return place_of(*lists, key);
      };
      text += history_of(scenes, "key " + std::to_string(key), ".", kPlaceWidth, shown_of);
      ++num_shown;
    }
    return text;
  }

 private:
  static constexpr std::size_t kHistoriesMax = 3;
  /// Fits texts such as "B1 B2 T1?".
  static constexpr std::size_t kPlaceWidth = 6;

  static double target_of(const Observation& observation) {
    return observed<double>(observation, "target_t1_size");
  }

  bool is_arc_;
};

}  // namespace

std::unique_ptr<ScenePicture> make_lists_picture(const Config& config) {
  return std::make_unique<ListsPicture>(setting_of<EvictionPolicy>(config, "policy") ==
                                        EvictionPolicy::kARC);
}

}  // namespace kvfence
