/// Goal: the table decides by size, count and direction. It is measured and printed, and is the
/// same in each run if the times are.

#include "cuda/copy_paths/copy_calibration.h"

#include <gtest/gtest.h>

#include "cuda/virtual/device.h"

namespace kvfence::cuda {
namespace {

constexpr std::array<bool, kNumCopyPaths> kAll = {true, true, true, true};

CopyCalibration given() {
  return CopyCalibration({
      {Direction::kStore, 4096, 16, {3, 9, 8, 2}},
      {Direction::kStore, 65536, 16, {5, 9, 4, 7}},
      {Direction::kLoad, 4096, 16, {3, 1, 8, 2}},
      {Direction::kLoad, 4096, 256, {3, 0, 8, 9}},
  });
}

TEST(CopyCalibration, TheNearestRowDecides) {
  const CopyCalibration table = given();
  EXPECT_EQ(table.choose(Direction::kStore, 4096, 16, kAll), CopyPathKind::kKernel);
  EXPECT_EQ(table.choose(Direction::kStore, 8192, 10, kAll), CopyPathKind::kKernel);
  EXPECT_EQ(table.choose(Direction::kStore, 1 << 20, 10, kAll), CopyPathKind::kStrided);
  EXPECT_EQ(table.choose(Direction::kLoad, 4096, 20, kAll), CopyPathKind::kLooped);
  EXPECT_EQ(table.choose(Direction::kLoad, 4096, 4000, kAll), CopyPathKind::kBatched);
}

TEST(CopyCalibration, OnlyUsablePathsAreChosen) {
  const CopyCalibration table = given();
  EXPECT_EQ(table.choose(Direction::kStore, 4096, 16, {true, true, true, false}),
            CopyPathKind::kBatched);
  // Not measured in the row, but the only usable path.
  EXPECT_EQ(table.choose(Direction::kLoad, 4096, 256, {false, true, false, false}),
            CopyPathKind::kLooped);
  EXPECT_EQ(CopyCalibration().choose(Direction::kLoad, 1, 1, {false, false, true, true}),
            CopyPathKind::kStrided);
}

TEST(CopyCalibration, IsPrinted) {
  EXPECT_EQ(CopyCalibration({{Direction::kLoad, 4096, 16, {3, 1.5, 8, 2}}}).to_text(),
            "direction  copy_bytes  num_copies  batched_us  looped_us  strided_us  kernel_us\n"
            "load             4096          16       3.00        1.50*       8.00        2.00 \n");
}

TEST(CopyCalibration, IsMeasuredOnTheDevice) {
  const CalibrationOptions options{.copy_bytes = {64, 1024}, .num_copies = {1, 8}};
  std::string tables[2];
  for (std::string& table : tables) {
    virtual_device::Device device(virtual_device::Options{});
    const virtual_device::Installed installed(device);
    CopyCalibration calibration;
    ASSERT_EQ(measure_copy_costs(options, calibration), cudaSuccess);
    ASSERT_EQ(calibration.costs().size(), 8U);
    for (const CopyCost& cost : calibration.costs()) {
      for (const double microseconds : cost.microseconds) EXPECT_GT(microseconds, 0);
    }
    table = calibration.to_text();
    EXPECT_TRUE(device.is_clean()) << device.report();
    EXPECT_EQ(device.num_allocations(), 0U);
    EXPECT_EQ(device.num_streams(), 0U);
    EXPECT_EQ(device.num_events(), 0U);
    // Time on the virtual device is a count of calls: a loop costs one call per piece.
    EXPECT_EQ(calibration.choose(Direction::kLoad, 64, 8, {true, true, false, false}),
              CopyPathKind::kBatched);
  }
  EXPECT_EQ(tables[0], tables[1]);
}

TEST(CopyCalibration, AnErrorIsReturnedAndAllGivenBack) {
  using virtual_device::Function;
  std::size_t num_errors = 0;
  for (const Function function :
       {Function::kMalloc, Function::kHostAlloc, Function::kHostGetDevicePointer,
        Function::kStreamCreateWithFlags, Function::kEventCreateWithFlags, Function::kEventRecord,
        Function::kMemcpyBatchAsync, Function::kMemcpyAsync, Function::kMemcpy2DAsync,
        Function::kLaunch, Function::kStreamSynchronize, Function::kEventElapsedTime}) {
    virtual_device::Device device(
        {.faults = {{.function = function, .code = cudaErrorMemoryAllocation}}});
    const virtual_device::Installed installed(device);
    CopyCalibration calibration = given();
    const cudaError_t code =
        measure_copy_costs({.copy_bytes = {64}, .num_copies = {3}}, calibration);
    if (function != Function::kMemcpy2DAsync) {
      EXPECT_EQ(code, cudaErrorMemoryAllocation) << virtual_device::to_text(function);
      EXPECT_EQ(calibration.costs().size(), 4U);
      ++num_errors;
    }
    EXPECT_EQ(device.num_allocations(), 0U) << virtual_device::to_text(function);
    EXPECT_TRUE(device.is_clean()) << device.report();
  }
  EXPECT_EQ(num_errors, 11U);
}

}  // namespace
}  // namespace kvfence::cuda
