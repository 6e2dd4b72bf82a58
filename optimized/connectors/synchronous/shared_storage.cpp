// Files of a temporary folder, with planned failures and the actions of other engines.

#include "contract/connectors/synchronous/shared_storage.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "contract/core/check.h"
#include "contract/core/state_digest.h"
#include "optimized/connectors/synchronous/file_storage.h"
#include "optimized/connectors/synchronous/symbol_file.h"
#include "optimized/connectors/synchronous/synchronous_connector.h"
#include "optimized/files/faulty_file_operations.h"
#include "optimized/files/posix_file_operations.h"
#include "optimized/files/temporary_folder.h"

namespace kvfence::optimized {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t bit_of(FileOperation operation) {
  return 1U << static_cast<std::uint32_t>(operation);
}

/// A write that fails has written half of the bytes before.
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

class FolderOfFiles final : public StorageWorld {
 public:
  bool folder_exists(std::string_view folder) const override {
    return storage_.folder_exists(folder);
  }

  bool save(std::string_view folder, std::uint32_t layer,
            std::span<const KVSymbol> symbols) override {
    if (!has_faults(layer)) return changing().save(folder, layer, symbols);
    encode_symbols(symbols, bytes_);
    faulty_.begin(plan_of(to_fail_[layer], bytes_.size()));
    const bool done = changing().save(folder, layer, symbols);
    take_back_what_happened(layer);
    return done;
  }

  bool load(std::string_view folder, std::uint32_t layer, std::span<KVSymbol> symbols) override {
    // A load makes its folder.
    if (!has_faults(layer)) return changing().load(folder, layer, symbols);
    faulty_.begin(plan_of(to_fail_[layer], 0));
    const bool done = changing().load(folder, layer, symbols);
    take_back_what_happened(layer);
    return done;
  }

  void fail_next(std::uint32_t layer, FileOperation operation) override {
    KVFENCE_CHECK(std::ranges::find(kStorageOperations, operation) != kStorageOperations.end(),
                  "an operation that neither saving nor loading uses");
    if (layer >= to_fail_.size()) to_fail_.resize(std::size_t{layer} + 1, 0);
    to_fail_[layer] |= bit_of(operation);
  }

  void make_folder(std::string_view folder) override {
    fs::create_directory(changing().path_of(folder));
  }

  void put_file(std::string_view folder, std::uint32_t layer,
                std::span<const KVSymbol> symbols) override {
    KVFENCE_CHECK(changing().save(folder, layer, symbols),
                  "a file of the storage can not be written: is the disk full?");
  }

  bool remove_folder(std::string_view folder) override {
    return fs::remove_all(changing().path_of(folder)) > 0;
  }

  bool remove_file(std::string_view folder, std::uint32_t layer) override {
    return fs::remove(changing().path_of(folder, layer));
  }

  bool truncate_file(std::string_view folder, std::uint32_t layer) override {
    const std::string& path = changing().path_of(folder, layer);
    std::error_code error;
    const std::uintmax_t size = fs::file_size(path, error);
    if (error) return false;
    fs::resize_file(path, size / 2);
    return true;
  }

  void folders(std::vector<std::string>& names) const override { names = listed().folders; }

  void files(std::vector<StoredFile>& files) const override { files = listed().files; }

  void add_to(StateHash& hash) const override {
    hash.add_all(listed().folders, listed().files, to_fail_);
  }

 private:
  bool has_faults(std::uint32_t layer) const {
    return layer < to_fail_.size() && to_fail_[layer] != 0;
  }

  void take_back_what_happened(std::uint32_t layer) {
    for (const FileFault& fault : faulty_.happened()) to_fail_[layer] &= ~bit_of(fault.operation);
    faulty_.begin(FaultPlan());
  }

  /// For a call that may change what the folder holds.
  FileStorage& changing() {
    is_listed_ = false;
    return storage_;
  }

  /// What the folder holds. Everyone asks after each step, and few steps change a file.
  struct Listing {
    std::vector<std::string> folders;
    std::vector<StoredFile> files;
  };

  const Listing& listed() const {
    if (!is_listed_) list();
    is_listed_ = true;
    return listing_;
  }

  void list() const {
    auto& [folders, files] = listing_;
    KVFENCE_CHECK(posix_.list(folder_.path(), folders) >= 0, "a storage without a folder");
    std::ranges::sort(folders);
    files.clear();
    std::vector<std::string> names;
    for (const std::string& folder : folders) {
      const auto first = static_cast<std::ptrdiff_t>(files.size());
      if (posix_.list(storage_.path_of(folder), names) < 0) continue;
      for (const std::string& name : names) {
        if (const auto layer = layer_of(name)) files.push_back(stored(folder, *layer));
      }
      std::ranges::sort(files.begin() + first, files.end(), {}, &StoredFile::layer);
    }
  }

  StoredFile stored(const std::string& folder, std::uint32_t layer) const {
    StoredFile found{folder, layer, false, {}};
    if (!read_file(posix_, storage_.path_of(folder, layer), bytes_)) return found;
    const std::optional<std::size_t> num_symbols = num_symbols_of(bytes_);
    if (!num_symbols) return found;
    found.whole = true;
    found.symbols.resize(*num_symbols);
    decode_symbols(bytes_, found.symbols);
    return found;
  }

  TemporaryFolder folder_ = TemporaryFolder("storage");
  mutable PosixFileOperations posix_;
  FaultyFileOperations faulty_ = FaultyFileOperations(posix_);
  FileStorage storage_{folder_.path(), faulty_};
  std::vector<std::uint32_t> to_fail_;  ///< by layer: a bit by FileOperation
  mutable Listing listing_;
  mutable bool is_listed_ = false;        ///< nothing has changed a file since
  mutable std::vector<std::byte> bytes_;  ///< of single calls, kept for the next one
};

}  // namespace

std::unique_ptr<StorageWorld> make_shared_storage() { return std::make_unique<FolderOfFiles>(); }

}  // namespace kvfence::optimized
