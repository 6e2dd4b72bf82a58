#include "properties/engine/model_runner.h"

#include <algorithm>
#include <span>
#include <utility>

#include "contract/core/check.h"
#include "properties/engine/engines.h"
#include "properties/engine/shown_requests.h"

namespace kvfence {

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
                         std::make_shared<const BlocksByGroup>(windows_.size()),
                         std::make_shared<Computed>()};
}

void ModelRunner::take_in_blocks(const PlannedStep& step) {
  for (const std::string& name : step.finished) sequences_.erase(name);
  const auto begin_anew = [](Sequence& sequence, std::uint32_t num_computed_tokens) {
    sequence.computed = std::make_shared<Computed>(Computed{.num_tokens = num_computed_tokens});
  };
  for (const engine::ScheduledNew& entry : step.new_reqs) {
    const auto sequence = sequences_.find(entry.request);
    if (sequence == sequences_.end()) continue;
    sequence->second.blocks = std::make_shared<const BlocksByGroup>(entry.blocks);
    begin_anew(sequence->second, entry.num_computed_tokens);
  }
  for (const engine::ScheduledCached& entry : step.cached_reqs) {
    const auto sequence = sequences_.find(entry.request);
    if (sequence == sequences_.end() || !(entry.resumed || entry.blocks.has_value())) continue;
    BlocksByGroup table(windows_.size());
    if (entry.resumed) {
      begin_anew(sequence->second, entry.num_computed_tokens);
    } else {
      table = *sequence->second.blocks;
    }
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

/// Adds the places that the part may read and write, for each position where it may begin.
void ModelRunner::add_places(const Part& part) {
  const Computed& computed = *part.sequence.computed;
  const std::uint32_t first = std::min(part.first, computed.num_tokens + computed.num_pending);
  for (std::size_t group = 0; group < windows_.size(); ++group) {
    const std::uint32_t end = part.first + part.num_tokens;
    for (std::uint32_t at = toy_model::first_read(first, windows_[group]); at < end; ++at) {
      const engine::Place place = place_of(part.sequence, group, at);
      reads_.push_back(place);
      if (at >= first) writes_.push_back(place);
    }
  }
}

void ModelRunner::enqueue_forward(const PlannedStep& step, std::shared_ptr<Sampled> sampled,
                                  engine::EngineDevice& device) {
  const auto parts = std::make_shared<std::vector<Part>>();
  parts->reserve(step.scheduled.size());
  reads_.clear();
  writes_.clear();
  for (const engine::ScheduledRequest& entry : step.scheduled) {
    const auto sequence = sequences_.find(entry.request);
    KVFENCE_CHECK(sequence != sequences_.end(), "a step with a request that was reported as over");
    const auto first = engine::num_computed_before(step.new_reqs, step.cached_reqs, entry.request);
    KVFENCE_CHECK(first, "a scheduled request is new or cached");
    const Part& part = parts->emplace_back(
        Part{sequence->second, *first, entry.num_tokens, entry.spec_tokens, entry.samples});
    add_places(part);
    part.sequence.computed->num_pending += part.num_known();
  }
  device.forward(reads_, writes_,
                 [this, parts, sampled = std::move(sampled)](engine::KVCells& cells) {
                   run_forward(*parts, cells, *sampled);
                 });
}

/// All parts write before one reads: a request may find what another computes in the same step.
void ModelRunner::run_forward(const std::vector<Part>& parts, engine::KVCells& cells,
                              Sampled& sampled) {
  if (runs_.size() < parts.size()) runs_.resize(parts.size());
  for (std::size_t index = 0; index < parts.size(); ++index) {
    begin(parts[index], runs_[index]);
    write(parts[index], runs_[index], /*wrong=*/0, cells);
  }
  sampled.tokens.clear();
  for (std::size_t index = 0; index < parts.size(); ++index) {
    attend(parts[index], runs_[index], cells, sampled);
    sampled.tokens.end_list();
  }
  sampled.is_there = true;
}

/// It begins before the planned position if drafts that the plan counts on were rejected.
void ModelRunner::begin(const Part& part, Run& run) const {
  run.first = std::min(part.first, part.sequence.computed->num_tokens);
  run.first_draft = run.first + part.num_known();
  run.end = run.first + part.num_tokens;
  const std::vector<TokenId>& tokens = *part.sequence.tokens;
  KVFENCE_CHECK(tokens.size() >= run.first_draft, "a forward with unknown tokens");
  toy_model::symbols_of(part.sequence.cache_salt, std::span(tokens).first(run.first_draft),
                        run.symbols);
  run.drafts = part.drafts;
  for (TokenId& draft : run.drafts) {
    if (draft == kPlaceholderTokenId) draft = toy_model::draft_after(run.symbols, windows_);
    run.symbols.push_back(toy_model::next_symbol(run.symbols.back(), draft));
  }
}

/// wrong: 0, or how what was read differs.
void ModelRunner::write(const Part& part, const Run& run, engine::Symbol wrong,
                        engine::KVCells& cells) const {
  for (std::size_t group = 0; group < windows_.size(); ++group) {
    for (std::uint32_t at = run.first; at < run.end; ++at) {
      cells.write(place_of(part.sequence, group, at),
                  toy_model::symbol_of_group(run.symbols[at], group) ^ wrong);
    }
  }
}

/// Samples after the last known token, and after each draft up to the first that is not the sampled
/// token. If the part's tokens attend to any wrong content, all of them are rewritten with wrong
/// content.
void ModelRunner::attend(const Part& part, Run& run, engine::KVCells& cells, Sampled& sampled) {
  const engine::Symbol wrong = read(part, run, cells);
  if (wrong != 0) write(part, run, wrong, cells);
  std::uint32_t num_said = 0;
  std::vector<TokenId>& tokens = *part.sequence.tokens;
  for (bool goes_on = part.samples; goes_on;) {
    const TokenId token = sample(run, run.first_draft - 1 + num_said, wrong);
    sampled.tokens.push_back(token);
    // A preempted request samples the tokens again that it had sampled before.
    if (tokens.size() == run.first_draft + num_said) tokens.push_back(token);
    goes_on = num_said < run.drafts.size() && run.drafts[num_said] == token;
    ++num_said;
  }
  Computed& computed = *part.sequence.computed;
  computed.num_pending -= part.num_known();
  computed.num_tokens = part.samples ? run.first_draft - 1 + num_said : run.end;
}

/// The difference between what the part's tokens attend to and what it should be; 0: none.
engine::Symbol ModelRunner::read(const Part& part, Run& run, const engine::KVCells& cells) const {
  engine::Symbol wrong = 0;
  run.read.resize(windows_.size());
  for (std::size_t group = 0; group < windows_.size(); ++group) {
    run.read[group].clear();
    for (std::uint32_t at = toy_model::first_read(run.first, windows_[group]); at < run.end; ++at) {
      const engine::Symbol symbol = cells.read(place_of(part.sequence, group, at));
      wrong |= symbol ^ toy_model::symbol_of_group(run.symbols[at], group);
      run.read[group].push_back(symbol);
    }
  }
  return wrong;
}

TokenId ModelRunner::sample(const Run& run, std::uint32_t position, engine::Symbol wrong) {
  read_.clear();
  for (std::size_t group = 0; group < windows_.size(); ++group) {
    const auto read = run.read[group].begin() - toy_model::first_read(run.first, windows_[group]);
    read_.insert(read_.end(), read + toy_model::first_read(position, windows_[group]),
                 read + position + 1);
  }
  if (wrong != 0) read_.push_back(wrong);
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
