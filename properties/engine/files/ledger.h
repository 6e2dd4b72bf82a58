#pragma once

/// What the KV caches of all ranks and the storage behind a synchronous connector hold, by commands
/// and plans alone, and what the ranks report of a step. Every slot is a symbol
/// (contract/scripted/scripted_kv_cache.h).

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "contract/engine/engine_target.h"
#include "contract/scripted/scripted_kv_cache.h"

namespace kvfence::engine::files {

/// Storage as the contract says that it works. A value: copyable.
class StorageBooks {
 public:
  bool has_folder(const std::string& folder) const { return folders_.contains(folder); }
  bool has_file(const std::string& folder, std::uint32_t layer) const;

  /// The connector's: false where an operation fails.
  bool save(const std::string& folder, std::uint32_t layer, std::vector<KVSymbol> symbols);
  bool load(const std::string& folder, std::uint32_t layer, std::span<KVSymbol> symbols);

  /// The world's.
  void put_folder(const std::string& folder) { folders_[folder]; }
  void put_file(const std::string& folder, std::uint32_t layer, std::vector<KVSymbol> symbols);
  void remove_folder(const std::string& folder) { folders_.erase(folder); }
  void remove_file(const std::string& folder, std::uint32_t layer);
  /// Requires: has_file(folder, layer).
  void truncate_file(const std::string& folder, std::uint32_t layer);
  void fail_next(std::uint32_t layer, FileOperation operation) {
    faults_.insert({layer, operation});
  }

  /// As an observer finds them.
  std::vector<std::string> folders() const;
  std::vector<File> files() const;

 private:
  struct Content {
    bool whole = true;
    std::vector<KVSymbol> symbols;  ///< none if it is not whole
  };

  bool fails(std::uint32_t layer, FileOperation operation) {
    return faults_.erase({layer, operation}) > 0;
  }

  std::map<std::string, std::map<std::uint32_t, Content>> folders_;
  std::set<std::pair<std::uint32_t, FileOperation>> faults_;
};

/// What the model computes for a request in a step.
struct Run {
  std::string request;
  std::uint32_t begin = 0;      ///< the first token
  std::vector<TokenId> tokens;  ///< [its last token + 1], those before `begin` too
  BlocksByGroup table;
};

/// A planned step as the workers get it.
struct PlannedStep {
  std::vector<ScheduledRequest> scheduled;
  std::vector<Transfer> transfers;
  std::vector<Fill> fills;
  std::vector<Run> runs;
};

/// A token that a run attends to, and that is not there.
struct WrongRead {
  std::string request;
  std::uint32_t layer = 0;
  std::uint32_t token = 0;
  KVSymbol expected = 0;
  KVSymbol actual = 0;
};

/// What the ranks report of a step.
struct Outcome {
  std::vector<FileCopy> loaded;
  std::vector<FileCopy> saved;
  std::vector<FilledBlocks> filled;
  std::vector<FailedFile> failed;       ///< none or one
  std::optional<WrongRead> wrong_read;  ///< the first one; ExampleConnector
};

/// The ranks of an engine, as the contract says that they work. A value: copyable.
class Ledger {
 public:
  explicit Ledger(const SynchronousConnectorSpec& spec) : spec_(spec) { start_engine(); }

  /// Nothing is computed; storage stays.
  void start_engine();

  /// The oldest step on all ranks, up to the first file that fails.
  Outcome run(const PlannedStep& step);

  StorageBooks& storage() { return storage_; }
  const StorageBooks& storage() const { return storage_; }

  /// [layers of all ranks][slots].
  kv_cache::BlockLists symbols() const;

 private:
  bool load(const PlannedStep& step, std::uint32_t first_layer, Outcome& outcome);
  void fill(const PlannedStep& step, std::uint32_t first_layer, Outcome& outcome);
  void compute(const Run& run, std::uint32_t layer, Outcome& outcome);
  bool save(const PlannedStep& step, std::uint32_t layer, Outcome& outcome);
  KVSymbol& slot(std::uint32_t layer, const std::vector<BlockId>& blocks, std::size_t token) {
    return kv_cache_->block(layer, blocks[token / spec_.block_size()])[token % spec_.block_size()];
  }

  SynchronousConnectorSpec spec_;
  StorageBooks storage_;
  std::optional<ScriptedKVCache> kv_cache_;  ///< the layers of all ranks
};

}  // namespace kvfence::engine::files
