#include "cuda/copy_paths/transfer_plan.h"

#include <algorithm>
#include <utility>

namespace kvfence::cuda {
namespace {

/// One side of a group's copies: GPU blocks, some at the start left out, in rows of `factor`.
struct Side {
  const KVLayout* layout = nullptr;
  std::span<const std::uint32_t> blocks = {};
  std::size_t factor = 1;
  std::size_t num_skipped = 0;

  std::uintptr_t address(std::size_t tensor, std::size_t index, std::size_t page_bytes) const {
    const std::size_t place = num_skipped + index;
    const PageTensor& rows = layout->tensors[tensor];
    return rows.address + blocks[place / factor] * rows.block_stride + place % factor * page_bytes;
  }
};

std::size_t num_rows(std::size_t num_pages, std::size_t factor) {
  return (num_pages + factor - 1) / factor;
}

bool are_known(std::span<const std::uint32_t> blocks, const KVLayout& layout) {
  const std::size_t num_blocks = layout.tensors.empty() ? 0 : layout.tensors.front().num_blocks;
  return std::ranges::all_of(blocks, [&](std::uint32_t block) { return block < num_blocks; });
}

void add_group(const Side& src, const Side& dst, const KVLayout& gpu, std::size_t group,
               std::size_t num_pages, std::vector<CopyDescriptor>& copies) {
  for (const PageRef& ref : gpu.groups[group]) {
    const std::size_t page = gpu.tensors[ref.tensor_index].page_bytes;
    for (std::size_t index = 0; index < num_pages; ++index) {
      copies.push_back({dst.address(ref.tensor_index, index, page),
                        src.address(ref.tensor_index, index, page), ref.unpadded_page_bytes});
    }
  }
}

/// Whether the counts fit.
bool expand(const Side& src, const Side& dst, const KVLayout& gpu, const TransferSpec& spec,
            std::vector<CopyDescriptor>& copies) {
  const std::size_t num_groups = gpu.groups.size();
  if (spec.group_sizes.size() != num_groups || spec.block_indices.size() != num_groups) {
    return false;
  }
  std::size_t src_begin = 0;
  std::size_t dst_begin = 0;
  const auto take = [](Side side, std::size_t& begin, std::size_t num_pages, std::size_t index) {
    side.num_skipped = index % side.factor;
    const std::size_t count = num_rows(num_pages + side.num_skipped, side.factor);
    const std::size_t left = side.blocks.size() - std::min(begin, side.blocks.size());
    side.blocks = side.blocks.subspan(side.blocks.size() - left, std::min(count, left));
    begin += count;
    return side;
  };
  for (std::size_t group = 0; group < num_groups; ++group) {
    const std::size_t num_pages = spec.group_sizes[group];
    if (num_pages == 0) continue;
    const Side group_src = take(src, src_begin, num_pages, spec.block_indices[group]);
    const Side group_dst = take(dst, dst_begin, num_pages, spec.block_indices[group]);
    if (src_begin > src.blocks.size() || dst_begin > dst.blocks.size()) break;
    add_group(group_src, group_dst, gpu, group, num_pages, copies);
  }
  return src_begin == src.blocks.size() && dst_begin == dst.blocks.size();
}

/// What each copy reads, or writes.
std::vector<ByteInterval> intervals_of(std::span<const CopyDescriptor> copies,
                                       std::uintptr_t CopyDescriptor::*address) {
  std::vector<ByteInterval> intervals;
  intervals.reserve(copies.size());
  for (const CopyDescriptor& copy : copies) {
    intervals.push_back({copy.*address, copy.*address + copy.size});
  }
  return intervals;
}

std::vector<ByteInterval> sources_of(std::span<const CopyDescriptor> copies) {
  std::vector<ByteInterval> sources = intervals_of(copies, &CopyDescriptor::src);
  std::ranges::sort(sources, {}, &ByteInterval::begin);
  std::size_t num_kept = 0;
  for (const ByteInterval& source : sources) {
    if (num_kept > 0 && source.begin <= sources[num_kept - 1].end) {
      sources[num_kept - 1].end = std::max(sources[num_kept - 1].end, source.end);
    } else {
      sources[num_kept++] = source;
    }
  }
  sources.resize(num_kept);
  return sources;
}

/// Two lists in ascending order of address.
bool share_bytes(std::span<const ByteInterval> a, std::span<const ByteInterval> b) {
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < a.size() && j < b.size()) {
    if (a[i].end <= b[j].begin) {
      ++i;
    } else if (b[j].end <= a[i].begin) {
      ++j;
    } else {
      return true;
    }
  }
  return false;
}

bool is_before(const CopyDescriptor& a, const CopyDescriptor& b) {
  return a.dst != b.dst ? a.dst < b.dst : a.src < b.src;
}

}  // namespace

std::vector<CopyDescriptor> merge_copies(std::vector<CopyDescriptor> copies) {
  if (!std::ranges::is_sorted(copies, is_before)) std::ranges::sort(copies, is_before);
  std::size_t num_kept = 0;
  for (const CopyDescriptor& copy : copies) {
    if (num_kept > 0) {
      CopyDescriptor& last = copies[num_kept - 1];
      if (last.dst + last.size == copy.dst && last.src + last.size == copy.src) {
        last.size += copy.size;
        continue;
      }
    }
    copies[num_kept++] = copy;
  }
  copies.resize(num_kept);
  return copies;
}

bool overlaps(const TransferPlan& plan) {
  const std::vector<ByteInterval> destinations = intervals_of(plan.copies, &CopyDescriptor::dst);
  for (std::size_t index = 1; index < destinations.size(); ++index) {
    if (destinations[index].begin < destinations[index - 1].end) return true;
  }
  return share_bytes(destinations, plan.sources);
}

bool conflict(const TransferPlan& a, const TransferPlan& b) {
  const std::vector<ByteInterval> a_written = intervals_of(a.copies, &CopyDescriptor::dst);
  const std::vector<ByteInterval> b_written = intervals_of(b.copies, &CopyDescriptor::dst);
  return share_bytes(a_written, b_written) || share_bytes(a_written, b.sources) ||
         share_bytes(a.sources, b_written);
}

PlannedTransfer plan_transfer(const KVLayout& gpu, const KVLayout& cpu, Direction direction,
                              const TransferSpec& spec, std::size_t block_size_factor) {
  if (!are_known(spec.gpu_blocks, gpu) || !are_known(spec.cpu_blocks, cpu)) {
    return {.plan = {}, .refusal = ErrorCode::kUnknownBlock};
  }
  const Side on_gpu{.layout = &gpu, .blocks = spec.gpu_blocks};
  const Side on_cpu{.layout = &cpu, .blocks = spec.cpu_blocks, .factor = block_size_factor};
  const bool is_store = direction == Direction::kStore;
  std::vector<CopyDescriptor> copies;
  if (!expand(is_store ? on_gpu : on_cpu, is_store ? on_cpu : on_gpu, gpu, spec, copies)) {
    return {.plan = {}, .refusal = ErrorCode::kCountsDiffer};
  }
  PlannedTransfer planned;
  TransferPlan& plan = planned.plan;
  plan.num_pages = copies.size();
  plan.copies = merge_copies(std::move(copies));
  plan.sources = sources_of(plan.copies);
  for (const CopyDescriptor& copy : plan.copies) plan.num_bytes += copy.size;
  return planned;
}

}  // namespace kvfence::cuda
