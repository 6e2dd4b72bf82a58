/// Draws configurations and commands for the block_pool target: tiny universes, hot names, swarm
/// weights, arguments that are mostly sensible in the state that the pool shows and now and then
/// are not.

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "contract/core/check.h"
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

/// How much an episode may favour each command.
constexpr VerbWeights<Command> kWeights = {{
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
  /// Draws the weights of this episode: some commands often, some hardly ever, some not at all.
  Generator(const Config& config, Choices& choices)
      : config_(config),
        rules_(make_block_pool_config(config)->rules),
        swarm_(usual_weights(kWeights), kWildHabits, choices),
        tokens_(choices) {
    // Without requests and blocks nothing else happens.
    for (std::size_t index :
         {index_of<DeclareRequest>(kWeights), index_of<GetNewBlocks>(kWeights)}) {
      swarm_.raise(index);
    }
  }

  /// The next command, given what a pool shows and which requests there are.
  Command next(Choices& choices, const Observation& now, const World& world) override {
    see(now);
    std::size_t chosen = swarm_.draw(choices);
    // One that finds nothing to work on is drawn again, mostly.
    for (int tries = 0; tries < 3 && !choices.once_in(16) && is_idle(chosen, now, world); ++tries) {
      chosen = swarm_.draw(choices);
    }
    // What is found is mostly wanted.
    if (now.hit.has_value() && *now.hit && !choices.once_in(3)) chosen = index_of<Touch>(kWeights);

    std::optional<Command> command;
    std::size_t index = 0;
    for_each_command<Command>([&](auto type) {
      using Alternative = typename decltype(type)::type;
      if (index++ != chosen) return;
      Draft draft(*this, choices, now, world, Alternative::kVerb);
      command.emplace(draft.draw<Alternative>());
    });
    return std::move(*command);
  }

  std::optional<Command> next_of_tail(const Observation& now, const World& /*world*/) override {
    see(now);
    if (num_resets_ == 0 && !held_.empty()) return FreeBlocks{held_, false};
    return next_of({ResetPrefixCache{}, TakeEvents{}}, num_resets_);
  }

 private:
  /// Where the state is not observed after every command, the last one that was is near enough.
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

  /// Fills the declared arguments of one command, in order; later ones may lean on earlier ones.
  class Draft {
   public:
    Draft(Generator& generator, Choices& choices, const Observation& now, const World& world,
          std::string_view verb)
        : generator_(generator), choices_(choices), now_(now), world_(world), verb_(verb) {
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

    template <class Alternative>
    Alternative draw() {
      Alternative command;
      for_each_field<Alternative>(
          [&](std::string_view, auto member, Domain domain) { draw(domain, command.*member); });
      return command;
    }

   private:
    void draw(Domain domain, std::string& member) {
      KVFENCE_CHECK(domain == Domain::kRequest, "a text argument that no generator knows");
      member =
          choices_.once_in(128) ? "nobody" : kRequestNames[skewed(choices_, kRequestNames.size())];
      request_ = world_.requests().find(member);
      if (request_ || verb_ == DeclareRequest::kVerb || choices_.once_in(32)) return;
      for (std::string_view name : kRequestNames) {
        if (request_) return;
        member = name;
        request_ = world_.requests().find(member);
      }
    }

    void draw(Domain, std::optional<std::string>& member) {
      if (!choices_.once_in(8)) return;
      member.emplace(drawn_text_ == 0 ? pick(choices_, kLoraNames) : pick(choices_, kSalts));
      ++drawn_text_;
    }

    void draw(Domain, bool& member) {
      member = choices_.once_in(generator_.rules_.free_blocks_prepend ? 3 : 32);
    }

    void draw(Domain domain, std::uint32_t& member) {
      member = draw_number(domain);
      if (choices_.once_in(1024)) member = kHuge - choices_.below(2);
    }

    std::uint32_t draw_number(Domain domain) {
      switch (domain) {
        case Domain::kCount:
          return draw_count();
        case Domain::kBlockSize:
          return block_size_;
        case Domain::kGroup:
          return skewed(choices_, 3);
        case Domain::kHashIndex:
          return choices_.below(num_hashes() + (choices_.once_in(32) ? 2 : 0) +
                                (num_hashes() == 0 ? 1 : 0));
        case Domain::kBlockCount:
          return draw_block_count();
        default:
          KVFENCE_CHECK(false, "a number that no generator knows");
      }
    }

    void draw(Domain domain, std::vector<std::uint32_t>& member) {
      switch (domain) {
        case Domain::kTokens:
          draw_tokens(member);
          return;
        case Domain::kGroups:
          draw_groups(member);
          return;
        case Domain::kBlocks:
          draw_blocks(member);
          return;
        default:
          KVFENCE_CHECK(false, "a list that no generator knows");
      }
    }

    void draw(Domain, std::optional<std::vector<bool>>& member) {
      const bool useful = generator_.rules_.cache_full_blocks_mask || choices_.once_in(32);
      if (!useful || !choices_.once_in(3)) return;
      const std::uint32_t length = num_full_ > num_cached_ ? num_full_ - num_cached_ : 0;
      member.emplace(length + (choices_.once_in(32) ? 1 : 0));
      for (std::size_t index = 0; index < member->size(); ++index)
        (*member)[index] = !choices_.once_in(3);
    }

    void draw(Domain, std::vector<MmFeature>& member) {
      if (choices_.once_in(8)) draw_items(choices_, member);
    }

    std::uint32_t draw_count() {
      if (verb_ == DeclareRequest::kVerb) return choices_.below(3);
      const std::uint32_t num_free = now_.num_free_blocks;
      if (choices_.once_in(16)) return num_free + 1 + choices_.below(2);
      if (choices_.once_in(16)) return num_free;
      if (num_free == 0 || choices_.once_in(32)) return 0;
      return 1 + skewed(choices_, std::min<std::uint32_t>(num_free, 4));
    }

    /// Blocks of one of two contents, so that prefixes collide all the time.
    void draw_tokens(std::vector<TokenId>& tokens) {
      const std::uint32_t hash_block_size = generator_.config_.hash_block_size;
      if (verb_ == AppendTokens::kVerb) {
        const TokenId symbol = choices_.below(2);
        const std::uint32_t num_tokens = 1 + choices_.below(hash_block_size * 2);
        generator_.tokens_.append(symbol, num_tokens, choices_, tokens);
        return;
      }
      const std::uint32_t num_blocks = choices_.once_in(8) ? 0 : 1 + choices_.below(4);
      tokens.reserve(std::size_t{num_blocks + 1} * hash_block_size);
      for (std::uint32_t block = 0; block < num_blocks; ++block) {
        const TokenId symbol = choices_.once_in(3) ? 1 : 0;
        generator_.tokens_.append(symbol, hash_block_size, choices_, tokens);
      }
      if (choices_.once_in(4)) tokens.insert(tokens.end(), choices_.below(hash_block_size), 7);
    }

    void draw_groups(std::vector<GroupId>& groups) {
      groups.resize(choices_.once_in(3) ? choices_.below(4) : 1);
      for (GroupId& group : groups) group = skewed(choices_, 3);
    }

    void draw_blocks(std::vector<BlockId>& blocks) {
      const std::vector<BlockId>* preferred = &generator_.held_;
      std::uint32_t length = 1 + skewed(choices_, 4);
      if (verb_ == Touch::kVerb) {
        const bool just_found = now_.hit.has_value() && *now_.hit && !choices_.once_in(4);
        if (just_found) {
          blocks = *now_.blocks;
          return;
        }
        if (!generator_.cached_.empty() && !choices_.once_in(4)) preferred = &generator_.cached_;
      } else if (verb_ == EvictBlocks::kVerb) {
        preferred = &generator_.keyed_;
      } else if (verb_ == CacheFullBlocks::kVerb) {
        preferred = &generator_.bare_;
        length = std::max<std::uint32_t>(num_hashes(), 1);
      }
      // A walk from a random start rather than independent draws: distinct blocks are the rule, as
      // they are in life.
      const auto num_preferred = static_cast<std::uint32_t>(preferred->size());
      std::uint32_t at = num_preferred == 0 ? 0 : choices_.below(num_preferred);
      const bool may_repeat = choices_.once_in(8);
      if (!may_repeat && num_preferred > 0 && verb_ != CacheFullBlocks::kVerb) {
        length = std::min(length, num_preferred);
      }
      const std::uint32_t odd_in = choices_.once_in(4) ? 6 : 64;
      blocks.reserve(length);
      for (std::uint32_t count = 0; count < length; ++count) {
        if (num_preferred == 0 || choices_.once_in(odd_in)) {
          blocks.push_back(draw_odd_block());
        } else if (!may_repeat && count >= num_preferred) {
          blocks.push_back(kNullBlockId);
        } else {
          blocks.push_back((*preferred)[at]);
          if (!may_repeat || !choices_.once_in(3)) at = at + 1 == num_preferred ? 0 : at + 1;
        }
      }
      num_listed_ = length;
      if (verb_ == FreeBlocks::kVerb && choices_.once_in(2)) std::ranges::reverse(blocks);
    }

    /// The null block, any block, or one that there is not.
    BlockId draw_odd_block() {
      const std::uint32_t num_blocks = generator_.config_.num_gpu_blocks;
      if (choices_.once_in(3)) return kNullBlockId;
      if (choices_.once_in(64)) return kHuge;
      return choices_.below(num_blocks + (choices_.once_in(16) ? 1 : 0));
    }

    std::uint32_t draw_block_count() {
      const std::uint32_t bound = std::min(num_listed_, num_hashes());
      if (!num_cached_drawn_) {
        num_cached_drawn_ = true;
        num_cached_ = choices_.once_in(3) ? choices_.below(bound + 1) : 0;
        return num_cached_;
      }
      num_full_ = choices_.once_in(16)
                      ? choices_.below(bound + 3)
                      : num_cached_ + choices_.below(bound - std::min(bound, num_cached_) + 1);
      if (num_full_ < bound && choices_.once_in(2)) num_full_ = bound;
      return num_full_;
    }

    /// Hashes of the drawn request at the drawn block size.
    std::uint32_t num_hashes() const {
      const std::uint32_t hash_block_size = generator_.config_.hash_block_size;
      if (!request_ || block_size_ < hash_block_size) return 0;
      return static_cast<std::uint32_t>(request_->num_hashes() / (block_size_ / hash_block_size));
    }

    Generator& generator_;
    Choices& choices_;
    const Observation& now_;
    const World& world_;
    std::string_view verb_;
    const Request* request_ = nullptr;
    std::uint32_t block_size_ = 0;
    std::uint32_t num_listed_ = 0;
    std::uint32_t num_cached_ = 0;
    std::uint32_t num_full_ = 0;
    bool num_cached_drawn_ = false;
    int drawn_text_ = 0;
  };

  /// Whether that command would find nothing to work on.
  bool is_idle(std::size_t chosen, const Observation& now, const World& world) const {
    const std::string_view verb = kWeights[chosen].verb;
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
  config.num_gpu_blocks = choices.once_in(16) ? 1 + choices.below(3) : 4 + choices.below(9);
  config.enable_caching = !choices.once_in(16);
  config.enable_kv_cache_events = !choices.once_in(3);
  config.hash_block_size = draw_block_size(choices);
  constexpr std::array<std::uint32_t, 4> kFactors = {1, 1, 2, 4};
  const std::uint32_t factor = kFactors[choices.below(kFactors.size())];
  config.max_block_size = factor == 1 ? 0 : config.hash_block_size * factor;
  config.hash_algorithm = choices.once_in(2) ? "sha256_cbor" : "xxhash_cbor";
  config.hash_seed = choices.once_in(8) ? "42" : "0";
  config.profile = choices.once_in(2) ? "v0.23" : "v0.19";
  return config;
}

std::unique_ptr<GeneratorFor<BlockPoolTarget>> make_generator(const Config& config,
                                                              Choices& choices) {
  return std::make_unique<Generator>(config, choices);
}

}  // namespace kvfence::block_pool
