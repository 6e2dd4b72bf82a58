#include "properties/kv_cache/kv_content.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "properties/core/left_out.h"
#include "properties/kv_cache/arithmetic.h"

namespace kvfence {
namespace {

std::uint64_t mixed(std::uint64_t before, std::uint64_t next) {
  std::uint64_t state = before ^ (next + 0x9E37'79B9'7F4A'7C15 + (before << 6) + (before >> 2));
  state = (state ^ (state >> 30)) * 0xBF58'476D'1CE4'E5B9;
  return (state ^ (state >> 27)) | 1;
}

/// Whether the content is KV of that sequence from `begin` to at least `end`.
bool is_content_of(const Content& content, const Prefixes& prefixes, GroupId group,
                   std::uint32_t begin, std::uint32_t end) {
  if (content == kAnything) return true;
  return content.id != 0 && content.group == group && content.begin == begin &&
         content.end >= end && content.end <= prefixes.num_tokens() &&
         content.id == prefixes.id(content.end);
}

const LeftOut kServedVictims(LeftOut::By::kRule,
                             "rules of content and order: victims that a step has served",
                             "under priority upstream takes such a victim out of the step but not "
                             "its blocks out of the cache, and zeroes blocks that no request has; "
                             "both are faults of the scheduler, not of a connector",
                             "engine/simple/left_out/a_victim_that_the_step_has_served.kvs");

}  // namespace

std::string to_text(const Content& content) {
  if (content.id == 0) return "nothing";
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text = "tokens " + std::to_string(content.begin) + " to " +
                     std::to_string(content.end) + " in group " + std::to_string(content.group) +
                     ", of sequence ";
  for (int shift = 28; shift >= 0; shift -= 4) text += kDigits[(content.id >> shift) & 15];
  return text;
}

Prefixes::Prefixes(const RequestSpec& spec) {
  std::string text = spec.lora ? "lora " + spec.lora->name + '\n' : "";
  text += spec.cache_salt.value_or("");
  std::uint64_t id = 1;
  for (char each : text) id = mixed(id, static_cast<std::uint8_t>(each));
  ids_.push_back(id);
}

void Prefixes::append(TokenId token) { ids_.push_back(mixed(ids_.back(), token)); }

std::vector<Filled> filled_by(const Run& run, const Prefixes& prefixes,
                              const std::vector<KVCacheSpec>& groups,
                              const std::vector<Content>& blocks) {
  std::vector<Filled> filled;
  for (GroupId group = 0; group < groups.size(); ++group) {
    const std::uint32_t size = groups[group].block_size;
    // A state moves on from the block of the token before to that of the last one.
    const bool is_align = kv_cache::is_mamba_align(groups[group]) && !run.has_drafts;
    const std::uint32_t from = run.begin > 0 ? (run.begin - 1) / size : 0;
    const std::uint32_t first = is_align ? (run.end - 1) / size : run.begin / size;
    for (std::uint32_t place = first; place * size < run.end; ++place) {
      if (place >= run.table[group].size()) break;
      const BlockId block = run.table[group][place];
      if (block == kNullBlockId) continue;
      const std::uint32_t begin = place * size;
      const std::uint32_t end = std::min(begin + size, run.end);
      const bool is_known = end <= prefixes.num_tokens();
      Content content = is_known ? Content{prefixes.id(end), begin, end, group} : Content{};
      if (begin < run.begin || size == 1) {
        const Content& before = blocks[block];
        const bool is_own =
            is_content_of(before, prefixes, group, begin, std::max(begin + 1, run.begin));
        // The last token of a prompt that was completely found is computed again.
        if (is_own && before.end >= end) continue;
        if (!is_own && begin < run.begin) content = {};
      } else if (is_align && run.begin > 0) {
        const Content& before = blocks[run.table[group][from]];
        if (!is_content_of(before, prefixes, group, from * size, run.begin)) content = {};
      }
      filled.push_back({block, group, content});
    }
  }
  return filled;
}

std::optional<WrongRead> wrong_read(const Run& run, const Prefixes& prefixes,
                                    const std::vector<KVCacheSpec>& groups,
                                    const std::vector<Content>& blocks) {
  for (GroupId group = 0; group < groups.size(); ++group) {
    const KVCacheSpec& spec = groups[group];
    const std::uint32_t size = spec.block_size;
    // The first token that the first computed one attends to; a Mamba state stands for all.
    std::uint32_t first = 0;
    if (spec.kind == KVCacheSpecKind::kSlidingWindow) {
      first = run.begin + 1 - std::min(run.begin + 1, spec.sliding_window);
    } else if (kv_cache::is_mamba_align(spec)) {
      first = run.end - 1;  // filled_by has followed the state there
    } else if (spec.kind == KVCacheSpecKind::kMamba) {
      first = run.begin > 0 ? run.begin - 1 : 0;
    }
    for (std::uint32_t place = first / size; place * size < run.end; ++place) {
      const BlockId block =
          place < run.table[group].size() ? run.table[group][place] : kNullBlockId;
      const std::uint32_t begin = place * size;
      const Content& content = blocks[block];
      const std::uint32_t end = std::min(begin + size, run.end);
      const bool is_own = is_content_of(content, prefixes, group, begin, end);
      if (is_own && block != kNullBlockId) continue;
      return WrongRead{block, {prefixes.id(end), begin, end, group}, content};
    }
  }
  return std::nullopt;
}

void forgive_victims(const std::vector<PreemptedTable>& victims, const std::vector<BlockId>& lost,
                     const Sequences& sequences, const std::vector<KVCacheSpec>& groups,
                     std::vector<Content>& blocks) {
  if (kServedVictims(!lost.empty())) {
    for (BlockId block : lost) blocks[block] = kAnything;
  }
  for (const auto& [request, table] : victims) {
    const auto found = sequences.find(request);
    if (found == sequences.end()) continue;
    const Prefixes& prefixes = found->second;
    for (GroupId group = 0; group < table.size(); ++group) {
      const std::uint32_t size = groups[group].block_size;
      for (std::uint32_t place = 0; place < table[group].size(); ++place) {
        const BlockId block = table[group][place];
        if (block == kNullBlockId) continue;
        const std::uint32_t begin = place * size;
        const bool is_own = is_content_of(blocks[block], prefixes, group, begin, begin + size);
        if (!is_own) blocks[block] = kAnything;
      }
    }
  }
}

}  // namespace kvfence
