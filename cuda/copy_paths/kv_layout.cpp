#include "cuda/copy_paths/kv_layout.h"

#include <algorithm>
#include <optional>

#include "contract/core/lists.h"

namespace kvfence::cuda {
namespace {

std::string in_bytes(std::size_t count) { return std::to_string(count) + " bytes"; }

/// The bytes from the first to the last element over the given dimensions; nothing where two
/// elements share bytes. The stride of a dimension of one element does not matter.
std::optional<std::size_t> span_of(const StridedTensor& tensor, std::vector<std::size_t> dims) {
  std::ranges::sort(dims, {}, [&](std::size_t dim) { return tensor.strides[dim]; });
  std::size_t span = tensor.element_bytes;
  for (const std::size_t dim : dims) {
    if (tensor.shape[dim] == 1) continue;
    const std::size_t stride = tensor.strides[dim] * tensor.element_bytes;
    if (stride < span) return std::nullopt;
    span += (tensor.shape[dim] - 1) * stride;
  }
  return span;
}

std::vector<std::size_t> all_dims_but(const StridedTensor& tensor, std::size_t a, std::size_t b) {
  std::vector<std::size_t> dims;
  for (std::size_t dim = 0; dim < tensor.shape.size(); ++dim) {
    if (dim != a && dim != b) dims.push_back(dim);
  }
  return dims;
}

std::string check_shape(const StridedTensor& tensor, std::size_t block_dim,
                        std::size_t num_blocks) {
  if (tensor.shape.empty() || tensor.shape.size() != tensor.strides.size() ||
      contains(tensor.shape, 0U)) {
    return "expected a shape without zeros, and as many strides";
  }
  if (block_dim >= tensor.shape.size()) return "no dimension " + std::to_string(block_dim);
  if (tensor.shape[block_dim] == num_blocks) return {};
  return "dimension " + std::to_string(block_dim) + " has " +
         std::to_string(tensor.shape[block_dim]) + " elements, expected one for each of " +
         std::to_string(num_blocks) + " blocks";
}

std::string check_page(std::size_t used, std::size_t unpadded, std::size_t page,
                       std::size_t stride) {
  if (used > unpadded) {
    return "a block takes " + in_bytes(used) + ", but its unpadded page has " + in_bytes(unpadded);
  }
  if (unpadded > page) {
    return "the unpadded page has " + in_bytes(unpadded) + ", but the page " + in_bytes(page);
  }
  if (page > stride) {
    return "pages overlap: of " + in_bytes(page) + ", a block every " + in_bytes(stride);
  }
  return {};
}

/// The tensors of one layer as pages, with the unpadded bytes of each.
struct LayerPages {
  std::vector<PageTensor> pages;
  std::size_t unpadded_page_bytes = 0;
};

std::string find_attention_pages(const LayerTensors& layer, std::size_t num_blocks,
                                 LayerPages& found) {
  if (layer.tensors.size() != 1) return "expected one tensor";
  const StridedTensor& tensor = layer.tensors.front();
  const std::size_t block_dim = layer.block_dim;
  const std::string refusal = check_shape(tensor, block_dim, num_blocks);
  if (!refusal.empty()) return refusal;
  if (!span_of(tensor, all_dims_but(tensor, tensor.shape.size(), tensor.shape.size()))) {
    return "pages overlap: elements share bytes";
  }
  // Dimensions with larger strides lie physically before the blocks.
  std::vector<std::size_t> outer;
  for (std::size_t dim = 0; dim < tensor.shape.size(); ++dim) {
    if (dim != block_dim && tensor.shape[dim] > 1 &&
        tensor.strides[dim] > tensor.strides[block_dim]) {
      outer.push_back(dim);
    }
  }
  const bool has_kv_first = layer.kind == LayerKind::kAttention && outer.size() == 1 &&
                            outer.front() == 0 && tensor.shape[0] == 2;
  if (!outer.empty() && !has_kv_first) {
    return "blocks are at physical dimension " + std::to_string(outer.size()) +
           ": expected first, or after K and V";
  }
  const std::size_t num_parts = has_kv_first ? 2 : 1;
  if (layer.page_bytes % num_parts != 0 || layer.unpadded_page_bytes % num_parts != 0) {
    return "a page of K and V with an odd number of bytes";
  }
  const std::size_t none = tensor.shape.size();
  const std::size_t used =
      *span_of(tensor, all_dims_but(tensor, block_dim, has_kv_first ? 0 : none));
  const std::size_t stride = num_blocks == 1 ? layer.page_bytes / num_parts
                                             : tensor.strides[block_dim] * tensor.element_bytes;
  found.unpadded_page_bytes = layer.unpadded_page_bytes / num_parts;
  for (std::size_t part = 0; part < num_parts; ++part) {
    const std::size_t offset = part * (has_kv_first ? tensor.strides[0] * tensor.element_bytes : 0);
    found.pages.push_back(
        {tensor.address + offset, num_blocks, stride, layer.page_bytes / num_parts});
  }
  return check_page(used, found.unpadded_page_bytes, layer.page_bytes / num_parts, stride);
}

std::string find_mamba_pages(const LayerTensors& layer, std::size_t num_blocks, LayerPages& found) {
  if (layer.tensors.empty()) return "expected a state tensor";
  const std::uintptr_t address = layer.tensors.front().address;
  for (const StridedTensor& state : layer.tensors) {
    std::string refusal = check_shape(state, 0, num_blocks);
    if (!refusal.empty()) return "a state: " + refusal;
    if (num_blocks > 1 && state.strides[0] * state.element_bytes != layer.page_bytes) {
      return "a state with a block every " + in_bytes(state.strides[0] * state.element_bytes) +
             ", expected the page's " + in_bytes(layer.page_bytes);
    }
    const auto used = span_of(state, all_dims_but(state, 0, 0));
    if (!used) return "pages overlap: elements of a state share bytes";
    if (state.address < address) return "a state lies before the first one's page";
    refusal = check_page(state.address - address + *used, layer.unpadded_page_bytes,
                         layer.page_bytes, layer.page_bytes);
    if (!refusal.empty()) return refusal;
  }
  found.pages.push_back({address, num_blocks, layer.page_bytes, layer.page_bytes});
  found.unpadded_page_bytes = layer.unpadded_page_bytes;
  return {};
}

bool is_same(const PageTensor& a, const PageTensor& b) {
  return a.address == b.address && a.block_stride == b.block_stride && a.page_bytes == b.page_bytes;
}

std::size_t length_of(const PageTensor& tensor) {
  return (tensor.num_blocks - 1) * tensor.block_stride + tensor.page_bytes;
}

bool overlap(const PageTensor& a, const PageTensor& b) {
  if (a.address > b.address) return overlap(b, a);
  if (a.address + length_of(a) <= b.address) return false;
  // Interleaved: every block of one ends before the other's begins.
  if (a.block_stride != b.block_stride) return true;
  const std::size_t offset = (b.address - a.address) % a.block_stride;
  return offset < a.page_bytes || offset + b.page_bytes > a.block_stride;
}

void add_ref(std::vector<PageRef>& refs, PageRef ref) {
  const auto known = std::ranges::find(refs, ref.tensor_index, &PageRef::tensor_index);
  if (known == refs.end()) {
    refs.push_back(ref);
  } else {
    // Layers of one group in one tensor: the page is copied once.
    known->unpadded_page_bytes = std::max(known->unpadded_page_bytes, ref.unpadded_page_bytes);
  }
}

}  // namespace

DiscoveredLayout discover_layout(std::span<const LayerTensors> layers, std::size_t num_blocks,
                                 std::size_t num_groups) {
  DiscoveredLayout discovered;
  KVLayout& layout = discovered.layout;
  layout.groups.resize(num_groups);
  std::vector<std::string> names;  // by tensor: the first layer's
  const auto refuse = [&](const std::string& name, const std::string& reason) {
    return DiscoveredLayout{.layout = {}, .refusal = "layer " + name + ": " + reason};
  };
  if (num_blocks == 0) return {.layout = {}, .refusal = "expected at least one block"};
  for (const LayerTensors& layer : layers) {
    if (layer.group >= num_groups) return refuse(layer.name, "no such group");
    if (layer.unpadded_page_bytes == 0) return refuse(layer.name, "an empty page");
    LayerPages found;
    const std::string reason = layer.kind == LayerKind::kMamba
                                   ? find_mamba_pages(layer, num_blocks, found)
                                   : find_attention_pages(layer, num_blocks, found);
    if (!reason.empty()) return refuse(layer.name, reason);
    for (const PageTensor& page : found.pages) {
      const auto known = std::ranges::find_if(
          layout.tensors, [&](const PageTensor& tensor) { return is_same(tensor, page); });
      const auto index = static_cast<std::size_t>(known - layout.tensors.begin());
      if (known == layout.tensors.end()) {
        for (std::size_t other = 0; other < layout.tensors.size(); ++other) {
          if (overlap(layout.tensors[other], page)) {
            return refuse(layer.name, "pages overlap those of layer " + names[other]);
          }
        }
        layout.tensors.push_back(page);
        names.push_back(layer.name);
      }
      add_ref(layout.groups[layer.group], {index, found.unpadded_page_bytes});
    }
  }
  return discovered;
}

}  // namespace kvfence::cuda
