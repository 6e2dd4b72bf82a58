#pragma once

/// EventChecker: the mirror of one stream (an engine's rank), and the checks of its events.
///
/// After a finding the mirror follows the engine: what the finding explains is excused, so that one
/// cause gives one report. After missing messages, nothing that they could explain is reported
/// until a clear.

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "scenarios/audit/block_hasher.h"
#include "scenarios/audit/event_batch.h"
#include "scenarios/audit/mirror.h"
#include "scenarios/audit/rules.h"

namespace kvfence::audit {

struct CheckRules {
  std::uint64_t blocks_max = 0;               ///< of the engine's pool; 0: not known
  std::optional<HashFunction> hash_function;  ///< none: found
  std::optional<std::string> hash_seed;       ///< none: found among the usual ones
  /// The most that a mirror holds, whatever the publisher sends.
  std::uint64_t mirror_blocks_max = std::uint64_t{1} << 24;
};

struct CheckCounts {
  std::uint64_t stored = 0;      ///< hashes
  std::uint64_t duplicates = 0;  ///< of them, held already
  std::uint64_t removed = 0;     ///< hashes
  std::uint64_t clears = 0;
  std::uint64_t hashes_checked = 0;
  /// On the GPU: the events lack what they are computed from.
  std::uint64_t hashes_not_checked = 0;

  CheckCounts& operator+=(const CheckCounts& more);
};

/// The size of the mirror now.
struct Holdings {
  std::uint64_t gpu_blocks = 0;  ///< hashes
  std::uint64_t other_blocks = 0;
  std::uint64_t depth_max = 0;  ///< blocks, since the last clear
  std::uint64_t memory_bytes = 0;

  Holdings& operator+=(const Holdings& more);
};

class EventChecker {
 public:
  /// `report` completes a finding with the stream's names and keeps it.
  using Report = std::function<void(Finding)>;

  EventChecker(const CheckRules& rules, Report report)
      : rules_(rules), report_(std::move(report)) {}

  /// is_scene: the event sets the state and is not judged.
  void take(const Event& event, EventRef at, Encoding encoding, bool is_scene);

  /// Messages are missing: it is no longer known what is held.
  void lose_track() { is_certain_ = false; }
  /// It is known that nothing is held.
  void begin_empty() { is_certain_ = true; }
  /// The engine is another one, and what it holds is not known. That excuses all events about
  /// what was held before.
  void restart();
  /// No more events will come: judges the events that waited for later ones.
  void finish();

  const CheckCounts& counts() const { return counts_; }
  Holdings holdings() const;
  bool is_certain() const { return is_certain_; }
  /// "sha256_cbor", "sha256_cbor with seed '0'", or why hashes are not recomputed.
  std::string hash_text() const;
  /// The hashes held on the GPU, sorted: an indexer's view of the engine.
  std::vector<HashId> held_on_gpu() const;

 private:
  struct WaitingEvent {
    StoredEvent event;
    EventRef at;
    Encoding encoding;
  };

  /// How the hashes of a space are computed, once known.
  struct HashRecipe {
    std::optional<HashFunction> function;
    std::optional<BlockHash> none_hash;
    std::string seed;
    std::uint32_t fine_per_block = 1;  ///< hashes of the engine in one block
    bool is_joined = false;            ///< up to 0.23 a block's hash is the concatenation of them
    std::uint32_t tries = 0;
    std::uint32_t root_tries = 0;
    std::vector<WaitingEvent> waiting;  ///< seen before it was found
    EventRef found_at;
  };

  struct Space {
    /// Group, medium, locality and ownership.
    std::tuple<std::optional<std::uint32_t>, std::optional<std::string>, std::optional<std::string>,
               std::optional<std::string>>
        key;
    bool is_gpu = true;
    bool holds_chains = true;  ///< the parent of what is held is held
    std::uint64_t num_events = 0;
    Mirror mirror;
    HashRecipe recipe;
    std::vector<Finding> undecided;  ///< explained if larger blocks come
  };

  /// An event on its way through the checks.
  template <class E>
  struct Taken {
    const E& event;
    EventRef at;
    Encoding encoding;
    bool is_scene;
    Space& space;

    /// Other media are only mirrored.
    bool is_judged() const { return space.is_gpu && !is_scene; }
  };
  using Stored = Taken<StoredEvent>;
  using Removed = Taken<RemovedEvent>;

  template <class E>
  Space& space_of(const E& event);
  void take_stored(const Stored& now);
  void take_removed(const Removed& now);
  void take_clear(EventRef at);
  void learn_blocks(const Stored& now, bool has_content);
  void enter(const Stored& now, bool has_content, bool is_judged);
  void report_undecided(Space& space);

  // The rules. Those that return a truth value return whether the event has a finding.
  bool check_counts(const Stored& now);
  bool check_parent(const Stored& now);
  bool check_ancestors(const Stored& now);
  /// Why a parent, or a hash to remove, is not held; excuses it. None: a clear cleared nothing.
  template <class E>
  std::optional<Finding> find_reason(const Taken<E>& now, const EventHash& hash);
  bool check_hashes(const Stored& now);
  bool check_content(const Stored& now, const EventHash& hash, std::uint64_t content,
                     MirrorBlock& block);
  void check_size(const Stored& now);

  // Hashes. Those that return a truth value return whether they found what they look for.
  bool find_recipe(const Stored& now);
  bool try_functions(const Stored& now);
  bool try_recipe(const Stored& now, HashRecipe& recipe);
  void judge_waiting(Space& space);
  bool find_none_hash(const Stored& now);
  bool find_parent_digest(const Stored& now, BlockHash& parent);
  std::vector<std::string> seeds() const;
  /// extra_keys: instead of those of the event.
  bool hash_block(const HashRecipe& recipe, const Stored& now, std::size_t block,
                  BlockHashView parent, BlockHash& out,
                  const std::vector<EventExtraKey>* extra_keys = nullptr);
  bool hash_with_last_item(const HashRecipe& recipe, const Stored& now, std::size_t block,
                           BlockHashView parent, BlockHash& out);
  /// Up to the first that is wrong or cannot be computed; returns how many are right.
  std::size_t recompute(const Stored& now);
  void excuse_wrong(const Stored& now);

  CheckRules rules_;
  Report report_;
  bool is_certain_ = false;
  std::deque<Space> spaces_;  ///< references hold
  BlockHasher hasher_;
  CheckCounts counts_;
  std::optional<EventRef> cleared_at_;  ///< none: not cleared
  // Of the event at hand, if its hashes were computed again:
  std::vector<std::pair<std::size_t, BlockHash>> digests_;  ///< of the integers
  std::optional<std::pair<std::size_t, BlockHash>> wrong_;  ///< which hash, and the right one
};

}  // namespace kvfence::audit
