/// Goal: each kind of layout is found from shape and strides. A tensor without pages is refused, by
/// name and reason.

#include "cuda/copy_paths/kv_layout.h"

#include <gtest/gtest.h>

namespace kvfence::cuda {
namespace {

constexpr std::size_t kBlocks = 8;

LayerTensors attention(StridedTensor tensor, std::size_t page, std::size_t unpadded = 0,
                       std::size_t block_dim = 0) {
  return {.name = "a",
          .tensors = {std::move(tensor)},
          .page_bytes = page,
          .unpadded_page_bytes = unpadded == 0 ? page : unpadded,
          .block_dim = block_dim};
}

DiscoveredLayout discover(const std::vector<LayerTensors>& layers, std::size_t num_groups = 1) {
  return discover_layout(layers, kBlocks, num_groups);
}

void expect_refused(const std::vector<LayerTensors>& layers, const char* reason) {
  const DiscoveredLayout found = discover(layers);
  EXPECT_NE(found.refusal.find(reason), std::string::npos) << "said: " << found.refusal;
  EXPECT_TRUE(found.layout.tensors.empty());
}

TEST(KVLayout, BlocksFirstIsOneTensor) {
  const auto found = discover({attention({4096, 2, {kBlocks, 2, 16}, {32, 16, 1}}, 64)});
  ASSERT_EQ(found.refusal, "");
  ASSERT_EQ(found.layout.tensors.size(), 1U);
  const PageTensor& pages = found.layout.tensors[0];
  EXPECT_EQ(pages.address, 4096U);
  EXPECT_EQ(pages.num_blocks, kBlocks);
  EXPECT_EQ(pages.block_stride, 64U);
  EXPECT_EQ(pages.page_bytes, 64U);
  EXPECT_EQ(found.layout.groups[0][0].unpadded_page_bytes, 64U);
}

TEST(KVLayout, KAndVFirstIsTwoTensorsOfHalfAPage) {
  const auto found =
      discover({attention({4096, 2, {2, kBlocks, 2, 16}, {256, 32, 16, 1}}, 128, 0, 1)});
  ASSERT_EQ(found.refusal, "");
  ASSERT_EQ(found.layout.tensors.size(), 2U);
  EXPECT_EQ(found.layout.tensors[1].address, 4096U + 512U);
  EXPECT_EQ(found.layout.tensors[1].block_stride, 64U);
  EXPECT_EQ(found.layout.tensors[1].page_bytes, 64U);
  EXPECT_EQ(found.layout.groups[0].size(), 2U);
}

TEST(KVLayout, KAndVLogicallyFirstButPhysicallyInTheBlockIsOneTensor) {
  const auto found =
      discover({attention({4096, 2, {2, kBlocks, 2, 16}, {32, 64, 16, 1}}, 128, 0, 1)});
  ASSERT_EQ(found.refusal, "");
  ASSERT_EQ(found.layout.tensors.size(), 1U);
  EXPECT_EQ(found.layout.tensors[0].block_stride, 128U);
}

TEST(KVLayout, TheOrderOfTokensAndHeadsDoesNotMatter) {
  const auto found = discover({attention({0, 1, {kBlocks, 4, 2, 4}, {32, 4, 16, 1}}, 32)});
  EXPECT_EQ(found.refusal, "");
}

TEST(KVLayout, CrossLayersIsOneTensor) {
  LayerTensors all = attention({0, 2, {3, kBlocks, 16}, {16, 48, 1}}, 96, 0, 1);
  all.kind = LayerKind::kCrossLayers;
  const auto found = discover({all});
  ASSERT_EQ(found.refusal, "");
  ASSERT_EQ(found.layout.tensors.size(), 1U);
  EXPECT_EQ(found.layout.tensors[0].page_bytes, 96U);
  all.tensors[0].strides = {kBlocks * 16, 16, 1};
  expect_refused({all}, "blocks are at physical dimension 1");
  all.tensors[0].shape[0] = 2;  // two layers are not K and V
  expect_refused({all}, "blocks are at physical dimension 1");
}

TEST(KVLayout, MambaStatesShareAPage) {
  LayerTensors mamba{
      .name = "m",
      .kind = LayerKind::kMamba,
      .tensors = {{512, 4, {kBlocks, 3, 4}, {24, 4, 1}}, {560, 2, {kBlocks, 16}, {48, 1}}},
      .page_bytes = 96,
      .unpadded_page_bytes = 80};
  const auto found = discover({mamba});
  ASSERT_EQ(found.refusal, "");
  ASSERT_EQ(found.layout.tensors.size(), 1U);
  EXPECT_EQ(found.layout.tensors[0].page_bytes, 96U);
  EXPECT_EQ(found.layout.groups[0][0].unpadded_page_bytes, 80U);
  mamba.unpadded_page_bytes = 64;
  expect_refused({mamba}, "a block takes 80 bytes, but its unpadded page has 64");
  mamba.unpadded_page_bytes = 80;
  mamba.tensors[1].address = 496;
  expect_refused({mamba}, "a state lies before the first one's page");
  mamba.tensors[1].strides[0] = 40;
  expect_refused({mamba}, "a state with a block every 80 bytes");
  mamba.tensors[1].shape[0] = 3;
  expect_refused({mamba}, "a state: dimension 0 has 3 elements");
  mamba.tensors[1].shape = {kBlocks, 0};
  expect_refused({mamba}, "a state: expected a shape without zeros");
}

TEST(KVLayout, GroupsThatShareATensorShareOneEntry) {
  LayerTensors a = attention({0, 1, {kBlocks, 64}, {96, 1}}, 96, 64);
  LayerTensors b = attention({0, 1, {kBlocks, 48}, {96, 1}}, 96, 48);
  b.group = 1;
  LayerTensors smaller = b;
  smaller.group = 0;
  const auto found = discover({smaller, b, a}, 2);
  ASSERT_EQ(found.refusal, "");
  EXPECT_EQ(found.layout.tensors.size(), 1U);
  ASSERT_EQ(found.layout.groups[0].size(), 1U);
  EXPECT_EQ(found.layout.groups[0][0].unpadded_page_bytes, 64U);
  EXPECT_EQ(found.layout.groups[1][0].unpadded_page_bytes, 48U);
}

TEST(KVLayout, TheStrideOfADimensionOfOneElementDoesNotMatter) {
  for (const std::size_t stride : {std::size_t{0}, std::size_t{999}}) {
    const auto found = discover({attention({0, 2, {1, kBlocks, 32}, {stride, 32, 1}}, 64, 0, 1)});
    ASSERT_EQ(found.refusal, "");
    EXPECT_EQ(found.layout.tensors.size(), 1U);
  }
  const auto one = discover_layout(std::vector{attention({0, 2, {1, 32}, {999, 1}}, 64)},
                                   /*num_blocks=*/1, /*num_groups=*/1);
  ASSERT_EQ(one.refusal, "");
  EXPECT_EQ(one.layout.tensors[0].block_stride, 64U);
}

TEST(KVLayout, TensorsMayBeRegisteredInAnyOrderOfAddresses) {
  const LayerTensors high = attention({8192, 1, {kBlocks, 64}, {64, 1}}, 64);
  const LayerTensors low = attention({4096, 1, {kBlocks, 64}, {64, 1}}, 64);
  EXPECT_EQ(discover({high, low}).refusal, "");
}

TEST(KVLayout, InterleavedPagesAreNotOverlap) {
  const LayerTensors a = attention({0, 1, {kBlocks, 32}, {96, 1}}, 32);
  LayerTensors b = attention({32, 1, {kBlocks, 64}, {96, 1}}, 64);
  EXPECT_EQ(discover({a, b}).refusal, "");
  b.tensors[0].address = 48;
  expect_refused({a, b}, "pages overlap those of layer a");
  b.tensors[0].address = 96 * kBlocks;
  EXPECT_EQ(discover({b, a}).refusal, "");
  b.tensors[0].address = 96 * kBlocks - 65;
  expect_refused({a, b}, "pages overlap those of layer a");
  expect_refused({b, a}, "pages overlap those of layer a");
}

TEST(KVLayout, WhatHasNoBlockDimensionIsRefused) {
  expect_refused({attention({0, 1, {7, 64}, {64, 1}}, 64)}, "dimension 0 has 7 elements");
  expect_refused({attention({0, 1, {}, {}}, 8)}, "expected a shape");
  expect_refused({attention({0, 1, {2, 3, kBlocks, 4}, {96, 32, 4, 1}}, 8, 0, 2)},
                 "blocks are at physical dimension 2");
  expect_refused({attention({0, 1, {3, kBlocks, 4}, {32, 4, 1}}, 12, 0, 1)},
                 "blocks are at physical dimension 1");
  expect_refused({attention({0, 1, {2, kBlocks, 4}, {32, 4, 1}}, 9, 8, 1)}, "odd number of bytes");
  expect_refused({attention({0, 1, {2, kBlocks, 4}, {32, 4, 1}}, 8, 7, 1)}, "odd number of bytes");
  LayerTensors layer = attention({0, 1, {kBlocks, kBlocks}, {kBlocks, 1}}, 8);
  layer.group = 1;
  expect_refused({layer}, "no such group");
  layer.group = 0;
  layer.unpadded_page_bytes = 0;
  expect_refused({layer}, "an empty page");
  layer.unpadded_page_bytes = 8;
  layer.block_dim = 0;
  EXPECT_EQ(discover({layer}).refusal, "");
  layer.block_dim = 2;
  expect_refused({layer}, "no dimension 2");
  layer.tensors[0].shape[0] = 5;
  layer.block_dim = 0;
  expect_refused({layer}, "dimension 0 has 5 elements");
}

TEST(KVLayout, PagesThatOverlapAreRefused) {
  // Expanded: every block is the same memory.
  expect_refused({attention({0, 1, {kBlocks, 64}, {0, 1}}, 64)}, "elements share bytes");
  expect_refused({attention({0, 1, {kBlocks, 64}, {48, 1}}, 64)}, "elements share bytes");
  expect_refused({attention({0, 1, {kBlocks, 64}, {64, 1}}, 96, 64)}, "pages overlap: of 96 bytes");
  expect_refused({attention({0, 1, {kBlocks, 64}, {96, 1}}, 96, 48)}, "a block takes 64 bytes");
  expect_refused({attention({0, 1, {kBlocks, 64}, {96, 1}}, 64, 80)}, "the unpadded page has 80");
  // At one address, but pages of another length.
  expect_refused({attention({0, 1, {kBlocks, 64}, {96, 1}}, 96, 64),
                  attention({0, 1, {kBlocks, 64}, {96, 1}}, 64)},
                 "pages overlap those of layer a");
}

}  // namespace
}  // namespace kvfence::cuda
