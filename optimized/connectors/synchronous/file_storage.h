#pragma once

/// Storage of the ExampleConnector in files: <root>/<folder>/<layer_file_name(layer)>, each a
/// safetensors file (symbol_file.h). The rules are in
/// contract/connectors/synchronous/shared_storage.h. Files are written in place, as upstream does,
/// so a file that could not be written to its end stays as it is.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/connectors/synchronous/shared_storage.h"
#include "optimized/files/file_operations.h"

namespace kvfence::optimized {

/// A call is O(its file); folder_exists is one system call without an allocation.
class FileStorage final : public SharedStorage {
 public:
  /// root: an existing folder that only this storage uses; files outlives it.
  FileStorage(std::string root, FileOperations& files) : root_(std::move(root)), files_(files) {}

  bool folder_exists(std::string_view folder) const override;
  bool save(std::string_view folder, std::uint32_t layer,
            std::span<const KVSymbol> symbols) override;
  bool load(std::string_view folder, std::uint32_t layer, std::span<KVSymbol> symbols) override;

  /// The path of a folder, and of a file in it, until the next call.
  const std::string& path_of(std::string_view folder) const;
  const std::string& path_of(std::string_view folder, std::uint32_t layer) const;

 private:
  bool make_folder(std::string_view folder);
  bool write_file(const std::string& path, std::span<const std::byte> bytes);

  const std::string root_;
  FileOperations& files_;

  // Storage of single calls, kept for the next one.
  mutable std::string path_;
  std::vector<std::byte> bytes_;
};

/// Replaces bytes by what the file has; false if it could not be read to its end.
bool read_file(FileOperations& files, const std::string& path, std::vector<std::byte>& bytes);

}  // namespace kvfence::optimized
