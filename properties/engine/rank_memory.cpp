#include "properties/engine/rank_memory.h"

#include <algorithm>
#include <set>

#include "contract/core/lists.h"
#include "properties/core/broken_rule.h"
#include "properties/core/invariant_values.h"
#include "properties/core/left_out.h"
#include "properties/engine/shown_requests.h"
#include "properties/kv_cache/arithmetic.h"

namespace kvfence::engine {
namespace {

const LeftOut kOptimisticWindow(
    LeftOut::By::kRule,
    "rules of content: a window, or a state, after drafts that are planned ahead",
    "upstream gives a window's blocks back as if the drafts in flight were accepted, and the step "
    "after a rejected one reads them (fixed in 0.33.0)",
    "engine/offloading/left_out/a_window_after_rejected_drafts.kvs");

const LeftOut kDraftedState(
    LeftOut::By::kRule, "rules of content: a state of Mamba in align mode, with drafts",
    "where the state is depends on the drafts that are accepted; and under eagle upstream cuts the "
    "last chunks of a prefill within a block, and caches that block with the state before the cut",
    "engine/offloading/left_out/a_state_cut_within_a_block.kvs");

/// `GPU block 3 on rank 0`
std::string on_rank(std::size_t rank, std::string_view what, std::uint64_t number) {
  return std::string(what) + " " + std::to_string(number) + " on rank " + std::to_string(rank);
}

void add_blocks(const BlocksByGroup& table, std::set<BlockId>& all) {
  for (const std::vector<BlockId>& blocks : table) all.insert(blocks.begin(), blocks.end());
}

/// Blocks that a step zeroes and that are in none of its tables.
std::vector<BlockId> new_blocks_of_nobody(const SchedulerObservation& shown) {
  std::set<BlockId> named;
  for (const ScheduledNew& each : *shown.new_reqs) add_blocks(each.blocks, named);
  for (const ScheduledCached& each : *shown.cached_reqs) add_blocks(each.blocks.or_empty(), named);
  std::vector<BlockId> blocks = *shown.new_block_ids;
  std::erase_if(blocks, [&](BlockId block) { return named.contains(block); });
  return blocks;
}

}  // namespace

std::string PlannedCopy::name() const {
  const std::string text = (is_store ? "store " : "load ") + std::to_string(job);
  return request.empty() ? text : text + " of " + request;
}

void take_in_step(const SchedulerObservation& shown, const SchedulerConfig& config,
                  WorkerTables& tables, StepOnBlocks& step) {
  for (const ScheduledNew& each : *shown.new_reqs) tables[each.request] = each.blocks;
  for (const ScheduledCached& each : *shown.cached_reqs) {
    BlocksByGroup& table = tables[each.request];
    if (each.resumed) table.clear();
    table.resize(config.kv_cache.groups.size());
    for (std::size_t group = 0; each.blocks.has_value() && group < table.size(); ++group) {
      const std::vector<BlockId>& blocks = (*each.blocks)[group];
      table[group].insert(table[group].end(), blocks.begin(), blocks.end());
    }
  }
  for (const ScheduledRequest& each : *shown.scheduled) {
    const auto begin = num_computed_before(*shown.new_reqs, *shown.cached_reqs, each.request);
    if (!begin) continue;
    step.runs.push_back(
        {.request = each.request,
         .begin = *begin,
         .end = *begin + each.num_tokens,
         .table = tables.at(each.request),
         .has_drafts = config.num_speculative_tokens > 0,
         .has_drafts_ahead = config.async_scheduling && config.num_speculative_tokens > 0});
  }
  step.zeroed = *shown.new_block_ids;
  if (config.policy != SchedulingPolicy::kPriority) return;
  for (const std::string& name : *shown.preempted) {
    step.victims.push_back({name, tables[name]});
  }
}

void settle(std::vector<Run>& runs, const SchedulerConfig& config, const Sequences& sequences,
            const std::vector<RequestOutput>& outputs) {
  if (config.num_speculative_tokens == 0) return;
  for (Run& run : runs) {
    const auto said = std::ranges::find(outputs, run.request, &RequestOutput::request);
    const auto num_new =
        said == outputs.end() ? 0 : static_cast<std::uint32_t>(said->tokens.size());
    const std::uint32_t num_tokens = sequences.at(run.request).num_tokens();
    const std::uint32_t last_before = num_tokens - num_new - 1;
    if (run.begin > last_before) {
      run.end -= run.begin - last_before;
      run.begin = last_before;
    }
    run.end = std::min(run.end, num_new > 0 ? num_tokens - 1 : num_tokens);
  }
}

std::vector<BlockId> blocks_of_nobody(const SchedulerObservation& shown,
                                      std::uint32_t num_gpu_blocks) {
  std::set<BlockId> had;
  for (const auto& table : shown.tables.or_empty()) add_blocks(table.blocks, had);
  std::vector<BlockId> blocks;
  for (BlockId block = 1; block < num_gpu_blocks; ++block) {
    if (!had.contains(block)) blocks.push_back(block);
  }
  return blocks;
}

std::vector<BlockId> lost_blocks(const SchedulerObservation& shown,
                                 const KVCacheManagerConfig& config,
                                 const std::vector<BlockId>& given) {
  const bool is_full_attention =
      std::ranges::all_of(config.groups, &KVCacheSpec::is_full_attention);
  std::vector<BlockId> lost = is_full_attention
                                  ? new_blocks_of_nobody(shown)
                                  : blocks_of_nobody(shown, config.pool.num_gpu_blocks);
  std::erase_if(lost, [&](BlockId block) { return contains(given, block); });
  return lost;
}

bool passes_over(const Run& run, const KVCacheSpec& group) {
  return kOptimisticWindow(run.has_drafts_ahead && !group.is_full_attention()) ||
         kDraftedState(run.has_drafts && kv_cache::is_mamba_align(group));
}

RankMemory::RankMemory(const Words& words, const KVCacheManagerConfig& config,
                       std::uint32_t num_ranks, std::uint32_t num_places,
                       std::uint32_t num_sub_blocks)
    : ranks_(num_ranks), num_sub_blocks_(num_sub_blocks), words_(words), groups_(config.groups) {
  for (Rank& rank : ranks_) {
    rank.blocks.resize(config.pool.num_gpu_blocks);
    rank.places.resize(std::size_t{num_places} * num_sub_blocks);
  }
}

void RankMemory::zero(std::size_t rank, const StepOnBlocks& step, const Sequences& sequences) {
  for (BlockId block : step.zeroed) {
    if (contains(step.lost, block)) continue;
    overwrite(rank, block, "zeroed for another request", {});
  }
  forgive_victims(step.victims, step.lost, sequences, groups_, ranks_[rank].blocks);
}

void RankMemory::compute(std::size_t rank, const StepOnBlocks& step, const Sequences& sequences) {
  const std::vector<Content>& blocks = ranks_[rank].blocks;
  for (const Run& run : step.runs) {
    for (const Filled& filled : filled_by(run, sequences.at(run.request), groups_, blocks)) {
      if (!passes_over(run, groups_[filled.group])) {
        overwrite(rank, filled.block, run.request, filled.content);
      } else if (!copy_over(rank, filled.block)) {
        ranks_[rank].blocks[filled.block] = kAnything;
      }
    }
  }
  for (const Run& run : step.runs) {
    const Prefixes& prefixes = sequences.at(run.request);
    if (run.end > prefixes.num_tokens()) continue;
    const auto wrong = wrong_read(run, prefixes, groups_, blocks);
    if (wrong && !passes_over(run, groups_[wrong->expected.group])) {
      broken_rule(*words_.a_step_reads_its_own, on_rank(rank, words_.block, wrong->block),
                  to_text(wrong->expected) + ", for " + run.request, to_text(wrong->actual));
    }
  }
}

void RankMemory::submit(std::size_t rank, const PlannedCopy& copy) {
  for (const CopyPart& part : copy.parts) {
    check_place_is_free(rank, copy, part.place);
    check_source(rank, copy, part);
  }
  // What it writes is nobody's content until it ends.
  for (const CopyPart& part : copy.parts) {
    if (copy.is_store) {
      std::fill_n(ranks_[rank].places.begin() + std::ptrdiff_t{part.place} * num_sub_blocks_,
                  num_sub_blocks_, Content{});
    } else {
      overwrite(rank, part.block, copy.name(), {});
    }
  }
  ranks_[rank].copies.push_back(copy);
}

void RankMemory::check_place_is_free(std::size_t rank, const PlannedCopy& copy,
                                     std::uint32_t place) const {
  for (std::size_t each = 0; each < ranks_.size(); ++each) {
    for (const PlannedCopy& other : ranks_[each].copies) {
      const bool both_read = !copy.is_store && !other.is_store;
      if (both_read || !other.is_under_way() || may_overlap(copy, other, each != rank)) continue;
      if (!contains(other.parts, place, &CopyPart::place)) continue;
      broken_rule(
          *(copy.is_store ? words_.a_place_has_one_writer : words_.a_load_reads_what_is_complete),
          on_rank(each, words_.place, place), "no other copy under way",
          other.name() + ", under " + copy.name());
    }
  }
}

/// A slower rank may still have older copies.
bool RankMemory::may_overlap(const PlannedCopy& copy, const PlannedCopy& other,
                             bool is_elsewhere) const {
  if (words_.shares_places) return other.serial == copy.serial;
  return is_elsewhere && (copy.is_store || other.serial == copy.serial);
}

void RankMemory::check_source(std::size_t rank, const PlannedCopy& copy,
                              const CopyPart& part) const {
  const Content& source =
      copy.is_store ? ranks_[rank].blocks[part.block] : place(rank, part.place, part.sub_block);
  if (!part.content || passes_for(source, *part.content)) return;
  broken_rule(*words_.copies_are_as_planned,
              copy.is_store ? on_rank(rank, words_.block, part.block)
                            : on_rank(rank, words_.place, part.place),
              to_text(*part.content), to_text(source) + ", under " + copy.name());
}

void RankMemory::end(Rank& rank, PlannedCopy& copy, bool success) {
  copy.progress = success ? TransferProgress::kFinished : TransferProgress::kFailed;
  for (const CopyPart& part : copy.parts) {
    Content& place = rank.places[part.place * num_sub_blocks_ + part.sub_block];
    Content& block = rank.blocks[part.block];
    Content& target = copy.is_store ? place : block;
    target = !success ? Content{} : copy.is_store ? block : place;
  }
}

const PlannedCopy* RankMemory::copy_over(std::size_t rank, BlockId block) const {
  for (const PlannedCopy& copy : ranks_[rank].copies) {
    if (copy.is_under_way() && contains(copy.parts, block, &CopyPart::block)) return &copy;
  }
  return nullptr;
}

void RankMemory::overwrite(std::size_t rank, BlockId block, const std::string& who,
                           const Content& content) {
  if (const PlannedCopy* const copy = copy_over(rank, block)) {
    broken_rule(*words_.no_reuse_under_a_copy, on_rank(rank, words_.block, block),
                "left alone by all but " + copy->name(), "written by " + who);
  }
  ranks_[rank].blocks[block] = content;
}

}  // namespace kvfence::engine
