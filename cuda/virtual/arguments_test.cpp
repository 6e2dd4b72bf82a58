/// Goal: calls with arguments that the documentation refuses are refused, with its codes, and
/// change nothing.

#include <gtest/gtest.h>

#include <array>
#include <functional>

#include "cuda/virtual/test_rig.h"

namespace kvfence::virtual_device {
namespace {

/// A batch of three entries, right as it is; each test spoils one thing.
struct BatchCall {
  explicit BatchCall(TestRig& rig)
      : dsts{rig.cpu(0), rig.cpu(1), rig.cpu(2)},
        srcs{rig.gpu(0), rig.gpu(1), rig.gpu(2)},
        stream(rig.stream(0)) {
    for (cudaMemcpyAttributes& a : attributes) a.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  }
  cudaError_t operator()() {
    return cudaMemcpyBatchAsync(dsts.data(), srcs.data(), sizes.data(), count, attributes.data(),
                                starts.data(), num_attributes, stream);
  }

  std::array<void*, 3> dsts;
  std::array<const void*, 3> srcs;
  std::array<std::size_t, 3> sizes{64, 64, 64};
  std::size_t count = 3;
  std::array<cudaMemcpyAttributes, 4> attributes{};
  std::array<std::size_t, 4> starts{0, 1, 2, 3};
  std::size_t num_attributes = 2;
  cudaStream_t stream;
};

TEST(BatchArguments, AreChecked) {
  const std::vector<std::pair<const char*, std::function<void(BatchCall&, TestRig&)>>> wrong = {
      {"no attributes", [](BatchCall& c, TestRig&) { c.num_attributes = 0; }},
      {"more attributes than entries", [](BatchCall& c, TestRig&) { c.num_attributes = 4; }},
      {"first attribute later", [](BatchCall& c, TestRig&) { c.starts[0] = 1; }},
      {"attributes not increasing", [](BatchCall& c, TestRig&) { c.starts[1] = 0; }},
      {"attribute after the end", [](BatchCall& c, TestRig&) { c.starts[1] = 3; }},
      {"zero attribute", [](BatchCall& c, TestRig&) { c.attributes[1] = {}; }},
      {"source read during the call",
       [](BatchCall& c, TestRig&) {
         c.attributes[1].srcAccessOrder = static_cast<cudaMemcpySrcAccessOrder>(2);
       }},
      {"no entries", [](BatchCall& c, TestRig&) { c.count = 0; }},
      {"an empty entry", [](BatchCall& c, TestRig&) { c.sizes[1] = 0; }},
      {"null source", [](BatchCall& c, TestRig&) { c.srcs[2] = nullptr; }},
      {"source across the end",
       [](BatchCall& c, TestRig& rig) { c.srcs[1] = rig.gpu(TestRig::kNumBlocks - 1) + 1; }},
      {"destination after the end",
       [](BatchCall& c, TestRig& rig) { c.dsts[1] = rig.gpu(TestRig::kNumBlocks); }},
      {"legacy stream", [](BatchCall& c, TestRig&) { c.stream = nullptr; }},
  };
  for (const auto& [name, spoil] : wrong) {
    SCOPED_TRACE(name);
    TestRig rig;
    BatchCall call(rig);
    spoil(call, rig);
    EXPECT_EQ(call(), cudaErrorInvalidValue);
    EXPECT_EQ(rig.device().queue().counters().num_enqueued, 0U);
  }
  TestRig rig;
  EXPECT_EQ(BatchCall(rig)(), cudaSuccess);
}

TEST(BatchArguments, OneAttributeServesAllEntries) {
  TestRig rig;
  BatchCall call(rig);
  call.num_attributes = 1;
  EXPECT_EQ(call(), cudaSuccess);
}

TEST(CopyArguments, AreChecked) {
  TestRig rig;
  const auto copy = [&](void* dst, const void* src, std::size_t size, cudaMemcpyKind kind) {
    return cudaMemcpyAsync(dst, src, size, kind, rig.stream(0));
  };
  EXPECT_EQ(copy(rig.gpu(0), rig.cpu(0), 64, static_cast<cudaMemcpyKind>(7)),
            cudaErrorInvalidMemcpyDirection);
  EXPECT_EQ(copy(rig.gpu(0), rig.cpu(0), 64, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(rig.device().misuses().back().kind, Misuse::Kind::kWrongDirection);
  EXPECT_EQ(copy(rig.gpu(0), rig.cpu(0), 9 * 64, cudaMemcpyDefault), cudaErrorInvalidValue);
  EXPECT_EQ(copy(rig.gpu(0), rig.gpu(0) + 32, 64, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(rig.device().misuses().back().kind, Misuse::Kind::kOverlap);
  EXPECT_EQ(copy(rig.gpu(0), rig.cpu(0), 0, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(rig.gpu(0), rig.cpu(0), 64, cudaMemcpyDefault, nullptr),
            cudaErrorInvalidResourceHandle);
  EXPECT_EQ(rig.device().misuses().back().kind, Misuse::Kind::kLegacyStream);
  EXPECT_EQ(
      cudaMemcpy2DAsync(rig.gpu(0), 8, rig.cpu(0), 64, 16, 2, cudaMemcpyDefault, rig.stream(0)),
      cudaErrorInvalidPitchValue);
  EXPECT_EQ(
      cudaMemcpy2DAsync(rig.gpu(0), 64, rig.cpu(0), 64, 16, 9, cudaMemcpyDefault, rig.stream(0)),
      cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(rig.gpu(0), 0, 9 * 64, rig.stream(0)), cudaErrorInvalidValue);
  rig.sync(0);
  EXPECT_TRUE(rig.device().races().empty());
}

TEST(RegistrationArguments, AreChecked) {
  TestRig rig;
  std::vector<std::byte> memory(4096);
  const auto register_part = [&](std::size_t begin, std::size_t size) {
    return cudaHostRegister(memory.data() + begin, size, cudaHostRegisterDefault);
  };
  EXPECT_EQ(cudaHostRegister(nullptr, 16, 0), cudaErrorInvalidValue);
  EXPECT_EQ(register_part(0, 0), cudaErrorInvalidValue);
  EXPECT_EQ(register_part(1024, 1024), cudaSuccess);
  EXPECT_EQ(register_part(0, 1025), cudaErrorHostMemoryAlreadyRegistered);
  EXPECT_EQ(register_part(0, 1024), cudaSuccess);
  EXPECT_EQ(cudaHostUnregister(memory.data() + 16), cudaErrorHostMemoryNotRegistered);
  EXPECT_EQ(cudaFreeHost(memory.data()), cudaErrorInvalidValue);
  // A copy across the border of two registrations, or out of one.
  EXPECT_EQ(cudaMemcpyAsync(rig.gpu(0), memory.data() + 1000, 64, cudaMemcpyDefault, rig.stream(0)),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(rig.gpu(0), memory.data() + 2030, 64, cudaMemcpyDefault, rig.stream(0)),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaHostUnregister(memory.data()), cudaSuccess);
  EXPECT_EQ(cudaHostUnregister(memory.data()), cudaErrorHostMemoryNotRegistered);
  EXPECT_EQ(cudaMemcpyAsync(rig.gpu(0), memory.data() + 1000, 64, cudaMemcpyDefault, rig.stream(0)),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(rig.gpu(0), memory.data() + 1024, 64, cudaMemcpyDefault, rig.stream(0)),
            cudaSuccess);
  rig.sync(0);
  EXPECT_EQ(cudaHostUnregister(memory.data() + 1024), cudaSuccess);
  EXPECT_TRUE(rig.device().is_clean()) << rig.device().report();
}

TEST(MemoryArguments, AreChecked) {
  TestRig rig;
  void* address = nullptr;
  EXPECT_EQ(cudaFree(rig.gpu(1)), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(nullptr), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&address, 0), cudaSuccess);
  EXPECT_EQ(address, nullptr);
  EXPECT_EQ(cudaMalloc(&address, std::size_t{1} << 40), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaHostAlloc(&address, 16, 1U << 20), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMalloc(&address, 16), cudaSuccess);
  EXPECT_EQ(cudaFree(address), cudaSuccess);
  EXPECT_EQ(cudaFree(address), cudaErrorInvalidValue);
}

TEST(HandleArguments, AreChecked) {
  TestRig rig;
  cudaStream_t stream = nullptr;
  EXPECT_EQ(cudaStreamCreateWithFlags(&stream, 8), cudaErrorInvalidValue);
  EXPECT_EQ(cudaStreamCreateWithFlags(nullptr, 0), cudaErrorInvalidValue);
  ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  ok(cudaStreamDestroy(stream));
  EXPECT_EQ(cudaStreamDestroy(stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventRecord(rig.event(0), stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventRecord(nullptr, rig.stream(0)), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamWaitEvent(rig.stream(0), reinterpret_cast<cudaEvent_t>(rig.stream(0)), 0),
            cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamWaitEvent(rig.stream(0), rig.event(0), 7), cudaErrorInvalidValue);
  EXPECT_EQ(rig.device().num_streams(), TestRig::kNumStreams);
  EXPECT_EQ(rig.device().num_events(), 8U);
  for (const Misuse& misuse : rig.device().misuses()) {
    EXPECT_EQ(misuse.kind, Misuse::Kind::kInvalidHandle) << to_text(misuse);
  }
  EXPECT_EQ(rig.device().misuses().size(), 4U);
}

TEST(DeviceArguments, DescribeTheDevice) {
  TestRig rig;
  int value = -1;
  ok(cudaRuntimeGetVersion(&value));
  EXPECT_EQ(value, 13000);
  ok(cudaDriverGetVersion(&value));
  EXPECT_EQ(value, 13000);
  ok(cudaDeviceGetAttribute(&value, cudaDevAttrAsyncEngineCount, 0));
  EXPECT_EQ(value, 3);
  EXPECT_EQ(cudaDeviceGetAttribute(&value, cudaDevAttrAsyncEngineCount, 5), cudaErrorInvalidDevice);
  EXPECT_STREQ(cudaGetErrorName(cudaErrorNotReady), "cudaErrorNotReady");
}

}  // namespace
}  // namespace kvfence::virtual_device
