#pragma once

/// The device of an engine's rank: a KV cache with a place for each token, and copies between it
/// and CPU memory. Commands drive its progress. Groups of layers share the pages of blocks; each
/// page belongs to one group at a time, and a group of smaller blocks leaves the rest of its pages
/// alone.
///
/// Three streams, each first in, first out, as those of contract/worker/worker.h:
///
///   transfer_async  Enqueues a copy of whole blocks after the forwards enqueued so far.
///   get_finished    Appends what is over: stores, then loads, each in the order of submission,
///                   once. Runs nothing.
///   wait            Runs what these transfers need, in order, and nothing else. Unknown ones are
///                   ignored.
///   forward         Enqueues a kernel on the compute stream. It reads and writes these places and
///                   no others.
///   advance         Runs the next work of a stream, unless that has to wait.
///   fail_next       The next transfer of a direction meets a fault, as contract/worker/worker.h
///                   says it: any but kSticky. It ends, and is reported as one that failed, unless
///                   the fault is kLate.
///
///   show_pages      Appends what GPU blocks, and the pages of CPU memory that take one, hold:
///                   the shortened symbols, one per token. What was never written is left out.
///
/// Where others read the KV cache, or write it, over a network (has_remote):
///
///   begin_remote    From now on some of these blocks may be read, or written, at any time,
///                   whatever the streams do; ordered after what the host knows.
///   know_remote     The host knows that it is over.
///   know_forward    The host knows the result of the oldest forward that has run and whose result
///                   it did not know.
///
/// A transfer without pages, or whose copies could not be enqueued, ends when its turn comes.
///
/// Nothing is refused: the engine has to ensure that no transfer touches what others use.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/core/types.h"
#include "contract/engine/toy_model.h"
#include "contract/worker/kv_pages.h"
#include "contract/worker/worker.h"

namespace kvfence::engine {

using toy_model::Symbol;

/// Where a token's KV lies.
struct Place {
  BlockId block = 0;
  std::uint32_t offset = 0;  ///< tokens, from the block's first
  friend bool operator==(const Place&, const Place&) = default;
};

/// The KV cache, for a kernel that runs, and for accesses over a network.
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
  std::uint32_t block_size = 4;  ///< tokens that a page takes
  std::uint32_t block_size_factor = 1;
  std::uint32_t num_groups = 1;
  bool looks_for_races = true;
  bool has_remote = false;
};

/// What a device is asked to copy.
struct Copy {
  std::uint32_t job_id = 0;
  worker::Direction direction = worker::Direction::kStore;
  std::vector<std::uint32_t> gpu_blocks = {};     ///< group after group
  std::vector<std::uint32_t> cpu_blocks = {};     ///< likewise
  std::vector<std::uint32_t> group_sizes = {};    ///< GPU blocks, by group
  std::vector<std::uint32_t> block_indices = {};  ///< by group: its first GPU block's place
};

/// The pages of CPU memory, one per GPU block. Requires: counts that fit.
inline std::vector<std::uint32_t> cpu_pages_of(const Copy& copy, std::uint32_t block_size_factor) {
  std::vector<std::uint32_t> pages;
  std::span<const std::uint32_t> cpu_blocks = copy.cpu_blocks;
  for (std::size_t group = 0; group < copy.group_sizes.size(); ++group) {
    const std::uint32_t size = copy.group_sizes[group];
    const std::uint32_t index = copy.block_indices[group];
    worker::add_cpu_pages(size, index, cpu_blocks, block_size_factor, pages);
    cpu_blocks = cpu_blocks.subspan(worker::num_cpu_blocks_for(size, index, block_size_factor));
  }
  return pages;
}

class EngineDevice : public KVCells {
 public:
  virtual ~EngineDevice() = default;

  virtual void transfer_async(const Copy& copy) = 0;
  virtual void get_finished(std::vector<worker::Ended>& ended) = 0;
  virtual void wait(std::span<const std::uint32_t> jobs) = 0;
  virtual void forward(const std::vector<Place>& reads, const std::vector<Place>& writes,
                       Kernel kernel) = 0;
  /// Whether anything ran.
  virtual bool advance(worker::Stream stream) = 0;
  virtual void fail_next(worker::Direction direction, worker::Fault fault) = 0;

  virtual void begin_remote(std::uint32_t number, std::span<const std::uint32_t> blocks,
                            bool writes) = 0;
  virtual void know_remote(std::uint32_t number) = 0;
  virtual void know_forward() = 0;

  virtual worker::Counts counts() const = 0;
  /// rank: named in what is shown.
  virtual void show_pages(std::uint32_t rank, KVPages& gpu, KVPages& cpu) const = 0;
  virtual void add_to(StateHash& hash) const = 0;
};

}  // namespace kvfence::engine
