#include "properties/engine/files/facet.h"

#include <cstddef>
#include <span>
#include <utility>

namespace kvfence::engine::files {
namespace {

ErrorCode error_unless(bool was_there) {
  return was_there ? ErrorCode::kNone : ErrorCode::kUnknownKey;
}

void observe_files(const std::vector<SynchronousWorkerReport::File>& reported,
                   const Facet::NameOf& name_of, std::vector<FileCopy>& files) {
  files.resize(reported.size());
  for (std::size_t k = 0; k < files.size(); ++k) {
    files[k].request = name_of(reported[k].request);
    files[k].layer = reported[k].layer;
    files[k].folder = reported[k].folder;
    files[k].blocks = reported[k].blocks;
    files[k].symbols = reported[k].symbols;
  }
}

}  // namespace

bool Facet::start(const SynchronousConnectorSpec& spec, std::unique_ptr<StorageWorld> storage) {
  spec_ = spec;
  storage_ = std::move(storage);
  num_engine_starts_ = 0;
  report_.clear();
  return storage_ != nullptr;
}

void Facet::compute(const std::vector<Computed>& computed, std::uint32_t layer,
                    ScriptedKVCache& kv_cache) {
  for (const Computed& each : computed) {
    for (const std::vector<BlockId>& group : each.table) {
      kv_cache.compute(layer, group, each.first_token, each.tokens);
    }
  }
}

// ---- Commands ----

ErrorCode Facet::run(const WriteEntry& command) {
  if (!keeps_files() || command.num_files > spec_.num_all_layers()) return ErrorCode::kNotInConfig;
  if (command.tokens.size() % spec_.block_size() != 0) return ErrorCode::kBadRange;
  const std::string folder = folder_name(command.tokens);
  storage_->make_folder(folder);
  for (std::uint32_t layer = 0; layer < command.num_files; ++layer) {
    std::vector<KVSymbol> symbols;
    for (std::size_t end = 1; end <= command.tokens.size(); ++end) {
      symbols.push_back(symbol_of(layer, std::span(command.tokens).first(end)));
    }
    storage_->put_file(folder, layer, symbols);
  }
  return ErrorCode::kNone;
}

ErrorCode Facet::run(const RemoveEntry& command) {
  if (!keeps_files()) return ErrorCode::kNotInConfig;
  return error_unless(storage_->remove_folder(folder_name(command.tokens)));
}

ErrorCode Facet::run(const RemoveFile& command) {
  if (!has_layer(command.layer)) return ErrorCode::kNotInConfig;
  return error_unless(storage_->remove_file(folder_name(command.tokens), command.layer));
}

ErrorCode Facet::run(const TruncateFile& command) {
  if (!has_layer(command.layer)) return ErrorCode::kNotInConfig;
  return error_unless(storage_->truncate_file(folder_name(command.tokens), command.layer));
}

ErrorCode Facet::run(const FailNextFile& command) {
  if (!has_layer(command.layer)) return ErrorCode::kNotInConfig;
  storage_->fail_next(command.layer, command.operation);
  return ErrorCode::kNone;
}

// ---- Observations ----

void Facet::observe_plan(const SynchronousConnectorMetadata& metadata, const NameOf& name_of,
                         Observed& observed) {
  std::vector<Transfer>& transfers = observed.file_transfers.emplace();
  transfers.resize(metadata.transfers.size());
  for (std::size_t k = 0; k < transfers.size(); ++k) {
    const SynchronousConnectorMetadata::Transfer& told = metadata.transfers[k];
    transfers[k].request = name_of(told.request);
    transfers[k].store = told.is_store;
    transfers[k].folder = told.folder;
    transfers[k].num_tokens = told.num_tokens;
    transfers[k].blocks = told.blocks;
  }
  std::vector<Fill>& fills = observed.fills.emplace();
  fills.resize(metadata.fills.size());
  for (std::size_t k = 0; k < fills.size(); ++k) {
    const SynchronousConnectorMetadata::Fill& told = metadata.fills[k];
    fills[k].request = name_of(told.request);
    fills[k].num_tokens = told.num_tokens;
    fills[k].blocks.assign(told.blocks.begin(), told.blocks.end());
  }
}

void Facet::observe_report(const NameOf& name_of, Observed& observed) const {
  observe_files(report_.loaded, name_of, observed.loaded.emplace());
  observe_files(report_.saved, name_of, observed.saved.emplace());
  std::vector<FilledBlocks>& filled = observed.filled.emplace();
  filled.resize(report_.filled.size());
  for (std::size_t k = 0; k < filled.size(); ++k) {
    filled[k].request = name_of(report_.filled[k].request);
    filled[k].layer = report_.filled[k].layer;
    filled[k].blocks = report_.filled[k].blocks;
  }
  std::vector<FailedFile>& failed = observed.failed.emplace();
  failed.clear();
  if (report_.failed) {
    failed.push_back({name_of(report_.failed->request), report_.failed->is_store,
                      report_.failed->layer, report_.failed->folder});
  }
}

void Facet::observe_state(const SynchronousConnectorScheduler& connector,
                          const std::vector<EngineRank>& ranks, const NameOf& name_of,
                          Observed& observed) {
  connector.filled_requests(filled_requests_);
  std::vector<std::string>& names = observed.filled_requests.emplace();
  names.clear();
  for (const RequestIndex request : filled_requests_) names.push_back(name_of(request));
  kv_cache::BlockLists& symbols = observed.symbols.emplace();
  symbols.resize(spec_.num_all_layers());
  for (const EngineRank& rank : ranks) {
    for (std::uint32_t index = 0; index < rank.kv_cache->num_layers(); ++index) {
      const std::uint32_t layer = rank.kv_cache->first_layer() + index;
      const std::span<const KVSymbol> held = rank.kv_cache->layer(layer);
      symbols[layer].assign(held.begin(), held.end());
    }
  }
}

void Facet::observe_storage(bool has_state, Observed& observed) {
  if (!has_state) return;
  storage_->folders(observed.folders.emplace());
  storage_->files(observed.files.emplace());
}

}  // namespace kvfence::engine::files
