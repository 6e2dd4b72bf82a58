#include "reference/connectors/synchronous/shared_storage.h"

#include <algorithm>

namespace kvfence::reference {

bool MapStorage::fails(std::uint32_t layer, FileOperation operation) {
  return faults_.erase({layer, operation}) > 0;
}

bool MapStorage::folder_exists(std::string_view folder) const {
  return folders_.contains(std::string(folder));
}

bool MapStorage::save(std::string_view folder, std::uint32_t layer,
                      std::span<const KVSymbol> symbols) {
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

bool MapStorage::load(std::string_view folder, std::uint32_t layer, std::span<KVSymbol> symbols) {
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

void MapStorage::fail_next(std::uint32_t layer, FileOperation operation) {
  faults_.insert({layer, operation});
}

void MapStorage::make_folder(std::string_view folder) { folders_[std::string(folder)]; }

void MapStorage::put_file(std::string_view folder, std::uint32_t layer,
                          std::span<const KVSymbol> symbols) {
  folders_[std::string(folder)][layer] = {/*whole=*/true, {symbols.begin(), symbols.end()}};
}

bool MapStorage::remove_folder(std::string_view folder) {
  return folders_.erase(std::string(folder)) > 0;
}

bool MapStorage::remove_file(std::string_view folder, std::uint32_t layer) {
  const auto found = folders_.find(std::string(folder));
  return found != folders_.end() && found->second.erase(layer) > 0;
}

bool MapStorage::truncate_file(std::string_view folder, std::uint32_t layer) {
  const auto found = folders_.find(std::string(folder));
  if (found == folders_.end() || !found->second.contains(layer)) return false;
  found->second[layer] = {/*whole=*/false, {}};
  return true;
}

void MapStorage::folders(std::vector<std::string>& names) const {
  names.clear();
  for (const auto& [name, files] : folders_) names.push_back(name);
}

void MapStorage::files(std::vector<StoredFile>& files) const {
  files.clear();
  for (const auto& [name, folder] : folders_) {
    for (const auto& [layer, file] : folder)
      files.push_back({name, layer, file.whole, file.symbols});
  }
}

std::unique_ptr<SharedStorage> make_shared_storage() { return std::make_unique<MapStorage>(); }

}  // namespace kvfence::reference
