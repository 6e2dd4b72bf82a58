/// Goal: every path copies the same bytes in either direction, and changes no other byte of either
/// memory; on the virtual device, and on a GPU.

#include "cuda/copy_paths/copy_path.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "contract/worker/content_report.h"
#include "cuda/copy_paths/copy_kernel.h"
#include "cuda/copy_paths/device_under_test.h"
#include "cuda/copy_paths/host_access.h"
#include "cuda/worker/worker_test_rig.h"

namespace kvfence::cuda {
namespace {

constexpr std::size_t kSize = kIsOnGpu ? std::size_t{8} << 20 : std::size_t{96} << 10;
constexpr std::uint64_t kRunSeed = 4;

/// Pieces by their offsets in the two memories, whose addresses differ from device to device.
struct Pieces {
  std::string name;
  std::vector<CopyDescriptor> of_store = {};  ///< dst in the CPU's, src in the GPU's

  std::vector<CopyDescriptor> at(Direction direction, std::uintptr_t gpu,
                                 std::uintptr_t cpu) const {
    std::vector<CopyDescriptor> copies;
    for (const CopyDescriptor& piece : of_store) {
      const CopyDescriptor store{cpu + piece.dst, gpu + piece.src, piece.size};
      copies.push_back(direction == Direction::kStore
                           ? store
                           : CopyDescriptor{store.src, store.dst, store.size});
    }
    return copies;
  }
};

/// Sizes, counts, and how the pieces lie.
std::vector<Pieces> all_pieces() {
  std::vector<Pieces> all;
  for (const std::size_t size : {1U, 7U, 16U, 48U, 100U, 256U, 4096U, 4112U, 65552U}) {
    for (const std::size_t count : {1U, 2U, 3U, 33U, 300U}) {
      const std::size_t step = size + (size % kCopyKernelWordBytes == 0 ? 32 : 5);
      if (2 * count * step > kSize) continue;
      const std::string what = std::to_string(count) + " of " + std::to_string(size);
      Pieces joined{what + ", contiguous"};
      Pieces even{what + ", evenly spaced"};
      Pieces backwards{what + ", backwards"};
      Pieces scattered{what + ", scattered"};
      std::size_t place = 0;
      for (std::size_t index = 0; index < count; ++index) {
        joined.of_store.push_back({index * size, index * size, size});
        even.of_store.push_back({index * step, 2 * index * step, size});
        backwards.of_store.push_back({index * step, (count - 1 - index) * step, size});
        scattered.of_store.push_back({place, (index * 7 % count) * 2 * step, size});
        place += step + (index % 3 == 0 ? 16 : 0);
      }
      all.push_back(std::move(joined));
      all.push_back(std::move(even));
      all.push_back(std::move(backwards));
      // Seven must be prime to the count, or sources repeat; that is allowed, but not intended
      // here.
      if (count % 7 != 0 && place < kSize) all.push_back(std::move(scattered));
    }
  }
  // More than fits in one batch.
  Pieces many{"5000 of 16"};
  for (std::size_t index = 0; index < 5000; ++index) {
    many.of_store.push_back({16 * index, 16 * (4999 - index), 16});
  }
  if (5000 * 16 <= kSize) all.push_back(std::move(many));
  return all;
}

/// The copies of transfers of each layout: pages of blocks, expanded and merged by the plan.
std::vector<Pieces> pieces_of_layouts() {
  constexpr std::uintptr_t kGpu = 1 << 20;
  constexpr std::uintptr_t kCpu = 1 << 24;
  constexpr std::size_t kFactor = 2;
  std::vector<Pieces> all;
  for (const NamedLayers& named : all_layouts(kGpu)) {
    const DiscoveredLayout found = discover_layout(named.layers, kRigGpuBlocks, named.num_groups);
    EXPECT_EQ(found.refusal, "") << named.name;
    KVLayout cpu{.tensors = {}, .groups = found.layout.groups};
    std::uintptr_t address = kCpu;
    for (const PageTensor& tensor : found.layout.tensors) {
      const std::size_t row = tensor.page_bytes * kFactor;
      cpu.tensors.push_back({address, kRigCpuBlocks, row, row});
      address += kRigCpuBlocks * row;
    }
    // Neighbours that merge, and a block apart; the first begins in the middle of its row.
    TransferSpec spec{.gpu_blocks = {2, 3, 0}, .cpu_blocks = {4, 1}};
    spec.group_sizes.assign(named.num_groups, 0);
    spec.block_indices.assign(named.num_groups, 0);
    spec.group_sizes[0] = 3;
    spec.block_indices[0] = 1;
    if (named.num_groups > 1) {
      spec.gpu_blocks.insert(spec.gpu_blocks.end(), {5, 7});
      spec.cpu_blocks.push_back(2);
      spec.group_sizes[1] = 2;
    }
    const PlannedTransfer planned =
        plan_transfer(found.layout, cpu, Direction::kStore, spec, kFactor);
    EXPECT_EQ(planned.refusal, ErrorCode::kNone) << named.name;
    Pieces pieces{"layout " + named.name};
    for (const CopyDescriptor& copy : planned.plan.copies) {
      pieces.of_store.push_back({copy.dst - kCpu, copy.src - kGpu, copy.size});
    }
    all.push_back(std::move(pieces));
  }
  return all;
}

/// Both memories, with every byte known.
class Memories {
 public:
  Memories() {
    ok(cudaMalloc(&gpu_, kSize));
    ok(PinnedMemory::allocate(kSize, cpu_));
    ok(PinnedMemory::allocate(kSize, staging_));
    ok(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    gpu_image_.resize(kSize);
    cpu_image_.resize(kSize);
    content::fill(gpu_image_, {1, 1}, kRunSeed);
    content::fill(cpu_image_, {2, 1}, kRunSeed);
  }
  ~Memories() {
    ok(cudaStreamDestroy(stream_));
    ok(cudaFree(gpu_));
  }
  Memories(const Memories&) = delete;
  Memories& operator=(const Memories&) = delete;

  std::uintptr_t gpu() const { return reinterpret_cast<std::uintptr_t>(gpu_); }
  std::uintptr_t cpu() const { return cpu_.device_address(); }

  /// Which of the memories has a wrong byte; empty if none does.
  std::string copy(CopyPathKind path, const CopyPathOptions& options, Direction direction,
                   const Pieces& pieces) {
    std::vector<std::byte> gpu_expected = gpu_image_;
    std::vector<std::byte> cpu_expected = cpu_image_;
    for (const CopyDescriptor& piece : pieces.of_store) {
      std::byte* const on_cpu = cpu_expected.data() + piece.dst;
      std::byte* const on_gpu = gpu_expected.data() + piece.src;
      if (direction == Direction::kStore) std::memcpy(on_cpu, on_gpu, piece.size);
      if (direction == Direction::kLoad) std::memcpy(on_gpu, on_cpu, piece.size);
    }
    write(staging_, gpu_image_);
    write(cpu_, cpu_image_);
    ok(cudaMemcpyAsync(gpu_, staging_.host_address(), kSize, cudaMemcpyHostToDevice, stream_));
    std::vector<CopyDescriptor> copies = pieces.at(direction, gpu(), cpu());
    std::vector<PinnedMemory> held;
    const cudaError_t code = enqueue_copies(path, options, copies, stream_, pool_, held);
    // The call has taken the descriptors.
    std::fill(copies.begin(), copies.end(), CopyDescriptor{});
    ok(cudaMemcpyAsync(staging_.host_address(), gpu_, kSize, cudaMemcpyDeviceToHost, stream_));
    ok(cudaStreamSynchronize(stream_));
    for (PinnedMemory& memory : held) pool_.give(std::move(memory));
    if (code != cudaSuccess) return cudaGetErrorName(code);
    kvfence_host_read(cpu_.host_address(), kSize);
    kvfence_host_read(staging_.host_address(), kSize);
    std::string wrong;
    if (std::memcmp(cpu_.host_address(), cpu_expected.data(), kSize) != 0) wrong += "CPU ";
    if (std::memcmp(staging_.host_address(), gpu_expected.data(), kSize) != 0) wrong += "GPU";
    return wrong;
  }

 private:
  static void write(const PinnedMemory& memory, const std::vector<std::byte>& bytes) {
    kvfence_host_write(memory.host_address(), bytes.size());
    std::memcpy(memory.host_address(), bytes.data(), bytes.size());
  }

  void* gpu_ = nullptr;
  PinnedMemory cpu_;
  PinnedMemory staging_;
  PinnedPool pool_;
  cudaStream_t stream_ = nullptr;
  std::vector<std::byte> gpu_image_;
  std::vector<std::byte> cpu_image_;
};

/// Copies them over every path; returns how many paths did. `cap`: entries of a batch.
std::size_t copy_all(const std::vector<Pieces>& all, std::size_t run, std::size_t cap) {
  std::size_t num_copied = 0;
  DeviceUnderTest device(run);
  {
    Memories memories;
    for (std::size_t kind = 0; kind < kNumCopyPaths; ++kind) {
      const auto path = static_cast<CopyPathKind>(kind);
      for (const Direction direction : {Direction::kStore, Direction::kLoad}) {
        for (const Pieces& pieces : all) {
          if (!can_copy(path, pieces.at(direction, memories.gpu(), memories.cpu()))) continue;
          ++num_copied;
          EXPECT_EQ(memories.copy(path, {.batch_entries_max = cap}, direction, pieces), "")
              << to_text(path) << " " << to_text(direction) << " " << pieces.name << ", "
              << device.name();
        }
      }
    }
  }
  EXPECT_EQ(device.findings(), "");
  return num_copied;
}

TEST(CopyPaths, TakeEverySizeAndCountThereAndBack) {
  KVFENCE_NEEDS_DEVICE();
  const std::vector<Pieces> all = all_pieces();
  const std::size_t runs = kIsOnGpu ? 1 : 2;  // eager and lazy: the others are the worker's tests
  for (std::size_t run = 0; run < runs; ++run) {
    // All but the kernel, which takes only multiples of its word.
    EXPECT_GT(copy_all(all, run, kIsOnGpu ? 4096 : 64), 3 * 2 * all.size());
  }
}

TEST(CopyPaths, TakeWhatEachLayoutNeeds) {
  KVFENCE_NEEDS_DEVICE();
  const std::vector<Pieces> all = pieces_of_layouts();
  ASSERT_EQ(all.size(), all_layouts(0).size());
  for (std::size_t run = 0; run < kNumRuns; ++run) {
    EXPECT_EQ(copy_all(all, run, 3), kNumCopyPaths * 2 * all.size());
  }
}

}  // namespace
}  // namespace kvfence::cuda
