#pragma once

/// What a copy worker owes its caller, on a device whose progress is commanded.
///
/// Three streams, each first in, first out: `compute`, whose work are forwards, and one for each
/// direction of transfers. A CPU block is block_size_factor pages, each as large as a GPU block.
///
///   transfer_async   A load is enqueued behind the forwards enqueued so far. A store is deferred.
///                    Refused, in this order: kShutDown; kJobInFlight; kUnknownBlock;
///                    kCountsDiffer; kListedTwice, a page is written twice; kBlockInFlight, a
///                    page is touched by an unreported transfer of the other direction, and one of
///                    the two writes it; kNotOrdered, a load that waits for nobody.
///   start_kv_transfers  Enqueues the deferred stores, behind the forwards enqueued so far.
///   get_finished     Stores, then loads, each in the order of submission, once, as far as their
///                    ends are known. Runs nothing.
///   wait             Runs what these transfers need, in order, and nothing else; a deferred one
///                    among them enqueues all that are deferred. Unknown jobs are ignored.
///   shutdown         Enqueues, runs and reports all transfers.
///   forward          Reads blocks, then writes others; each write has a generation of its own.
///                    Refused: kUnknownBlock; kListedTwice; kBlockInFlight, it writes what an
///                    unreported transfer touches, or reads what an unreported load writes.
///   advance          Runs the next work of a stream, if it waits for nobody.
///   fail_next        The next transfer that is enqueued meets a fault.
///
/// A transfer without pages, or whose copies could not be enqueued, ends when its turn comes.
///
/// Source: off/worker.py, off/connector.py (v0.19.0, v0.23.0); cuda/worker.h.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "contract/status.h"

namespace kvfence::worker {

enum class Direction : std::uint8_t { kStore, kLoad };
inline constexpr std::size_t kNumDirections = 2;

enum class Stream : std::uint8_t { kCompute, kStore, kLoad };

/// How the pages of blocks lie in the tensors of the layers.
enum class Layout : std::uint8_t { kBlocksFirst, kKVFirst, kCrossLayers, kMamba, kPadded };

/// Which calls of the runtime copy.
enum class Path : std::uint8_t { kBatched, kLooped, kStrided, kKernel };

/// What can go wrong with a transfer. In each case but kLate it fails.
enum class Fault : std::uint8_t {
  kNone,
  kCopy,    ///< the first call that copies: nothing is copied; a transfer without pages passes
  kWait,    ///< the call that makes its stream wait: nothing is copied, and it waits for nobody
  kRecord,  ///< the end cannot be recorded: it is known when its whole stream has come to an end
  kLate,    ///< the end is denied by kNumLatePolls questions
};
inline constexpr std::uint32_t kNumLatePolls = 2;

std::string_view to_text(Direction direction);
std::string_view to_text(Stream stream);
std::string_view to_text(Layout layout);
std::string_view to_text(Path path);
std::string_view to_text(Fault fault);
std::optional<Direction> direction_from_text(std::string_view text);
std::optional<Stream> stream_from_text(std::string_view text);
std::optional<Layout> layout_from_text(std::string_view text);
std::optional<Path> path_from_text(std::string_view text);
std::optional<Fault> fault_from_text(std::string_view text);

struct Options {
  Layout layout = Layout::kBlocksFirst;
  Path path = Path::kBatched;
  std::uint32_t num_gpu_blocks = 8;
  std::uint32_t num_cpu_blocks = 4;
  std::uint32_t block_size_factor = 1;
  std::uint32_t batch_entries_max = 64;  ///< the device refuses larger batches
  bool host_address_differs = false;     ///< the device knows pinned memory by another address
};

struct Transfer {
  std::uint32_t job_id = 0;
  Direction direction = Direction::kStore;
  std::vector<std::uint32_t> gpu_blocks = {};
  std::vector<std::uint32_t> cpu_blocks = {};
  std::uint32_t block_index = 0;  ///< of the first GPU block in its request
  bool has_event = true;          ///< of a load: the last readers of its blocks are known
};

/// The pages of a transfer, one a GPU block. Requires: counts that fit.
std::vector<std::uint32_t> cpu_pages_of(const Transfer& transfer, std::uint32_t block_size_factor);

/// Whether the CPU blocks are as many as the GPU blocks take.
bool counts_fit(const Transfer& transfer, std::uint32_t block_size_factor);

struct Ended {
  std::uint32_t job_id = 0;
  Direction direction = Direction::kStore;
  bool succeeded = false;
  friend bool operator==(const Ended&, const Ended&) = default;
};

/// What all bytes of a page are: one write of one GPU block, or nothing yet, or neither.
struct Content {
  enum class Kind : std::uint8_t { kUnwritten, kWritten, kTorn };
  Kind kind = Kind::kUnwritten;
  std::uint32_t block = 0;       ///< of kWritten: the GPU block that a forward wrote
  std::uint32_t generation = 0;  ///< of kWritten: which forward, from 1
  friend bool operator==(const Content&, const Content&) = default;
};

/// What a forward found in a block that it read.
struct Seen {
  std::uint32_t gpu_block = 0;
  Content content = {};
  friend bool operator==(const Seen&, const Seen&) = default;
};

struct Counts {
  std::uint32_t num_deferred = 0;
  std::uint32_t num_in_flight = 0;  ///< enqueued, not reported
  // None of these is allowed.
  std::uint32_t num_races = 0;    ///< accesses to the same bytes that nothing orders
  std::uint32_t num_misuses = 0;  ///< calls that the runtime's documentation forbids
  Fault next_fault = Fault::kNone;
};

// clang-format off
template <class T>
concept CopyWorker = requires(T worker, const T& shown, const Transfer& transfer,
                              std::span<const std::uint32_t> numbers, std::vector<Ended>& ended,
                              std::vector<Seen>& seen) {
  { worker.transfer_async(transfer) } -> std::same_as<ErrorCode>;
  worker.start_kv_transfers();
  worker.get_finished(ended);  // appends
  worker.wait(numbers);
  worker.shutdown(ended);      // appends
  { worker.forward(numbers, numbers) } -> std::same_as<ErrorCode>;  // reads, writes
  { worker.advance(Stream::kCompute) } -> std::same_as<bool>;       // whether anything ran
  worker.fail_next(Fault::kNone);
  worker.take_seen(seen);      // overwrites: by the forwards that ran since
  { shown.counts() } -> std::same_as<Counts>;
  { shown.gpu_content(std::uint32_t{}) } -> std::same_as<Content>;
  { shown.cpu_content(std::uint32_t{}) } -> std::same_as<Content>;  // of a page
  { shown.num_stray_bytes() } -> std::same_as<std::uint32_t>;       // changed outside of pages
};
// clang-format on

}  // namespace kvfence::worker
