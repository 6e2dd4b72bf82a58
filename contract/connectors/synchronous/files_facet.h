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

#include "contract/connectors/synchronous/shared_storage.h"
#include "contract/connectors/synchronous/synchronous_connector.h"
#include "contract/core/declare.h"
#include "contract/core/line.h"
#include "contract/core/status.h"
#include "contract/core/types.h"
#include "contract/kv_cache/kv_cache_config.h"
#include "contract/tiering/file_fault.h"

namespace kvfence {

namespace engine::files {

using kvfence::operator==;

/// One of kStorageOperations: the operations on files that can be made to fail here.
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
  static constexpr Verb kVerb{"write_entry", "another engine writes the files of the first layers"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig, ErrorCode::kBadRange};
  std::vector<TokenId> tokens;
  std::uint32_t num_files = 0;
  static void declare(auto& fields) {
    using S = WriteEntry;
    fields.add("tokens", &S::tokens, Domain::kTokens, "whose KV, whole blocks");
    fields.add("num_files", &S::num_files, Domain::kCount, "so far; 0: the folder alone");
  }
};

/// Errors: kUnknownKey: no such folder.
struct RemoveEntry {
  static constexpr Verb kVerb{"remove_entry", "another process removes a folder with its files"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig, ErrorCode::kUnknownKey};
  std::vector<TokenId> tokens;
  static void declare(auto& fields) {
    fields.add("tokens", &RemoveEntry::tokens, Domain::kTokens, "whose KV");
  }
};

/// A command about one file.
/// Errors: kUnknownKey: no such file.
struct OfFile {
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig, ErrorCode::kUnknownKey};
  std::vector<TokenId> tokens;
  std::uint32_t layer = 0;
  static void declare(auto& fields) {
    fields.add("tokens", &OfFile::tokens, Domain::kTokens, "whose KV");
    fields.add("layer", &OfFile::layer, Domain::kCount, "of all ranks' layers");
  }
};

struct RemoveFile : OfFile {
  static constexpr Verb kVerb{"remove_file",
                              "another process removes a layer's file; its folder stays"};
};

struct TruncateFile : OfFile {
  static constexpr Verb kVerb{"truncate_file", "a layer's file loses its end"};
};

struct FailNextFile {
  static constexpr Verb kVerb{"fail_next_file",
                              "an operation on a file of that layer will fail, once"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig};
  std::uint32_t layer = 0;
  StorageOperation operation;
  static void declare(auto& fields) {
    using S = FailNextFile;
    fields.add("layer", &S::layer, Domain::kCount, "of all ranks' layers");
    fields.add("operation", &S::operation, Domain::kChoice,
               "make_folder, create, write, open or read");
  }
};

/// `(example num_layers=1)` in the configuration: the ExampleConnector. Victims are the last to
/// run: under the priority policy upstream's scheduler leaves blocks in its cache that were never
/// computed, and they would be stored. No request has a salt or an adapter: it would get other KV.
struct ExampleRecord {
  static constexpr std::string_view kWord = "example";
  std::uint32_t num_layers = 1;
  static void declare(auto& fields) {
    fields.optional("num_layers", &ExampleRecord::num_layers, "per rank");
  }
};

/// `(decode_bench num_layers=1)`: the DecodeBenchConnector.
struct DecodeBenchRecord {
  static constexpr std::string_view kWord = "decode_bench";
  std::uint32_t num_layers = 1;
  std::optional<bool> decode_bench_hma;
  static void declare(auto& fields) {
    using S = DecodeBenchRecord;
    fields.optional("num_layers", &S::num_layers, "per rank");
    fields.optional("decode_bench_hma", &S::decode_bench_hma, "overrides the profile's rule");
  }
};

/// What a synchronous connector shows. An update with a failed file has no outputs: what it shows
/// of scheduler and KV caches is the new engine's.
struct Observed {
  // schedule: what the workers get
  Reusable<std::vector<FileTransfer>> file_transfers;
  Reusable<std::vector<BlockFill>> fills;

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
  Reusable<std::vector<StoredFile>> files;
  Reusable<kv_cache::BlockLists> symbols;

  static void declare(auto& fields) {
    using S = Observed;
    fields.result("file_transfers", &S::file_transfers, "files of this step");
    fields.result("fills", &S::fills, "blocks that this step fills");
    fields.result("loaded", &S::loaded, "files that were read, in order");
    fields.result("saved", &S::saved, "files that were written, in order");
    fields.result("filled", &S::filled, "blocks that were filled, in order");
    fields.result("failed", &S::failed, "the file that ended the engine");
    fields.state("num_engine_starts", &S::num_engine_starts, "so far");
    fields.state("filled_requests", &S::filled_requests, "that are not filled again, in order");
    fields.state("folders", &S::folders, "in storage, ascending");
    fields.state("files", &S::files, "in storage, by folder and layer");
    fields.state("symbols", &S::symbols, "what each layer holds, by layer and slot");
  }
};

}  // namespace engine::files

struct SchedulerConfig;

/// Returns what the connector of a record is built from, or what is wrong with it.
Parsed<SynchronousConnectorSpec> make_files_spec(const engine::files::ExampleRecord& record,
                                                 const SchedulerConfig& scheduler,
                                                 std::uint32_t num_ranks);
Parsed<SynchronousConnectorSpec> make_files_spec(const engine::files::DecodeBenchRecord& record,
                                                 const SchedulerConfig& scheduler,
                                                 std::uint32_t num_ranks);

}  // namespace kvfence
