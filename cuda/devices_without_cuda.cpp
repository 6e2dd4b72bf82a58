/// find_devices() of a build without the CUDA toolkit.

#include "cuda/devices.h"

namespace kvfence::cuda {

Devices find_devices() { return {{}, "built without the CUDA toolkit (KVFENCE_CUDA)"}; }

}  // namespace kvfence::cuda
