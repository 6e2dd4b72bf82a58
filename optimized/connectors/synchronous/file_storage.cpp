#include "optimized/connectors/synchronous/file_storage.h"

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "contract/core/check.h"
#include "optimized/connectors/synchronous/symbol_file.h"

namespace kvfence::optimized {
namespace {

constexpr std::uint32_t bit_of(FileOperation operation) {
  return 1U << static_cast<std::uint32_t>(operation);
}

/// A write that fails has moved half of the bytes before.
FaultPlan plan_of(std::uint32_t to_fail, std::size_t num_bytes) {
  std::vector<FileFault> faults;
  for (const FileOperation operation : kStorageOperations) {
    if ((to_fail & bit_of(operation)) == 0) continue;
    if (operation == FileOperation::kWrite) {
      faults.push_back({operation, 0, 0, num_bytes / 2});
      faults.push_back({operation, 1, ENOSPC, 0});
    } else {
      faults.push_back({operation, 0, EIO, 0});
    }
  }
  return FaultPlan(std::move(faults));
}

/// The layer of a file; nothing for a file of another name.
std::optional<std::uint32_t> layer_of(const std::string& name) {
  const std::size_t begin = name.find_first_of("0123456789");
  if (begin == std::string::npos) return std::nullopt;
  std::uint32_t layer = 0;
  std::from_chars(name.data() + begin, name.data() + name.size(), layer);
  if (layer_file_name(layer) != name) return std::nullopt;
  return layer;
}

}  // namespace

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

/// Asked for a size, a folder answers that it is no file.
bool FileStorage::folder_exists(std::string_view folder) const {
  return files_.size_of(path_of(folder)) != -ENOENT;
}

// ---- Whole files ----

bool FileStorage::make_folder(FileOperations& files, const std::string& path) {
  const int answer = files.make_folder(path);
  return answer >= 0 || answer == -EEXIST;
}

bool FileStorage::write_file(FileOperations& files, const std::string& path,
                             std::span<const std::byte> bytes) {
  FileHandle file = -EINTR;
  while (file == -EINTR) file = files.create(path);
  if (file < 0) return false;
  while (!bytes.empty()) {
    const std::int64_t num_written = files.write(file, bytes);
    if (num_written == -EINTR) continue;
    if (num_written <= 0) break;
    bytes = bytes.subspan(static_cast<std::size_t>(num_written));
  }
  return files.close(file) == 0 && bytes.empty();
}

bool FileStorage::read_file(FileOperations& files, FileHandle file) const {
  const std::int64_t size = files.size(file);
  if (size < 0) return false;
  bytes_.resize(static_cast<std::size_t>(size));
  std::span<std::byte> rest = bytes_;
  std::int64_t num_read = 0;
  do {
    num_read = files.read(file, rest);
    if (num_read > 0) rest = rest.subspan(static_cast<std::size_t>(num_read));
  } while (num_read == -EINTR || (num_read > 0 && !rest.empty()));
  return num_read >= 0 && rest.empty();
}

// ---- For the connector ----

bool FileStorage::save(FileOperations& files, std::string_view folder, std::uint32_t layer,
                       std::span<const KVSymbol> symbols) {
  if (!make_folder(files, path_of(folder))) return false;
  path_of(folder, layer);
  encode_symbols(symbols, bytes_);
  const int removed = files.remove(path_);
  if (removed < 0 && removed != -ENOENT) return false;
  return write_file(files, path_, bytes_);
}

bool FileStorage::load(FileOperations& files, std::string_view folder, std::uint32_t layer,
                       std::span<KVSymbol> symbols) {
  if (!make_folder(files, path_of(folder))) return false;
  FileHandle file = -EINTR;
  while (file == -EINTR) file = files.open(path_of(folder, layer));
  if (file < 0) return false;
  const bool was_read = read_file(files, file);
  files.close(file);
  if (!was_read) return false;
  if (num_symbols_of(bytes_) != symbols.size()) return false;
  decode_symbols(bytes_, symbols);
  return true;
}

template <class Operation>
bool FileStorage::with_faults(std::uint32_t layer, Operation operation) {
  if (layer >= to_fail_.size() || to_fail_[layer] == 0) return operation(files_);
  const bool done = operation(faulty_files_);
  for (const FileFault& fault : faulty_files_.happened())
    to_fail_[layer] &= ~bit_of(fault.operation);
  faulty_files_.begin(FaultPlan());
  return done;
}

bool FileStorage::save(std::string_view folder, std::uint32_t layer,
                       std::span<const KVSymbol> symbols) {
  return with_faults(layer, [&](FileOperations& files) {
    if (&files == &faulty_files_) {
      encode_symbols(symbols, bytes_);
      faulty_files_.begin(plan_of(to_fail_[layer], bytes_.size()));
    }
    return save(files, folder, layer, symbols);
  });
}

bool FileStorage::load(std::string_view folder, std::uint32_t layer, std::span<KVSymbol> symbols) {
  return with_faults(layer, [&](FileOperations& files) {
    if (&files == &faulty_files_) faulty_files_.begin(plan_of(to_fail_[layer], 0));
    return load(files, folder, layer, symbols);
  });
}

// ---- The world around it ----

void FileStorage::fail_next(std::uint32_t layer, FileOperation operation) {
  KVFENCE_CHECK(std::find(kStorageOperations.begin(), kStorageOperations.end(), operation) !=
                    kStorageOperations.end(),
                "an operation that neither saving nor loading comes to");
  if (layer >= to_fail_.size()) to_fail_.resize(std::size_t{layer} + 1, 0);
  to_fail_[layer] |= bit_of(operation);
}

void FileStorage::make_folder(std::string_view folder) {
  KVFENCE_CHECK(make_folder(files_, path_of(folder)), "a folder of the storage can not be made");
}

void FileStorage::put_file(std::string_view folder, std::uint32_t layer,
                           std::span<const KVSymbol> symbols) {
  KVFENCE_CHECK(save(files_, folder, layer, symbols),
                "a file of the storage can not be written: is the disk full?");
}

bool FileStorage::remove_folder(std::string_view folder) {
  const std::string path = path_of(folder);
  std::vector<std::string> names;
  if (files_.list(path, names) < 0) return false;
  for (const std::string& name : names) files_.remove(path + '/' + name);
  return files_.remove_folder(path) == 0;
}

bool FileStorage::remove_file(std::string_view folder, std::uint32_t layer) {
  return files_.remove(path_of(folder, layer)) == 0;
}

bool FileStorage::truncate_file(std::string_view folder, std::uint32_t layer) {
  const FileHandle file = files_.open(path_of(folder, layer));
  if (file < 0) return false;
  const bool was_read = read_file(files_, file);
  files_.close(file);
  bytes_.resize(bytes_.size() / 2);
  return was_read && files_.remove(path_) == 0 && write_file(files_, path_, bytes_);
}

// ---- For an observer ----

void FileStorage::folders(std::vector<std::string>& names) const {
  KVFENCE_CHECK(files_.list(root_, names) >= 0, "the folder of the storage can not be listed");
  std::sort(names.begin(), names.end());
}

void FileStorage::add_to(StateHash& hash) const {
  std::vector<std::string> folder_names;
  folders(folder_names);
  std::vector<StoredFile> stored;
  files(stored);
  hash.add_all(folder_names, stored, to_fail_);
}

void FileStorage::files(std::vector<StoredFile>& files) const {
  files.clear();
  std::vector<std::string> folder_names;
  std::vector<std::string> file_names;
  folders(folder_names);
  for (const std::string& folder : folder_names) {
    if (files_.list(path_of(folder), file_names) < 0) continue;
    const auto first = static_cast<std::ptrdiff_t>(files.size());
    for (const std::string& name : file_names) {
      const std::optional<std::uint32_t> layer = layer_of(name);
      if (layer) files.push_back({folder, *layer, false, {}});
    }
    std::sort(files.begin() + first, files.end(),
              [](const StoredFile& a, const StoredFile& b) { return a.layer < b.layer; });
  }
  for (StoredFile& found : files) {
    const FileHandle file = files_.open(path_of(found.folder, found.layer));
    if (file < 0) continue;
    const bool was_read = read_file(files_, file);
    files_.close(file);
    const std::optional<std::size_t> num_symbols = was_read ? num_symbols_of(bytes_) : std::nullopt;
    if (!num_symbols) continue;
    found.whole = true;
    found.symbols.resize(*num_symbols);
    decode_symbols(bytes_, found.symbols);
  }
}

}  // namespace kvfence::optimized
