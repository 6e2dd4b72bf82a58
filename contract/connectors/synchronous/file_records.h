#pragma once

/// What the scheduler's half of a synchronous connector plans for a step, and what its workers did
/// in it. The declarations are those of observations.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/types.h"
#include "contract/kv_cache/kv_cache_spec.h"
#include "contract/scripted/scripted_kv_cache.h"

namespace kvfence {

/// ExampleConnector: files that a step reads or writes for a request. Upstream's ReqMeta.
struct FileTransfer {
  static constexpr std::string_view kWord = "transfer";
  std::string request;
  bool store = false;
  std::string folder;            ///< of its first num_tokens tokens
  std::uint32_t num_tokens = 0;  ///< whole blocks
  std::vector<BlockId> blocks;   ///< [num_tokens / block_size]; upstream: all of their slots
  static void declare(auto& fields) {
    using S = FileTransfer;
    fields.add("request", &S::request, "its request");
    fields.optional("store", &S::store, "into files, else from there");
    fields.add("folder", &S::folder, "where the files are");
    fields.add("num_tokens", &S::num_tokens, "leading ones");
    fields.add("blocks", &S::blocks, "whose slots");
  }
};

/// DecodeBenchConnector: blocks that a step fills for a request. Upstream's reqs_to_fill.
struct BlockFill {
  static constexpr std::string_view kWord = "fill";
  std::string request;
  std::uint32_t num_tokens = 0;
  BlocksByGroup blocks;
  static void declare(auto& fields) {
    using S = BlockFill;
    fields.add("request", &S::request, "its request");
    fields.add("num_tokens", &S::num_tokens, "how many");
    fields.add("blocks", &S::blocks, "by group");
  }
};

/// A file that was read into blocks, or written from them.
struct FileCopy {
  static constexpr std::string_view kWord = "file";
  std::string request;
  std::uint32_t layer = 0;
  std::string folder;
  std::vector<BlockId> blocks;
  std::vector<KVSymbol> symbols;  ///< [blocks * block_size], by token
  static void declare(auto& fields) {
    using S = FileCopy;
    fields.add("request", &S::request, "its request");
    fields.add("layer", &S::layer, "of all ranks' layers");
    fields.add("folder", &S::folder, "where the file is");
    fields.add("blocks", &S::blocks, "into or from which");
    fields.add("symbols", &S::symbols, "what their slots hold, by token");
  }
};

/// Blocks that were filled with dummies.
struct FilledBlocks {
  static constexpr std::string_view kWord = "filled";
  std::string request;
  std::uint32_t layer = 0;
  std::vector<BlockId> blocks;
  static void declare(auto& fields) {
    using S = FilledBlocks;
    fields.add("request", &S::request, "its request");
    fields.add("layer", &S::layer, "of all ranks' layers");
    fields.add("blocks", &S::blocks, "which");
  }
};

/// The file over which upstream raises, which ends the engine.
struct FailedFile {
  static constexpr std::string_view kWord = "failed";
  std::string request;
  bool store = false;
  std::uint32_t layer = 0;
  std::string folder;
  static void declare(auto& fields) {
    using S = FailedFile;
    fields.add("request", &S::request, "its request");
    fields.optional("store", &S::store, "it was to be written");
    fields.add("layer", &S::layer, "of all ranks' layers");
    fields.add("folder", &S::folder, "where the file is, or should be");
  }
};

}  // namespace kvfence
