/// Draws configurations and commands for target block_pool: few blocks, tokens and names, swarm
/// weights, and arguments that mostly fit the state that the pool shows.

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/pool/block_pool_target.h"
#include "properties/draws/choices.h"
#include "properties/draws/swarm.h"
#include "properties/pool/request_draws.h"
#include "properties/targets/rooms.h"

namespace kvfence::block_pool {
namespace {

constexpr std::array<std::string_view, 4> kRequestNames = {"A", "B", "C", "D"};
constexpr std::array<std::string_view, 3> kLoraNames = {"lora", "other",
                                                        "salt"};  // one collides with a salt
constexpr std::array<std::string_view, 2> kSalts = {"salt", ""};
constexpr std::uint32_t kHuge = 0xFFFF'FFFF;  // where sums and products wrap around

bool has_request(const World& world) {
  return std::ranges::any_of(kRequestNames, [&](std::string_view name) {
    return world.requests().find(std::string(name)) != nullptr;
  });
}

/// The usual weight of each command.
constexpr VerbSwarm<Command>::UsualWeights kWeights = {{
    {DeclareRequest::kVerb, 3},
    {AppendTokens::kVerb, 1},
    {GetNewBlocks::kVerb, 12},
    {GetCachedBlock::kVerb, 8},
    {Touch::kVerb, 8},
    {CacheFullBlocks::kVerb, 12},
    {FreeBlocks::kVerb, 16},
    {EvictBlocks::kVerb, 3},
    {ResetPrefixCache::kVerb, 1},
    {TakeEvents::kVerb, 6},
}};

class Generator final : public GeneratorFor<BlockPoolTarget> {
 public:
  /// Draws the weights of this episode.
  Generator(const Config& config, Choices& choices)
      : config_(config),
        rules_(make_block_pool_config(config)->rules),
        swarm_(kWeights, kWildHabits, choices),
        tokens_(choices) {
    // Without requests and blocks nothing else happens.
    swarm_.raise({DeclareRequest::kVerb, GetNewBlocks::kVerb});
  }

  /// The next command, given what a pool shows and which requests there are.
  Command next(Choices& choices, const Observation& now, const World& world) override {
    see(now);
    std::string_view verb = swarm_.draw(choices);
    // Mostly draws again if the command has nothing to work on.
    for (int tries = 0; tries < 3 && !choices.once_in(16) && is_idle(verb, now, world); ++tries) {
      verb = swarm_.draw(choices);
    }
    // Mostly takes what a lookup found.
    if (now.hit.has_value() && *now.hit && !choices.once_in(3)) verb = Touch::kVerb;
    return Draft(*this, choices, now, world).draw(verb);
  }

  std::optional<Command> next_of_tail(const Observation& now, const World& /*world*/) override {
    see(now);
    if (num_resets_ == 0 && !held_.empty()) return FreeBlocks{held_, false};
    return next_of({ResetPrefixCache{}, TakeEvents{}}, num_resets_);
  }

 private:
  /// If the state is not observed after every command, the last observed one is near enough.
  void see(const Observation& now) {
    if (!now.ref_cnts.has_value() || !now.keys.has_value()) return;
    held_.clear();
    bare_.clear();
    cached_.clear();
    keyed_.clear();
    for (BlockId block = 1; block < now.ref_cnts->size(); ++block) {
      const bool referenced = (*now.ref_cnts)[block] > 0;
      const bool has_key = !(*now.keys)[block].empty();
      if (referenced) held_.push_back(block);
      if (referenced && !has_key) bare_.push_back(block);
      if (!referenced && has_key) cached_.push_back(block);
      if (has_key) keyed_.push_back(block);
    }
  }

  /// Draws the arguments of one command in the order of declaration; later ones may depend on
  /// earlier ones.
  class Draft {
   public:
    Draft(const Generator& generator, Choices& choices, const Observation& now, const World& world)
        : generator_(generator), choices_(choices), now_(now), world_(world) {
      const std::uint32_t hash_block_size = generator.config_.hash_block_size;
      const std::uint32_t max_block_size = generator.config_.max_block_size == 0
                                               ? hash_block_size
                                               : generator.config_.max_block_size;
      block_size_ = choices.once_in(2) ? hash_block_size : max_block_size;
      if (choices.once_in(4)) {
        block_size_ = hash_block_size * (1 + choices.below(max_block_size / hash_block_size));
      }
      if (choices.once_in(64)) block_size_ = choices.below(9);
    }

    Command draw(std::string_view verb) {
      if (verb == DeclareRequest::kVerb) return declare();
      if (verb == AppendTokens::kVerb) return append();
      if (verb == GetNewBlocks::kVerb) return GetNewBlocks{or_huge(draw_num_blocks())};
      if (verb == GetCachedBlock::kVerb) return look_up();
      if (verb == Touch::kVerb) return touch();
      if (verb == CacheFullBlocks::kVerb) return cache();
      if (verb == FreeBlocks::kVerb) return free();
      if (verb == EvictBlocks::kVerb) {
        return EvictBlocks{draw_blocks(generator_.keyed_, draw_length())};
      }
      if (verb == ResetPrefixCache::kVerb) return ResetPrefixCache{};
      return TakeEvents{};
    }

   private:
    /// Blocks with one of two contents, so that requests often share prefixes.
    DeclareRequest declare() {
      DeclareRequest command;
      command.id = draw_name(/*is_new=*/true);
      const std::uint32_t hash_block_size = generator_.config_.hash_block_size;
      std::vector<TokenId>& tokens = command.tokens;
      const std::uint32_t num_blocks = choices_.once_in(8) ? 0 : draw_length();
      tokens.reserve(std::size_t{num_blocks + 1} * hash_block_size);
      for (std::uint32_t block = 0; block < num_blocks; ++block) {
        const TokenId symbol = choices_.once_in(3) ? 1 : 0;
        generator_.tokens_.append(symbol, hash_block_size, choices_, tokens);
      }
      if (choices_.once_in(4)) tokens.insert(tokens.end(), choices_.below(hash_block_size), 7);
      if (choices_.once_in(8)) command.lora_name.emplace(pick(choices_, kLoraNames));
      command.lora_id = or_huge(choices_.below(3));
      if (choices_.once_in(8)) command.cache_salt.emplace(pick(choices_, kSalts));
      if (choices_.once_in(8)) draw_items(choices_, command.mm_features);
      return command;
    }

    AppendTokens append() {
      AppendTokens command{draw_name(), {}};
      const TokenId symbol = choices_.below(2);
      const std::uint32_t num_tokens = 1 + choices_.below(generator_.config_.hash_block_size * 2);
      generator_.tokens_.append(symbol, num_tokens, choices_, command.tokens);
      return command;
    }

    std::uint32_t draw_num_blocks() {
      const std::uint32_t num_free = now_.num_free_blocks;
      if (choices_.once_in(16)) return num_free + 1 + choices_.below(2);
      if (choices_.once_in(16)) return num_free;
      if (num_free == 0 || choices_.once_in(32)) return 0;
      return std::min<std::uint32_t>(num_free, draw_length());
    }

    GetCachedBlock look_up() {
      GetCachedBlock command;
      command.request = draw_name();
      command.index = or_huge(choices_.below(num_hashes() + (choices_.once_in(32) ? 2 : 0) +
                                             (num_hashes() == 0 ? 1 : 0)));
      command.block_size = or_huge(block_size_);
      command.groups.resize(choices_.once_in(3) ? choices_.below(choices_.once_in(8) ? 9 : 4) : 1);
      for (GroupId& group : command.groups) group = skewed(choices_, 3);
      return command;
    }

    Touch touch() {
      const std::uint32_t length = draw_length();
      const bool just_found = now_.hit.has_value() && *now_.hit && !choices_.once_in(4);
      if (just_found) return {*now_.blocks};
      const bool is_cached = !generator_.cached_.empty() && !choices_.once_in(4);
      return {draw_blocks(is_cached ? generator_.cached_ : generator_.held_, length)};
    }

    CacheFullBlocks cache() {
      CacheFullBlocks command;
      command.request = draw_name();
      command.blocks = draw_blocks(generator_.bare_, draw_length(), /*are_of_request=*/true);
      const std::uint32_t bound =
          std::min(static_cast<std::uint32_t>(command.blocks.size()), num_hashes());
      const std::uint32_t num_cached = choices_.once_in(3) ? choices_.below(bound + 1) : 0;
      command.num_cached_blocks = or_huge(num_cached);
      std::uint32_t num_full = choices_.once_in(16)
                                   ? choices_.below(bound + 3)
                                   : num_cached + choices_.below(bound - num_cached + 1);
      if (num_full < bound && choices_.once_in(2)) num_full = bound;
      command.num_full_blocks = or_huge(num_full);
      command.block_size = or_huge(block_size_);
      command.group = or_huge(skewed(choices_, 3));
      const bool useful = generator_.rules_.cache_full_blocks_mask || choices_.once_in(32);
      if (!useful || !choices_.once_in(3)) return command;
      const std::uint32_t length = num_full > num_cached ? num_full - num_cached : 0;
      std::vector<bool>& mask = command.block_mask.emplace(length + (choices_.once_in(32) ? 1 : 0));
      for (std::size_t index = 0; index < mask.size(); ++index) mask[index] = !choices_.once_in(3);
      return command;
    }

    FreeBlocks free() {
      FreeBlocks command{draw_blocks(generator_.held_, draw_length())};
      if (choices_.once_in(2)) std::ranges::reverse(command.blocks);
      command.prepend = choices_.once_in(generator_.rules_.free_blocks_prepend ? 3 : 32);
      return command;
    }

    /// Mostly the name of an existing request, which becomes request_.
    std::string draw_name(bool is_new = false) {
      std::string name(
          choices_.once_in(128) ? "nobody" : kRequestNames[skewed(choices_, kRequestNames.size())]);
      request_ = world_.requests().find(name);
      if (request_ || is_new || choices_.once_in(32)) return name;
      for (std::string_view other : kRequestNames) {
        if (request_) break;
        name = other;
        request_ = world_.requests().find(name);
      }
      return name;
    }

    std::uint32_t or_huge(std::uint32_t number) {
      return choices_.once_in(1024) ? kHuge - choices_.below(2) : number;
    }

    std::uint32_t draw_length() { return kvfence::draw_length(choices_, 4); }

    /// A walk from a random start rather than independent draws, so blocks are mostly distinct, as
    /// under a real engine. A request has as many blocks as hashes.
    std::vector<BlockId> draw_blocks(const std::vector<BlockId>& preferred, std::uint32_t length,
                                     bool are_of_request = false) {
      if (are_of_request) length = std::max<std::uint32_t>(num_hashes(), 1);
      const auto num_preferred = static_cast<std::uint32_t>(preferred.size());
      std::uint32_t at = num_preferred == 0 ? 0 : choices_.below(num_preferred);
      const bool may_repeat = choices_.once_in(8);
      if (!may_repeat && num_preferred > 0 && !are_of_request) {
        length = std::min(length, num_preferred);
      }
      const std::uint32_t odd_in = choices_.once_in(4) ? 6 : 64;
      std::vector<BlockId> blocks;
      blocks.reserve(length);
      for (std::uint32_t count = 0; count < length; ++count) {
        if (num_preferred == 0 || choices_.once_in(odd_in)) {
          blocks.push_back(draw_odd_block());
        } else if (!may_repeat && count >= num_preferred) {
          blocks.push_back(kNullBlockId);
        } else {
          blocks.push_back(preferred[at]);
          if (!may_repeat || !choices_.once_in(3)) at = at + 1 == num_preferred ? 0 : at + 1;
        }
      }
      return blocks;
    }

    /// The null block, any block, or one that does not exist.
    BlockId draw_odd_block() {
      const std::uint32_t num_blocks = generator_.config_.num_gpu_blocks;
      if (choices_.once_in(3)) return kNullBlockId;
      if (choices_.once_in(64)) return kHuge;
      return choices_.below(num_blocks + (choices_.once_in(16) ? 1 : 0));
    }

    /// Hashes of the drawn request at the drawn block size.
    std::uint32_t num_hashes() const {
      const std::uint32_t hash_block_size = generator_.config_.hash_block_size;
      if (!request_ || block_size_ < hash_block_size) return 0;
      return static_cast<std::uint32_t>(request_->num_hashes() / (block_size_ / hash_block_size));
    }

    const Generator& generator_;
    Choices& choices_;
    const Observation& now_;
    const World& world_;
    std::uint32_t block_size_ = 0;
    const Request* request_ = nullptr;
  };

  /// Whether the command would have nothing to work on.
  bool is_idle(std::string_view verb, const Observation& now, const World& world) const {
    if (verb == GetNewBlocks::kVerb) return now.num_free_blocks == 0;
    if (verb == Touch::kVerb) return held_.empty() && cached_.empty();
    if (verb == FreeBlocks::kVerb) return held_.empty();
    if (verb == EvictBlocks::kVerb) return keyed_.empty();
    if (verb == CacheFullBlocks::kVerb && bare_.empty()) return true;
    if (verb == CacheFullBlocks::kVerb || verb == GetCachedBlock::kVerb ||
        verb == AppendTokens::kVerb) {
      return !has_request(world);
    }
    return false;
  }

  Config config_;
  Rules rules_;
  VerbSwarm<Command> swarm_;
  TokenDraws tokens_;
  std::vector<BlockId> held_;    ///< referenced blocks
  std::vector<BlockId> bare_;    ///< referenced blocks without a key
  std::vector<BlockId> cached_;  ///< queued blocks with a key
  std::vector<BlockId> keyed_;   ///< all blocks with a key
  std::size_t num_resets_ = 0;   ///< commands of a tail since nothing is held
};

}  // namespace

Config draw_config(Choices& choices) {
  Config config;
  config.num_gpu_blocks =
      choices.once_in(16) ? 1 + choices.below(3) : 4 + choices.below(choices.once_in(8) ? 33 : 9);
  config.enable_caching = !choices.once_in(16);
  config.enable_kv_cache_events = !choices.once_in(3);
  config.hash_block_size = draw_block_size(choices);
  constexpr std::array<std::uint32_t, 4> kFactors = {1, 1, 2, 4};
  const std::uint32_t factor = pick(choices, kFactors);
  config.max_block_size = factor == 1 ? 0 : config.hash_block_size * factor;
  config.hash_algorithm =
      choices.once_in(2) ? HashAlgorithm::kSha256Cbor : HashAlgorithm::kXxhashCbor;
  config.hash_seed = choices.once_in(8) ? "42" : "0";
  config.profile = choices.once_in(2) ? Profile::kV023 : Profile::kV019;
  return config;
}

GeneratorSuite<BlockPoolTarget> generators() { return generator_suite<Generator>(draw_config); }

}  // namespace kvfence::block_pool
