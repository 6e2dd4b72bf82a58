#pragma once

/// What the two synchronous connectors add to an engine, the ExampleConnector and the
/// DecodeBenchConnector: their records in the configuration, their commands, and what they show.
/// Everything that reads or writes them derives from the declarations here
/// (contract/core/declare.h).
///
/// Around the engine are the workers' KV caches, and the storage that it shares with others. Each
/// rank runs in turn, with all of its layers. Its model computes the tokens of the step as they
/// were known when it was planned.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/declare.h"
#include "contract/core/line.h"
#include "contract/core/status.h"
#include "contract/core/types.h"
#include "contract/kv_cache/kv_cache_config.h"
#include "contract/tiering/file_fault.h"

namespace kvfence {

namespace engine::files {

/// One of kStorageOperations: of the operations on files those that can be made to fail here.
struct StorageOperation {
  FileOperation operation = FileOperation::kWrite;
  StorageOperation() = default;
  StorageOperation(FileOperation of_files) : operation(of_files) {}  // NOLINT: it is one
  operator FileOperation() const { return operation; }               // NOLINT
};
Value to_value(const StorageOperation& member);
bool from_value(const Value& value, StorageOperation& member, std::string& expected);

/// The tokens of the commands below name a folder (folder_name).
///
/// Errors, of each of them: kNotInConfig: the connector keeps nothing in files; or no such layer.

/// The files are whole, and hold what the model computes of the tokens.
/// Errors: kNotInConfig, also of more files than layers; kBadRange: not whole blocks.
struct WriteEntry {
  static constexpr std::string_view kVerb = "write_entry";
  static constexpr std::string_view kDoc = "another engine writes the files of the first layers";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig, ErrorCode::kBadRange};
  std::vector<TokenId> tokens;
  std::uint32_t num_files = 0;
  static void declare(auto& fields) {
    using S = WriteEntry;
    fields.add("tokens", &S::tokens, Domain::kTokens, "whose KV, whole blocks");
    fields.add("num_files", &S::num_files, Domain::kCount, "so far; 0: the folder alone");
  }
  friend bool operator==(const WriteEntry&, const WriteEntry&) = default;
};

/// Errors: kUnknownKey: no such folder.
struct RemoveEntry {
  static constexpr std::string_view kVerb = "remove_entry";
  static constexpr std::string_view kDoc = "someone removes a folder with its files";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig, ErrorCode::kUnknownKey};
  std::vector<TokenId> tokens;
  static void declare(auto& fields) {
    fields.add("tokens", &RemoveEntry::tokens, Domain::kTokens, "whose KV");
  }
  friend bool operator==(const RemoveEntry&, const RemoveEntry&) = default;
};

/// Errors: kUnknownKey: no such file.
struct RemoveFile {
  static constexpr std::string_view kVerb = "remove_file";
  static constexpr std::string_view kDoc = "someone removes a layer's file; its folder stays";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig, ErrorCode::kUnknownKey};
  std::vector<TokenId> tokens;
  std::uint32_t layer = 0;
  static void declare(auto& fields) {
    using S = RemoveFile;
    fields.add("tokens", &S::tokens, Domain::kTokens, "whose KV");
    fields.add("layer", &S::layer, Domain::kCount, "of all ranks' layers");
  }
  friend bool operator==(const RemoveFile&, const RemoveFile&) = default;
};

/// Errors: kUnknownKey: no such file.
struct TruncateFile {
  static constexpr std::string_view kVerb = "truncate_file";
  static constexpr std::string_view kDoc = "a layer's file loses its end";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig, ErrorCode::kUnknownKey};
  std::vector<TokenId> tokens;
  std::uint32_t layer = 0;
  static void declare(auto& fields) {
    using S = TruncateFile;
    fields.add("tokens", &S::tokens, Domain::kTokens, "whose KV");
    fields.add("layer", &S::layer, Domain::kCount, "of all ranks' layers");
  }
  friend bool operator==(const TruncateFile&, const TruncateFile&) = default;
};

struct FailNextFile {
  static constexpr std::string_view kVerb = "fail_next_file";
  static constexpr std::string_view kDoc = "an operation on a file of that layer will fail, once";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig};
  std::uint32_t layer = 0;
  StorageOperation operation;
  static void declare(auto& fields) {
    using S = FailNextFile;
    fields.add("layer", &S::layer, Domain::kCount, "of all ranks' layers");
    fields.add("operation", &S::operation, Domain::kChoice,
               "make_folder, create, write, open or read");
  }
  friend bool operator==(const FailNextFile&, const FailNextFile&) = default;
};

/// `(example num_layers=1)` in the configuration: the ExampleConnector. Victims are the last to
/// run: under the priority policy upstream's scheduler leaves blocks in its cache that nobody
/// computed, which would be stored. No request has a salt or an adapter: it would get other KV.
struct ExampleRecord {
  static constexpr std::string_view kWord = "example";
  std::uint32_t num_layers = 1;
  static void declare(auto& fields) {
    fields.optional("num_layers", &ExampleRecord::num_layers, Domain::kSetting, "a rank");
  }
  friend bool operator==(const ExampleRecord&, const ExampleRecord&) = default;
};

/// `(decode_bench num_layers=1)`: the DecodeBenchConnector.
struct DecodeBenchRecord {
  static constexpr std::string_view kWord = "decode_bench";
  std::uint32_t num_layers = 1;
  std::optional<bool> decode_bench_hma;
  static void declare(auto& fields) {
    using S = DecodeBenchRecord;
    fields.optional("num_layers", &S::num_layers, Domain::kSetting, "a rank");
    fields.optional("decode_bench_hma", &S::decode_bench_hma, Domain::kSetting,
                    "overrides the profile's rule");
  }
  friend bool operator==(const DecodeBenchRecord&, const DecodeBenchRecord&) = default;
};

/// Files that a step reads or writes for a request.
struct Transfer {
  static constexpr std::string_view kWord = "transfer";
  std::string request;
  bool store = false;
  std::string folder;
  std::uint32_t num_tokens = 0;
  std::vector<BlockId> blocks;
  static void declare(auto& fields) {
    using S = Transfer;
    fields.add("request", &S::request, Domain::kResult, "for whom");
    fields.optional("store", &S::store, Domain::kResult, "into files, else from there");
    fields.add("folder", &S::folder, Domain::kResult, "where the files are");
    fields.add("num_tokens", &S::num_tokens, Domain::kResult, "leading ones");
    fields.add("blocks", &S::blocks, Domain::kResult, "whose slots");
  }
  friend bool operator==(const Transfer&, const Transfer&) = default;
};

/// Blocks that a step fills for a request.
struct Fill {
  static constexpr std::string_view kWord = "fill";
  std::string request;
  std::uint32_t num_tokens = 0;
  kv_cache::BlockLists blocks;
  static void declare(auto& fields) {
    using S = Fill;
    fields.add("request", &S::request, Domain::kResult, "for whom");
    fields.add("num_tokens", &S::num_tokens, Domain::kResult, "how many");
    fields.add("blocks", &S::blocks, Domain::kResult, "by group");
  }
  friend bool operator==(const Fill&, const Fill&) = default;
};

/// A file that was read or written.
struct FileCopy {
  static constexpr std::string_view kWord = "file";
  std::string request;
  std::uint32_t layer = 0;
  std::string folder;
  std::vector<BlockId> blocks;
  std::vector<KVSymbol> symbols;
  static void declare(auto& fields) {
    using S = FileCopy;
    fields.add("request", &S::request, Domain::kResult, "for whom");
    fields.add("layer", &S::layer, Domain::kResult, "of all ranks' layers");
    fields.add("folder", &S::folder, Domain::kResult, "where the file is");
    fields.add("blocks", &S::blocks, Domain::kResult, "into or from which");
    fields.add("symbols", &S::symbols, Domain::kResult, "what their slots hold, by token");
  }
  friend bool operator==(const FileCopy&, const FileCopy&) = default;
};

/// Blocks that were filled with dummies.
struct FilledBlocks {
  static constexpr std::string_view kWord = "filled";
  std::string request;
  std::uint32_t layer = 0;
  std::vector<BlockId> blocks;
  static void declare(auto& fields) {
    using S = FilledBlocks;
    fields.add("request", &S::request, Domain::kResult, "for whom");
    fields.add("layer", &S::layer, Domain::kResult, "of all ranks' layers");
    fields.add("blocks", &S::blocks, Domain::kResult, "which");
  }
  friend bool operator==(const FilledBlocks&, const FilledBlocks&) = default;
};

/// The file that ended the engine.
struct FailedFile {
  static constexpr std::string_view kWord = "failed";
  std::string request;
  bool store = false;
  std::uint32_t layer = 0;
  std::string folder;
  static void declare(auto& fields) {
    using S = FailedFile;
    fields.add("request", &S::request, Domain::kResult, "for whom");
    fields.optional("store", &S::store, Domain::kResult, "it was to be written");
    fields.add("layer", &S::layer, Domain::kResult, "of all ranks' layers");
    fields.add("folder", &S::folder, Domain::kResult, "where the file is, or should be");
  }
  friend bool operator==(const FailedFile&, const FailedFile&) = default;
};

/// A file in storage.
struct File {
  static constexpr std::string_view kWord = "stored";
  std::string folder;
  std::uint32_t layer = 0;
  bool whole = true;
  std::vector<KVSymbol> symbols;
  static void declare(auto& fields) {
    using S = File;
    fields.add("folder", &S::folder, Domain::kState, "where");
    fields.add("layer", &S::layer, Domain::kState, "of all ranks' layers");
    fields.optional("whole", &S::whole, Domain::kState, "it can be loaded");
    fields.add("symbols", &S::symbols, Domain::kState, "by token, of a whole one");
  }
  friend bool operator==(const File&, const File&) = default;
};

/// What a synchronous connector shows. An update with a failed file has no outputs: what it shows
/// of scheduler and KV caches is the new engine's.
struct Observed {
  // schedule: what the workers are told
  Reusable<std::vector<Transfer>> file_transfers;
  Reusable<std::vector<Fill>> fills;

  // update: what the workers did, rank by rank
  Reusable<std::vector<FileCopy>> loaded;
  Reusable<std::vector<FileCopy>> saved;
  Reusable<std::vector<FilledBlocks>> filled;
  Reusable<std::vector<FailedFile>> failed;  ///< none or one

  // The number: after every command.
  Reusable<std::uint32_t> num_engine_starts;

  // The whole state: where asked for.
  Reusable<std::vector<std::string>> filled_requests;
  Reusable<std::vector<std::string>> folders;
  Reusable<std::vector<File>> files;
  Reusable<kv_cache::BlockLists> symbols;

  static void declare(auto& fields) {
    using S = Observed;
    fields.add("file_transfers", &S::file_transfers, Domain::kResult, "files of this step");
    fields.add("fills", &S::fills, Domain::kResult, "blocks that this step fills");
    fields.add("loaded", &S::loaded, Domain::kResult, "files that were read, in order");
    fields.add("saved", &S::saved, Domain::kResult, "files that were written, in order");
    fields.add("filled", &S::filled, Domain::kResult, "blocks that were filled, in order");
    fields.add("failed", &S::failed, Domain::kResult, "the file that ended the engine");
    fields.add("num_engine_starts", &S::num_engine_starts, Domain::kState, "so far");
    fields.add("filled_requests", &S::filled_requests, Domain::kState,
               "that are not filled again, in order");
    fields.add("folders", &S::folders, Domain::kState, "in storage, ascending");
    fields.add("files", &S::files, Domain::kState, "in storage, by folder and layer");
    fields.add("symbols", &S::symbols, Domain::kState, "what each layer holds, by layer and slot");
  }
  friend bool operator==(const Observed&, const Observed&) = default;
};

}  // namespace engine::files

}  // namespace kvfence
