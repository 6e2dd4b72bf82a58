#include "scenarios/audit/checks.h"

#include <xxhash.h>

#include <algorithm>
#include <span>
#include <type_traits>
#include <variant>

#include "contract/core/hex.h"

namespace kvfence::audit {
namespace {

/// Events of a space after which it counts as having no larger blocks.
constexpr std::uint64_t kYoungEvents = 256;
constexpr std::uint32_t kRecipeTries = 64;
/// Limit of groups, media and owners of a stream; further ones are counted with the last.
constexpr std::size_t kSpacesMax = 64;

// ---- Findings in words ----

std::string short_hex(std::string_view bytes) {
  constexpr std::size_t kShown = 8;
  return "0x" + to_hex(bytes.substr(0, kShown)) + (bytes.size() > kShown ? "..." : "");
}

std::string count_of(std::size_t count, const char* what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

/// "BlockStored of 2 hashes, 0x1a2b3c4d5e6f7081..., parent none, 32 tokens in blocks of 16".
std::string describe(const StoredEvent& event) {
  const std::size_t num_hashes = event.block_hashes.size();
  std::string text =
      "BlockStored of " + std::to_string(num_hashes) + (num_hashes == 1 ? " hash" : " hashes");
  if (!event.block_hashes.empty()) text += ", " + short_hex(event.block_hashes[0].bytes);
  text += ", parent ";
  text += event.parent_block_hash ? short_hex(event.parent_block_hash->bytes) : "none";
  text += ", " + count_of(event.token_ids.size(), "token") + " in blocks of " +
          std::to_string(event.block_size);
  if (event.medium) text += ", " + event.medium->substr(0, 20);
  if (event.group_idx) text += ", group " + std::to_string(*event.group_idx);
  return text;
}

std::string describe(const RemovedEvent& event) {
  std::string text = "BlockRemoved";
  const std::size_t num_hashes = event.block_hashes.size();
  for (std::size_t hash = 0; hash < std::min<std::size_t>(num_hashes, 2); ++hash) {
    text += (hash == 0 ? " " : ", ") + short_hex(event.block_hashes[hash].bytes);
  }
  if (num_hashes > 2) text += " and " + std::to_string(num_hashes - 2) + " more";
  if (event.group_idx) text += ", group " + std::to_string(*event.group_idx);
  return text;
}

Finding finding_about(const auto& now, Rule rule, std::string found, std::string expected,
                      std::vector<EventRef> led_there = {}) {
  return {.rule = rule,
          .at = now.at,
          .event = describe(now.event),
          .found = std::move(found),
          .expected = std::move(expected),
          .led_there = std::move(led_there)};
}

// ---- Parts of an event ----

/// Kinds of groups that keep a block while they keep those after it.
bool is_chain_kind(const StoredEvent& event) {
  if (event.kv_cache_spec_sliding_window) return false;
  const std::optional<std::string>& kind = event.kv_cache_spec_kind;
  return !kind || *kind == "full_attention" || *kind == "mla_attention";
}

/// Whether each block has its hash. Requires: tokens in whole blocks.
bool has_all_hashes(const StoredEvent& event) {
  return event.token_ids.size() / event.block_size == event.block_hashes.size();
}

const std::vector<EventExtraKey>* extra_keys_of(const StoredEvent& event, std::size_t block) {
  if (!event.extra_keys || !(*event.extra_keys)[block]) return nullptr;
  return (*event.extra_keys)[block]->empty() ? nullptr : &*(*event.extra_keys)[block];
}

/// Whether the hash of each block follows from its parent and tokens alone.
bool has_only_tokens(const StoredEvent& event) {
  if (event.lookahead_token_ids || event.lora_name) return false;
  for (std::size_t entry = 0; event.extra_keys && entry < event.extra_keys->size(); ++entry) {
    if (extra_keys_of(event, entry) != nullptr) return false;
  }
  return true;
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

HashId id_of(const EventHash& hash) { return audit::id_of(std::string_view(hash.bytes)); }

/// The part of a digest that an event would carry.
BlockHashView as_stated(const EventHash& like, BlockHashView digest) {
  return like.is_integer ? digest.substr(digest.size() - like.bytes.size()) : digest;
}

}  // namespace

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

// ---- Events ----

void EventChecker::take(const Event& event, EventRef at, Encoding encoding, bool is_scene) {
  if (const auto* stored = std::get_if<StoredEvent>(&event)) {
    take_stored({*stored, at, encoding, is_scene, space_of(*stored)});
  } else if (const auto* removed = std::get_if<RemovedEvent>(&event)) {
    take_removed({*removed, at, encoding, is_scene, space_of(*removed)});
  } else {
    take_clear(at);
  }
}

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

void EventChecker::take_stored(const Stored& now) {
  Space& space = now.space;
  counts_.stored += now.event.block_hashes.size();
  digests_.clear();
  wrong_.reset();
  bool has_finding = check_counts(now);
  const bool has_content = !has_finding && !now.event.token_ids.empty();
  learn_blocks(now, has_content);
  if (has_content && space.is_gpu && !now.event.block_hashes.empty()) {
    has_finding = (now.is_judged() && check_parent(now)) || check_hashes(now);
  }
  enter(now, has_content, now.is_judged() && !has_finding);
  if (++space.num_events == kYoungEvents) report_undecided(space);
  check_size(now);
}

/// What the event shows about the blocks of its space.
void EventChecker::learn_blocks(const Stored& now, bool has_content) {
  Space& space = now.space;
  const StoredEvent& event = now.event;
  const std::size_t num_blocks = has_content ? event.token_ids.size() / event.block_size : 0;
  if (num_blocks > event.block_hashes.size() || !is_chain_kind(event)) space.holds_chains = false;
  if (!has_content || event.block_size <= space.mirror.largest_block_size) return;
  // Until now there were only parts of blocks, whose parents need not be held, and which do not show
  // how many hashes a whole block takes.
  space.mirror.largest_block_size = event.block_size;
  space.mirror.held_largest = 0;
  space.undecided.clear();
  space.recipe.function.reset();
  space.recipe.tries = 0;
}

void EventChecker::enter(const Stored& now, bool has_content, bool is_judged) {
  const StoredEvent& event = now.event;
  Mirror& mirror = now.space.mirror;
  const bool knows_content = has_content && has_all_hashes(event);
  HashId parent = event.parent_block_hash ? id_of(*event.parent_block_hash) : 0;
  const MirrorBlock* const parent_block = parent == 0 ? nullptr : mirror.blocks.find(parent);
  std::uint32_t depth = parent_block != nullptr ? parent_block->depth : 0;
  for (std::size_t index = 0; index < event.block_hashes.size(); ++index) {
    const EventHash& hash = event.block_hashes[index];
    const std::uint64_t content = knows_content ? content_of(event, index, parent) : 0;
    const HashId id = id_of(hash);
    MirrorBlock& block = mirror.blocks.at(id);
    if (wrong_ && wrong_->first == index) {
      block.is_excused = true;
    } else if (block.copies > 0) {
      ++counts_.duplicates;
      mirror.add_copy(block);
      if (is_judged) is_judged = !check_content(now, hash, content, block);
    } else {
      mirror.add(block, parent, event.block_size);
    }
    if (content != 0) block.content = content;
    block.stored = now.at;
    block.depth = ++depth;
    mirror.depth_max = std::max<std::uint64_t>(mirror.depth_max, depth);
    parent = id;
  }
  for (const auto& [index, digest] : digests_) {
    mirror.blocks.keep_digest(id_of(event.block_hashes[index]), digest);
  }
  if (wrong_) excuse_wrong(now);
}

void EventChecker::take_removed(const Removed& now) {
  Mirror& mirror = now.space.mirror;
  counts_.removed += now.event.block_hashes.size();
  for (const EventHash& hash : now.event.block_hashes) {
    MirrorBlock* const block = mirror.blocks.find(id_of(hash));
    if (block != nullptr && block->copies > 0) {
      // Since 0.33 an engine may report blocks that it uses again as stored, and so may SGLang.
      const bool is_of_vllm = !hash.is_integer || now.space.recipe.function;
      mirror.remove_copy(*block, now.at, /*is_remembered=*/now.space.is_gpu,
                         /*may_be_last=*/now.encoding == Encoding::kMaps || !is_of_vllm);
    } else if (block == nullptr && now.is_judged() && is_certain_) {
      if (auto finding = find_reason(now, hash)) report_(std::move(*finding));
    }
  }
}

void EventChecker::take_clear(EventRef at) {
  ++counts_.clears;
  cleared_at_ = at;
  is_certain_ = true;
  for (Space& space : spaces_) {
    // A clear names no medium, and other tiers keep their blocks.
    if (space.is_gpu) space.mirror.clear(at);
  }
}

void EventChecker::restart() {
  for (Space& space : spaces_) {
    space.mirror.clear({});
    // It may be of another release.
    space.recipe = {};
    space.mirror.largest_block_size = 0;
    space.holds_chains = true;
  }
  cleared_at_.reset();
  is_certain_ = false;
}

void EventChecker::finish() {
  for (Space& space : spaces_) {
    report_undecided(space);
    const HashRecipe& recipe = space.recipe;
    if (rules_.hash_function && !recipe.function && !recipe.waiting.empty()) {
      report_(
          finding_about(recipe.waiting.front(), Rule::kWrongHash, "hashes of another kind",
                        std::string(to_text(*rules_.hash_function)) +
                            (rules_.hash_seed ? " with seed '" + *rules_.hash_seed + "'" : "")));
    }
    space.recipe.waiting.clear();
  }
}

void EventChecker::report_undecided(Space& space) {
  for (Finding& finding : space.undecided) report_(std::move(finding));
  space.undecided.clear();
}

// ---- Rules about counts and contents ----

bool EventChecker::check_counts(const Stored& now) {
  const StoredEvent& event = now.event;
  const std::size_t num_hashes = event.block_hashes.size();
  std::string found;
  if (event.extra_keys && event.extra_keys->size() != num_hashes) {
    found = "extra keys of " + count_of(event.extra_keys->size(), "block");
  } else if (event.lookahead_token_ids && event.lookahead_token_ids->size() != num_hashes) {
    found = "lookahead of " + count_of(event.lookahead_token_ids->size(), "block");
  } else if (event.token_ids.empty()) {
    // Other media publish only a hash. On the GPU there are tokens.
    if (num_hashes == 0 || !now.space.is_gpu) return false;
    found = "no tokens";
  } else if (event.block_size == 0 || event.token_ids.size() % event.block_size != 0 ||
             event.token_ids.size() / event.block_size < num_hashes) {
    found = count_of(event.token_ids.size(), "token");
  } else {
    return false;
  }
  if (now.is_judged()) {
    report_(finding_about(
        now, Rule::kTokenCounts, found,
        std::to_string(num_hashes) + " blocks of " + std::to_string(event.block_size) + " tokens"));
  }
  return true;
}

bool EventChecker::check_content(const Stored& now, const EventHash& hash, std::uint64_t content,
                                 MirrorBlock& block) {
  const bool differs = content != 0 && block.content != 0 && block.content != content &&
                       block.block_size == now.event.block_size && !block.is_excused;
  if (!differs || (hash.is_integer && !now.space.recipe.function)) return false;
  report_(finding_about(now, Rule::kTwoContents,
                        short_hex(hash.bytes) + " of another parent, other tokens or extra keys",
                        "those it was stored with", {block.stored}));
  block.is_excused = true;
  return true;
}

void EventChecker::check_size(const Stored& now) {
  std::uint64_t held = 0;
  std::uint64_t all_on_gpu = 0;
  std::uint64_t doubtful = 0;
  std::uint64_t on_others = 0;
  for (const Space& space : spaces_) {
    if (!space.is_gpu) {
      on_others += space.mirror.blocks.size();
      continue;
    }
    held += space.mirror.held_largest;
    all_on_gpu += space.mirror.blocks.size();
    doubtful += space.mirror.doubtful;
  }
  const std::uint64_t all = all_on_gpu + on_others;
  const bool is_over = rules_.blocks_max > 0 && held > rules_.blocks_max && is_certain_;
  if (!is_over && all <= rules_.mirror_blocks_max) return;
  if (!is_over && on_others > 0) {
    // Tiers may drop blocks without an event, so that theirs only grow in number.
    for (Space& space : spaces_) {
      if (!space.is_gpu) space.mirror.forget();
    }
    if (all_on_gpu <= rules_.mirror_blocks_max) return;
  }
  if (!now.is_scene && (is_over || doubtful == 0)) {
    report_(finding_about(
        now, Rule::kTooManyBlocks, std::to_string(is_over ? held : all_on_gpu) + " hashes held",
        std::to_string(is_over ? rules_.blocks_max : rules_.mirror_blocks_max) + " at most"));
  }
  for (Space& space : spaces_) space.mirror.forget();
  is_certain_ = false;
}

// ---- Rules about what is held ----

template <class E>
std::optional<Finding> EventChecker::find_reason(const Taken<E>& now, const EventHash& hash) {
  constexpr bool kIsParent = std::is_same_v<E, StoredEvent>;
  const std::string name = (kIsParent ? "the parent " : "") + short_hex(hash.bytes);
  const char* const expected = kIsParent ? "one that is held" : "a hash that is held";
  Mirror& mirror = now.space.mirror;
  const HashId id = id_of(hash);
  mirror.blocks.at(id).is_excused = true;
  if (const GoneBlock* const gone = mirror.find_removed(id)) {
    return finding_about(now, kIsParent ? Rule::kUnknownParent : Rule::kRemovedTooOften,
                         name + (kIsParent ? ", removed since" : ", whose last copy was removed"),
                         expected, {gone->stored, gone->removed});
  }
  const GoneBlock* const gone = mirror.find_cleared(id);
  if (gone == nullptr) {
    return finding_about(now, kIsParent ? Rule::kUnknownParent : Rule::kRemovedNeverStored,
                         name + ", never stored", expected);
  }
  // Then it cleared nothing.
  is_certain_ = false;
  if (!cleared_at_) return std::nullopt;
  return finding_about(now, Rule::kRemovedAfterClear, name + ", cleared since", expected,
                       {gone->stored, *cleared_at_});
}

bool EventChecker::check_parent(const Stored& now) {
  const std::optional<EventHash>& parent = now.event.parent_block_hash;
  Space& space = now.space;
  if (!parent || !is_certain_ || !space.holds_chains ||
      now.event.block_size < space.mirror.largest_block_size) {
    return false;
  }
  if (space.mirror.blocks.find(id_of(*parent)) != nullptr) {
    // Without its kind, the group may be one of a sliding window, which lets the first blocks go.
    return now.event.kv_cache_spec_kind && check_ancestors(now);
  }
  std::optional<Finding> finding = find_reason(now, *parent);
  if (!finding) return false;
  // In a group whose blocks are larger than the hash block, a part may come first.
  const bool may_be_part = finding->led_there.empty() && now.encoding == Encoding::kMaps &&
                           now.event.block_hashes.size() == 1 && space.num_events < kYoungEvents;
  if (may_be_part) {
    space.undecided.push_back(std::move(*finding));
  } else {
    report_(std::move(*finding));
  }
  return true;
}

/// A request holds all blocks before the one that it stores. Walks only if some hash was removed
/// before its children, and no further than an earlier walk since then.
bool EventChecker::check_ancestors(const Stored& now) {
  Mirror& mirror = now.space.mirror;
  const auto ends_walk = [&](const MirrorBlock& block) {
    return block.whole_until == mirror.broken_chains || block.is_excused || block.copies == 0 ||
           block.block_size < mirror.largest_block_size;
  };
  std::vector<MirrorBlock*> chain;
  HashId next = id_of(*now.event.parent_block_hash);
  MirrorBlock* block = nullptr;
  while (next != 0 && (block = mirror.blocks.find(next)) != nullptr && !ends_walk(*block)) {
    // A chain cannot be longer than the number of held hashes; a cycle is a wrong hash.
    if (chain.size() > mirror.blocks.size()) return false;
    chain.push_back(block);
    next = block->parent;
  }
  const bool is_missing = next != 0 && block == nullptr;
  const GoneBlock* const gone = is_missing ? mirror.find_removed(next) : nullptr;
  std::vector<EventRef> led_there;
  for (MirrorBlock* const ancestor : chain) {
    ancestor->whole_until = mirror.broken_chains;
    if (gone != nullptr) led_there.push_back(ancestor->stored);
  }
  if (gone == nullptr) return false;
  led_there.insert(led_there.end(), {gone->stored, gone->removed});
  mirror.blocks.at(next).is_excused = true;
  report_(
      finding_about(now, Rule::kUnknownParent,
                    "a block " + std::to_string(chain.size()) + " before its parent, removed since",
                    "all before it held", std::move(led_there)));
  return true;
}

// ---- The rule about hashes ----

bool EventChecker::check_hashes(const Stored& now) {
  const std::size_t num_hashes = now.event.block_hashes.size();
  const std::size_t num_right = find_recipe(now) ? recompute(now) : 0;
  counts_.hashes_checked += num_right;
  if (!wrong_) {
    counts_.hashes_not_checked += num_hashes - num_right;
    return false;
  }
  if (now.is_scene) return false;
  const auto& [index, right] = *wrong_;
  const EventHash& stated = now.event.block_hashes[index];
  BlockTable& blocks = now.space.mirror.blocks;
  // The same block was stored under that hash before.
  const auto is_excused = [&](HashId id) {
    const MirrorBlock* const block = blocks.find(id);
    return block != nullptr && block->is_excused;
  };
  if (is_excused(id_of(stated)) && is_excused(audit::id_of(as_stated(stated, right)))) return false;
  std::vector<EventRef> led_there = {now.space.recipe.found_at};
  if (now.event.parent_block_hash) {
    const MirrorBlock* const block = blocks.find(id_of(*now.event.parent_block_hash));
    if (block != nullptr && block->copies > 0) led_there.push_back(block->stored);
  }
  std::erase(led_there, now.at);
  report_(finding_about(
      now, Rule::kWrongHash, short_hex(stated.bytes) + " as hash " + std::to_string(index),
      short_hex(as_stated(stated, right)) + " of its parent, tokens and extra keys", led_there));
  return true;
}

/// Both the published hash and the right one.
void EventChecker::excuse_wrong(const Stored& now) {
  const auto& [index, right] = *wrong_;
  const EventHash& stated = now.event.block_hashes[index];
  BlockTable& blocks = now.space.mirror.blocks;
  blocks.at(id_of(stated)).is_excused = true;
  blocks.at(audit::id_of(as_stated(stated, right))).is_excused = true;
}

std::size_t EventChecker::recompute(const Stored& now) {
  const std::vector<EventHash>& stated = now.event.block_hashes;
  const HashRecipe& recipe = now.space.recipe;
  // A part of a block has one hash of the engine's, not several.
  HashRecipe of_part;
  const bool is_part =
      recipe.fine_per_block > 1 && now.event.block_size < now.space.mirror.largest_block_size;
  if (is_part) of_part.function = recipe.function;
  const HashRecipe& used = is_part ? of_part : recipe;
  std::size_t num_right = 0;
  BlockHash parent;
  if (!find_parent_digest(now, parent)) return num_right;
  BlockHash computed;
  const std::size_t num_blocks = now.event.token_ids.size() / now.event.block_size;
  for (std::size_t block = 0; block < num_blocks && num_right < stated.size(); ++block) {
    if (!hash_block(used, now, block, parent, computed)) return num_right;
    const EventHash& hash = stated[num_right];
    const auto fits = [&](BlockHashView right) { return as_stated(hash, right) == hash.bytes; };
    BlockHash of_last_item;
    if (!fits(computed) && hash_with_last_item(used, now, block, parent, of_last_item) &&
        fits(of_last_item)) {
      computed = of_last_item;
    }
    if (fits(computed)) {
      if (hash.is_integer) digests_.emplace_back(num_right, computed);
      ++num_right;
    } else if (has_all_hashes(now.event)) {
      wrong_ = {num_right, computed};
      return num_right;
    }
    parent = computed;
  }
  return num_right;
}

bool EventChecker::find_parent_digest(const Stored& now, BlockHash& parent) {
  const std::optional<EventHash>& stated = now.event.parent_block_hash;
  if (!stated) {
    if (!find_none_hash(now)) return false;
    parent = *now.space.recipe.none_hash;
  } else if (stated->is_integer) {
    parent = now.space.mirror.blocks.digest_of(id_of(*stated));
  } else {
    parent = stated->bytes;
  }
  return !parent.empty();
}

/// To 0.23 a block that generated tokens complete is hashed with its last item alone, although its
/// event has all of them. False: it has no others.
bool EventChecker::hash_with_last_item(const HashRecipe& recipe, const Stored& now,
                                       std::size_t block, BlockHashView parent, BlockHash& out) {
  if (now.encoding == Encoding::kMaps || !has_all_hashes(now.event)) return false;
  const std::vector<EventExtraKey>* const all = extra_keys_of(now.event, block);
  if (all == nullptr) return false;
  std::vector<EventExtraKey> kept;
  for (const EventExtraKey& key : *all) {
    const bool is_item = key.kind == EventExtraKey::Kind::kItem;
    if (is_item && !kept.empty() && kept.back().kind == key.kind) kept.pop_back();
    kept.push_back(key);
  }
  return kept.size() < all->size() && hash_block(recipe, now, block, parent, out, &kept);
}

bool EventChecker::hash_block(const HashRecipe& recipe, const Stored& now, std::size_t block,
                              BlockHashView parent, BlockHash& out,
                              const std::vector<EventExtraKey>* extra_keys) {
  const StoredEvent& event = now.event;
  HashedBlock content;
  content.has_tags = now.encoding == Encoding::kMaps;
  content.has_lora = event.lora_name.has_value();
  if (has_all_hashes(event)) {
    content.extra_keys = extra_keys != nullptr ? extra_keys : extra_keys_of(event, block);
    if (event.lookahead_token_ids) content.lookahead = &(*event.lookahead_token_ids)[block];
  } else if (!has_only_tokens(event)) {
    // Blocks were skipped, and the event does not say which blocks the entries belong to.
    return false;
  }
  const std::span<const TokenId> tokens =
      std::span(event.token_ids).subspan(block * event.block_size, event.block_size);
  const bool is_fine = recipe.fine_per_block > 1;
  if (is_fine && (content.extra_keys != nullptr || content.lookahead != nullptr)) return false;
  const std::size_t fine_tokens = event.block_size / recipe.fine_per_block;
  const std::size_t size = hash_bytes(*recipe.function);
  if (parent.size() > size) parent = parent.substr(parent.size() - size);
  BlockHash all;
  for (std::uint32_t fine = 0; fine < recipe.fine_per_block; ++fine) {
    content.tokens = tokens.subspan(fine * fine_tokens, fine_tokens);
    if (!hasher_.hash(*recipe.function, fine == 0 ? parent : BlockHashView(out), content, out)) {
      return false;
    }
    if (recipe.is_joined) all += out;
  }
  if (recipe.is_joined) out = all;
  return true;
}

// ---- How hashes are computed ----

bool EventChecker::find_recipe(const Stored& now) {
  HashRecipe& recipe = now.space.recipe;
  if (recipe.function) return true;
  if (recipe.tries == kRecipeTries || !has_all_hashes(now.event)) return false;
  // A part of a block does not show how many hashes a whole one takes.
  if (now.event.block_size < now.space.mirror.largest_block_size) return false;
  ++recipe.tries;
  if (!try_functions(now)) {
    if (!now.is_scene) recipe.waiting.push_back({now.event, now.at, now.encoding});
    return false;
  }
  recipe.found_at = now.at;
  judge_waiting(now.space);
  return true;
}

bool EventChecker::try_functions(const Stored& now) {
  const EventHash& stated = now.event.block_hashes[0];
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
        now.encoding == Encoding::kMaps && !recipe.is_joined ? kFineMax : recipe.fine_per_block;
    for (; recipe.fine_per_block <= fine_max; ++recipe.fine_per_block) {
      if (now.event.block_size % recipe.fine_per_block != 0) continue;
      if (!try_recipe(now, recipe)) continue;
      recipe.waiting = std::move(now.space.recipe.waiting);
      now.space.recipe = std::move(recipe);
      return true;
    }
  }
  return false;
}

bool EventChecker::try_recipe(const Stored& now, HashRecipe& recipe) {
  const EventHash& stated = now.event.block_hashes[0];
  const std::optional<EventHash>& parent = now.event.parent_block_hash;
  BlockHash computed;
  const auto fits = [&](BlockHashView parent_digest) {
    return hash_block(recipe, now, 0, parent_digest, computed) &&
           as_stated(stated, computed) == stated.bytes;
  };
  if (parent) {
    return !parent->is_integer && parent->bytes.size() >= hash_bytes(*recipe.function) &&
           fits(parent->bytes);
  }
  for (const std::string& seed : seeds()) {
    const BlockHash none = hasher_.none_hash(*recipe.function, seed);
    if (!fits(none)) continue;
    recipe.none_hash = none;
    recipe.seed = seed;
    return true;
  }
  return false;
}

/// Earlier events are judged now.
void EventChecker::judge_waiting(Space& space) {
  for (const WaitingEvent& before : std::exchange(space.recipe.waiting, {})) {
    const Stored then{before.event, before.at, before.encoding, /*is_scene=*/false, space};
    check_hashes(then);
    if (wrong_) excuse_wrong(then);
    digests_.clear();
    wrong_.reset();
  }
}

bool EventChecker::find_none_hash(const Stored& now) {
  HashRecipe& recipe = now.space.recipe;
  if (recipe.none_hash) return true;
  if (rules_.hash_seed) {
    recipe.none_hash = hasher_.none_hash(*recipe.function, *rules_.hash_seed);
    recipe.seed = *rules_.hash_seed;
    return true;
  }
  return recipe.root_tries++ < kRecipeTries && try_recipe(now, recipe);
}

std::vector<std::string> EventChecker::seeds() const {
  if (rules_.hash_seed) return {*rules_.hash_seed};
  // The default since 0.33, and values that PYTHONHASHSEED is often given.
  return {"vllm-none-hash", "0", "1", "42"};
}

// ---- Views ----

Holdings EventChecker::holdings() const {
  Holdings sum;
  for (const Space& space : spaces_) {
    (space.is_gpu ? sum.gpu_blocks : sum.other_blocks) += space.mirror.held;
    sum.depth_max = std::max(sum.depth_max, space.mirror.depth_max);
    sum.memory_bytes += space.mirror.memory_bytes();
  }
  return sum;
}

std::vector<HashId> EventChecker::held_on_gpu() const {
  std::vector<HashId> held;
  for (const Space& space : spaces_) {
    if (!space.is_gpu) continue;
    space.mirror.blocks.for_each([&](const MirrorBlock& block) {
      if (block.copies > 0) held.push_back(block.id);
    });
  }
  std::sort(held.begin(), held.end());
  return held;
}

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

}  // namespace kvfence::audit
