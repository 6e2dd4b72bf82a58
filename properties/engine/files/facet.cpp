#include "properties/engine/files/facet.h"

#include <cstddef>
#include <span>
#include <utility>

#include "properties/engine/engines.h"

namespace kvfence::engine::files {
namespace {

ErrorCode error_unless(bool was_there) {
  return was_there ? ErrorCode::kNone : ErrorCode::kUnknownKey;
}

}  // namespace

bool Facet::start(const SynchronousConnectorSpec& spec, ConnectorPlace place,
                  std::unique_ptr<StorageWorld> storage) {
  spec_ = spec;
  place_ = place;
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

void Facet::observe_plan(const KVConnectorMetadata& of_step, Observed& observed) const {
  const auto& metadata = place_.part_of<const SynchronousConnectorMetadata>(of_step);
  observed.file_transfers.emplace() = metadata.transfers;
  observed.fills.emplace() = metadata.fills;
}

void Facet::observe_report(Observed& observed) const {
  observed.loaded.emplace() = report_.loaded;
  observed.saved.emplace() = report_.saved;
  observed.filled.emplace() = report_.filled;
  std::vector<FailedFile>& failed = observed.failed.emplace();
  failed.clear();
  if (report_.failed) failed.push_back(*report_.failed);
}

void Facet::observe(Engine& engine, bool has_state, Observed& observed) {
  const bool has_storage = engine.role == EngineRole::kProducer;
  if (has_storage) observed.num_engine_starts.emplace() = num_engine_starts_;
  if (!has_state) return;
  place_.part_of<SynchronousConnectorScheduler>(engine.connector())
      .filled_requests(filled_requests_);
  engine.observer.names_of(filled_requests_, observed.filled_requests.emplace());
  kv_cache::BlockLists& symbols = observed.symbols.emplace();
  symbols.resize(spec_.num_all_layers());
  for (const EngineRank& rank : engine.ranks) {
    for (std::uint32_t index = 0; index < rank.kv_cache->num_layers(); ++index) {
      const std::uint32_t layer = rank.kv_cache->first_layer() + index;
      const std::span<const KVSymbol> held = rank.kv_cache->layer(layer);
      symbols[layer].assign(held.begin(), held.end());
    }
  }
  if (!has_storage) return;
  storage_->folders(observed.folders.emplace());
  storage_->files(observed.files.emplace());
}

}  // namespace kvfence::engine::files
