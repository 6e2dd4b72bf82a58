#pragma once

/// The storage of the ExampleConnector: folders by name, each with one file per layer. It outlives
/// the engine, and other engines use it too. This file states its rules once; `reference/` (in
/// memory) and `optimized/` (on files) implement them independently.
///
/// Source: vLLM v0.19.0 and v0.23.0
/// distributed/kv_transfer/kv_connector/v1/example_connector.py _generate_foldername_debug,
/// _generate_filename_debug; safetensors.torch save_file, load_file.
///
/// A file is *whole* if it has its full length. A file that is not whole cannot be loaded; its
/// contents are unspecified.
///
/// save(folder, layer, symbols)
///     kMakeFolder: the folder is made, if it is not there. kCreate: what has the file's name goes,
///     and an empty file comes. kWrite: it gets the symbols, in order, and is whole.
///     False: an operation failed, and those after it are left out. A failed kMakeFolder does
///     nothing; a failed kCreate leaves no file of that name; a failed kWrite leaves a file that is
///     not whole.
///
/// load(folder, layer, symbols)
///     kMakeFolder, as above: upstream names a file by making its folder, also to read it. kOpen:
///     the file has to be there. kRead: its symbols, in order; what is not whole shows here.
///     False: an operation failed, and those after it are left out; the file is not there, is not
///     whole, or does not hold as many symbols as are asked for. Then symbols are unchanged, and so
///     is storage, except for the folder.
///
/// folder_exists(folder)
///     Whether it is there, with or without files. Does not fail.
///
/// A StorageWorld can be made to fail: with fail_next(layer, operation) the next such operation on
/// a file of that layer fails, once, whatever its folder. A second call before that changes
/// nothing.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/declare.h"
#include "contract/core/state_digest.h"
#include "contract/scripted/scripted_kv_cache.h"
#include "contract/tiering/file_fault.h"

namespace kvfence {

/// A file as an observer finds it.
struct StoredFile {
  static constexpr std::string_view kWord = "stored";
  std::string folder;
  std::uint32_t layer = 0;
  bool whole = true;
  std::vector<KVSymbol> symbols;  ///< by token; empty if it is not whole
  static void declare(auto& fields) {
    using S = StoredFile;
    fields.add("folder", &S::folder, "where");
    fields.add("layer", &S::layer, "of all ranks' layers");
    fields.optional("whole", &S::whole, "it can be loaded");
    fields.add("symbols", &S::symbols, "by token, of a whole one");
  }
};

/// What can go wrong with a file, in the order of the operations of saving and loading.
inline constexpr std::array<FileOperation, 5> kStorageOperations = {
    FileOperation::kMakeFolder, FileOperation::kCreate, FileOperation::kWrite, FileOperation::kOpen,
    FileOperation::kRead};

/// The name of a layer's file in its folder: "model.layers.<layer>.self_attn.attn.safetensors".
std::string layer_file_name(std::uint32_t layer);

/// The storage as the connector sees it.
class SharedStorage {
 public:
  virtual ~SharedStorage() = default;

  virtual bool folder_exists(std::string_view folder) const = 0;
  virtual bool save(std::string_view folder, std::uint32_t layer,
                    std::span<const KVSymbol> symbols) = 0;
  virtual bool load(std::string_view folder, std::uint32_t layer, std::span<KVSymbol> symbols) = 0;
};

/// The same, with what the world around it does.
class StorageWorld : public SharedStorage {
 public:
  /// Requires: one of kStorageOperations.
  virtual void fail_next(std::uint32_t layer, FileOperation operation) = 0;

  /// Another engine's: as save does it, except that nothing is made to fail.
  virtual void make_folder(std::string_view folder) = 0;
  virtual void put_file(std::string_view folder, std::uint32_t layer,
                        std::span<const KVSymbol> symbols) = 0;

  /// With its files. False, here and below: it is not there.
  virtual bool remove_folder(std::string_view folder) = 0;
  virtual bool remove_file(std::string_view folder, std::uint32_t layer) = 0;
  /// The file is no longer whole.
  virtual bool truncate_file(std::string_view folder, std::uint32_t layer) = 0;

  // ---- For an observer ----
  /// Replaces names by those of the folders, ascending.
  virtual void folders(std::vector<std::string>& names) const = 0;
  /// Replaces files, ascending by folder, then layer.
  virtual void files(std::vector<StoredFile>& files) const = 0;

  /// For an observer: the whole state (contract/core/state_digest.h).
  virtual void add_to(StateHash& hash) const { hash.add_unknown(); }
};

}  // namespace kvfence
