#pragma once

/// The engine under test whose devices can be watched.

#include <functional>
#include <memory>
#include <string_view>

#include "contract/core/implementation.h"
#include "planted/cuda/worker/engine_on_virtual_device.h"

namespace kvfence {

/// on_device is called with each rank's device, in order, at each configuration. Devices live until
/// the next configuration or the end of the engine.
/// Requires: planted_bug is empty, or one of the target.
std::unique_ptr<Implementation> make_watched_engine(
    std::string_view planted_bug,
    std::function<void(planted::cuda::EngineOnVirtualDevice&)> on_device);

}  // namespace kvfence
