#pragma once

/// What an engine's rank computes and copies on: a KV cache of which each token has a place of its
/// own, and copies between it and CPU memory. Its progress is commanded.
///
/// Three streams, each first in, first out, as those of contract/worker.h:
///
///   transfer_async  Enqueues a copy of whole blocks behind the forwards enqueued so far.
///   get_finished    Appends what is over: stores, then loads, each in the order of submission,
///                   once. Runs nothing.
///   wait            Runs what these transfers need, in order, and nothing else. Unknown ones are
///                   ignored.
///   forward         Enqueues a kernel on the compute stream. It reads and writes these places and
///                   no others.
///   advance         Runs the next work of a stream, if it waits for nobody.
///
/// Nothing is refused: that no transfer touches what others use is what an engine owes.

#include <concepts>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "contract/toy_model.h"
#include "contract/types.h"
#include "contract/worker.h"

namespace kvfence::engine {

using toy_model::Symbol;

/// Where a token's KV lies.
struct Place {
  BlockId block = 0;
  std::uint32_t offset = 0;  ///< tokens, from the block's first
  friend bool operator==(const Place&, const Place&) = default;
};

/// The KV cache, for a kernel that runs.
class KVCells {
 public:
  virtual Symbol read(Place place) const = 0;
  virtual void write(Place place, Symbol symbol) = 0;

 protected:
  ~KVCells() = default;
};

using Kernel = std::function<void(KVCells&)>;

struct DeviceOptions {
  std::uint32_t num_gpu_blocks = 8;
  std::uint32_t num_cpu_blocks = 4;
  std::uint32_t block_size = 4;  ///< tokens
  std::uint32_t block_size_factor = 1;
};

// clang-format off
template <class T>
concept EngineDevice = requires(T device, const T& shown, const worker::Transfer& transfer,
                                std::vector<worker::Ended>& ended, Kernel kernel,
                                std::span<const std::uint32_t> jobs,
                                const std::vector<Place>& places) {
  device.transfer_async(transfer);
  device.get_finished(ended);
  device.wait(jobs);
  device.forward(places, places, kernel);  // reads, writes
  { device.advance(worker::Stream::kCompute) } -> std::same_as<bool>;  // whether anything ran
  { shown.counts() } -> std::same_as<worker::Counts>;
  { shown.gpu_symbol(Place{}) } -> std::same_as<Symbol>;
  { shown.cpu_symbol(Place{}) } -> std::same_as<Symbol>;  // the block is a page of CPU memory
};
// clang-format on

}  // namespace kvfence::engine
