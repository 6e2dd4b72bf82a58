#include "properties/engine/files/ledger.h"

#include <algorithm>

namespace kvfence::engine::files {

// ---- Storage ----

bool StorageBooks::has_file(const std::string& folder, std::uint32_t layer) const {
  const auto found = folders_.find(folder);
  return found != folders_.end() && found->second.contains(layer);
}

bool StorageBooks::save(const std::string& folder, std::uint32_t layer,
                        std::vector<KVSymbol> symbols) {
  if (fails(layer, FileOperation::kMakeFolder)) return false;
  put_folder(folder);
  remove_file(folder, layer);
  if (fails(layer, FileOperation::kCreate)) return false;
  const bool is_whole = !fails(layer, FileOperation::kWrite);
  put_file(folder, layer, std::move(symbols));
  if (!is_whole) truncate_file(folder, layer);
  return is_whole;
}

bool StorageBooks::load(const std::string& folder, std::uint32_t layer,
                        std::span<KVSymbol> symbols) {
  if (fails(layer, FileOperation::kMakeFolder)) return false;
  put_folder(folder);
  if (fails(layer, FileOperation::kOpen) || !has_file(folder, layer)) return false;
  if (fails(layer, FileOperation::kRead)) return false;
  const Content& file = folders_.at(folder).at(layer);
  if (!file.whole || file.symbols.size() != symbols.size()) return false;
  std::copy(file.symbols.begin(), file.symbols.end(), symbols.begin());
  return true;
}

void StorageBooks::put_file(const std::string& folder, std::uint32_t layer,
                            std::vector<KVSymbol> symbols) {
  folders_[folder][layer] = {/*whole=*/true, std::move(symbols)};
}

void StorageBooks::remove_file(const std::string& folder, std::uint32_t layer) {
  folders_.at(folder).erase(layer);
}

void StorageBooks::truncate_file(const std::string& folder, std::uint32_t layer) {
  folders_.at(folder).at(layer) = {/*whole=*/false, {}};
}

std::vector<std::string> StorageBooks::folders() const {
  std::vector<std::string> names;
  for (const auto& [name, files] : folders_) names.push_back(name);
  return names;
}

std::vector<File> StorageBooks::files() const {
  std::vector<File> files;
  for (const auto& [name, folder] : folders_) {
    for (const auto& [layer, content] : folder) {
      files.push_back({name, layer, content.whole, content.symbols});
    }
  }
  return files;
}

// ---- The ranks ----

void Ledger::start_engine() {
  kv_cache_.emplace(/*first_layer=*/0, spec_.num_all_layers(), spec_.kv_cache.pool.num_gpu_blocks,
                    spec_.block_size());
}

Outcome Ledger::run(const PlannedStep& step) {
  Outcome outcome;
  for (std::uint32_t rank = 0; rank < spec_.num_workers; ++rank) {
    const std::uint32_t first_layer = rank * spec_.num_layers;
    if (!load(step, first_layer, outcome)) return outcome;
    fill(step, first_layer, outcome);
    if (step.runs.empty()) continue;
    for (std::uint32_t i = 0; i < spec_.num_layers; ++i) {
      for (const Run& run : step.runs) compute(run, first_layer + i, outcome);
      if (!save(step, first_layer + i, outcome)) return outcome;
    }
  }
  return outcome;
}

bool Ledger::load(const PlannedStep& step, std::uint32_t first_layer, Outcome& outcome) {
  for (const Transfer& transfer : step.transfers) {
    if (transfer.store) continue;
    for (std::uint32_t layer = first_layer; layer < first_layer + spec_.num_layers; ++layer) {
      std::vector<KVSymbol> symbols(transfer.blocks.size() * spec_.block_size());
      if (!storage_.load(transfer.folder, layer, symbols)) {
        outcome.failed.push_back({transfer.request, /*store=*/false, layer, transfer.folder});
        return false;
      }
      for (std::size_t token = 0; token < symbols.size(); ++token) {
        slot(layer, transfer.blocks, token) = symbols[token];
      }
      outcome.loaded.push_back(
          {transfer.request, layer, transfer.folder, transfer.blocks, std::move(symbols)});
    }
  }
  return true;
}

void Ledger::fill(const PlannedStep& step, std::uint32_t first_layer, Outcome& outcome) {
  for (const Fill& fill : step.fills) {
    const std::vector<BlockId>& blocks = fill.blocks.front();
    for (std::uint32_t layer = first_layer; layer < first_layer + spec_.num_layers; ++layer) {
      for (std::size_t token = 0; token < blocks.size() * spec_.block_size(); ++token) {
        slot(layer, blocks, token) = kFilledWithDummies;
      }
      outcome.filled.push_back({fill.request, layer, blocks});
    }
  }
}

void Ledger::compute(const Run& run, std::uint32_t layer, Outcome& outcome) {
  if (spec_.kind == SynchronousConnectorKind::kExample && !outcome.wrong_read) {
    KVSymbol expected = symbol_before(layer);
    for (std::uint32_t token = 0; token < run.begin && !outcome.wrong_read; ++token) {
      expected = symbol_behind(expected, run.tokens[token]);
      const KVSymbol actual = slot(layer, run.table.front(), token);
      if (actual != expected) outcome.wrong_read = {run.request, layer, token, expected, actual};
    }
  }
  const std::span<const TokenId> own = std::span(run.tokens).subspan(run.begin);
  for (const std::vector<BlockId>& blocks : run.table) {
    kv_cache_->compute(layer, blocks, run.begin, own);
  }
}

bool Ledger::save(const PlannedStep& step, std::uint32_t layer, Outcome& outcome) {
  for (const Transfer& transfer : step.transfers) {
    if (!transfer.store) continue;
    std::vector<KVSymbol> symbols(transfer.blocks.size() * spec_.block_size());
    for (std::size_t token = 0; token < symbols.size(); ++token) {
      symbols[token] = slot(layer, transfer.blocks, token);
    }
    if (!storage_.save(transfer.folder, layer, symbols)) {
      outcome.failed.push_back({transfer.request, /*store=*/true, layer, transfer.folder});
      return false;
    }
    outcome.saved.push_back(
        {transfer.request, layer, transfer.folder, transfer.blocks, std::move(symbols)});
  }
  return true;
}

kv_cache::BlockLists Ledger::symbols() const {
  kv_cache::BlockLists lists;
  for (std::uint32_t layer = 0; layer < spec_.num_all_layers(); ++layer) {
    const std::span<const KVSymbol> held = std::as_const(*kv_cache_).layer(layer);
    lists.emplace_back(held.begin(), held.end());
  }
  return lists;
}

}  // namespace kvfence::engine::files
