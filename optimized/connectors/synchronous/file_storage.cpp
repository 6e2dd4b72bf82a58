#include "optimized/connectors/synchronous/file_storage.h"

#include <cerrno>

#include "optimized/connectors/synchronous/symbol_file.h"

namespace kvfence::optimized {

const std::string& FileStorage::path_of(std::string_view folder) const {
  path_.assign(root_);
  path_ += '/';
  path_ += folder;
  return path_;
}

const std::string& FileStorage::path_of(std::string_view folder, std::uint32_t layer) const {
  path_of(folder);
  path_ += '/';
  path_ += layer_file_name(layer);
  return path_;
}

/// size_of fails for every folder, but with -ENOENT only if the folder is missing.
bool FileStorage::folder_exists(std::string_view folder) const {
  return files_.size_of(path_of(folder)) != -ENOENT;
}

bool FileStorage::make_folder(std::string_view folder) {
  const int answer = files_.make_folder(path_of(folder));
  return answer >= 0 || answer == -EEXIST;
}

bool FileStorage::write_file(const std::string& path, std::span<const std::byte> bytes) {
  const FileHandle file = create_file(files_, path);
  if (file < 0) return false;
  const bool was_written = write_all(files_, file, bytes);
  return files_.close(file) == 0 && was_written;
}

bool read_file(FileOperations& files, const std::string& path, std::vector<std::byte>& bytes) {
  const FileHandle file = open_file(files, path);
  if (file < 0) return false;
  const std::int64_t size = files.size(file);
  if (size >= 0) bytes.resize(static_cast<std::size_t>(size));
  const bool was_read = size >= 0 && read_all(files, file, bytes) == size;
  files.close(file);
  return was_read;
}

bool FileStorage::save(std::string_view folder, std::uint32_t layer,
                       std::span<const KVSymbol> symbols) {
  if (!make_folder(folder)) return false;
  path_of(folder, layer);
  encode_symbols(symbols, bytes_);
  const int removed = files_.remove(path_);
  if (removed < 0 && removed != -ENOENT) return false;
  return write_file(path_, bytes_);
}

bool FileStorage::load(std::string_view folder, std::uint32_t layer, std::span<KVSymbol> symbols) {
  if (!make_folder(folder)) return false;
  if (!read_file(files_, path_of(folder, layer), bytes_)) return false;
  if (num_symbols_of(bytes_) != symbols.size()) return false;
  decode_symbols(bytes_, symbols);
  return true;
}

}  // namespace kvfence::optimized
