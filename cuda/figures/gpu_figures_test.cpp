/// Goal: the measurements of a GPU call the runtime correctly, see wrong bytes, and report what
/// they saw; on the virtual device, where times mean nothing.

#include "cuda/figures/gpu_figures.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cuda/virtual/device.h"

namespace kvfence::cuda {
namespace {

FigureOptions small() {
  FigureOptions options;
  options.block_bytes = {4096, 8192};
  options.num_blocks = {1, 8, 16};
  options.bytes_max = 65536;
  options.large_bytes = 65536;
  options.check_bytes = 131072;
  options.num_repeats = 2;
  options.race_page_bytes = 64;
  options.calibration = {.copy_bytes = {64}, .num_copies = {3}, .num_repeats = 1};
  options.seconds_max = 1e9;
  return options;
}

TEST(GpuFigures, AreMeasuredWithoutARaceAndWithRightBytes) {
  for (const auto schedule : {virtual_device::Schedule::kEager, virtual_device::Schedule::kLazy}) {
    virtual_device::Device device({.schedule = schedule});
    const virtual_device::Installed installed(device);
    Figures figures;
    ASSERT_EQ(measure_gpu(small(), figures), cudaSuccess);

    // Five of the geometries are small enough; a path goes three ways, and one in Any order.
    EXPECT_EQ(figures.copies.size(), 5U * (4 * 3 + 1));
    for (const CopyFigure& copy : figures.copies) {
      EXPECT_EQ(copy.num_wrong_bytes, 0U) << copy.path << " " << copy.direction;
      EXPECT_GT(copy.microseconds, 0) << copy.path << " " << copy.direction;
      EXPECT_GT(copy.of_ceiling, 0);
      EXPECT_GE(copy.call_microseconds, 0);
    }
    EXPECT_EQ(figures.num_wrong_in_check, 0U);
    EXPECT_GT(figures.check_kernel, 0);
    EXPECT_GT(figures.fill_kernel, 0);
    EXPECT_GT(figures.device_copy, 0);
    EXPECT_EQ(figures.num_rows_left_out, 0U);
    EXPECT_FALSE(figures.calibration.costs().empty());
    std::size_t num_controls = 0;
    for (const RaceFigure& race : figures.races) {
      EXPECT_EQ(race.outcome.refusal, "");
      EXPECT_FALSE(race.has_barrier && race.is_corrupt()) << race.race.id << " " << race.race.name;
      num_controls += race.has_barrier ? 0U : 1U;
    }
    EXPECT_EQ(2 * num_controls, figures.races.size());
    // Only the control arms have races; the program around them gives everything back.
    EXPECT_TRUE(device.misuses().empty()) << device.report();
    EXPECT_EQ(device.num_allocations() + device.num_streams() + device.num_events(), 0U);
  }
}

TEST(GpuFigures, OfCopiesAndChecksHaveNoRace) {
  virtual_device::Device device({.schedule = virtual_device::Schedule::kRandom});
  const virtual_device::Installed installed(device);
  Figures figures;
  ASSERT_EQ(measure_rates(small(), figures), cudaSuccess);
  EXPECT_TRUE(device.is_clean()) << device.report();
  EXPECT_EQ(figures.num_failures(), 0U);
}

TEST(GpuFigures, WrongBytesAreCounted) {
  // One round per row. The first two batches are the calibration's; then a store and a load at
  // once, a store, a load, and a load in Any order.
  for (const auto kind :
       {virtual_device::Fault::Kind::kFlippedBit, virtual_device::Fault::Kind::kShortCopy}) {
    FigureOptions options = small();
    options.num_blocks = {1};
    options.block_bytes = {4096};
    options.num_repeats = 0;
    std::size_t num_seen = 0;
    for (std::uint64_t nth = 1; nth <= 7; ++nth) {
      virtual_device::Device device(
          {.faults = {{.kind = kind,
                       .function = virtual_device::Function::kMemcpyBatchAsync,
                       .nth = nth,
                       .count = 64}}});
      const virtual_device::Installed installed(device);
      Figures figures;
      ASSERT_EQ(measure_rates(options, figures), cudaSuccess);
      ASSERT_EQ(device.counters().num_faults, 1U);
      if (figures.num_failures() > 0) ++num_seen;
    }
    EXPECT_EQ(num_seen, 5U) << static_cast<int>(kind);
  }
}

TEST(GpuFigures, AnErrorEndsThem) {
  virtual_device::Device device({.faults = {{.function = virtual_device::Function::kMemcpy2DAsync,
                                             .code = cudaErrorLaunchFailure}}});
  const virtual_device::Installed installed(device);
  Figures figures;
  FigureOptions options = small();
  options.calibration.num_copies = {1};  // is no rectangle
  EXPECT_EQ(measure_rates(options, figures), cudaErrorLaunchFailure);
  EXPECT_FALSE(figures.copies.empty());
  EXPECT_EQ(device.num_allocations(), 0U);
}

TEST(GpuFigures, RowsAreLeftOutForWantOfTime) {
  virtual_device::Device device;
  const virtual_device::Installed installed(device);
  FigureOptions options = small();
  options.seconds_max = 0;
  Figures figures;
  ASSERT_EQ(measure_rates(options, figures), cudaSuccess);
  EXPECT_EQ(figures.copies.size(), 0U);
  EXPECT_EQ(figures.num_rows_left_out, 5U * 13);
}

TEST(GpuFigures, ArePrintedAndWritten) {
  Figures figures;
  figures.runtime_version = 13000;
  figures.attributes = {{"AsyncEngineCount", 3}};
  figures.load_ceiling = 50;
  figures.copies = {{.path = "kernel",
                     .direction = "load",
                     .block_bytes = 4096,
                     .num_blocks = 16,
                     .microseconds = 2.5,
                     .gb_per_second = 25,
                     .of_ceiling = 0.5,
                     .call_microseconds = 1.25,
                     .num_wrong_bytes = 16}};
  figures.races = {{.race = {.id = "M1", .name = "a \"race\""}, .path = CopyPathKind::kLooped},
                   {.race = {.id = "M1"}, .path = CopyPathKind::kLooped, .has_barrier = true}};
  figures.calibration = CopyCalibration({{Direction::kLoad, 4096, 16, {3, 1.5, 8, 2}}});
  const auto json = nlohmann::json::parse(to_json(figures, "a GPU"));
  EXPECT_EQ(json["device"], "a GPU");
  EXPECT_EQ(json["attributes"]["AsyncEngineCount"], 3);
  EXPECT_EQ(json["copies"][0]["num_wrong_bytes"], 16);
  EXPECT_EQ(json["copies"][0]["of_ceiling"], 0.5);
  EXPECT_EQ(json["races"][0]["name"], "a \"race\"");
  EXPECT_EQ(json["races"][0]["is_as_expected"], false);
  EXPECT_EQ(json["races"][1]["is_as_expected"], true);
  EXPECT_EQ(json["calibration"][0]["looped_us"], 1.5);
  EXPECT_EQ(json["num_failures"], 2);
  const std::string tables = to_tables(figures);
  EXPECT_NE(
      tables.find("       4096         16 load      kernel              2.50    25.00    50.0%"
                  "       1.25       16\n"),
      std::string::npos)
      << tables;
  EXPECT_NE(tables.find("NOT AS EXPECTED"), std::string::npos);
  EXPECT_NE(tables.find("2 failures"), std::string::npos);
}

TEST(GpuFigures, ARaceIsAsExpected) {
  RaceFigure control{.outcome = {.is_early = true, .wrong = {"a block"}}};
  EXPECT_TRUE(control.is_as_expected());
  control.outcome.wrong.clear();
  EXPECT_FALSE(control.is_as_expected());
  control.race.must_corrupt = false;
  EXPECT_TRUE(control.is_as_expected());
  control.outcome.has_timed_out = true;
  EXPECT_FALSE(control.is_as_expected());
  RaceFigure guarded{.has_barrier = true};
  EXPECT_TRUE(guarded.is_as_expected());
  guarded.outcome.is_early = true;
  EXPECT_FALSE(guarded.is_as_expected());
  guarded.outcome = {.wrong = {"a block"}};
  EXPECT_FALSE(guarded.is_as_expected());
}

TEST(GpuFigures, ARaceWhoseStageCannotBeMadeGivesAllBack) {
  using virtual_device::Function;
  for (const Function function :
       {Function::kMalloc, Function::kHostAlloc, Function::kStreamCreateWithFlags,
        Function::kEventCreateWithFlags}) {
    virtual_device::Device device(
        {.faults = {{.function = function, .code = cudaErrorMemoryAllocation}}});
    const virtual_device::Installed installed(device);
    const RaceOutcome outcome = run_race(held_races()[0], CopyPathKind::kBatched, true, 64);
    EXPECT_EQ(outcome.code, cudaErrorMemoryAllocation);
    EXPECT_TRUE(device.is_clean()) << device.report();
    EXPECT_EQ(device.num_allocations() + device.num_streams() + device.num_events(), 0U);
  }
}

}  // namespace
}  // namespace kvfence::cuda
