#pragma once

/// The files of a scripted tier (contract/scripted/scripted_tier.h) that is a file tier: one file
/// per block, by the rules of contract/tiering/file_tier.h. A job is carried out at once, when the
/// script says so, with one thread: so a plan of faults counts the same calls on every
/// implementation.
///
/// Also the bytes that GPU and tiers write: those of a block follow from its key.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "contract/core/check.h"
#include "contract/core/state_digest.h"
#include "contract/tiering/file_fault.h"
#include "contract/tiering/file_tier.h"
#include "contract/tiering/secondary_tier.h"

namespace kvfence {

/// What another process does under a writer's number. From kWritersMax on a number belongs to no
/// writer.
enum class WriterAct : std::uint8_t {
  kClaims,  ///< takes the lock of the number, unless that is held
  kWrites,  ///< begins a temporary file
  kDies,    ///< loses the lock; its files stay
  kStrays,  ///< makes a file Nx.tmp, which is no writer's name
};

constexpr auto words_of(WriterAct) { return words({"claims", "writes", "dies", "strays"}); }

/// Not copyable: a folder is one place. A tier that has files is moved, as one with threads is.
class TierFiles {
 public:
  TierFiles() = default;
  TierFiles(const TierFiles&) = delete;
  TierFiles& operator=(const TierFiles&) = delete;
  virtual ~TierFiles() = default;

  /// Aborts.
  std::unique_ptr<TierFiles> clone() const {
    check_failed(__FILE__, __LINE__, "clone", "a tier that has files is moved, not copied");
  }

  /// As the file tier's lookup.
  virtual LookupResult lookup(OffloadKeyView key) = 0;
  /// Carries out a job; returns whether it succeeded.
  virtual bool store(const TierJob& job) = 0;
  virtual bool load(const TierJob& job) = 0;

  /// A plan of faults begins: calls are counted from 0. Requires: no kMakeFolder fails with ENOENT,
  /// after which the tier makes the folders around, and those differ between implementations.
  virtual void begin(FaultPlan plan) = 0;

  /// The tier ends, and is opened again; the plan continues. If `overtaken`, another writer tries
  /// to take number 0 in between.
  virtual void restart(bool overtaken) = 0;

  // What other processes do to files, independent of the plan. No effect on a missing file.

  /// Stores a block as another engine's tier does. block has the bytes of a slot.
  virtual void add(OffloadKeyView key, std::span<const std::byte> block) = 0;
  virtual void delete_file(OffloadKeyView key) = 0;
  virtual void flip_bit(OffloadKeyView key, std::uint64_t bit) = 0;  ///< modulo the file's bits
  /// Requires: bytes is not the right size.
  virtual void resize_file(OffloadKeyView key, std::uint64_t bytes) = 0;
  /// Replaces an existing file.
  virtual void copy_file(OffloadKeyView from, OffloadKeyView to) = 0;
  /// In the folder of writers.
  virtual void act_as_writer(std::uint32_t number, WriterAct act) = 0;

  // Observers.

  /// The keys that have a file, of any content, ascending.
  virtual std::vector<OffloadKey> keys_with_file() = 0;
  /// The names in the folder of writers, ascending; a temporary file N.<any>.tmp is listed as
  /// N.tmp.
  virtual const std::vector<std::string>& writers() = 0;

  /// For an observer: what its files hold, and what it knows of them.
  virtual void add_to(StateHash& hash) const { hash.add_unknown(); }
};

/// Makes the files of one tier, for slots that outlive them.
using MakeTierFiles = std::function<std::unique_ptr<TierFiles>(PrimaryKvView primary)>;

/// The configuration that both sides use, with one thread: calls are counted alike.
inline FileTierConfig tier_files_config(const std::string& root_dir) {
  FileTierConfig config;
  config.files.root_dir = root_dir;
  config.files.model_name = "model";
  config.files.hash_block_size = 16;
  config.files.dtype = "auto";
  config.n_read_threads = 1;
  config.n_write_threads = 0;
  return config;
}

/// The byte at a place of a block.
inline std::byte block_byte(OffloadKeyView key, std::size_t place) {
  return static_cast<std::byte>(static_cast<unsigned char>(key[place % key.size()]) + place);
}

/// Writes the block of a key. Requires: the key is not empty.
inline void fill_block(OffloadKeyView key, std::span<std::byte> block) {
  for (std::size_t place = 0; place < block.size(); ++place) block[place] = block_byte(key, place);
}

/// Whether these are the bytes of the key's block.
inline bool holds_block(OffloadKeyView key, std::span<const std::byte> block) {
  for (std::size_t place = 0; place < block.size(); ++place) {
    if (block[place] != block_byte(key, place)) return false;
  }
  return true;
}

}  // namespace kvfence
