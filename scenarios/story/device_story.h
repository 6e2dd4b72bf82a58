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

/// Moments are counted from 0, in the order in which things happened; there is no time besides.
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

/// Something that takes no time.
struct StoryMark {
  enum class Kind : std::uint8_t {
    kRecorded,    ///< `event` takes in the lane's work up to `operation`
    kWaits,       ///< the lane's later work comes after `operation`, which `event` stands for
    kHostSaw,     ///< the host knows that `operation` is over
    kHostAccess,  ///< the host reads or writes memory that the device knows
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
  /// What was said that no run without a cache says: a sentence each.
  std::vector<std::string> wrong_tokens = {};
  StoryMoment begin = 0;
  StoryMoment end = 0;  ///< of the next command
};

/// What a page holds from the end of a command on.
struct StoryContent {
  StoryPage page = {};
  std::size_t command = 0;
  std::string text = {};     ///< "0g1", "torn"; "nothing" where nobody has written
  std::string meaning = {};  ///< in words; may be empty
  bool is_torn = false;
};

struct DeviceStory {
  std::string subject = {};          ///< "worker"
  std::string content_example = {};  ///< "0g1"
  std::string content_meaning = {};  ///< what the example says
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
/// One of the things that happened, as text and page list them.
struct StoryEvent {
  enum class Kind : std::uint8_t { kNote, kBegins, kEnds };
  Kind kind = Kind::kNote;
  StoryLane lane = kHostLane;
  bool is_racing = false;
  std::string text = {};  ///< what was done; of what begins or ends its name
};
std::map<StoryMoment, StoryEvent> events_of(const DeviceStory& story);
/// The host's, then each rank's streams.
std::vector<StoryLane> lanes_of(const DeviceStory& story);
/// Keeps the pages in order, each once.
void add_page(std::vector<StoryPage>& pages, StoryPage page);
/// Those that anything touches, in order: rank by rank, the GPU's first.
std::vector<StoryPage> pages_of(const DeviceStory& story);

/// What a copy worker's device was asked and did for a scenario of the target `worker`; of several
/// ranks the story is the first one's. Requires: a valid configuration; `planted_bug` empty, or one
/// that the target has.
/// Cost: linear in commands and accesses, each times the pages.
DeviceStory story_of_worker(const Scenario& scenario, const std::string& planted_bug);
/// The same of an engine that has devices, all ranks, and which tokens came out wrong. Runs on the
/// virtual device. With tokens_only or device=symbols too races are looked for and pages shown,
/// which changes no answer. A page's content names the tokens whose KV it holds: "A:0..1 B:2".
/// Cost: quadratic in a request's tokens besides.
DeviceStory story_of_engine(const Scenario& scenario, const std::string& planted_bug);

/// Command by command what happened where, the racing pairs marked, then the races.
std::string story_text(const DeviceStory& story);
/// One page, well-formed as XML after its first line, that loads nothing: lanes and pages over
/// moments, races in red; commands can be clicked.
std::string story_html(const DeviceStory& story);
/// The JSON that chrome://tracing and Perfetto read; a moment is 10 us, a race a flow.
std::string story_trace(const DeviceStory& story);

}  // namespace kvfence
