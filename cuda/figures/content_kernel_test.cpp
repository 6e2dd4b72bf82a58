/// Goal: the kernels write the host's bytes and no others, and find what is wrong and where. The
/// twins run on the virtual device, the kernels on a GPU.

#include "cuda/figures/content_kernel.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "contract/worker/content_report.h"
#include "cuda/copy_paths/device_under_test.h"
#include "cuda/copy_paths/host_access.h"
#include "cuda/copy_paths/pinned_memory.h"

namespace kvfence::cuda {
namespace {

using content::Granule;
using content::Mismatch;
using content::Tag;

constexpr std::uint64_t kRunSeed = 5;
constexpr std::uint64_t kNumSlots =
    kIsOnGpu ? 3000 : 5;  // more than blocks of threads; an odd rest
constexpr std::uint64_t kGranules = 2 * kContentThreads + 3;
constexpr std::size_t kStride = (kGranules + 2) * content::kGranuleBytes;
constexpr std::size_t kSize = kNumSlots * kStride;

#define KVFENCE_EXPECT_OK(call) EXPECT_EQ(call, cudaSuccess)

/// Memory of the GPU and what the host expects in it.
class Memory {
 public:
  Memory() {
    KVFENCE_EXPECT_OK(cudaMalloc(&gpu_, kSize));
    KVFENCE_EXPECT_OK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    KVFENCE_EXPECT_OK(PinnedMemory::allocate(kSize, staging_));
    KVFENCE_EXPECT_OK(PinnedMemory::allocate(kNumSlots * sizeof(Mismatch), found_));
    content::fill_canary({staging_.host_address(), kSize}, kRunSeed);
    upload();
  }
  ~Memory() {
    KVFENCE_EXPECT_OK(cudaStreamDestroy(stream_));
    KVFENCE_EXPECT_OK(cudaFree(gpu_));
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  ContentSlots slots() const {
    return {.address = reinterpret_cast<std::uintptr_t>(gpu_) + content::kGranuleBytes,
            .stride_bytes = kStride,
            .granules_per_slot = kGranules,
            .num_slots = kNumSlots,
            .first = {7, 3},
            .run_seed = kRunSeed};
  }
  void fill(const ContentSlots& slots) {
    KVFENCE_EXPECT_OK(kvfence_launch_fill_kernel(&slots, stream_));
  }
  std::vector<Mismatch> check(const ContentSlots& slots) {
    auto* const device = reinterpret_cast<Mismatch*>(found_.device_address());
    KVFENCE_EXPECT_OK(kvfence_launch_check_kernel(&slots, device, stream_));
    KVFENCE_EXPECT_OK(cudaStreamSynchronize(stream_));
    std::vector<Mismatch> found(slots.num_slots);
    kvfence_host_read(found_.host_address(), found.size() * sizeof(Mismatch));
    std::memcpy(found.data(), found_.host_address(), found.size() * sizeof(Mismatch));
    return found;
  }
  /// The GPU's bytes, in memory that the test may change and send back.
  std::byte* download() {
    KVFENCE_EXPECT_OK(
        cudaMemcpyAsync(staging_.host_address(), gpu_, kSize, cudaMemcpyDeviceToHost, stream_));
    KVFENCE_EXPECT_OK(cudaStreamSynchronize(stream_));
    kvfence_host_write(staging_.host_address(), kSize);
    return staging_.host_address();
  }
  void upload() {
    KVFENCE_EXPECT_OK(
        cudaMemcpyAsync(gpu_, staging_.host_address(), kSize, cudaMemcpyHostToDevice, stream_));
    KVFENCE_EXPECT_OK(cudaStreamSynchronize(stream_));
  }
  static std::size_t place(std::uint64_t slot, std::uint64_t granule) {
    return slot * kStride + (1 + granule) * content::kGranuleBytes;
  }

 private:
  void* gpu_ = nullptr;
  cudaStream_t stream_ = nullptr;
  PinnedMemory staging_;
  PinnedMemory found_;
};

/// The device finds nothing beside what the check itself sees.
template <class Check>
void in_each_run(Check check) {
  for (std::size_t run = 0; run < kNumRuns; ++run) {
    DeviceUnderTest device(run);
    {
      SCOPED_TRACE(device.name());
      Memory memory;
      check(memory);
    }
    EXPECT_EQ(device.findings(), "");
  }
}

TEST(ContentKernels, WriteTheBytesOfTheHost) {
  KVFENCE_NEEDS_DEVICE();
  in_each_run([](Memory& memory) {
    memory.fill(memory.slots());
    std::vector<std::byte> expected(kSize);
    content::fill_canary(expected, kRunSeed);
    for (std::uint64_t slot = 0; slot < kNumSlots; ++slot) {
      content::fill({expected.data() + Memory::place(slot, 0), kGranules * 16}, {7 + slot, 3},
                    kRunSeed);
    }
    EXPECT_EQ(std::memcmp(memory.download(), expected.data(), kSize), 0);
  });
}

TEST(ContentKernels, FindNothingWhereAllIsRight) {
  KVFENCE_NEEDS_DEVICE();
  in_each_run([](Memory& memory) {
    ContentSlots slots = memory.slots();
    slots.block_step = 3;
    memory.fill(slots);
    for (const Mismatch& found : memory.check(slots)) {
      EXPECT_EQ(found.num_wrong, 0U);
      EXPECT_EQ(found.first_wrong_index, ~std::uint64_t{0});
    }
  });
}

TEST(ContentKernels, FindWhatIsWrongAndWhere) {
  KVFENCE_NEEDS_DEVICE();
  in_each_run([](Memory& memory) {
    memory.fill(memory.slots());
    std::byte* const bytes = memory.download();
    const auto put = [bytes](std::uint64_t slot, std::uint64_t granule, const Granule& what) {
      std::memcpy(bytes + Memory::place(slot, granule), &what, sizeof what);
    };
    // Stale, another block's and shifted; the last granule, in the rest; and between slots.
    const Granule stale = content::encode(kRunSeed, {{8, 2}, kContentThreads + 1});
    put(1, kContentThreads + 1, stale);
    put(1, 2 * kContentThreads + 1, stale);
    const Granule other = content::encode(kRunSeed, {{7, 3}, 0});
    put(2, 0, other);
    const Granule shifted = content::encode(kRunSeed, {{10, 3}, 0});
    put(3, kGranules - 1, shifted);
    put(4, kGranules, shifted);
    memory.upload();

    const std::vector<Mismatch> found = memory.check(memory.slots());
    const auto expect = [&found](std::uint64_t slot, std::uint64_t num_wrong, std::uint64_t first,
                                 const Granule& granule) {
      EXPECT_EQ(found[slot].num_wrong, num_wrong) << slot;
      EXPECT_EQ(found[slot].first_wrong_index, first) << slot;
      EXPECT_TRUE(found[slot].first_wrong == granule) << slot;
    };
    expect(0, 0, ~std::uint64_t{0}, {});
    expect(1, 2, kContentThreads + 1, stale);
    expect(2, 1, 0, other);
    expect(3, 1, kGranules - 1, shifted);
    expect(4, 0, ~std::uint64_t{0}, {});
    const content::Universe universe{kRunSeed, kNumSlots + 7, 4, kGranules};
    EXPECT_EQ(content::classify(universe, {{8, 3}, kContentThreads + 1}, found[1].first_wrong),
              content::Verdict::kStale);
    EXPECT_EQ(content::classify(universe, {{9, 3}, 0}, found[2].first_wrong),
              content::Verdict::kOtherBlock);
    EXPECT_EQ(content::classify(universe, {{10, 3}, kGranules - 1}, found[3].first_wrong),
              content::Verdict::kShifted);
  });
}

TEST(ContentKernels, CountEveryWrongGranule) {
  KVFENCE_NEEDS_DEVICE();
  in_each_run([](Memory& memory) {
    memory.fill(memory.slots());
    ContentSlots next = memory.slots();
    next.first.generation += 1;
    for (const Mismatch& found : memory.check(next)) {
      EXPECT_EQ(found.num_wrong, kGranules);
      EXPECT_EQ(found.first_wrong_index, 0U);
      EXPECT_EQ(content::decode(kRunSeed, found.first_wrong).tag.generation, 3U);
    }
  });
}

TEST(ContentKernels, RefuseSlotsThatAreNone) {
  KVFENCE_NEEDS_DEVICE();
  DeviceUnderTest device(0);
  const ContentSlots right{
      .address = 4096, .stride_bytes = 32, .granules_per_slot = 2, .num_slots = 2};
  std::vector<ContentSlots> refused(5, right);
  refused[0].num_slots = 0;
  refused[1].granules_per_slot = 0;
  refused[2].address += 8;
  refused[3].stride_bytes = 40;
  refused[4].stride_bytes = 16;
  for (const ContentSlots& slots : refused) {
    EXPECT_EQ(kvfence_launch_fill_kernel(&slots, nullptr), cudaErrorInvalidValue);
    EXPECT_EQ(kvfence_launch_check_kernel(&slots, nullptr, nullptr), cudaErrorInvalidValue);
  }
  EXPECT_TRUE(is_valid(right));
  EXPECT_EQ(device.findings(), "");
}

}  // namespace
}  // namespace kvfence::cuda
