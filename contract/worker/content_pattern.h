#pragma once

/// The content that tests write into KV blocks: every 16 bytes (a granule) say whose they are.
///
/// A granule is a bijective image of (block, generation, position), so a wrong one is decoded
/// instead of merely noticed: it names the block, the write and the place that it came from.
///
///   L = fmix64((block_id << 24 | generation) ^ fmix64(run_seed))     who wrote it
///   h = fmix64(granule_index ^ L)                                    where in the block
///   the 16 bytes are {L ^ h, h}
///
/// The seed is mixed too: otherwise runs of seeds 6 and 7 would read each other's bytes as another
/// generation of the same block.
///
/// Everything here is usable on the host and in a kernel, so that the two cannot differ; it is
/// C++17 for that reason. content_report.h holds what only the host needs.
///
/// Source: fmix64 is the finalizer of MurmurHash3 (x64, 128 bits).

#include <cstdint>

#if defined(__CUDACC__)
#define KVFENCE_HOST_DEVICE __host__ __device__
#else
#define KVFENCE_HOST_DEVICE
#endif

namespace kvfence::content {

/// As large as the widest load and store of a GPU thread.
inline constexpr std::uint64_t kGranuleBytes = 16;

/// Widths of the two halves of a tag.
inline constexpr std::uint32_t kGenerationBits = 24;
inline constexpr std::uint32_t kBlockIdBits = 40;

/// Blocks that no pool has: bytes of a slot that nothing has been written to, and bytes before,
/// after and between slots that nothing may ever write to.
inline constexpr std::uint64_t kPoisonBlock = (std::uint64_t{1} << kBlockIdBits) - 1;
inline constexpr std::uint64_t kCanaryBlock = kPoisonBlock - 1;

/// One write of one block. Two writes of one block differ in the generation.
struct Tag {
  std::uint64_t block_id = 0;    ///< below 2^40
  std::uint32_t generation = 0;  ///< below 2^24
};
KVFENCE_HOST_DEVICE constexpr bool operator==(const Tag& a, const Tag& b) {
  return a.block_id == b.block_id && a.generation == b.generation;
}
KVFENCE_HOST_DEVICE constexpr bool operator!=(const Tag& a, const Tag& b) { return !(a == b); }

/// Whose granule it is, and which of the block's.
struct Owner {
  Tag tag;
  std::uint64_t granule_index = 0;
};
KVFENCE_HOST_DEVICE constexpr bool operator==(const Owner& a, const Owner& b) {
  return a.tag == b.tag && a.granule_index == b.granule_index;
}

/// The bytes, as two words of the machine.
struct alignas(kGranuleBytes) Granule {
  std::uint64_t first = 0;
  std::uint64_t second = 0;
};
KVFENCE_HOST_DEVICE constexpr bool operator==(const Granule& a, const Granule& b) {
  return a.first == b.first && a.second == b.second;
}

/// What can exist in a run: anything else that is decoded is foreign. Random bytes are in range
/// with probability num_blocks * generations * granules / 2^128.
struct Universe {
  std::uint64_t run_seed = 0;  ///< keeps the runs that share a memory apart
  std::uint64_t num_blocks = 0;
  std::uint32_t generation_max = 0;
  std::uint64_t granules_per_block = 0;
};

KVFENCE_HOST_DEVICE constexpr std::uint64_t fmix64(std::uint64_t x) {
  x ^= x >> 33;
  x *= 0xFF51'AFD7'ED55'8CCDU;
  x ^= x >> 33;
  x *= 0xC4CE'B9FE'1A85'EC53U;
  x ^= x >> 33;
  return x;
}

/// The inverse of fmix64: the factors are the inverses modulo 2^64, a shift by 33 undoes itself.
KVFENCE_HOST_DEVICE constexpr std::uint64_t unfmix64(std::uint64_t x) {
  x ^= x >> 33;
  x *= 0x9CB4'B2F8'1293'37DBU;
  x ^= x >> 33;
  x *= 0x4F74'430C'22A5'4005U;
  x ^= x >> 33;
  return x;
}

/// Requires ids below their widths.
KVFENCE_HOST_DEVICE constexpr Granule encode(std::uint64_t run_seed, const Owner& owner) {
  const std::uint64_t key =
      fmix64((owner.tag.block_id << kGenerationBits | owner.tag.generation) ^ fmix64(run_seed));
  const std::uint64_t place = fmix64(owner.granule_index ^ key);
  return {key ^ place, place};
}

/// Any 16 bytes decode to something; is_in_range says whether it can have been written.
KVFENCE_HOST_DEVICE constexpr Owner decode(std::uint64_t run_seed, const Granule& granule) {
  const std::uint64_t key = granule.first ^ granule.second;
  const std::uint64_t tag = unfmix64(key) ^ fmix64(run_seed);
  return {{tag >> kGenerationBits,
           static_cast<std::uint32_t>(tag & ((std::uint64_t{1} << kGenerationBits) - 1))},
          unfmix64(granule.second) ^ key};
}

KVFENCE_HOST_DEVICE constexpr bool is_in_range(const Universe& universe, const Owner& owner) {
  const bool is_block = owner.tag.block_id < universe.num_blocks ||
                        owner.tag.block_id == kPoisonBlock || owner.tag.block_id == kCanaryBlock;
  return is_block && owner.tag.generation <= universe.generation_max &&
         owner.granule_index < universe.granules_per_block;
}

/// The verdict on a granule, compared with `expected`.
enum class Verdict : std::uint8_t {
  kRight,
  kStale,       ///< the right place of the block, another generation of it
  kOtherBlock,  ///< another block's, whatever the place
  kShifted,     ///< this block's, another place
  kTorn,        ///< part of one, part of another
  kPoison,      ///< never written
  kCanary,      ///< from outside every slot
  kForeign,     ///< nothing that the run has written
};
inline constexpr int kNumVerdicts = 8;

/// kTorn is not found here: it is said of blocks (content_report.h). A granule that is itself torn
/// decodes like random bytes.
KVFENCE_HOST_DEVICE constexpr Verdict classify(const Universe& universe, const Owner& expected,
                                               const Granule& granule) {
  const Owner owner = decode(universe.run_seed, granule);
  if (owner == expected) return Verdict::kRight;
  if (!is_in_range(universe, owner)) return Verdict::kForeign;
  if (owner.tag.block_id == kPoisonBlock) return Verdict::kPoison;
  if (owner.tag.block_id == kCanaryBlock) return Verdict::kCanary;
  if (owner.tag.block_id != expected.tag.block_id) return Verdict::kOtherBlock;
  if (owner.granule_index != expected.granule_index) return Verdict::kShifted;
  return Verdict::kStale;
}

/// Writes every `stride`-th granule from `first` on: a thread of a kernel passes its index and the
/// number of threads, the host 0 and 1. Cost: about 20 integer operations per granule.
KVFENCE_HOST_DEVICE inline void fill_granules(Granule* block, std::uint64_t num_granules, Tag tag,
                                              std::uint64_t run_seed, std::uint64_t first = 0,
                                              std::uint64_t stride = 1) {
  for (std::uint64_t index = first; index < num_granules; index += stride) {
    block[index] = encode(run_seed, {tag, index});
  }
}

/// What a check of a block found. For the threads of a kernel: the sum of the counts, and the
/// lowest index with its granule.
struct Mismatch {
  std::uint64_t num_wrong = 0;
  std::uint64_t first_wrong_index = ~std::uint64_t{0};  ///< of the lowest
  Granule first_wrong;
};

KVFENCE_HOST_DEVICE inline Mismatch check_granules(const Granule* block, std::uint64_t num_granules,
                                                   Tag tag, std::uint64_t run_seed,
                                                   std::uint64_t first = 0,
                                                   std::uint64_t stride = 1) {
  Mismatch found;
  for (std::uint64_t index = first; index < num_granules; index += stride) {
    const Granule actual = block[index];
    if (actual == encode(run_seed, {tag, index})) continue;
    ++found.num_wrong;
    if (index < found.first_wrong_index) {
      found.first_wrong_index = index;
      found.first_wrong = actual;
    }
  }
  return found;
}

}  // namespace kvfence::content
