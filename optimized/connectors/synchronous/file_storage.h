#pragma once

/// Storage of the ExampleConnector in files: <root>/<folder>/<layer_file_name(layer)>, each a
/// safetensors file (symbol_file.h). The rules stand in
/// contract/connectors/synchronous/shared_storage.h. Files are written in place, as upstream's are,
/// so one that could not be written to its end stays as it is.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/connectors/synchronous/shared_storage.h"
#include "contract/core/state_digest.h"
#include "optimized/files/faulty_file_operations.h"
#include "optimized/files/file_operations.h"

namespace kvfence::optimized {

/// A call costs its file; folder_exists one system call and no allocation.
class FileStorage : public SharedStorage {
 public:
  /// root: a folder that is there, and whose folders are all this storage's; files outlives it.
  FileStorage(std::string root, FileOperations& files)
      : root_(std::move(root)), files_(files), faulty_files_(files) {}

  bool folder_exists(std::string_view folder) const override;
  bool save(std::string_view folder, std::uint32_t layer,
            std::span<const KVSymbol> symbols) override;
  bool load(std::string_view folder, std::uint32_t layer, std::span<KVSymbol> symbols) override;

  /// Requires: one of kStorageOperations.
  void fail_next(std::uint32_t layer, FileOperation operation) override;
  void make_folder(std::string_view folder) override;
  void put_file(std::string_view folder, std::uint32_t layer,
                std::span<const KVSymbol> symbols) override;
  bool remove_folder(std::string_view folder) override;
  bool remove_file(std::string_view folder, std::uint32_t layer) override;
  bool truncate_file(std::string_view folder, std::uint32_t layer) override;

  void folders(std::vector<std::string>& names) const override;
  void files(std::vector<StoredFile>& files) const override;
  void add_to(StateHash& hash) const override;

 private:
  /// The path of a folder, and of a file in it, until the next call.
  const std::string& path_of(std::string_view folder) const;
  const std::string& path_of(std::string_view folder, std::uint32_t layer) const;

  static bool make_folder(FileOperations& files, const std::string& path);
  bool save(FileOperations& files, std::string_view folder, std::uint32_t layer,
            std::span<const KVSymbol> symbols);
  bool load(FileOperations& files, std::string_view folder, std::uint32_t layer,
            std::span<KVSymbol> symbols);
  static bool write_file(FileOperations& files, const std::string& path,
                         std::span<const std::byte> bytes);
  /// What the file has, in bytes_; false if it could not be read to its end.
  bool read_file(FileOperations& files, FileHandle file) const;

  /// Calls with a file system in which what is planned for the layer goes wrong.
  template <class Operation>
  bool with_faults(std::uint32_t layer, Operation operation);

  const std::string root_;
  FileOperations& files_;
  FaultyFileOperations faulty_files_;
  std::vector<std::uint32_t> to_fail_;  ///< by layer: a bit by FileOperation

  // Storage of single calls, kept for the next one.
  mutable std::string path_;
  mutable std::vector<std::byte> bytes_;
};

}  // namespace kvfence::optimized
