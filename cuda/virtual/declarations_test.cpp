/// Goal: the toolkit's header and our own declarations agree. Each build compiles this file against
/// its own header and checks it against the same numbers.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <type_traits>

namespace {

#define KVFENCE_HAS_VALUE(name, value) static_assert(static_cast<int>(name) == (value), #name)

KVFENCE_HAS_VALUE(cudaSuccess, 0);
KVFENCE_HAS_VALUE(cudaErrorInvalidValue, 1);
KVFENCE_HAS_VALUE(cudaErrorMemoryAllocation, 2);
KVFENCE_HAS_VALUE(cudaErrorInvalidPitchValue, 12);
KVFENCE_HAS_VALUE(cudaErrorInvalidMemcpyDirection, 21);
KVFENCE_HAS_VALUE(cudaErrorInvalidDevice, 101);
KVFENCE_HAS_VALUE(cudaErrorECCUncorrectable, 214);
KVFENCE_HAS_VALUE(cudaErrorInvalidResourceHandle, 400);
KVFENCE_HAS_VALUE(cudaErrorNotReady, 600);
KVFENCE_HAS_VALUE(cudaErrorIllegalAddress, 700);
KVFENCE_HAS_VALUE(cudaErrorLaunchTimeout, 702);
KVFENCE_HAS_VALUE(cudaErrorHostMemoryAlreadyRegistered, 712);
KVFENCE_HAS_VALUE(cudaErrorHostMemoryNotRegistered, 713);
KVFENCE_HAS_VALUE(cudaErrorLaunchFailure, 719);
KVFENCE_HAS_VALUE(cudaErrorNotPermitted, 800);
KVFENCE_HAS_VALUE(cudaErrorUnknown, 999);

KVFENCE_HAS_VALUE(cudaMemcpyHostToHost, 0);
KVFENCE_HAS_VALUE(cudaMemcpyHostToDevice, 1);
KVFENCE_HAS_VALUE(cudaMemcpyDeviceToHost, 2);
KVFENCE_HAS_VALUE(cudaMemcpyDeviceToDevice, 3);
KVFENCE_HAS_VALUE(cudaMemcpyDefault, 4);

KVFENCE_HAS_VALUE(cudaMemLocationTypeInvalid, 0);
KVFENCE_HAS_VALUE(cudaMemLocationTypeDevice, 1);
KVFENCE_HAS_VALUE(cudaMemLocationTypeHost, 2);
KVFENCE_HAS_VALUE(cudaMemcpySrcAccessOrderInvalid, 0);
KVFENCE_HAS_VALUE(cudaMemcpySrcAccessOrderStream, 1);
KVFENCE_HAS_VALUE(cudaMemcpySrcAccessOrderAny, 3);

KVFENCE_HAS_VALUE(cudaDevAttrMultiProcessorCount, 16);
KVFENCE_HAS_VALUE(cudaDevAttrCanMapHostMemory, 19);
KVFENCE_HAS_VALUE(cudaDevAttrAsyncEngineCount, 40);
KVFENCE_HAS_VALUE(cudaDevAttrUnifiedAddressing, 41);
KVFENCE_HAS_VALUE(cudaDevAttrPageableMemoryAccess, 88);
KVFENCE_HAS_VALUE(cudaDevAttrCanUseHostPointerForRegisteredMem, 91);
KVFENCE_HAS_VALUE(cudaDevAttrHostRegisterSupported, 99);
KVFENCE_HAS_VALUE(cudaDevAttrHostNumaId, 134);

KVFENCE_HAS_VALUE(cudaHostAllocDefault, 0);
KVFENCE_HAS_VALUE(cudaHostAllocPortable, 1);
KVFENCE_HAS_VALUE(cudaHostAllocMapped, 2);
KVFENCE_HAS_VALUE(cudaHostAllocWriteCombined, 4);
KVFENCE_HAS_VALUE(cudaHostRegisterDefault, 0);
KVFENCE_HAS_VALUE(cudaHostRegisterPortable, 1);
KVFENCE_HAS_VALUE(cudaHostRegisterMapped, 2);
KVFENCE_HAS_VALUE(cudaStreamNonBlocking, 1);
KVFENCE_HAS_VALUE(cudaEventDefault, 0);
KVFENCE_HAS_VALUE(cudaEventBlockingSync, 1);
KVFENCE_HAS_VALUE(cudaEventDisableTiming, 2);

static_assert(sizeof(cudaMemcpyAttributes) == 24);
static_assert(offsetof(cudaMemcpyAttributes, srcAccessOrder) == 0);
static_assert(offsetof(cudaMemcpyAttributes, srcLocHint) == 4);
static_assert(offsetof(cudaMemcpyAttributes, dstLocHint) == 12);
static_assert(offsetof(cudaMemcpyAttributes, flags) == 20);

// The signature whose number of arguments has changed between releases (nine in 12.8, eight in 13).
static_assert(std::is_same_v<decltype(&cudaMemcpyBatchAsync),
                             cudaError_t (*)(void* const*, const void* const*, const std::size_t*,
                                             std::size_t, cudaMemcpyAttributes*, std::size_t*,
                                             std::size_t, cudaStream_t)>);

TEST(Declarations, AreHeldToTheirNumbers) {
  // The compiler has checked the numbers above. The test shows that this file was compiled.
  EXPECT_EQ(static_cast<int>(cudaErrorNotReady), 600);
}

}  // namespace
