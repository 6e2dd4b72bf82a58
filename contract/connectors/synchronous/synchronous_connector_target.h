#pragma once

/// The `synchronous_connector` target: a scheduler with an ExampleConnector or a
/// DecodeBenchConnector behind it, the workers' halves of all ranks, what their KV caches hold, and
/// the storage that the engine shares with others. Everything that reads or writes its
/// configuration line, commands and observations derives from the declarations here
/// (contract/core/declare.h).
///
/// A step that was planned goes to the workers when its output is taken in, as in the `connector`
/// target: each rank in turn, with all of its layers. Its model computes the tokens of the step as
/// they were known when it was planned.
///
/// A request has no salt and no adapter: the ExampleConnector gives one the KV of another. Victims
/// are the last to run: under the priority policy upstream's scheduler leaves blocks in its cache
/// that nobody computed, which would be stored.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "contract/connectors/offloading/connector_target.h"
#include "contract/connectors/synchronous/synchronous_connector.h"
#include "contract/core/declare.h"
#include "contract/core/target.h"
#include "contract/scheduler/scheduler_target.h"

namespace kvfence {

namespace synchronous_connector {

/// One of kStorageOperations: of the operations on files those that can be made to fail here.
struct StorageOperation {
  FileOperation operation = FileOperation::kWrite;
  StorageOperation() = default;
  StorageOperation(FileOperation of_files) : operation(of_files) {}  // NOLINT: it is one
  operator FileOperation() const { return operation; }               // NOLINT
};
Value to_value(const StorageOperation& member);
bool from_value(const Value& value, StorageOperation& member, std::string& expected);

/// Errors, besides the scheduler's: kNotInConfig: with several groups, without
/// skip_reading_prefix_cache: upstream may take the hit of one group in the GPU's cache for what
/// another one loads (vllm#33775).
struct AddRequest {
  static constexpr std::string_view kVerb = "add_request";
  static constexpr std::string_view kDoc = "a new request; a name is used once";
  std::string id;
  std::vector<TokenId> tokens;
  std::uint32_t max_tokens = 16;
  bool skip_reading_prefix_cache = false;
  static void declare(auto& fields) {
    using S = AddRequest;
    fields.add("id", &S::id, Domain::kRequest, "its name");
    fields.add("tokens", &S::tokens, Domain::kTokens, "prompt tokens");
    fields.add("max_tokens", &S::max_tokens, Domain::kCount, "output tokens at most").optional();
    fields
        .add("skip_reading_prefix_cache", &S::skip_reading_prefix_cache, Domain::kFlag,
             "its lookups in the GPU's cache find nothing")
        .optional();
  }
  friend bool operator==(const AddRequest&, const AddRequest&) = default;
};

using connector::ResetPrefixCache;
using connector::Update;
using scheduler::FinishAllRequests;
using scheduler::FinishRequests;
using scheduler::Sample;
using scheduler::Schedule;
using scheduler::SetPauseState;

/// The tokens of the commands below name a folder (folder_name).
///
/// Errors, of each of them: kNotInConfig: the connector keeps nothing in files; or no such layer.

/// The files are whole, and hold what the model computes of the tokens.
/// Errors: kNotInConfig, also of more files than layers; kBadRange: not whole blocks.
struct WriteEntry {
  static constexpr std::string_view kVerb = "write_entry";
  static constexpr std::string_view kDoc = "another engine writes the files of the first layers";
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
  std::vector<TokenId> tokens;
  std::uint32_t layer = 0;
  static void declare(auto& fields) {
    using S = TruncateFile;
    fields.add("tokens", &S::tokens, Domain::kTokens, "whose KV");
    fields.add("layer", &S::layer, Domain::kCount, "of all ranks' layers");
  }
  friend bool operator==(const TruncateFile&, const TruncateFile&) = default;
};

struct FailNext {
  static constexpr std::string_view kVerb = "fail_next";
  static constexpr std::string_view kDoc = "an operation on a file of that layer will fail, once";
  std::uint32_t layer = 0;
  StorageOperation operation;
  static void declare(auto& fields) {
    using S = FailNext;
    fields.add("layer", &S::layer, Domain::kCount, "of all ranks' layers");
    fields.add("operation", &S::operation, Domain::kChoice,
               "make_folder, create, write, open or read");
  }
  friend bool operator==(const FailNext&, const FailNext&) = default;
};

using Command =
    std::variant<AddRequest, Schedule, Update, WriteEntry, RemoveEntry, RemoveFile, TruncateFile,
                 FailNext, FinishRequests, FinishAllRequests, SetPauseState, ResetPrefixCache>;

/// The configuration as it stands on the config line: of the scheduler's settings those that matter
/// here, and the connector's.
struct Config : scheduler::Config {
  std::string kv_connector = "example";
  std::uint32_t world_size = 1;
  std::uint32_t num_layers = 1;
  std::optional<bool> decode_bench_hma;
  static void declare(auto& fields) {
    using S = Config;
    kv_cache::Config::declare(fields);
    fields.add("max_num_seqs", &S::max_num_seqs, Domain::kSetting, "requests that run at once");
    fields
        .add("long_prefill_token_threshold", &S::long_prefill_token_threshold, Domain::kSetting,
             "tokens of one request a step; 0: no bound")
        .optional();
    fields
        .add("max_concurrent_batches", &S::max_concurrent_batches, Domain::kSetting,
             "steps in flight, 1 or 2")
        .optional();
    fields.add("kv_connector", &S::kv_connector, Domain::kSetting, "example or decode_bench");
    fields.add("world_size", &S::world_size, Domain::kSetting, "ranks, stages of a pipeline")
        .optional();
    fields.add("num_layers", &S::num_layers, Domain::kSetting, "a rank").optional();
    fields
        .add("decode_bench_hma", &S::decode_bench_hma, Domain::kSetting,
             "overrides the profile's rule")
        .optional();
  }
  friend bool operator==(const Config&, const Config&) = default;
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
    fields.add("store", &S::store, Domain::kResult, "into files, else from there").optional();
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
    fields.add("store", &S::store, Domain::kResult, "it was to be written").optional();
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
    fields.add("whole", &S::whole, Domain::kState, "it can be loaded").optional();
    fields.add("symbols", &S::symbols, Domain::kState, "by token, of a whole one");
  }
  friend bool operator==(const File&, const File&) = default;
};

/// What scheduler, connector and workers owe their caller after a command: the scheduler's
/// observation without connector_calls, and what concerns the connector. An update with a failed
/// file has no outputs: what it shows of scheduler and KV caches is the new engine's.
struct Observation : scheduler::Observation {
  // schedule: what the workers are told
  Reusable<std::vector<Transfer>> transfers;
  Reusable<std::vector<Fill>> fills;

  // update: what the workers did, rank by rank
  Reusable<std::vector<FileCopy>> loaded;
  Reusable<std::vector<FileCopy>> saved;
  Reusable<std::vector<FilledBlocks>> filled;
  Reusable<std::vector<FailedFile>> failed;  ///< none or one

  // The number: after every command.
  std::uint32_t num_engine_starts = 1;

  // The whole state: where asked for.
  Reusable<std::vector<std::string>> filled_requests;
  Reusable<std::vector<std::string>> folders;
  Reusable<std::vector<File>> files;
  Reusable<kv_cache::BlockLists> symbols;

  static void declare(auto& fields) {
    using S = Observation;
    scheduler::Observation::declare(fields);
    fields.add("transfers", &S::transfers, Domain::kResult, "files of this step");
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
  friend bool operator==(const Observation&, const Observation&) = default;
};

/// As the scheduler's.
class World : public scheduler::World {
 public:
  using scheduler::World::World;
  void apply(const Command& command);
};

}  // namespace synchronous_connector

/// What an engine is built from.
struct SynchronousConnectorSetup {
  SchedulerConfig scheduler;
  SynchronousConnectorSpec spec;
};

/// The same, or what is wrong with the configuration (position: the config line).
Parsed<SynchronousConnectorSetup> make_synchronous_connector_setup(
    const synchronous_connector::Config& config, std::string_view file = {},
    Position position = {});

/// What generic code knows of the target.
struct SynchronousConnectorTarget {
  static constexpr std::string_view kName = "synchronous_connector";
  static constexpr std::string_view kDoc =
      "scheduler, ExampleConnector or DecodeBenchConnector, workers: prompts in files, dummies";
  using Config = synchronous_connector::Config;
  using Command = synchronous_connector::Command;
  using Observation = synchronous_connector::Observation;
  using World = synchronous_connector::World;
  using Numbers = Observation;
  using Setup = SynchronousConnectorSetup;

  static Parsed<Setup> prepare(const Config& config, std::string_view file, Position position);
  static World make_world(const Config& config, const Setup& setup);
  static const Target& description();
};

}  // namespace kvfence
