#pragma once

/// Where the pages of KV blocks lie, for any shape of the attention backend's tensors: every tensor
/// becomes rows of bytes, one row per block.
///
/// Plain data: this code reads no address, so that a layout can be discovered and tested anywhere.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace kvfence::cuda {

/// Memory as a tensor library shows it. Shape and strides count elements, logical dimension first.
struct StridedTensor {
  std::uintptr_t address = 0;
  std::size_t element_bytes = 1;
  std::vector<std::size_t> shape = {};
  std::vector<std::size_t> strides = {};
};

enum class LayerKind : std::uint8_t {
  kAttention,    ///< one tensor: blocks first, or K and V first
  kCrossLayers,  ///< one tensor with the pages of all layers of a block: blocks first
  kMamba,        ///< several state tensors, blocks first, that share each block's page
};

/// What one layer registers.
struct LayerTensors {
  std::string name;
  std::size_t group = 0;
  LayerKind kind = LayerKind::kAttention;
  std::vector<StridedTensor> tensors = {};
  std::size_t page_bytes = 0;           ///< a block's, K and V and (cross) all layers together
  std::size_t unpadded_page_bytes = 0;  ///< what of it holds contents
  std::size_t block_dim = 0;            ///< the logical dimension of blocks; of Mamba states 0
};

/// Rows of pages: block b is [address + b * block_stride, + page_bytes).
struct PageTensor {
  std::uintptr_t address = 0;
  std::size_t num_blocks = 0;
  std::size_t block_stride = 0;
  std::size_t page_bytes = 0;
};

/// A group's use of a tensor. Groups that share a tensor share no block of it.
struct PageRef {
  std::size_t tensor_index = 0;
  std::size_t unpadded_page_bytes = 0;
};

struct KVLayout {
  std::vector<PageTensor> tensors = {};
  std::vector<std::vector<PageRef>> groups = {};
};

struct DiscoveredLayout {
  KVLayout layout = {};
  std::string refusal = {};  ///< why there is no layout: names the layer; empty if there is one
};

/// K and V first becomes two tensors of half a page. Layers that share memory become one tensor.
/// Refuses a dimension that cannot be that of blocks, and pages that overlap.
/// Cost: O(tensors^2 + dimensions log dimensions).
/// Source: off/worker.py register_kv_caches and register_cross_layers_kv_cache, v0.19.0.
DiscoveredLayout discover_layout(std::span<const LayerTensors> layers, std::size_t num_blocks,
                                 std::size_t num_groups);

}  // namespace kvfence::cuda
