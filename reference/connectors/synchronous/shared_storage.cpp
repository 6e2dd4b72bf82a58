#include "reference/connectors/synchronous/shared_storage.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/connectors/synchronous/shared_storage.h"
#include "contract/core/state_digest.h"

namespace kvfence::reference {
namespace {

/// A map of maps.
class MapStorage final : public StorageWorld {
 public:
  bool folder_exists(std::string_view folder) const override {
    return folders_.contains(std::string(folder));
  }

  bool save(std::string_view folder, std::uint32_t layer,
            std::span<const KVSymbol> symbols) override {
    if (fails(layer, FileOperation::kMakeFolder)) return false;
    Folder& files = folders_[std::string(folder)];
    files.erase(layer);
    if (fails(layer, FileOperation::kCreate)) return false;
    File& file = files[layer];
    if (fails(layer, FileOperation::kWrite)) {
      file.whole = false;
      return false;
    }
    file.symbols.assign(symbols.begin(), symbols.end());
    return true;
  }

  bool load(std::string_view folder, std::uint32_t layer, std::span<KVSymbol> symbols) override {
    if (fails(layer, FileOperation::kMakeFolder)) return false;
    const Folder& files = folders_[std::string(folder)];
    if (fails(layer, FileOperation::kOpen)) return false;
    const auto file = files.find(layer);
    if (file == files.end()) return false;
    if (fails(layer, FileOperation::kRead)) return false;
    if (!file->second.whole || file->second.symbols.size() != symbols.size()) return false;
    std::copy(file->second.symbols.begin(), file->second.symbols.end(), symbols.begin());
    return true;
  }

  void fail_next(std::uint32_t layer, FileOperation operation) override {
    faults_.insert({layer, operation});
  }

  void make_folder(std::string_view folder) override { folders_[std::string(folder)]; }

  void put_file(std::string_view folder, std::uint32_t layer,
                std::span<const KVSymbol> symbols) override {
    folders_[std::string(folder)][layer] = {/*whole=*/true, {symbols.begin(), symbols.end()}};
  }

  bool remove_folder(std::string_view folder) override {
    return folders_.erase(std::string(folder)) > 0;
  }

  bool remove_file(std::string_view folder, std::uint32_t layer) override {
    const auto found = folders_.find(std::string(folder));
    return found != folders_.end() && found->second.erase(layer) > 0;
  }

  bool truncate_file(std::string_view folder, std::uint32_t layer) override {
    const auto found = folders_.find(std::string(folder));
    if (found == folders_.end() || !found->second.contains(layer)) return false;
    found->second[layer] = {/*whole=*/false, {}};
    return true;
  }

  void folders(std::vector<std::string>& names) const override {
    names.clear();
    for (const auto& [name, files] : folders_) names.push_back(name);
  }

  void files(std::vector<StoredFile>& files) const override {
    files.clear();
    for (const auto& [name, folder] : folders_) {
      for (const auto& [layer, file] : folder)
        files.push_back({name, layer, file.whole, file.symbols});
    }
  }

  void add_to(StateHash& hash) const override { hash.add_all(folders_, faults_); }

 private:
  struct File {
    bool whole = true;
    std::vector<KVSymbol> symbols;
  };
  using Folder = std::map<std::uint32_t, File>;  ///< by layer

  bool fails(std::uint32_t layer, FileOperation operation) {
    return faults_.erase({layer, operation}) > 0;
  }

  std::map<std::string, Folder> folders_;
  std::set<std::pair<std::uint32_t, FileOperation>> faults_;
};

}  // namespace

std::unique_ptr<StorageWorld> make_shared_storage() { return std::make_unique<MapStorage>(); }

}  // namespace kvfence::reference
