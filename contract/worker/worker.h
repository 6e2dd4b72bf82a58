#pragma once

/// The rules of the copy workers of all ranks, each on a device of its own.
///
/// A device has three streams, each first in, first out: `compute`, whose work are forwards, and
/// one for each direction of transfers. A CPU block is block_size_factor pages, each as large as a
/// GPU block. All ranks get the same commands; progress and faults are those of one rank.
///
///   transfer_async   A load is enqueued after the forwards enqueued so far. A store is deferred.
///                    Refused, in this order: kShutDown; kJobInFlight; kUnknownBlock;
///                    kCountsDiffer; kListedTwice, a page is written twice; kBlockInFlight, a
///                    page is touched by an unreported transfer of the other direction, and one of
///                    the two writes it; kNotOrdered, a load that waits for nothing. Unreported is
///                    what any rank has not reported; the first rank that refuses says why.
///   start_kv_transfers  Enqueues the deferred stores, after the forwards enqueued so far.
///   get_finished     Stores, then loads, each in the order of submission, once, as far as all
///                    ranks know their ends. A success where each rank has one. Runs nothing.
///   wait             Runs what these transfers need, in order, and nothing else; a deferred one
///                    among them enqueues all that are deferred. Unknown jobs are ignored. False
///                    where a lost device could not say whether one of them is over.
///   shutdown         Enqueues, runs and reports all transfers, and gives all back.
///   forward          Reads blocks, then writes others; each write has a generation of its own.
///                    Refused: kUnknownBlock; kListedTwice; kBlockInFlight, it writes what an
///                    unreported transfer touches, or reads what an unreported load writes.
///   advance          Runs the next work of a stream, unless that has to wait. With `steps`, only
///                    a part of the next transfer: up to so many reads and writes of its pieces,
///                    in any order, and not the last of them. From then on until it is over, what
///                    the pages hold that it writes is kUndefined. A forward has no parts.
///   fail_next        The next transfer that is enqueued meets a fault.
///
/// A transfer without pages, or whose copies could not be enqueued, ends when its turn comes.
///
/// With schedules other than kCommanded the device decides when its work runs, down to the pieces
/// of copies and between any two calls of the runtime. Then only what the host can know is shown,
/// which the commands decide: `advance` gives the device a turn and returns nothing; get_finished
/// asks until all that is enqueued is over; a page is kUndefined unless the host knows that its
/// last write is over; what a forward saw is shown when the host knows that the forward is over.
///
/// Source: off/worker.py, off/connector.py (v0.19.0, v0.23.0); cuda/worker/worker.h; of ranks:
/// distributed/kv_transfer/kv_connector/utils.py KVOutputAggregator.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "contract/core/declare.h"
#include "contract/core/status.h"
#include "contract/core/words.h"

namespace kvfence::worker {

enum class Direction : std::uint8_t { kStore, kLoad };
constexpr auto words_of(Direction) { return words({"store", "load"}); }
inline constexpr std::size_t kNumDirections = 2;

enum class Stream : std::uint8_t { kCompute, kStore, kLoad };
constexpr auto words_of(Stream) { return words({"compute", "store", "load"}); }

/// How the pages of blocks lie in the tensors of the layers.
enum class Layout : std::uint8_t { kBlocksFirst, kKVFirst, kCrossLayers, kMamba, kPadded };
constexpr auto words_of(Layout) {
  return words({"blocks_first", "kv_first", "cross_layers", "mamba", "padded"});
}

/// Which calls of the runtime copy.
enum class Path : std::uint8_t { kBatched, kLooped, kStrided, kKernel };
constexpr auto words_of(Path) { return words({"batched", "looped", "strided", "kernel"}); }

/// What decides when a device runs its work. All but kCommanded: cuda/virtual/options.h.
enum class Schedule : std::uint8_t { kCommanded, kEager, kLazy, kRandom, kPriority };
constexpr auto words_of(Schedule) {
  return words({"commanded", "eager", "lazy", "random", "priority"});
}

/// What can go wrong with a transfer. In each case but kLate it fails.
enum class Fault : std::uint8_t {
  kNone,
  kCopy,     ///< the first call that copies: nothing is copied; a transfer without pages passes
  kWait,     ///< the call that makes its stream wait: nothing is copied, and it does not wait
  kRecord,   ///< the end cannot be recorded: it is known when its whole stream has come to an end
  kLate,     ///< the end is denied by kNumLatePolls questions
  kPartial,  ///< the first call that copies fails after a part of its copies, and it is unknown
             ///< which: in its turn all that the transfer writes becomes kTorn
  kSticky,   ///< as kPartial, but the error is the device's, and comes in that turn: the device is
             ///< lost. It runs nothing any more, every call fails, and so does each transfer whose
             ///< end no wait has reported yet. Of commanded devices only.
};
constexpr auto words_of(Fault) {
  return words({"none", "copy", "wait", "record", "late", "partial", "sticky"});
}
inline constexpr std::uint32_t kNumLatePolls = 2;
/// Whether a call that copies meets it: a transfer without pages makes none.
constexpr bool is_of_copies(Fault fault) {
  return fault == Fault::kCopy || fault == Fault::kPartial || fault == Fault::kSticky;
}
/// Whether a transfer that meets it fails.
constexpr bool fails(Fault fault) { return fault != Fault::kNone && fault != Fault::kLate; }

struct Options {
  Layout layout = Layout::kBlocksFirst;
  Path path = Path::kBatched;
  std::uint32_t num_gpu_blocks = 8;
  std::uint32_t num_cpu_blocks = 4;
  std::uint32_t block_size_factor = 1;
  std::uint32_t batch_entries_max = 64;
  bool host_address_differs = false;
  Schedule schedule = Schedule::kCommanded;
  std::uint32_t seed = 1;  ///< a rank's is this and its number
  std::uint32_t num_ranks = 1;

  static void declare(auto& fields) {
    using S = Options;
    fields.add("layout", &S::layout,
               "of the KV cache: blocks_first, kv_first, cross_layers, mamba, padded");
    fields.add("path", &S::path, "how pages are copied: batched, looped, strided, kernel");
    fields.add("num_gpu_blocks", &S::num_gpu_blocks, "1 to 64");
    fields.add("num_cpu_blocks", &S::num_cpu_blocks, "1 to 64");
    fields.add("block_size_factor", &S::block_size_factor, "pages of a CPU block, 1 to 8");
    fields.add("batch_entries_max", &S::batch_entries_max, "the device refuses larger batches");
    fields.add("host_address_differs", &S::host_address_differs,
               "the device knows pinned memory by another address");
    fields.optional("schedule", &S::schedule,
                    "when devices run their work: commanded, eager, lazy, random, priority");
    fields.optional("seed", &S::seed, "of what the devices choose");
    fields.optional("num_ranks", &S::num_ranks, "workers, each with a device, 1 to 4");
  }

  bool is_commanded() const { return schedule == Schedule::kCommanded; }
};

struct Transfer {
  std::uint32_t job_id = 0;
  Direction direction = Direction::kStore;
  std::vector<std::uint32_t> gpu_blocks = {};
  std::vector<std::uint32_t> cpu_blocks = {};
  std::uint32_t block_index = 0;  ///< of the first GPU block in its request
  bool has_event = true;          ///< of a load: the last readers of its blocks are known
};

/// Appends a page per GPU block; block_index: the first one's place in its request.
/// Requires: as many CPU blocks as those take, or more.
void add_cpu_pages(std::size_t num_gpu_blocks, std::uint32_t block_index,
                   std::span<const std::uint32_t> cpu_blocks, std::uint32_t block_size_factor,
                   std::vector<std::uint32_t>& pages);
/// Those of a transfer. Requires: counts that fit.
std::vector<std::uint32_t> cpu_pages_of(const Transfer& transfer, std::uint32_t block_size_factor);

/// How many CPU blocks hold so many GPU blocks.
std::size_t num_cpu_blocks_for(std::size_t num_gpu_blocks, std::uint32_t block_index,
                               std::uint32_t block_size_factor);

/// Whether the CPU blocks are as many as the GPU blocks take.
bool counts_fit(const Transfer& transfer, std::uint32_t block_size_factor);

/// A transfer that is over.
struct Ended {
  static constexpr std::string_view kWord = "finished";
  std::uint32_t job_id = 0;
  Direction direction = Direction::kStore;
  bool succeeded = true;
  bool is_at_rest = true;  ///< false only of what a lost device has not reported
  static void declare(auto& fields) {
    using S = Ended;
    fields.add("job", &S::job_id, "its number");
    fields.add("direction", &S::direction, "store or load");
    fields.optional("succeeded", &S::succeeded, "whether all was copied");
    fields.optional("at_rest", &S::is_at_rest, "whether nothing touches its memory any more");
  }
  friend bool operator==(const Ended&, const Ended&) = default;
};

/// What all bytes of a page are: one write of one GPU block, or nothing yet, or neither; or a write
/// is under way, and they are undefined.
struct Content {
  enum class Kind : std::uint8_t { kUnwritten, kWritten, kTorn, kUndefined };
  Kind kind = Kind::kUnwritten;
  std::uint32_t block = 0;       ///< of kWritten: the GPU block that a forward wrote
  std::uint32_t generation = 0;  ///< of kWritten: which forward, from 1
  friend bool operator==(const Content&, const Content&) = default;
};

/// What a forward found in a block that it read.
struct Seen {
  std::uint32_t gpu_block = 0;
  Content content = {};
  std::uint32_t rank = 0;
  friend bool operator==(const Seen&, const Seen&) = default;
};

struct Counts {
  std::uint32_t num_deferred = 0;
  std::uint32_t num_in_flight = 0;  ///< enqueued, not reported
  // Since the start; of all ranks.
  std::uint32_t num_enqueued = 0;        ///< transfers
  std::uint32_t num_enqueued_pages = 0;  ///< of them, whether they are copied or not
  std::uint32_t num_failed = 0;          ///< reported as failures
  // None of these is allowed; of all ranks.
  std::uint32_t num_lost_events = 0;  ///< in use, and of no transfer in flight
  /// After shutdown, of devices that are not lost: streams, events and pinned memory.
  std::uint32_t num_left_behind = 0;
  std::uint32_t num_races = 0;    ///< accesses to the same bytes that nothing orders
  std::uint32_t num_misuses = 0;  ///< calls that the runtime's documentation forbids
  Fault next_fault = Fault::kNone;
  friend bool operator==(const Counts&, const Counts&) = default;
};

// clang-format off
template <class T>
concept CopyWorkers = requires(T workers, const T& shown, const Transfer& transfer,
                               std::span<const std::uint32_t> numbers, std::vector<Ended>& ended,
                               std::vector<Seen>& seen, std::uint32_t rank, std::uint32_t number) {
  { workers.transfer_async(transfer) } -> std::same_as<ErrorCode>;
  workers.start_kv_transfers();
  workers.get_finished(ended);  // appends
  { workers.wait(numbers) } -> std::same_as<bool>;
  workers.shutdown(ended);      // appends
  { workers.forward(numbers, numbers) } -> std::same_as<ErrorCode>;  // reads, writes
  // Steps; 0: all of it. Whether anything ran.
  { workers.advance(rank, Stream::kCompute, number) } -> std::same_as<bool>;
  workers.fail_next(rank, Fault::kNone);  // no other rank's any more
  workers.take_seen(seen);      // overwrites: by the forwards that ran since, rank by rank
  { shown.counts() } -> std::same_as<Counts>;
  { shown.gpu_content(rank, number) } -> std::same_as<Content>;
  { shown.cpu_content(rank, number) } -> std::same_as<Content>;  // of a page
  { shown.num_stray_bytes() } -> std::same_as<std::uint32_t>;    // changed outside of pages
};
// clang-format on

}  // namespace kvfence::worker
