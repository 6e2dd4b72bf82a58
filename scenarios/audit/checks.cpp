#include "scenarios/audit/checks.h"

#include <xxhash.h>

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>
#include <variant>

#include "contract/core/hex.h"

namespace kvfence::audit {
namespace {

/// Removed hashes that are remembered, so that a finding can say when: as many as are held, within
/// these bounds.
constexpr std::size_t kRemovedMin = 1024;
constexpr std::size_t kRemovedMax = 65'536;
/// Events of a space after which it counts as having no larger blocks.
constexpr std::uint64_t kYoungEvents = 256;
constexpr std::uint32_t kRecipeTries = 64;
/// Limit of groups, media and owners of a stream; further ones are counted with the last.
constexpr std::size_t kSpacesMax = 64;

std::string short_hex(std::string_view bytes) {
  constexpr std::size_t kShown = 8;
  return "0x" + to_hex(bytes.substr(0, kShown)) + (bytes.size() > kShown ? "..." : "");
}

std::string count_of(std::size_t count, const char* what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

/// Kinds of groups that keep a block while they keep those after it.
bool is_chain_kind(const StoredEvent& event) {
  if (event.kv_cache_spec_sliding_window) return false;
  const std::optional<std::string>& kind = event.kv_cache_spec_kind;
  return !kind || *kind == "full_attention" || *kind == "mla_attention";
}

/// Whether each block has its hash. Requires: tokens in whole blocks.
bool is_chain(const StoredEvent& event) {
  return event.token_ids.size() / event.block_size == event.block_hashes.size();
}

/// The part of a digest that an event carries.
bool is_hash(const EventHash& stated, BlockHashView computed) {
  if (!stated.is_integer) return stated.bytes == computed;
  return computed.size() >= stated.bytes.size() &&
         computed.substr(computed.size() - stated.bytes.size()) == stated.bytes;
}

HashId id_of(const EventHash& hash) { return audit::id_of(std::string_view(hash.bytes)); }

HashId id_as_stated(const EventHash& like, BlockHashView computed) {
  return audit::id_of(like.is_integer ? computed.substr(computed.size() - like.bytes.size())
                                      : computed);
}

const std::vector<EventExtraKey>* extra_keys_of(const StoredEvent& event, std::size_t block) {
  if (!event.extra_keys || !(*event.extra_keys)[block]) return nullptr;
  return (*event.extra_keys)[block]->empty() ? nullptr : &*(*event.extra_keys)[block];
}

/// Never 0.
std::uint64_t content_of(const StoredEvent& event, std::size_t block, HashId parent) {
  const TokenId* const tokens = event.token_ids.data() + block * event.block_size;
  std::uint64_t content = XXH3_64bits_withSeed(tokens, event.block_size * sizeof(TokenId), parent);
  if (const std::vector<EventExtraKey>* const keys = extra_keys_of(event, block)) {
    for (const EventExtraKey& key : *keys) {
      content += static_cast<std::uint64_t>(key.kind) + 1;
      content = XXH3_64bits_withSeed(key.value.data(), key.value.size(), content);
      content ^= static_cast<std::uint64_t>(key.offset.value_or(0));
    }
  }
  if (event.lookahead_token_ids) {
    const std::vector<TokenId>& more = (*event.lookahead_token_ids)[block];
    content = XXH3_64bits_withSeed(more.data(), more.size() * sizeof(TokenId), content);
  }
  return content == 0 ? 1 : content;
}

}  // namespace

std::string describe(const Event& event) {
  if (const auto* stored = std::get_if<StoredEvent>(&event)) {
    const std::size_t num_hashes = stored->block_hashes.size();
    std::string text =
        "BlockStored of " + std::to_string(num_hashes) + (num_hashes == 1 ? " hash" : " hashes");
    if (!stored->block_hashes.empty()) text += ", " + short_hex(stored->block_hashes[0].bytes);
    text += ", parent ";
    text += stored->parent_block_hash ? short_hex(stored->parent_block_hash->bytes) : "none";
    text += ", " + count_of(stored->token_ids.size(), "token") + " in blocks of " +
            std::to_string(stored->block_size);
    if (stored->medium) text += ", " + stored->medium->substr(0, 20);
    if (stored->group_idx) text += ", group " + std::to_string(*stored->group_idx);
    return text;
  }
  if (const auto* removed = std::get_if<RemovedEvent>(&event)) {
    std::string text = "BlockRemoved";
    for (std::size_t hash = 0; hash < std::min<std::size_t>(removed->block_hashes.size(), 2);
         ++hash) {
      text += (hash == 0 ? " " : ", ") + short_hex(removed->block_hashes[hash].bytes);
    }
    if (removed->block_hashes.size() > 2) {
      text += " and " + std::to_string(removed->block_hashes.size() - 2) + " more";
    }
    if (removed->group_idx) text += ", group " + std::to_string(*removed->group_idx);
    return text;
  }
  return "AllBlocksCleared";
}

CheckCounts& CheckCounts::operator+=(const CheckCounts& more) {
  stored += more.stored;
  duplicates += more.duplicates;
  removed += more.removed;
  clears += more.clears;
  hashes_checked += more.hashes_checked;
  hashes_not_checked += more.hashes_not_checked;
  return *this;
}

Holdings& Holdings::operator+=(const Holdings& more) {
  gpu_blocks += more.gpu_blocks;
  other_blocks += more.other_blocks;
  depth_max = std::max(depth_max, more.depth_max);
  memory_bytes += more.memory_bytes;
  return *this;
}

// ---- Spaces ----

template <class E>
EventChecker::Space& EventChecker::space_of(const E& event) {
  const auto key = std::tie(event.group_idx, event.medium, event.locality, event.ownership);
  for (Space& space : spaces_) {
    if (space.key == key) return space;
  }
  if (spaces_.size() == kSpacesMax) return spaces_.back();
  Space& space = spaces_.emplace_back();
  space.key = key;
  space.is_gpu = is_on_gpu(event.medium) && spaces_.size() < kSpacesMax;
  return space;
}

Holdings EventChecker::holdings() const {
  Holdings sum;
  for (const Space& space : spaces_) {
    (space.is_gpu ? sum.gpu_blocks : sum.other_blocks) += space.held;
    sum.depth_max = std::max(sum.depth_max, space.depth_max);
    sum.memory_bytes += space.blocks.memory_bytes() + space.removed.size() * sizeof(RemovedBlock) +
                        space.cleared.capacity() * sizeof(RemovedBlock);
  }
  return sum;
}

std::vector<HashId> EventChecker::held_on_gpu() const {
  std::vector<HashId> held;
  for (const Space& space : spaces_) {
    if (!space.is_gpu) continue;
    space.blocks.for_each([&](const MirrorBlock& block) {
      if (block.copies > 0) held.push_back(block.id);
    });
  }
  std::sort(held.begin(), held.end());
  return held;
}

void EventChecker::forget_blocks(Space& space) {
  space.blocks.clear();
  space.removed.clear();
  space.held = space.held_largest = space.depth_max = 0;
}

void EventChecker::clear_blocks(Space& space, EventRef at) {
  space.cleared.clear();
  space.cleared.reserve(space.blocks.size());
  space.blocks.for_each([&](const MirrorBlock& block) {
    if (block.copies > 0) space.cleared.push_back({block.id, block.stored, at});
  });
  std::sort(space.cleared.begin(), space.cleared.end(),
            [](const RemovedBlock& a, const RemovedBlock& b) { return a.id < b.id; });
  forget_blocks(space);
}

void EventChecker::restart() {
  for (Space& space : spaces_) {
    clear_blocks(space, {});
    // It may be of another release.
    space.recipe = {};
    space.largest_block_size = 0;
    space.holds_chains = true;
  }
  cleared_at_.reset();
  is_certain_ = false;
}

void EventChecker::finish() {
  for (Space& space : spaces_) {
    for (Finding& finding : space.undecided) report_(std::move(finding));
    space.undecided.clear();
    if (rules_.hash_function && !space.recipe.function && !space.recipe.waiting.empty()) {
      const WaitingEvent& first = space.recipe.waiting.front();
      report(Rule::kWrongHash, first.at, describe(first.event), "hashes of another kind",
             std::string(to_text(*rules_.hash_function)) +
                 (rules_.hash_seed ? " with seed '" + *rules_.hash_seed + "'" : ""));
    }
    space.recipe.waiting.clear();
  }
}

void EventChecker::report(Rule rule, EventRef at, std::string event, std::string found,
                          std::string expected, std::vector<EventRef> led_there) {
  report_({.rule = rule,
           .at = at,
           .event = std::move(event),
           .found = std::move(found),
           .expected = std::move(expected),
           .led_there = std::move(led_there)});
}

const EventChecker::RemovedBlock* EventChecker::find_removed(const Space& space, HashId id) const {
  const auto found = std::find_if(space.removed.rbegin(), space.removed.rend(),
                                  [&](const RemovedBlock& block) { return block.id == id; });
  return found == space.removed.rend() ? nullptr : &*found;
}

const EventChecker::RemovedBlock* EventChecker::find_cleared(const Space& space, HashId id) const {
  const auto found =
      std::lower_bound(space.cleared.begin(), space.cleared.end(), id,
                       [](const RemovedBlock& block, HashId other) { return block.id < other; });
  return found == space.cleared.end() || found->id != id ? nullptr : &*found;
}

// ---- Events ----

void EventChecker::take(const Event& event, EventRef at, Encoding encoding, bool is_scene) {
  is_scene_ = is_scene;
  if (const auto* is_stored = std::get_if<StoredEvent>(&event)) {
    stored(*is_stored, at, encoding);
  } else if (const auto* is_removed = std::get_if<RemovedEvent>(&event)) {
    removed(*is_removed, at);
  } else {
    cleared(at);
  }
}

void EventChecker::stored(const StoredEvent& event, EventRef at, Encoding encoding) {
  Space& space = space_of(event);
  const bool is_judged = space.is_gpu && !is_scene_;
  counts_.stored += event.block_hashes.size();
  computed_.clear();
  wrong_.reset();
  const bool fits = check_counts(event, at, space);
  const bool has_content = fits && !event.token_ids.empty();
  const std::size_t num_blocks = has_content ? event.token_ids.size() / event.block_size : 0;
  if (num_blocks > event.block_hashes.size() || !is_chain_kind(event)) space.holds_chains = false;
  if (has_content && event.block_size > space.largest_block_size) {
    // Until now there were only parts of blocks, whose parents need not be held.
    space.largest_block_size = event.block_size;
    space.held_largest = 0;
    space.undecided.clear();
  }
  bool is_reported = !fits;
  if (has_content && space.is_gpu && !event.block_hashes.empty()) {
    if (is_judged && check_parent(event, at, encoding, space)) {
      is_reported = true;
    } else {
      is_reported = check_hashes(event, at, encoding, space) && is_judged;
    }
  }
  enter(event, at, space, has_content, is_judged && !is_reported);
  if (++space.num_events == kYoungEvents) {
    for (Finding& finding : space.undecided) report_(std::move(finding));
    space.undecided.clear();
  }
  check_size(at, event);
}

bool EventChecker::check_counts(const StoredEvent& event, EventRef at, const Space& space) {
  const std::size_t num_hashes = event.block_hashes.size();
  std::string found;
  if (event.extra_keys && event.extra_keys->size() != num_hashes) {
    found = "extra keys of " + count_of(event.extra_keys->size(), "block");
  } else if (event.lookahead_token_ids && event.lookahead_token_ids->size() != num_hashes) {
    found = "lookahead of " + count_of(event.lookahead_token_ids->size(), "block");
  } else if (event.token_ids.empty()) {
    // Other media publish only a hash. On the GPU there are tokens.
    if (num_hashes == 0 || !space.is_gpu) return true;
    found = "no tokens";
  } else if (event.block_size == 0 || event.token_ids.size() % event.block_size != 0 ||
             event.token_ids.size() / event.block_size < num_hashes) {
    found = count_of(event.token_ids.size(), "token");
  } else {
    return true;
  }
  if (space.is_gpu && !is_scene_) {
    report(
        Rule::kTokenCounts, at, describe(event), found,
        std::to_string(num_hashes) + " blocks of " + std::to_string(event.block_size) + " tokens");
  }
  return false;
}

bool EventChecker::check_parent(const StoredEvent& event, EventRef at, Encoding encoding,
                                Space& space) {
  if (!event.parent_block_hash || !is_certain_ || !space.holds_chains ||
      event.block_size < space.largest_block_size) {
    return false;
  }
  const HashId parent = id_of(*event.parent_block_hash);
  if (space.blocks.find(parent) != nullptr) return check_ancestors(event, at, space);
  space.blocks.at(parent).is_excused = true;
  const std::string name = "the parent " + short_hex(event.parent_block_hash->bytes);
  if (const RemovedBlock* const block = find_removed(space, parent)) {
    report(Rule::kUnknownParent, at, describe(event), name + ", removed since", "one that is held",
           {block->stored, block->removed});
    return true;
  }
  if (const RemovedBlock* const block = find_cleared(space, parent)) {
    // Then it cleared nothing.
    is_certain_ = false;
    if (cleared_at_) {
      report(Rule::kRemovedAfterClear, at, describe(event), name + ", cleared since",
             "one that is held", {block->stored, *cleared_at_});
    }
    return cleared_at_.has_value();
  }
  // In a group whose blocks are larger than the hash block, a part may come first.
  const bool may_be_part = encoding == Encoding::kMaps && event.block_hashes.size() == 1 &&
                           space.num_events < kYoungEvents;
  Finding finding{.rule = Rule::kUnknownParent,
                  .at = at,
                  .event = describe(event),
                  .found = name + ", never stored",
                  .expected = "one that is held"};
  if (may_be_part) {
    space.undecided.push_back(std::move(finding));
  } else {
    report_(std::move(finding));
  }
  return true;
}

/// A request holds all blocks before the one that it stores. Walks only if some hash was removed
/// before its children, and no further than an earlier walk since then.
bool EventChecker::check_ancestors(const StoredEvent& event, EventRef at, Space& space) {
  std::vector<MirrorBlock*> chain;
  HashId next = id_of(*event.parent_block_hash);
  while (next != 0) {
    MirrorBlock* const block = space.blocks.find(next);
    if (block == nullptr) break;
    if (block->whole_until == space.broken_chains || block->is_excused || block->copies == 0 ||
        block->block_size < space.largest_block_size) {
      next = 0;
      break;
    }
    // A chain cannot be longer than the number of held hashes; a cycle is a wrong hash.
    if (chain.size() > space.blocks.size()) return false;
    chain.push_back(block);
    next = block->parent;
  }
  const RemovedBlock* const gone = next == 0 ? nullptr : find_removed(space, next);
  std::vector<EventRef> led_there;
  for (MirrorBlock* const block : chain) {
    block->whole_until = space.broken_chains;
    if (gone != nullptr) led_there.push_back(block->stored);
  }
  if (gone == nullptr) return false;
  led_there.insert(led_there.end(), {gone->stored, gone->removed});
  space.blocks.at(next).is_excused = true;
  report(Rule::kUnknownParent, at, describe(event),
         "a block " + std::to_string(chain.size()) + " before its parent, removed since",
         "all before it held", std::move(led_there));
  return true;
}

void EventChecker::enter(const StoredEvent& event, EventRef at, Space& space, bool has_content,
                         bool is_judged) {
  const bool is_whole = has_content && is_chain(event);
  HashId parent = event.parent_block_hash ? id_of(*event.parent_block_hash) : 0;
  const MirrorBlock* const parent_block = parent == 0 ? nullptr : space.blocks.find(parent);
  std::uint32_t depth = parent_block != nullptr ? parent_block->depth : 0;
  for (std::size_t index = 0; index < event.block_hashes.size(); ++index) {
    const EventHash& hash = event.block_hashes[index];
    const std::uint64_t content = is_whole ? content_of(event, index, parent) : 0;
    const HashId id = id_of(hash);
    MirrorBlock& block = space.blocks.at(id);
    depth += 1;
    if (wrong_ && wrong_->first == index) {
      block.is_excused = true;
    } else if (block.copies > 0) {
      ++counts_.duplicates;
      const bool differs = content != 0 && block.content != 0 && block.content != content &&
                           block.block_size == event.block_size && !block.is_excused;
      if (differs && is_judged && (!hash.is_integer || space.recipe.function)) {
        report(Rule::kTwoContents, at, describe(event),
               short_hex(hash.bytes) + " of another parent, other tokens or extra keys",
               "those it was stored with", {block.stored});
        is_judged = false;
        block.is_excused = true;
      }
      ++block.copies;
    } else {
      ++space.held;
      if (event.block_size == space.largest_block_size) ++space.held_largest;
      block.copies = 1;
      block.block_size = event.block_size;
      block.parent = parent;
      block.whole_until = space.broken_chains;
      if (MirrorBlock* const before = parent == 0 ? nullptr : space.blocks.find(parent)) {
        ++before->children;
      }
    }
    if (content != 0) block.content = content;
    block.stored = at;
    block.depth = depth;
    space.depth_max = std::max<std::uint64_t>(space.depth_max, depth);
    parent = id;
  }
  for (const auto& [index, digest] : computed_) {
    space.blocks.keep_digest(id_of(event.block_hashes[index]), digest);
  }
  if (wrong_) excuse_wrong(event, space);
}

/// Both the published hash and the right one.
void EventChecker::excuse_wrong(const StoredEvent& event, Space& space) {
  const EventHash& stated = event.block_hashes[wrong_->first];
  space.blocks.at(id_of(stated)).is_excused = true;
  space.blocks.at(id_as_stated(stated, wrong_->second)).is_excused = true;
}

void EventChecker::check_size(EventRef at, const StoredEvent& event) {
  std::uint64_t held = 0;
  std::uint64_t all = 0;
  for (const Space& space : spaces_) {
    if (space.is_gpu) held += space.held_largest;
    all += space.blocks.size();
  }
  const bool is_over = rules_.blocks_max > 0 && held > rules_.blocks_max && is_certain_;
  if (!is_over && all <= kMirrorBlocksMax) return;
  if (!is_scene_) {
    report(Rule::kTooManyBlocks, at, describe(event),
           std::to_string(is_over ? held : all) + " hashes held",
           std::to_string(is_over ? rules_.blocks_max : kMirrorBlocksMax) + " at most");
  }
  for (Space& space : spaces_) forget_blocks(space);
  is_certain_ = false;
}

void EventChecker::removed(const RemovedEvent& event, EventRef at) {
  Space& space = space_of(event);
  counts_.removed += event.block_hashes.size();
  for (const EventHash& hash : event.block_hashes) {
    const HashId id = id_of(hash);
    MirrorBlock* const block = space.blocks.find(id);
    if (block != nullptr && block->copies > 0) {
      if (--block->copies > 0) continue;
      --space.held;
      if (block->block_size == space.largest_block_size) --space.held_largest;
      if (space.is_gpu) {
        space.removed.push_back({id, block->stored, at});
        const std::size_t kept = std::clamp<std::size_t>(space.held, kRemovedMin, kRemovedMax);
        while (space.removed.size() > kept) space.removed.pop_front();
      }
      if (MirrorBlock* const before = space.blocks.find(block->parent)) {
        if (before->children > 0) --before->children;
      }
      if (block->children > 0) ++space.broken_chains;
      if (!block->is_excused) space.blocks.erase(id);
      continue;
    }
    if (block != nullptr || !space.is_gpu || !is_certain_ || is_scene_) continue;
    space.blocks.at(id).is_excused = true;
    const std::string name = short_hex(hash.bytes);
    if (const RemovedBlock* const before = find_removed(space, id)) {
      report(Rule::kRemovedTooOften, at, describe(event), name + ", whose last copy was removed",
             "a hash that is held", {before->stored, before->removed});
    } else if (const RemovedBlock* const gone = find_cleared(space, id)) {
      is_certain_ = false;
      if (!cleared_at_) continue;
      report(Rule::kRemovedAfterClear, at, describe(event), name + ", cleared since",
             "a hash that is held", {gone->stored, *cleared_at_});
    } else {
      report(Rule::kRemovedNeverStored, at, describe(event), name + ", never stored",
             "a hash that is held");
    }
  }
}

void EventChecker::cleared(EventRef at) {
  ++counts_.clears;
  cleared_at_ = at;
  is_certain_ = true;
  for (Space& space : spaces_) {
    // A clear names no medium, and other tiers keep their blocks.
    if (space.is_gpu) clear_blocks(space, at);
  }
}

// ---- Hashes ----

std::string EventChecker::hash_text() const {
  for (const Space& space : spaces_) {
    const HashRecipe& recipe = space.recipe;
    if (!recipe.function) continue;
    std::string text(to_text(*recipe.function));
    if (recipe.none_hash) return text + " with seed '" + recipe.seed + "'";
    return text + ", except first blocks, whose seed is not known";
  }
  if (counts_.hashes_not_checked == 0) return "none seen";
  return "not recomputed: not sha256, sha256_cbor, xxhash or xxhash_cbor of the events' data, or "
         "only first blocks, under a random seed";
}

std::vector<std::string> EventChecker::seeds() const {
  if (rules_.hash_seed) return {*rules_.hash_seed};
  // The default since 0.33, and values that PYTHONHASHSEED is often given.
  return {"vllm-none-hash", "0", "1", "42"};
}

bool EventChecker::hash_block(const HashRecipe& recipe, const StoredEvent& event, Encoding encoding,
                              std::size_t block, BlockHashView parent, BlockHash& out) {
  const bool is_whole = is_chain(event);
  // If blocks were skipped, the event does not say which blocks the entries belong to.
  if (!is_whole && (event.lookahead_token_ids || event.lora_name)) return false;
  if (!is_whole && event.extra_keys) {
    for (std::size_t entry = 0; entry < event.extra_keys->size(); ++entry) {
      if (extra_keys_of(event, entry) != nullptr) return false;
    }
  }
  HashedBlock content;
  content.has_tags = encoding == Encoding::kMaps;
  content.has_lora = event.lora_name.has_value();
  if (is_whole) {
    content.extra_keys = extra_keys_of(event, block);
    if (event.lookahead_token_ids) content.lookahead = &(*event.lookahead_token_ids)[block];
  }
  const std::span<const TokenId> tokens =
      std::span(event.token_ids).subspan(block * event.block_size, event.block_size);
  const bool is_fine = recipe.fine_per_block > 1;
  if (is_fine && (content.extra_keys != nullptr || content.lookahead != nullptr)) return false;
  const std::size_t fine_tokens = event.block_size / recipe.fine_per_block;
  const std::size_t size = hash_bytes(*recipe.function);
  if (parent.size() > size) parent = parent.substr(parent.size() - size);
  BlockHash all;
  BlockHash fine_parent(parent);
  for (std::uint32_t fine = 0; fine < recipe.fine_per_block; ++fine) {
    content.tokens = tokens.subspan(fine * fine_tokens, fine_tokens);
    if (!hasher_.hash(*recipe.function, fine_parent, content, out)) return false;
    if (!is_fine) return true;
    fine_parent = out;
    all += out;
  }
  if (recipe.is_joined) out = all;
  return true;
}

bool EventChecker::try_recipe(const StoredEvent& event, Encoding encoding, HashRecipe& recipe) {
  BlockHash computed;
  const EventHash& stated = event.block_hashes[0];
  if (event.parent_block_hash) {
    const EventHash& parent = *event.parent_block_hash;
    if (parent.is_integer || parent.bytes.size() < hash_bytes(*recipe.function)) return false;
    return hash_block(recipe, event, encoding, 0, parent.bytes, computed) &&
           is_hash(stated, computed);
  }
  for (const std::string& seed : seeds()) {
    const BlockHash none = hasher_.none_hash(*recipe.function, seed);
    if (!hash_block(recipe, event, encoding, 0, none, computed) || !is_hash(stated, computed)) {
      continue;
    }
    recipe.none_hash = none;
    recipe.seed = seed;
    return true;
  }
  return false;
}

bool EventChecker::find_recipe(const StoredEvent& event, Encoding encoding, Space& space) {
  const EventHash& stated = event.block_hashes[0];
  for (std::size_t number = 0; number < words_of(HashFunction{}).size(); ++number) {
    const auto function = static_cast<HashFunction>(number);
    if (rules_.hash_function && *rules_.hash_function != function) continue;
    const std::size_t size = hash_bytes(function);
    HashRecipe recipe;
    recipe.function = function;
    const std::size_t length = stated.is_integer ? size : stated.bytes.size();
    if (length % size != 0) continue;
    recipe.fine_per_block = static_cast<std::uint32_t>(length / size);
    recipe.is_joined = recipe.fine_per_block > 1;
    // Since 0.33 a block's hash is the last of its fine ones, whose number is unknown.
    constexpr std::uint32_t kFineMax = 64;
    const std::uint32_t fine_max =
        encoding == Encoding::kMaps && !recipe.is_joined ? kFineMax : recipe.fine_per_block;
    for (; recipe.fine_per_block <= fine_max; ++recipe.fine_per_block) {
      if (event.block_size % recipe.fine_per_block != 0) continue;
      if (!try_recipe(event, encoding, recipe)) continue;
      recipe.waiting = std::move(space.recipe.waiting);
      space.recipe = std::move(recipe);
      return true;
    }
  }
  return false;
}

bool EventChecker::find_none_hash(const StoredEvent& event, Encoding encoding, Space& space) {
  if (space.recipe.none_hash) return true;
  if (rules_.hash_seed) {
    space.recipe.none_hash = hasher_.none_hash(*space.recipe.function, *rules_.hash_seed);
    space.recipe.seed = *rules_.hash_seed;
    return true;
  }
  return space.recipe.root_tries++ < kRecipeTries && try_recipe(event, encoding, space.recipe);
}

bool EventChecker::check_hashes(const StoredEvent& event, EventRef at, Encoding encoding,
                                Space& space) {
  HashRecipe& recipe = space.recipe;
  if (!recipe.function) {
    if (recipe.tries < kRecipeTries && is_chain(event)) {
      ++recipe.tries;
      if (find_recipe(event, encoding, space)) {
        recipe.found_at = at;
        // Earlier events are judged now.
        std::vector<WaitingEvent> waiting = std::move(recipe.waiting);
        recipe.waiting.clear();
        const bool is_scene = std::exchange(is_scene_, false);
        for (const WaitingEvent& before : waiting) {
          verify(before.event, before.at, before.encoding, space);
          if (wrong_) excuse_wrong(before.event, space);
          wrong_.reset();
        }
        computed_.clear();
        is_scene_ = is_scene;
      } else if (!is_scene_) {
        recipe.waiting.push_back({event, at, encoding});
      }
    }
    if (!recipe.function) {
      counts_.hashes_not_checked += event.block_hashes.size();
      return false;
    }
  }
  return verify(event, at, encoding, space);
}

bool EventChecker::verify(const StoredEvent& event, EventRef at, Encoding encoding, Space& space) {
  const std::vector<EventHash>& stated = event.block_hashes;
  const std::size_t num_blocks = event.token_ids.size() / event.block_size;
  const HashRecipe& recipe = space.recipe;
  std::size_t num_right = 0;
  const auto stop_unchecked = [&] {
    counts_.hashes_checked += num_right;
    counts_.hashes_not_checked += stated.size() - num_right;
    return false;
  };
  // A part of a block has one hash of the engine's, not several.
  HashRecipe of_part;
  const bool is_part = recipe.fine_per_block > 1 && event.block_size < space.largest_block_size;
  if (is_part) of_part.function = recipe.function;
  const HashRecipe& used = is_part ? of_part : recipe;
  BlockHash parent;
  if (!event.parent_block_hash) {
    if (!find_none_hash(event, encoding, space)) return stop_unchecked();
    parent = *recipe.none_hash;
  } else if (event.parent_block_hash->is_integer) {
    parent = space.blocks.digest_of(id_of(*event.parent_block_hash));
    if (parent.empty()) return stop_unchecked();
  } else {
    parent = event.parent_block_hash->bytes;
  }
  BlockHash computed;
  for (std::size_t block = 0; block < num_blocks && num_right < stated.size(); ++block) {
    if (!hash_block(used, event, encoding, block, parent, computed)) return stop_unchecked();
    if (is_hash(stated[num_right], computed)) {
      if (stated[num_right].is_integer) computed_.emplace_back(num_right, computed);
      ++num_right;
    } else if (is_chain(event)) {
      break;
    }
    parent = computed;
  }
  // The extra keys of skipped blocks are not known.
  if (!is_chain(event)) return stop_unchecked();
  counts_.hashes_checked += num_right;
  if (num_right == stated.size()) return false;
  wrong_ = {num_right, computed};
  if (is_scene_) return true;
  // The same block was stored under that hash before.
  const auto is_excused = [&](HashId id) {
    const MirrorBlock* const block = space.blocks.find(id);
    return block != nullptr && block->is_excused;
  };
  if (is_excused(id_of(stated[num_right])) &&
      is_excused(id_as_stated(stated[num_right], computed))) {
    return false;
  }
  std::vector<EventRef> led_there = {recipe.found_at};
  if (event.parent_block_hash) {
    const MirrorBlock* const block = space.blocks.find(id_of(*event.parent_block_hash));
    if (block != nullptr && block->copies > 0) led_there.push_back(block->stored);
  }
  std::erase(led_there, at);
  report(Rule::kWrongHash, at, describe(event),
         short_hex(stated[num_right].bytes) + " as hash " + std::to_string(num_right),
         short_hex(stated[num_right].is_integer
                       ? std::string_view(computed).substr(computed.size() - 8)
                       : std::string_view(computed)) +
             " of its parent, tokens and extra keys",
         led_there);
  return true;
}

}  // namespace kvfence::audit
