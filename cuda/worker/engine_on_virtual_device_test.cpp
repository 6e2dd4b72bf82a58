/// Goal: the engine's device keeps the symbols of each group over a store and a load, does not run
/// work that waits, reports transfers that met a fault, and sees races.
/// Method: a few forwards and copies, by hand.

#include "cuda/worker/engine_on_virtual_device.h"

#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace kvfence::cuda {
namespace {

using engine::Place;

constexpr engine::DeviceOptions kOptions = {
    .num_gpu_blocks = 4, .num_cpu_blocks = 2, .block_size = 2, .block_size_factor = 2};

/// Writes two symbols into a block.
template <class Device>
void fill(Device& device, BlockId block, engine::Symbol symbol) {
  const std::vector<Place> places = {{block, 0}, {block, 1}};
  device.forward(places, places, [places, symbol](engine::KVCells& cells) {
    for (const Place place : places) cells.write(place, symbol + place.offset);
  });
}

engine::Copy transfer(std::uint32_t job, worker::Direction direction, BlockId block) {
  return {.job_id = job,
          .direction = direction,
          .gpu_blocks = {block},
          .cpu_blocks = {1},
          .group_sizes = {1},
          .block_indices = {1}};
}

std::vector<std::uint32_t> page(const EngineOnVirtualDevice& device, bool is_gpu,
                                std::uint32_t number) {
  engine::KVPages gpu;
  engine::KVPages cpu;
  device.show_pages(0, gpu, cpu);
  std::vector<std::uint32_t> symbols = (is_gpu ? gpu : cpu).find(0, number).symbols;
  symbols.resize(kOptions.block_size, toy_model::kUnwritten);  // if it is left out
  return symbols;
}

std::vector<std::uint32_t> gpu_page(const EngineOnVirtualDevice& device, std::uint32_t block) {
  return page(device, true, block);
}

std::vector<std::uint32_t> cpu_page(const EngineOnVirtualDevice& device, std::uint32_t number) {
  return page(device, false, number);
}

TEST(EngineOnVirtualDevice, SymbolsComeBack) {
  EngineOnVirtualDevice device(kOptions);
  fill(device, 2, 100);
  device.transfer_async(transfer(7, worker::Direction::kStore, 2));
  EXPECT_FALSE(device.advance(worker::Stream::kStore));  // after the forward
  EXPECT_TRUE(device.advance(worker::Stream::kCompute));
  EXPECT_TRUE(device.advance(worker::Stream::kStore));
  std::vector<worker::Ended> ended;
  device.get_finished(ended);
  EXPECT_EQ(ended, (std::vector<worker::Ended>{{7, worker::Direction::kStore, true}}));
  EXPECT_EQ(cpu_page(device, 2)[0], toy_model::kUnwritten);
  EXPECT_EQ(cpu_page(device, 3)[0], 100U);
  EXPECT_EQ(cpu_page(device, 3)[1], 101U);
  device.transfer_async(transfer(8, worker::Direction::kLoad, 0));
  device.wait(std::vector<std::uint32_t>{8});
  EXPECT_EQ(gpu_page(device, 0)[1], 101U);
  EXPECT_EQ(gpu_page(device, 1)[0], toy_model::kUnwritten);
  EXPECT_EQ(device.counts().num_races, 0U);
}

TEST(EngineOnVirtualDevice, ABlockWrittenUnderAStoreIsARaceAndShowsInItsSlot) {
  EngineOnVirtualDevice device(kOptions);
  fill(device, 2, 100);
  device.transfer_async(transfer(7, worker::Direction::kStore, 2));
  fill(device, 2, 200);
  EXPECT_TRUE(device.advance(worker::Stream::kCompute));
  EXPECT_TRUE(device.advance(worker::Stream::kCompute));
  EXPECT_TRUE(device.advance(worker::Stream::kStore));
  EXPECT_GT(device.counts().num_races, 0U);
  EXPECT_EQ(cpu_page(device, 3)[0], 200U);
}

TEST(EngineOnVirtualDevice, WhatMeetsAFaultIsReportedAsFailedAndTheNextIsNot) {
  const std::pair<worker::Fault, engine::Symbol> kLeaves[] = {
      {worker::Fault::kCopy, toy_model::kUnwritten},
      {worker::Fault::kWait, toy_model::kUnwritten},
      {worker::Fault::kRecord, 100},
      {worker::Fault::kPartial, toy_model::kTorn}};
  for (const auto& [fault, left] : kLeaves) {
    EngineOnVirtualDevice device(kOptions);
    fill(device, 2, 100);
    device.fail_next(worker::Direction::kStore, fault);
    device.transfer_async(transfer(7, worker::Direction::kStore, 2));
    device.wait(std::vector<std::uint32_t>{7});
    EXPECT_EQ(cpu_page(device, 3)[0], left);
    device.transfer_async(transfer(8, worker::Direction::kStore, 2));
    device.wait(std::vector<std::uint32_t>{8});
    EXPECT_EQ(cpu_page(device, 3)[0], 100U);
    std::vector<worker::Ended> ended;
    device.get_finished(ended);
    EXPECT_EQ(ended, (std::vector<worker::Ended>{{7, worker::Direction::kStore, false},
                                                 {8, worker::Direction::kStore, true}}));
    EXPECT_EQ(device.counts().num_races, 0U);
    EXPECT_EQ(device.counts().num_misuses, 0U);
  }
}

TEST(EngineOnVirtualDevice, ALateTransferIsReportedLaterAsASuccess) {
  EngineOnVirtualDevice device(kOptions);
  fill(device, 2, 100);
  device.fail_next(worker::Direction::kStore, worker::Fault::kLate);
  device.transfer_async(transfer(7, worker::Direction::kStore, 2));
  EXPECT_TRUE(device.advance(worker::Stream::kCompute));
  EXPECT_TRUE(device.advance(worker::Stream::kStore));
  std::vector<worker::Ended> ended;
  for (std::uint32_t poll = 0; poll < worker::kNumLatePolls; ++poll) {
    device.get_finished(ended);
    EXPECT_TRUE(ended.empty());
  }
  device.get_finished(ended);
  EXPECT_EQ(ended, (std::vector<worker::Ended>{{7, worker::Direction::kStore, true}}));
}

TEST(EngineOnVirtualDevice, GroupsShareThePagesOfBlocks) {
  engine::DeviceOptions options = kOptions;
  options.num_groups = 2;
  EngineOnVirtualDevice device(options);
  fill(device, 1, 100);
  fill(device, 2, 200);
  // One block of the first group, the second of its slot; then two of the other, a whole slot.
  device.transfer_async({.job_id = 1,
                         .gpu_blocks = {1, 2, 1},
                         .cpu_blocks = {0, 1},
                         .group_sizes = {1, 2},
                         .block_indices = {3, 2}});
  device.wait(std::vector<std::uint32_t>{1});
  EXPECT_EQ(cpu_page(device, 0)[0], toy_model::kUnwritten);
  EXPECT_EQ(cpu_page(device, 1)[0], 100U);
  EXPECT_EQ(cpu_page(device, 2)[0], 200U);
  EXPECT_EQ(cpu_page(device, 3)[1], 101U);
}

}  // namespace
}  // namespace kvfence::cuda
