#pragma once

/// The engine under test whose devices can be watched.

#include <functional>
#include <memory>
#include <string_view>

#include "contract/core/implementation.h"
#include "planted/cuda/worker/engine_on_virtual_device.h"

namespace kvfence {

/// on_device is called with each rank's device, in order, when a configuration is taken. Devices
/// live until the next one, or as long as the engine.
/// Requires: planted_bug is empty, or one that the target has.
std::unique_ptr<Implementation> make_watched_engine(
    std::string_view planted_bug,
    std::function<void(planted::cuda::EngineOnVirtualDevice&)> on_device);

}  // namespace kvfence
