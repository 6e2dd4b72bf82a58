#pragma once

/// What a copy worker's device was asked and did for a scenario of the target `worker`, as data,
/// and that data as text, as a page and as a trace. The device is the one of the side under test,
/// with its planted bug, and the scenario runs to its end, beyond the first difference from the
/// reference.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/line.h"
#include "contract/scenario.h"
#include "contract/worker_target.h"
#include "properties/divergence.h"

namespace kvfence {

/// Moments are counted from 0, in the order in which things happened; there is no time besides.
using StoryMoment = std::uint32_t;
inline constexpr StoryMoment kNever = UINT32_MAX;

enum class StoryLane : std::uint8_t { kHost, kCompute, kStore, kLoad };
inline constexpr std::size_t kNumStoryLanes = 4;
std::string_view to_text(StoryLane lane);

/// A GPU block, or the page of a CPU block that takes one.
struct StoryPage {
  bool is_gpu = false;
  std::uint32_t number = 0;
  friend auto operator<=>(const StoryPage&, const StoryPage&) = default;
};
/// "GPU 3"
std::string to_text(const StoryPage& page);
/// "GPU 3, CPU 0"
std::string to_text(const std::vector<StoryPage>& pages);

/// One call that gives a stream work: a forward, or copies of a transfer.
struct StoryOperation {
  StoryLane lane = StoryLane::kCompute;
  /// "forward 2": its generation; "store 7", "load 7": its job, "load 7.2" where it takes several.
  std::string name = {};
  std::string function = {};  ///< of the runtime
  std::vector<StoryPage> reads = {};
  std::vector<StoryPage> writes = {};
  bool reads_out_of_order = false;
  bool is_racing = false;
  StoryMoment enqueued = kNever;
  StoryMoment started = kNever;
  StoryMoment ended = kNever;
};

/// Something that takes no time.
struct StoryMark {
  enum class Kind : std::uint8_t {
    kRecorded,    ///< `event` takes in the lane's work up to `operation`
    kWaits,       ///< the lane's later work comes behind `operation`, which `event` stands for
    kHostSaw,     ///< the host has been told that `operation` is over
    kHostAccess,  ///< the host reads or writes memory that the device knows
  };
  Kind kind = Kind::kRecorded;
  StoryLane lane = StoryLane::kHost;
  StoryMoment moment = 0;
  std::uint32_t event = 0;
  std::optional<std::size_t> operation = {};  ///< nothing: no work at all
  std::string function = {};
  std::vector<StoryPage> pages = {};  ///< of kHostAccess
  bool is_write = false;              ///< of kHostAccess
  bool is_racing = false;
};

/// One of the two accesses of a race: by an operation or by the host.
struct StoryParty {
  std::optional<std::size_t> operation = {};
  std::optional<std::size_t> mark = {};
  bool is_write = false;
};

/// Two parties that touch the same memory, and nothing orders them.
struct StoryRace {
  StoryParty first = {};
  StoryParty second = {};
  std::vector<StoryPage> pages = {};  ///< empty: memory that holds no page
  std::string memory = {};            ///< "GPU 0", "the memory of descriptors"
  std::string missing = {};           ///< one sentence
  StoryMoment moment = 0;             ///< when the second was enqueued, or happened
};

struct StoryCommand {
  std::string text = {};
  std::string answer = {};  ///< "finished_jobs=[...]"; may be empty
  StoryMoment begin = 0;
  StoryMoment end = 0;  ///< of the next command
};

/// What a page holds from the end of a command on.
struct StoryContent {
  StoryPage page = {};
  std::size_t command = 0;
  std::uint32_t of_block = 0;
  std::uint32_t generation = 0;  ///< 0: nothing, where it is not torn
  bool is_torn = false;
  bool is_undefined = false;
};
/// "0g1", "torn", "undefined", "nothing"
std::string to_text(const StoryContent& content);

struct WorkerStory {
  std::string file = {};
  std::vector<std::string> comments = {};
  std::string config = {};
  std::string planted_bug = {};  ///< empty: none
  StoryMoment end = 0;
  std::vector<StoryCommand> commands = {};
  std::vector<StoryOperation> operations = {};  ///< in the order of their calls
  std::vector<StoryMark> marks = {};
  std::vector<StoryRace> races = {};
  std::vector<std::string> misuses = {};
  std::vector<StoryContent> contents = {};    ///< changes, in order
  std::optional<Divergence> difference = {};  ///< the first from the reference
};

/// Runs the scenario. Requires: a valid configuration; `planted_bug` empty, or one that the target
/// has.
/// Cost: linear in commands and accesses, each times the pages.
WorkerStory tell_worker(const Scenario<WorkerTarget>& scenario, const std::string& planted_bug);

/// "store 7", or "the host".
std::string name_of(const WorkerStory& story, const StoryParty& party);
/// "store 7 (store stream) reads GPU 0"
std::string deed_of(const WorkerStory& story, const StoryRace& race, bool is_first);
StoryLane lane_of(const WorkerStory& story, const StoryParty& party);
/// "records event 0 behind forward 1"
std::string to_text(const WorkerStory& story, const StoryMark& mark);
/// "reads GPU 0, writes CPU 1"
std::string touches_of(const StoryOperation& operation);
/// Those that anything touches, in order.
std::vector<StoryPage> pages_of(const WorkerStory& story);

/// Command by command what happened where, the racing pairs marked, then the races.
std::string story_text(const WorkerStory& story);
/// One page, well-formed as XML behind its first line, that loads nothing: lanes and pages over
/// moments, races in red; commands can be clicked.
std::string story_html(const WorkerStory& story);
/// The JSON that chrome://tracing and Perfetto read; a moment is 10 us, a race a flow.
std::string story_trace(const WorkerStory& story);

}  // namespace kvfence
