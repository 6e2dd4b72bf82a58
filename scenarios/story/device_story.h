#pragma once

/// What devices were asked and did for a scenario, as data, and that data as text, as a page and as
/// a trace. The devices are those of the side under test, with its planted bug, and the scenario
/// runs to its end, beyond the first difference from the reference. story_of_<target> makes it,
/// with a StoryRecorder per device.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/scenario.h"
#include "properties/core/divergence.h"

namespace kvfence {

/// Moments are counted from 0, in the order of events; there is no other time.
using StoryMoment = std::uint32_t;
inline constexpr StoryMoment kNever = UINT32_MAX;

enum class StoryStream : std::uint8_t { kHost, kCompute, kStore, kLoad };
std::string_view to_text(StoryStream stream);

/// The host, which is one for all ranks, or a stream of a rank's device.
struct StoryLane {
  StoryStream stream = StoryStream::kHost;
  std::uint32_t rank = 0;
  friend bool operator==(const StoryLane&, const StoryLane&) = default;
};
inline constexpr StoryLane kHostLane = {};
/// "store"; "store r1" of rank 1
std::string to_text(StoryLane lane);
/// Its place among lanes_of a story.
std::size_t index_of(StoryLane lane);

/// A GPU block, or the page of a CPU block that takes one.
struct StoryPage {
  std::uint32_t rank = 0;
  bool is_gpu = false;
  std::uint32_t number = 0;
  friend auto operator<=>(const StoryPage&, const StoryPage&) = default;
};
/// "GPU 3"; "GPU 3 r1" of rank 1
std::string to_text(const StoryPage& page);
/// "GPU 3, CPU 0"
std::string to_text(const std::vector<StoryPage>& pages);

/// One call that gives a stream work: a forward, or copies of a transfer.
struct StoryOperation {
  StoryLane lane = {StoryStream::kCompute};
  /// "forward 2": its generation; "store 7", "load 7": its job, "load 7.2" where it takes several;
  /// "store 7 r1" of rank 1.
  std::string name = {};
  std::uint64_t job = 0;      ///< of copies
  std::string requests = {};  ///< whose, "A, B"; may be empty
  std::string function = {};  ///< of the runtime
  std::vector<StoryPage> reads = {};
  std::vector<StoryPage> writes = {};
  bool reads_out_of_order = false;
  bool is_racing = false;
  StoryMoment enqueued = kNever;
  StoryMoment started = kNever;
  StoryMoment ended = kNever;
};

/// An event without a duration.
struct StoryMark {
  enum class Kind : std::uint8_t {
    kRecorded,    ///< `event` takes in the lane's work up to `operation`
    kWaits,       ///< the lane's later work comes after `operation`, which `event` stands for
    kHostSaw,     ///< the host knows that `operation` is over
    kHostAccess,  ///< the host reads or writes memory that is registered with the device
  };
  Kind kind = Kind::kRecorded;
  StoryLane lane = kHostLane;
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

/// Two parties that access the same memory without an order between them.
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
  /// Output tokens that differ from a run without a cache: one sentence each.
  std::vector<std::string> wrong_tokens = {};
  StoryMoment begin = 0;
  StoryMoment end = 0;  ///< of the next command
};

/// What a page holds from the end of a command on.
struct StoryContent {
  StoryPage page = {};
  std::size_t command = 0;
  std::string text = {};     ///< "0g1", "torn"; "nothing" if never written
  std::string meaning = {};  ///< in words; may be empty
  bool is_torn = false;
};

struct DeviceStory {
  std::string subject = {};          ///< "worker"
  std::string content_example = {};  ///< "0g1"
  std::string content_meaning = {};  ///< the meaning of the example
  std::uint32_t num_ranks = 1;
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
  std::optional<Divergence> difference = {};  ///< the first, where the caller knows it
};

/// "store 7", or "the host".
std::string name_of(const DeviceStory& story, const StoryParty& party);
/// "store 7 (store stream) reads GPU 0"
std::string deed_of(const DeviceStory& story, const StoryRace& race, bool is_first);
StoryLane lane_of(const DeviceStory& story, const StoryParty& party);
/// "records event 0 after forward 1"
std::string to_text(const DeviceStory& story, const StoryMark& mark);
/// "for A: reads GPU 0, writes CPU 1"
std::string touches_of(const StoryOperation& operation);
/// An event, as text and page list them.
struct StoryEvent {
  enum class Kind : std::uint8_t { kNote, kBegins, kEnds };
  Kind kind = Kind::kNote;
  StoryLane lane = kHostLane;
  bool is_racing = false;
  std::string text = {};  ///< what was done; the name of what begins or ends
};
std::map<StoryMoment, StoryEvent> events_of(const DeviceStory& story);
/// The host's, then each rank's streams.
std::vector<StoryLane> lanes_of(const DeviceStory& story);
/// Keeps the pages in order, each once.
void add_page(std::vector<StoryPage>& pages, StoryPage page);
/// The accessed pages in order: rank by rank, the GPU's first.
std::vector<StoryPage> pages_of(const DeviceStory& story);

/// The story of a copy worker's device for a scenario of target `worker`; with several ranks, that
/// of the first one. Requires: a valid configuration; `planted_bug` empty, or one of the target.
/// Cost: linear in commands and accesses, each times the pages.
DeviceStory story_of_worker(const Scenario& scenario, const std::string& planted_bug);
/// The story of an engine that has devices, with all ranks and the wrong tokens. Runs on the
/// virtual device. Looks for races and shows pages also with tokens_only or device=symbols; that
/// changes no answer. A page's content names the tokens whose KV it holds: "A:0..1 B:2".
/// Cost: also quadratic in a request's tokens.
DeviceStory story_of_engine(const Scenario& scenario, const std::string& planted_bug);

/// What happened, command by command, with the racing pairs marked; then the races.
std::string story_text(const DeviceStory& story);
/// One page, well-formed as XML after its first line, that loads nothing: lanes and pages over
/// moments, races in red; commands can be clicked.
std::string story_html(const DeviceStory& story);
/// The JSON that chrome://tracing and Perfetto read; a moment is 10 us, a race a flow.
std::string story_trace(const DeviceStory& story);

}  // namespace kvfence
