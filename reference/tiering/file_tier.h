#pragma once

/// The files of a scripted file tier, without files: a map from key to bytes, and what would go
/// wrong under the same plan of faults. Each function takes the steps of its rule in
/// contract/tiering/file_tier.h, in order.
/// Source: vLLM v0.23.0 v1/kv_offload/tiering/fs/{manager,io}.py.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/tiering/file_fault.h"
#include "contract/tiering/file_mapper.h"
#include "contract/tiering/file_tier.h"
#include "contract/tiering/tier_files.h"

namespace kvfence::reference {

class FileTier final : public TierFiles {
 public:
  /// Requires: check_config(config) finds nothing wrong
  FileTier(const FileTierConfig& config, PrimaryKvView primary)
      : config_(config), mapper_(config.files), primary_(primary) {
    open();
  }

  LookupResult lookup(OffloadKeyView key) override;
  bool store(const TierJob& job) override { return run(job, &FileTier::store_block); }
  bool load(const TierJob& job) override { return run(job, &FileTier::load_block); }
  void begin(FaultPlan plan) override { plan_ = std::move(plan); }
  void restart(bool overtaken) override;

  /// The other tier is opened for it and ends; a right-sized file stays.
  void add(OffloadKeyView key, std::span<const std::byte> block) override;
  void delete_file(OffloadKeyView key) override { files_.erase(OffloadKey(key)); }
  void flip_bit(OffloadKeyView key, std::uint64_t bit) override;
  void resize_file(OffloadKeyView key, std::uint64_t bytes) override;
  void copy_file(OffloadKeyView from, OffloadKeyView to) override;
  void act_as_writer(std::uint32_t number, WriterAct act) override;

  std::vector<OffloadKey> keys_with_file() override;
  const std::vector<std::string>& writers() override;
  /// Requires: the key has a file
  std::uint64_t file_bytes(OffloadKeyView key) const {
    return files_.at(OffloadKey(key)).num_bytes;
  }

  void add_to(StateHash& hash) const override {
    hash.add_kept(plan_, files_, folders_, doubtful_, lock_files_, others_, temporary_files_,
                  strays_);
    hash.add_all(number_, has_temporary_left_, has_run_config_);
  }

 private:
  struct File {
    OffloadKey written_for;
    std::vector<std::byte> block;
    std::uint64_t num_bytes = 0;
    std::set<std::uint64_t> flipped_bits;
  };

  std::uint64_t right_size() const { return kBlockFileHeaderBytes + primary_.slot_bytes; }
  bool has_file(OffloadKeyView key) const { return files_.contains(OffloadKey(key)); }
  bool has_right_sized_file(OffloadKeyView key) const;
  bool is_doubtful(OffloadKeyView key) const { return doubtful_.contains(OffloadKey(key)); }
  bool header_is_good(OffloadKeyView key) const;
  bool block_is_good(OffloadKeyView key) const;

  int fails(FileOperation operation);
  int fails_unless_interrupted(FileOperation operation);
  enum class Moving : std::uint8_t { kDone, kBad, kFails };
  Moving move(FileOperation operation, std::uint64_t num_bytes);
  bool write_fails(std::uint64_t num_bytes);
  int rename_fails(OffloadKeyView key);
  bool file_fails(OffloadKeyView key);

  void end();
  void open();
  void become_writer();
  int take_lock(std::uint32_t number);
  bool reclaim(std::uint32_t number);
  void write_run_config();
  bool create_fails();
  void remove_temporary_file();

  bool run(const TierJob& job, bool (FileTier::*do_block)(OffloadKeyView, SlotId));
  bool store_block(OffloadKeyView key, SlotId slot);
  void add_folders_of(OffloadKeyView key);
  void write_whole_file(OffloadKeyView key, std::span<const std::byte> block);
  bool load_block(OffloadKeyView key, SlotId slot);
  Moving read_file(OffloadKeyView key);

  FileTierConfig config_;
  FileMapper mapper_;
  PrimaryKvView primary_;
  FaultPlan plan_;
  std::map<OffloadKey, File> files_;
  std::set<std::string> folders_;
  std::set<OffloadKey> doubtful_;
  std::optional<std::uint32_t> number_;           ///< as a writer
  std::set<std::uint32_t> lock_files_;            ///< N.lock, of writers, alive or not
  std::set<std::uint32_t> others_;                ///< that are alive
  std::multiset<std::uint32_t> temporary_files_;  ///< whose they are
  std::set<std::uint32_t> strays_;
  bool has_temporary_left_ = false;  ///< since the tier was opened
  bool has_run_config_ = false;
  std::vector<std::string> writers_;  ///< as they were last asked for
};

std::unique_ptr<TierFiles> make_tier_files(PrimaryKvView primary);

}  // namespace kvfence::reference
