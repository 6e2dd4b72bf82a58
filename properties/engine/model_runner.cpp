#include "properties/engine/model_runner.h"

#include <span>
#include <utility>

#include "contract/core/check.h"

namespace kvfence {
namespace {

std::uint32_t num_computed_of(const PlannedStep& step, const std::string& request) {
  for (const engine::ScheduledNew& entry : step.new_reqs) {
    if (entry.request == request) return entry.num_computed_tokens;
  }
  for (const engine::ScheduledCached& entry : step.cached_reqs) {
    if (entry.request == request) return entry.num_computed_tokens;
  }
  KVFENCE_CHECK(false, "a scheduled request is new or cached");
}

}  // namespace

void ModelRunner::reset(const EngineSetup& setup) {
  windows_ = setup.windows;
  block_sizes_.clear();
  for (const KVCacheSpec& group : setup.scheduler().kv_cache.groups) {
    block_sizes_.push_back(group.block_size);
  }
  sequences_.clear();
}

void ModelRunner::add(const std::string& request, const RequestSpec& spec) {
  sequences_[request] = {spec.cache_salt, std::make_shared<std::vector<TokenId>>(spec.tokens),
                         std::make_shared<const BlocksByGroup>(windows_.size())};
}

void ModelRunner::take_in_blocks(const PlannedStep& step) {
  for (const std::string& name : step.finished) sequences_.erase(name);
  for (const engine::ScheduledNew& entry : step.new_reqs) {
    const auto sequence = sequences_.find(entry.request);
    if (sequence == sequences_.end()) continue;
    sequence->second.blocks = std::make_shared<const BlocksByGroup>(entry.blocks);
  }
  for (const engine::ScheduledCached& entry : step.cached_reqs) {
    const auto sequence = sequences_.find(entry.request);
    if (sequence == sequences_.end() || !(entry.resumed || entry.blocks.has_value())) continue;
    BlocksByGroup table(windows_.size());
    if (!entry.resumed) table = *sequence->second.blocks;
    for (std::size_t group = 0; group < table.size() && entry.blocks.has_value(); ++group) {
      const std::vector<BlockId>& added = (*entry.blocks)[group];
      table[group].insert(table[group].end(), added.begin(), added.end());
    }
    sequence->second.blocks = std::make_shared<const BlocksByGroup>(std::move(table));
  }
}

engine::Place ModelRunner::place_of(const Sequence& sequence, std::size_t group,
                                    std::uint32_t position) const {
  const std::uint32_t block_size = block_sizes_[group];
  const std::vector<BlockId>& blocks = (*sequence.blocks)[group];
  KVFENCE_CHECK(position / block_size < blocks.size(), "a token without a block");
  return {blocks[position / block_size], position % block_size};
}

/// The first position that the tokens of a part read in a group.
std::uint32_t ModelRunner::first_read_of(const Part& part, std::size_t group) const {
  return toy_model::first_read(part.first, windows_[group]);
}

void ModelRunner::enqueue_forward(const PlannedStep& step, std::shared_ptr<Sampled> sampled,
                                  engine::EngineDevice& device) {
  const auto parts = std::make_shared<std::vector<Part>>();
  parts->reserve(step.scheduled.size());
  reads_.clear();
  writes_.clear();
  for (const engine::ScheduledRequest& entry : step.scheduled) {
    const auto sequence = sequences_.find(entry.request);
    KVFENCE_CHECK(sequence != sequences_.end(), "a step with a request that was told as over");
    const std::uint32_t first = num_computed_of(step, entry.request);
    const Part& part =
        parts->emplace_back(Part{sequence->second, first, first + entry.num_tokens, entry.samples});
    for (std::size_t group = 0; group < windows_.size(); ++group) {
      for (std::uint32_t at = first_read_of(part, group); at < part.end; ++at) {
        const engine::Place place = place_of(part.sequence, group, at);
        reads_.push_back(place);
        if (at >= first) writes_.push_back(place);
      }
    }
  }
  device.forward(reads_, writes_,
                 [this, parts, sampled = std::move(sampled)](engine::KVCells& cells) {
                   run_forward(*parts, cells, *sampled);
                 });
}

/// All parts write before one reads: a request may find what another computes in the same step.
void ModelRunner::run_forward(const std::vector<Part>& parts, engine::KVCells& cells,
                              Sampled& sampled) {
  if (symbols_.size() < parts.size()) symbols_.resize(parts.size());
  for (std::size_t index = 0; index < parts.size(); ++index) {
    const Part& part = parts[index];
    const std::vector<TokenId>& tokens = *part.sequence.tokens;
    KVFENCE_CHECK(tokens.size() >= part.end, "a forward with tokens that nobody knows");
    toy_model::symbols_of(part.sequence.cache_salt, std::span(tokens).first(part.end),
                          symbols_[index]);
    write(part, symbols_[index], /*wrong=*/0, cells);
  }
  sampled.tokens.resize(parts.size());
  for (std::size_t index = 0; index < parts.size(); ++index) {
    const Part& part = parts[index];
    const TokenId token = attend(part, symbols_[index], cells);
    if (!part.samples) continue;
    sampled.tokens[index] = token;
    // What a preempted request sampled before is known; it comes out once more.
    std::vector<TokenId>& tokens = *part.sequence.tokens;
    if (tokens.size() == part.end) tokens.push_back(token);
  }
  sampled.is_there = true;
}

/// symbols: of the tokens up to the part's end. wrong: 0, or how what was read differs.
void ModelRunner::write(const Part& part, const std::vector<engine::Symbol>& symbols,
                        engine::Symbol wrong, engine::KVCells& cells) const {
  for (std::size_t group = 0; group < windows_.size(); ++group) {
    for (std::uint32_t at = part.first; at < part.end; ++at) {
      cells.write(place_of(part.sequence, group, at),
                  toy_model::symbol_of_group(symbols[at], group) ^ wrong);
    }
  }
}

/// What comes of the last token. If anything that the part's tokens attend to is not what it
/// should be, all of them are written anew, wrong as well.
TokenId ModelRunner::attend(const Part& part, const std::vector<engine::Symbol>& symbols,
                            engine::KVCells& cells) {
  read_.clear();
  engine::Symbol wrong = 0;
  for (std::size_t group = 0; group < windows_.size(); ++group) {
    const std::uint32_t last = toy_model::first_read(part.end - 1, windows_[group]);
    for (std::uint32_t at = first_read_of(part, group); at < part.end; ++at) {
      const engine::Symbol symbol = cells.read(place_of(part.sequence, group, at));
      wrong |= symbol ^ toy_model::symbol_of_group(symbols[at], group);
      if (at >= last) read_.push_back(symbol);
    }
  }
  if (wrong != 0) {
    write(part, symbols, wrong, cells);
    read_.push_back(wrong);
  }
  return toy_model::sample(read_);
}

void ModelRunner::wait_for_forward(const PlannedStep& step, std::vector<EngineRank>& ranks) {
  for (std::size_t rank = 0; rank < step.sampled.size(); ++rank) {
    while (!step.sampled[rank]->is_there) {
      KVFENCE_CHECK(ranks[rank].device->advance(worker::Stream::kCompute),
                    "a forward that is not enqueued");
    }
    ranks[rank].device->know_forward();
  }
}

}  // namespace kvfence
