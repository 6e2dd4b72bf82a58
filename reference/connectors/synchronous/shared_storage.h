#pragma once

/// Storage that engines share, without files: a map of maps. The rules stand in
/// contract/connectors/synchronous/shared_storage.h.

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

class MapStorage final : public SharedStorage {
 public:
  bool folder_exists(std::string_view folder) const override;
  bool save(std::string_view folder, std::uint32_t layer,
            std::span<const KVSymbol> symbols) override;
  bool load(std::string_view folder, std::uint32_t layer, std::span<KVSymbol> symbols) override;
  void fail_next(std::uint32_t layer, FileOperation operation) override;
  void make_folder(std::string_view folder) override;
  void put_file(std::string_view folder, std::uint32_t layer,
                std::span<const KVSymbol> symbols) override;
  bool remove_folder(std::string_view folder) override;
  bool remove_file(std::string_view folder, std::uint32_t layer) override;
  bool truncate_file(std::string_view folder, std::uint32_t layer) override;
  void folders(std::vector<std::string>& names) const override;
  void files(std::vector<StoredFile>& files) const override;
  void add_to(StateHash& hash) const override { hash.add_all(folders_, faults_); }

 private:
  struct File {
    bool whole = true;
    std::vector<KVSymbol> symbols;
    void add_to(StateHash& hash) const { hash.add_all(whole, symbols); }
  };
  using Folder = std::map<std::uint32_t, File>;  ///< by layer

  bool fails(std::uint32_t layer, FileOperation operation);

  std::map<std::string, Folder> folders_;
  std::set<std::pair<std::uint32_t, FileOperation>> faults_;
};

std::unique_ptr<SharedStorage> make_shared_storage();

}  // namespace kvfence::reference
