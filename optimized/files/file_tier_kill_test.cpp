// Kills processes that use a file tier, at every file operation and at random moments. Afterwards
// the folder always opens, it serves only what was stored, and no other files remain.

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "contract/offload/offload_key_number.h"
#include "optimized/files/faulty_file_operations.h"
#include "optimized/files/file_tier.h"
#include "optimized/files/posix_file_operations.h"
#include "optimized/files/test_folder.h"
#include "optimized/files/writer_names.h"
#include "planted/optimized/files/faulty_file_operations.h"
#include "planted/optimized/files/file_tier.h"
#include "planted/optimized/files/posix_file_operations.h"
#include "properties/planted/bugs.h"
#include "properties/planted/switches.h"

namespace kvfence::optimized {
namespace {

namespace fs = std::filesystem;

struct Product {
  using Tier = FileTier;
  using Posix = PosixFileOperations;
  using Faulty = FaultyFileOperations;
};

/// The copy in which a bug can be planted.
struct Copy {
  using Tier = planted::optimized::FileTier;
  using Posix = planted::optimized::PosixFileOperations;
  using Faulty = planted::optimized::FaultyFileOperations;
};

/// A message of a child: the key of a stored block, or that it was served wrong bytes.
using Word = std::uint32_t;
constexpr Word kWrongBytes = 0xFFFF'FFFF;

/// A process of its own that runs `body` with the end of a pipe to write words to.
class Child {
 public:
  explicit Child(const std::function<void(int)>& body) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    pid_ = ::fork();
    EXPECT_GE(pid_, 0);
    if (pid_ == 0) {
      ::close(ends[0]);
      body(ends[1]);
      ::_exit(0);
    }
    ::close(ends[1]);
    words_ = ends[0];
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (!is_over_) kill_now();
    ::close(words_);
  }

  /// The next word; nothing when the child is gone.
  std::optional<Word> next() {
    Word word = 0;
    const ssize_t num_bytes = ::read(words_, &word, sizeof(word));
    if (num_bytes != sizeof(word)) return std::nullopt;
    return word;
  }

  /// Whether it was killed before its end.
  bool kill_now() {
    ::kill(pid_, SIGKILL);
    return wait();
  }
  bool wait() {
    int status = 0;
    EXPECT_EQ(::waitpid(pid_, &status, 0), pid_);
    is_over_ = true;
    const bool was_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    EXPECT_TRUE(was_killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0))
        << "the child failed: status " << status;
    return was_killed;
  }

 private:
  pid_t pid_ = -1;
  int words_ = -1;
  bool is_over_ = false;
};

/// The keys of the script have their own folders, which must be made; the many keys of the other
/// test share one.
constexpr Word kFirstOfMany = 1'000;
OffloadKey key_of(Word number) {
  return number < kFirstOfMany ? key_of_number(number) : nearby_key(number);
}

void send(int words, Word word) {
  const ssize_t num_bytes = ::write(words, &word, sizeof(word));
  if (num_bytes != sizeof(word)) ::_exit(2);
}

/// One job over one tier, to its end.
template <class Tier>
bool run_job(Tier& tier, bool stores, const std::vector<Word>& numbers) {
  std::vector<OffloadKey> keys;
  std::vector<SlotId> slots;
  for (Word number : numbers) {
    keys.push_back(key_of(number));
    slots.push_back(static_cast<SlotId>(slots.size()));
  }
  const std::vector<OffloadKeyView> views(keys.begin(), keys.end());
  const TierJob job{1, views, slots, {"r"}};
  stores ? tier.submit_store(job) : tier.submit_load(job);
  tier.wait_idle();
  std::vector<JobResult> results;
  tier.get_finished_jobs(results);
  return results.size() == 1 && results[0].success;
}

template <class Tier>
bool is_hit(Tier& tier, Word number) {
  return tier.lookup(key_of(number), {"r"}) == LookupResult::kHit;
}

/// The expected contents of a folder when all children have exited.
struct Expected {
  Word first = 0;  ///< keys from here
  Word last = 0;   ///< to before here
  std::set<Word> reported;
  std::set<Word> may_be_bad;   ///< changed without the tier
  std::string neighbour_file;  ///< the temporary file of a live writer, if there is one
};

/// Opens the folder and checks that keys that are hits are whole, that reported keys are hits, that
/// only keys that may be bad fail to load, once, and that only blocks and config.json are left.
/// Returns the first violation, or nothing; num_served counts loads that succeeded.
template <class Layer>
std::optional<std::string> check_what_is_left(const TestFolder& folder,
                                              const FileTierConfig& config, std::size_t block_bytes,
                                              const Expected& expected, int& num_served) {
  const std::size_t num_neighbours = expected.neighbour_file.empty() ? 0 : 1;
  for (const fs::path& path : folder.files(".bin")) {
    if (fs::file_size(path) != kBlockFileHeaderBytes + block_bytes) return "a block file is torn";
  }
  {
    TestSlots slots(block_bytes, 4);
    typename Layer::Posix files;
    typename Layer::Tier tier(config, slots.view(), files);
    if (tier.writer_error() != 0) return "the folder cannot be opened for writing";
    if (folder.files(".tmp").size() != num_neighbours) return "dead writers' files stay";
    if (folder.files(".lock").size() != 1 + num_neighbours) return "locks of dead writers stay";
    for (Word number = expected.first; number < expected.last; ++number) {
      const std::string key = "key " + std::to_string(number);
      if (expected.reported.contains(number) && !is_hit(tier, number)) {
        return key + " was reported as stored and is a miss";
      }
      if (!is_hit(tier, number)) continue;
      slots.fill(0, number + 1);
      if (run_job(tier, /*stores=*/false, {number})) {
        if (!slots.holds(0, number)) return key + " is served with wrong bytes";
        ++num_served;
        continue;
      }
      if (!expected.may_be_bad.contains(number)) return key + " is bad";
      if (is_hit(tier, number)) return key + " is bad and stays a hit";
    }
    slots.fill(0, expected.first);
    if (!run_job(tier, /*stores=*/true, {expected.first})) return "nothing can be stored";
  }
  std::size_t num_others = 0;
  for (const fs::path& path : folder.files("")) {
    if (path.extension() != ".bin" && path.filename() != "config.json") ++num_others;
  }
  if (num_others != 2 * num_neighbours) return "files other than blocks are left";
  if (num_neighbours > 0 && !fs::exists(expected.neighbour_file)) {
    return "a temporary file of a live writer is gone";
  }
  return std::nullopt;
}

// The script of the child that kills itself. Key 0 is stored before, key 1 has a changed byte, and
// an earlier writer was killed and left temporary files.
constexpr std::size_t kScriptBlockBytes = 300;
constexpr Word kScriptKeys = 6;

void prepare(const FileTierConfig& config) {
  TestSlots slots(kScriptBlockBytes, 4);
  PosixFileOperations files;
  FileTier tier(config, slots.view(), files);
  slots.fill(0, 0);
  slots.fill(1, 1);
  ASSERT_TRUE(run_job(tier, /*stores=*/true, {0, 1}));
  const FileMapper mapper(config.files);
  std::fstream bad(mapper.get_file_name(key_of(1)),
                   std::ios::in | std::ios::out | std::ios::binary);
  bad.seekp(kBlockFileHeaderBytes + 17);
  bad.put(static_cast<char>(~TestSlots::block_byte(1, 17)));
  for (const char* name : {"41.lock", "41.0.tmp", "41.7.tmp"}) {
    std::ofstream(mapper.rank_path() + "/" + kWritersFolder + "/" + name).put('x');
  }
}

template <class Layer>
void run_script(const FileTierConfig& config, typename Layer::Faulty& files, int words) {
  TestSlots slots(kScriptBlockBytes, 4);
  typename Layer::Tier tier(config, slots.view(), files);
  const auto store = [&](const std::vector<Word>& keys) {
    for (SlotId slot = 0; slot < keys.size(); ++slot) slots.fill(slot, keys[slot]);
    if (!run_job(tier, /*stores=*/true, keys)) return;
    for (Word key : keys) send(words, key);
  };
  store({2, 3});
  if (!run_job(tier, /*stores=*/false, {0, 2})) send(words, kWrongBytes);
  if (!slots.holds(0, 0) || !slots.holds(1, 2)) send(words, kWrongBytes);
  if (run_job(tier, /*stores=*/false, {1})) send(words, kWrongBytes);
  store({1});
  if (is_hit(tier, 4)) send(words, kWrongBytes);
  store({4, 2, 5});
}

/// What the killed child left in the folder of writers, besides the leftovers that it found there.
std::string state_of(const TestFolder& folder) {
  bool has_lock = false;
  bool has_old = false;
  std::string temporary = "none";
  for (const fs::path& path : folder.files("")) {
    const std::string name = path.filename();
    if (name.starts_with("41.")) {
      has_old = true;
    } else if (name.ends_with(".lock")) {
      has_lock = true;
    } else if (name.ends_with(".tmp")) {
      const std::uintmax_t size = fs::file_size(path);
      temporary = size == 0                                          ? "empty"
                  : size < kBlockFileHeaderBytes                     ? "part of a header"
                  : size == kBlockFileHeaderBytes                    ? "a header"
                  : size < kBlockFileHeaderBytes + kScriptBlockBytes ? "part of a block"
                                                                     : "whole";
    }
  }
  return std::string(has_old ? "older leftovers, " : "") + (has_lock ? "lock" : "no lock") +
         ", temporary file: " + temporary;
}

/// The operations of the script, in order.
template <class Layer>
std::vector<FileOperation> operations_of_script() {
  const TestFolder folder("file_tier_kill");
  const FileTierConfig config = test_config(folder.path());
  prepare(config);
  std::vector<FileOperation> operations;
  typename Layer::Posix posix;
  typename Layer::Faulty files(posix);
  files.watch([&](FileOperation operation) { operations.push_back(operation); });
  int ends[2];
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  run_script<Layer>(config, files, ends[1]);
  ::close(ends[0]);
  ::close(ends[1]);
  return operations;
}

struct Sweep {
  int num_kills = 0;
  std::map<std::string, int> states;
  std::map<std::string, int> goals;
  std::optional<std::string> problem;
};

/// The script in a child that kills itself before its n-th operation; with `half`, after it wrote
/// half a header in its num_writes-th write, the n-th operation.
template <class Layer>
void kill_once(std::size_t n, bool half, std::uint32_t num_writes, Sweep& sweep) {
  const TestFolder folder("file_tier_kill");
  const FileTierConfig config = test_config(folder.path());
  prepare(config);
  Child child([&](int words) {
    typename Layer::Posix posix;
    typename Layer::Faulty files(posix);
    if (half) {
      FileFault fault;
      fault.operation = FileOperation::kWrite;
      fault.call = num_writes;
      fault.num_bytes = kBlockFileHeaderBytes / 2;
      files.begin(FaultPlan({fault}));
    }
    std::size_t num_operations = 0;
    files.watch([&num_operations, die_at = n + (half ? 1 : 0)](FileOperation) {
      if (num_operations++ == die_at) ::raise(SIGKILL);
    });
    run_script<Layer>(config, files, words);
  });
  Expected expected;
  expected.last = kScriptKeys;
  while (const std::optional<Word> word = child.next()) {
    if (*word == kWrongBytes) {
      sweep.problem = "the child was served wrong bytes, or none";
      return;
    }
    expected.reported.insert(*word);
  }
  sweep.num_kills += child.wait() ? 1 : 0;
  ++sweep.states[state_of(folder)];
  const bool rewritten = expected.reported.contains(1);
  if (!rewritten) expected.may_be_bad.insert(1);
  const std::size_t num_published = folder.files(".bin").size();
  const std::size_t num_known = 2 + expected.reported.size() - (rewritten ? 1 : 0);
  if (num_published > num_known) ++sweep.goals["published, not reported"];
  if (num_published < num_known) ++sweep.goals["bad file removed"];

  int num_served = 0;
  sweep.problem =
      check_what_is_left<Layer>(folder, config, kScriptBlockBytes, expected, num_served);
  if (!sweep.problem && num_served == 0) sweep.problem = "key 0, which was there before, is gone";
}

/// Kills before each operation and in the middle of each write, and ends with a run without a kill.
template <class Layer>
Sweep sweep_of() {
  const std::vector<FileOperation> operations = operations_of_script<Layer>();
  Sweep sweep;
  std::uint32_t num_writes = 0;
  for (std::size_t n = 0; n <= operations.size() && !sweep.problem; ++n) {
    const std::string name =
        n < operations.size() ? std::string(to_text(operations[n])) : std::string("the end");
    kill_once<Layer>(n, /*half=*/false, num_writes, sweep);
    if (n < operations.size() && operations[n] == FileOperation::kWrite && !sweep.problem) {
      kill_once<Layer>(n, /*half=*/true, num_writes++, sweep);
    }
    if (sweep.problem) *sweep.problem += ", killed at operation " + std::to_string(n) + ": " + name;
  }
  return sweep;
}

TEST(FileTierKill, AtEveryFileOperation) {
  const Sweep sweep = sweep_of<Product>();
  EXPECT_EQ(sweep.problem, std::nullopt);
  const std::vector<FileOperation> operations = operations_of_script<Product>();
  const auto num_writes = std::count(operations.begin(), operations.end(), FileOperation::kWrite);
  EXPECT_GT(operations.size(), 50u);
  EXPECT_EQ(sweep.num_kills, static_cast<int>(operations.size()) + num_writes);
  for (const char* state :
       {"older leftovers, no lock, temporary file: none", "no lock, temporary file: none",
        "lock, temporary file: none", "lock, temporary file: empty",
        "lock, temporary file: part of a header", "lock, temporary file: a header",
        "lock, temporary file: part of a block", "lock, temporary file: whole"}) {
    EXPECT_TRUE(sweep.states.contains(state)) << state << ": no kill left this";
  }
  EXPECT_TRUE(sweep.goals.contains("published, not reported"));
  EXPECT_TRUE(sweep.goals.contains("bad file removed"));
  std::printf("%d kills over %zu operations\n", sweep.num_kills, operations.size());
  for (const auto& [state, times] : sweep.states) std::printf("%5d  %s\n", times, state.c_str());
  for (const auto& [goal, times] : sweep.goals) std::printf("%5d  %s\n", times, goal.c_str());
}

// The sweep can fail: it finds planted bugs.
TEST(FileTierKill, FindsPlantedBugs) {
  for (const planted::Bug& bug : planted::bugs_of("files")) {
    const auto shows = {"published_before_written", "written_in_place", "leftovers_not_reclaimed",
                        "block_digest_not_checked", "bad_file_kept"};
    if (std::find(shows.begin(), shows.end(), bug.name) == shows.end()) continue;
    planted::plant(bug.number);
    const Sweep sweep = sweep_of<Copy>();
    EXPECT_TRUE(sweep.problem) << bug.name << " was not found";
    if (sweep.problem) std::printf("%s\n", sweep.problem->c_str());
  }
  planted::plant(planted::kSound);
}

/// Stores blocks and loads them again, from key `first` on, until it is killed. It reports stored
/// blocks while it stores the next ones, so that the reader kills it in the middle of these.
void store_and_load(const FileTierConfig& config, std::size_t block_bytes, Word first, int words) {
  constexpr std::uint32_t kJobs = 16;
  TestSlots slots(block_bytes, 2 * kJobs);
  PosixFileOperations files;
  FileTier tier(config, slots.view(), files);
  const auto submit = [&](bool stores, Word from) {
    for (std::uint32_t i = 0; i < kJobs; ++i) {
      const OffloadKey key = key_of(from + i);
      const OffloadKeyView view = key;
      const SlotId slot = stores ? i : kJobs + i;
      if (stores) slots.fill(slot, from + i);
      const TierJob job{i, {&view, 1}, {&slot, 1}, {"r"}};
      stores ? tier.submit_store(job) : tier.submit_load(job);
    }
  };
  const auto finish = [&] {
    tier.wait_idle();
    std::vector<JobResult> results;
    tier.get_finished_jobs(results);
    for (const JobResult& result : results) {
      if (!result.success) send(words, kWrongBytes);
    }
  };
  submit(/*stores=*/true, first);
  for (Word next = first;; next += kJobs) {
    finish();
    submit(/*stores=*/false, next);
    finish();
    for (std::uint32_t i = 0; i < kJobs; ++i) {
      if (!slots.holds(kJobs + i, next + i)) send(words, kWrongBytes);
    }
    submit(/*stores=*/true, next + kJobs);
    for (std::uint32_t i = 0; i < kJobs; ++i) send(words, next + i);
  }
}

TEST(FileTierKill, AtAnyMoment) {
  constexpr Word kRounds = 60;
  // More rounds where no kill hit a temporary file, since moments are random.
  constexpr Word kRoundsMax = 1'000;
  constexpr std::size_t kBlockBytes = 262'144;
  int num_kills = 0;
  int num_served = 0;
  int num_left = 0;
  Word round = 0;
  for (; round < kRounds || (num_left == 0 && round < kRoundsMax); ++round) {
    const TestFolder folder("file_tier_kill");
    FileTierConfig config = test_config(folder.path());
    config.n_read_threads = 2;
    config.n_write_threads = 2;
    Expected expected;
    expected.first = kFirstOfMany;

    // A writer that lives through all kills.
    const std::string writers = FileMapper(config.files).rank_path() + "/" + kWritersFolder;
    fs::create_directories(writers);
    PosixFileOperations posix;
    WriterNames neighbour(posix, writers);
    ASSERT_EQ(neighbour.claim(), 0);
    expected.neighbour_file = neighbour.next();
    std::ofstream(expected.neighbour_file).put('x');

    // Two children over the same keys. One is killed while the other one goes on.
    const auto body = [&](int words) { store_and_load(config, kBlockBytes, kFirstOfMany, words); };
    const auto listen = [&](Child& child, Word num_words) {
      for (Word i = 0; i < num_words; ++i) {
        const std::optional<Word> word = child.next();
        if (!word) return;
        EXPECT_NE(*word, kWrongBytes) << "a child was served wrong bytes, or none";
        expected.reported.insert(*word);
      }
    };
    Child one(body);
    Child other(body);
    listen(one, (round * 7) % 41);
    num_kills += one.kill_now() ? 1 : 0;
    listen(other, (round * 11) % 37);
    num_kills += other.kill_now() ? 1 : 0;
    constexpr Word kAllThatIsLeft = 100'000;
    listen(one, kAllThatIsLeft);
    listen(other, kAllThatIsLeft);

    num_left += static_cast<int>(folder.files(".tmp").size()) - 1;
    expected.last = (expected.reported.empty() ? kFirstOfMany : *expected.reported.rbegin()) + 40;
    const std::optional<std::string> problem =
        check_what_is_left<Product>(folder, config, kBlockBytes, expected, num_served);
    ASSERT_EQ(problem, std::nullopt) << "round " << round;
  }
  EXPECT_EQ(num_kills, static_cast<int>(2 * round)) << "children ended before they were killed";
  EXPECT_GT(num_served, 0);
  EXPECT_GT(num_left, 0) << "no kill left a temporary file";
  std::printf("%d kills; %d blocks served after them; %d temporary files left\n", num_kills,
              num_served, num_left);
}

}  // namespace
}  // namespace kvfence::optimized
