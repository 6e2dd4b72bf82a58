#pragma once

/// For tests of the file tier: a folder of their own, and memory for slots.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/tiering/file_tier.h"
#include "contract/tiering/secondary_tier.h"
#include "contract/tiering/tier_files.h"
#include "optimized/files/temporary_folder.h"

namespace kvfence::optimized {

/// For a look at its contents.
class TestFolder : public TemporaryFolder {
 public:
  explicit TestFolder(const std::string& name) : TemporaryFolder(name) {}

  /// Every file below with this ending, by path.
  std::vector<std::filesystem::path> files(std::string_view ending) const {
    std::vector<std::filesystem::path> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path())) {
      if (entry.is_regular_file() && entry.path().string().ends_with(ending)) {
        found.push_back(entry.path());
      }
    }
    return found;
  }
};

/// A primary tier that is only memory.
class TestSlots {
 public:
  TestSlots(std::size_t slot_bytes, std::uint32_t num_slots)
      : slot_bytes_(slot_bytes), bytes_(slot_bytes * num_slots), num_slots_(num_slots) {}

  PrimaryKvView view() { return {bytes_.data(), slot_bytes_, num_slots_}; }
  std::vector<std::byte>& bytes() { return bytes_; }

  /// The block of a key number: every byte depends on it and on its place.
  static std::byte block_byte(std::uint32_t key, std::size_t place) {
    return static_cast<std::byte>(block_word(key, place / 8) >> (8 * (place % 8)));
  }
  void fill(SlotId slot, std::uint32_t key) {
    const std::span<std::byte> bytes = view().slot(slot);
    for (std::size_t i = 0; i < bytes.size(); i += 8) {
      const std::uint64_t word = block_word(key, i / 8);
      std::memcpy(bytes.data() + i, &word, std::min<std::size_t>(8, bytes.size() - i));
    }
  }
  bool holds(SlotId slot, std::uint32_t key) {
    const std::span<std::byte> bytes = view().slot(slot);
    for (std::size_t i = 0; i < bytes.size(); i += 8) {
      const std::uint64_t word = block_word(key, i / 8);
      if (std::memcmp(bytes.data() + i, &word, std::min<std::size_t>(8, bytes.size() - i)) != 0) {
        return false;
      }
    }
    return true;
  }

 private:
  static_assert(std::endian::native == std::endian::little, "block_byte and fill agree");

  /// SplitMix64's output function.
  static std::uint64_t block_word(std::uint32_t key, std::size_t index) {
    std::uint64_t bits = (std::uint64_t{key} << 32) + index + 1;
    bits = (bits ^ (bits >> 30)) * 0xBF58'476D'1CE4'E5B9;
    bits = (bits ^ (bits >> 27)) * 0x94D0'49BB'1331'11EB;
    return bits ^ (bits >> 31);
  }

  std::size_t slot_bytes_;
  std::vector<std::byte> bytes_;
  std::uint32_t num_slots_;
};

/// Keys with files in one folder: for tests of many files, not of folders.
inline OffloadKey nearby_key(std::uint32_t number) {
  OffloadKey key(32, '\0');
  for (std::size_t i = 0; i < 4; ++i) key[20 + i] = static_cast<char>(number >> (8 * i));
  return key;
}

/// The configuration of the tests, with one thread: jobs end in the order of submission.
inline FileTierConfig test_config(const std::string& root_dir) {
  FileTierConfig config = tier_files_config(root_dir);
  config.files.model_name = "test/model";
  return config;
}

}  // namespace kvfence::optimized
