#include "cuda/virtual/device.h"

#include <algorithm>
#include <utility>

#include "contract/core/check.h"
#include "contract/core/lists.h"
#include "cuda/virtual/handles.h"

namespace kvfence::virtual_device {
namespace {

/// The most races and misuses kept for the report: a program with one bug repeats it without end.
constexpr std::size_t kFindingsMax = 256;

thread_local Device* current_device = nullptr;

bool is_copy(Function function) {
  return function == Function::kMemcpyAsync || function == Function::kMemcpyBatchAsync ||
         function == Function::kMemcpy2DAsync;
}

bool is_work(Function function) {
  return is_copy(function) || function == Function::kMemsetAsync || function == Function::kLaunch;
}

/// Calls before which the device may do something: those that depend on the device's progress.
/// Waits are not among them: a wait itself runs what it needs.
bool is_progress_point(Function function) {
  using enum Function;
  constexpr Function kOthers[] = {kFree,        kFreeHost,        kHostUnregister, kStreamDestroy,
                                  kStreamQuery, kStreamWaitEvent, kEventRecord,    kEventQuery};
  return is_work(function) || contains(kOthers, function);
}

/// Whether calls of the fault's function can meet it.
bool can_happen(const Fault& fault) {
  switch (fault.kind) {
    case Fault::Kind::kReturnCode:
      return fault.function < Function::kHostRead && fault.code != cudaSuccess;
    case Fault::Kind::kAsynchronous:
      return is_work(fault.function) && fault.code != cudaSuccess;
    case Fault::Kind::kPartialBatch:
      return is_work(fault.function) && fault.function != Function::kMemsetAsync &&
             fault.code != cudaSuccess;
    case Fault::Kind::kNeverReady:
    case Fault::Kind::kReadyLate:
      return fault.function == Function::kEventRecord;
    case Fault::Kind::kShortCopy:
    case Fault::Kind::kFlippedBit:
      return is_copy(fault.function);
  }
  return false;
}

}  // namespace

Device& current() {
  KVFENCE_CHECK(current_device != nullptr,
                "the CUDA runtime is called and no virtual device is installed");
  return *current_device;
}

Installed::Installed(Device& device) : former_(std::exchange(current_device, &device)) {}

Installed::~Installed() { current_device = former_; }

Device::Device(Options options)
    : options_(std::move(options)),
      memory_(options_.device_memory_bytes, options_.registered_memory_has_own_device_address),
      queue_(options_.poisons_destinations),
      scheduler_(options_) {
  inject_once(std::move(options_.faults));
  streams_.resize(1);
  // From 1 on, so that no actor has seen an access of the host's before an edge from the host.
  host_clock_.seen[kHost] = 1;
}

std::optional<cudaError_t> Device::enter(Function function) {
  ++call_;
  const std::uint64_t nth = ++counters_.num_calls[static_cast<std::size_t>(function)];
  if (queue_.acting() != nullptr) {
    misuse(Misuse::Kind::kCallInKernel, function);
    return cudaErrorNotPermitted;
  }
  function_ = function;
  fault_.reset();
  if (is_progress_point(function)) scheduler_.before_call(queue_);
  for (Fault& fault : injected_) {
    if (fault.function != function || fault.nth != nth) continue;
    ++counters_.num_faults;
    fault_ = std::move(fault);
    injected_.clear();
    if (fault_->kind == Fault::Kind::kReturnCode) return fault_->code;
    break;
  }
  if (queue_.error() != cudaSuccess) return queue_.error();
  return std::nullopt;
}

void Device::inject_once(std::vector<Fault> faults) {
  for (Fault& fault : faults) {
    KVFENCE_CHECK(fault.nth > 0 && can_happen(fault),
                  "a fault names a call, from 1, of a function that can meet it, and an error");
    fault.nth += counters_.num_calls[static_cast<std::size_t>(fault.function)];
  }
  injected_ = std::move(faults);
}

void Device::misuse(Misuse::Kind kind, Function function) {
  if (misuses_.size() < kFindingsMax) misuses_.push_back({kind, function, call_, label_});
}

Device::StreamState* Device::find_stream(cudaStream_t stream) {
  if (is_default_stream(stream)) {
    misuse(Misuse::Kind::kLegacyStream);
    return nullptr;
  }
  const Handle handle = handle_of(stream);
  if (handle.index < streams_.size() && handle.index > 0) {
    StreamState& state = streams_[handle.index];
    if (handle.is_stream && state.is_live && state.generation == handle.generation) return &state;
  }
  misuse(Misuse::Kind::kInvalidHandle);
  return nullptr;
}

Device::EventState* Device::find_event(cudaEvent_t event) {
  const Handle handle = handle_of(event);
  if (handle.index < events_.size()) {
    EventState& state = events_[handle.index];
    if (!handle.is_stream && state.is_live && state.generation == handle.generation) return &state;
  }
  misuse(Misuse::Kind::kInvalidHandle);
  return nullptr;
}

Actor Device::stream_number(cudaStream_t stream) const { return handle_of(stream).index; }

Actor Device::open_stream() {
  Actor stream = 1;
  for (; stream < streams_.size(); ++stream) {
    const bool is_over = host_clock_.seen[stream] >= queue_.enqueued(stream) &&
                         queue_.completed(stream) == queue_.enqueued(stream);
    if (!streams_[stream].is_live && is_over) break;
  }
  KVFENCE_CHECK(stream < kActorsMax, "more than 31 streams are open or still have work");
  if (stream == streams_.size()) {
    streams_.emplace_back();
    queue_.open_stream(stream);
  }
  StreamState& state = streams_[stream];
  const std::uint32_t generation = state.generation + 1;
  state = {};
  state.generation = generation;
  state.is_live = true;
  return stream;
}

Access Device::describe(const Place& place, std::size_t size, bool is_write, const Work* of) const {
  return {.begin = place.canonical,
          .end = place.canonical + size,
          .time = of != nullptr ? queue_.enqueued(of->stream) + 1 : host_clock_.seen[kHost],
          .call = call_,
          .label = label_,
          .actor = of != nullptr ? of->stream : kHost,
          .function = function_,
          .is_write = is_write};
}

void Device::access(Access access, const Clock& clock) {
  if (!is_checking()) return;
  if (story_ != nullptr) {
    story_->entries.push_back({.function = access.function,
                               .stream = access.actor,
                               .time = access.time,
                               .call = access.call,
                               .access = access});
  }
  // One access meets an earlier one in several segments: one race.
  std::uint64_t reported_call = 0;
  std::uint32_t reported_entry = 0;
  bool reported_write = false;
  shadow_.access(access, clock, [&](const Access& prior, std::uintptr_t begin, std::uintptr_t end) {
    if (prior.call == reported_call && prior.entry == reported_entry &&
        prior.is_write == reported_write) {
      return;
    }
    reported_call = prior.call;
    reported_entry = prior.entry;
    reported_write = prior.is_write;
    ++counters_.num_races;
    if (races_.size() == kFindingsMax) return;
    const Allocation& allocation = *memory_.containing(begin);
    races_.push_back({.first = prior,
                      .second = access,
                      .memory = allocation.kind,
                      .allocation = allocation.number,
                      .base = allocation.address,
                      .begin = std::max({begin, prior.begin, access.begin}),
                      .end = std::min({end, prior.end, access.end})});
  });
}

void Device::host_read(const void* address, std::size_t size) {
  host_access(address, size, Function::kHostRead);
}

void Device::host_write(const void* address, std::size_t size) {
  host_access(address, size, Function::kHostWrite);
}

void Device::host_access(const void* address, std::size_t size, Function function) {
  KVFENCE_CHECK(queue_.acting() == nullptr, "a kernel's twin is not the host");
  ++call_;
  ++counters_.num_calls[static_cast<std::size_t>(function)];
  function_ = function;
  scheduler_.before_call(queue_);
  const Place place = memory_.place(address, size);
  if (place.kind == Place::Kind::kElsewhere) return;  // no copy can touch it
  if (place.kind == Place::Kind::kAstride || place.allocation->kind == MemoryKind::kDevice) {
    misuse(Misuse::Kind::kInvalidAddress, function);
    return;
  }
  access(describe(place, size, function == Function::kHostWrite), host_clock_);
}

void Device::yield() {
  ++call_;
  scheduler_.before_call(queue_);
}

std::size_t Device::advance(cudaStream_t stream, std::size_t num_steps) {
  const Actor number = stream_number(stream);
  std::vector<Step> steps;
  std::size_t num_done = 0;
  for (; num_done < num_steps; ++num_done) {
    list_steps(steps);
    std::erase_if(steps, [&](const Step& step) { return step.stream != number; });
    const auto next = std::ranges::min_element(
        steps, {}, [](const Step& step) { return std::pair(step.time, step.chunk); });
    if (next == steps.end() || !advance(*next)) break;
  }
  return num_done;
}

Time Device::next_recorded(Actor stream) const {
  const Time completed = queue_.completed(stream);
  Time end = queue_.enqueued(stream);
  for (const EventState& event : events_) {
    if (!event.is_live || !event.is_recorded || event.moment.stream != stream) continue;
    if (event.moment.time > completed) end = std::min(end, event.moment.time);
  }
  return end;
}

bool Device::advance_to_event(Actor stream) {
  const Time end = next_recorded(stream);
  bool ran = false;
  while (queue_.completed(stream) < end && (queue_.ready() >> stream & 1) != 0) {
    queue_.finish_head(stream);
    ran = true;
  }
  return ran;
}

Device::NextWork Device::next_work(Actor stream) const {
  NextWork next;
  bool fails = false;
  const Time end = next_recorded(stream);
  for (Time time = queue_.completed(stream) + 1; time <= end; ++time) {
    const Work& work = *queue_.find(stream, time);
    if (work.kind == Work::Kind::kWait) {
      if (queue_.is_over(work.waits_for)) continue;
      break;
    }
    next.last = time;
    if (!fails && work.kind == Work::Kind::kAction) ++next.num_steps;
    for (const Chunk& chunk : work.chunks) next.num_steps += fails ? 0 : chunk.is_read ? 1 : 2;
    fails |= work.fails_with != cudaSuccess;
    for (const Entry& entry : work.entries) {
      next.writes.push_back({entry.dst, entry.dst + entry.size, true});
    }
    for (const ByteRange& range : work.ranges) {
      if (range.is_written) next.writes.push_back(range);
    }
  }
  return next;
}

bool Device::advance_part(Actor stream, std::size_t num_steps, Random& random) {
  NextWork next = next_work(stream);
  std::vector<Step> steps;
  for (; num_steps > 0; --num_steps) {
    list_steps(steps);
    std::erase_if(steps, [&](const Step& step) {
      return step.stream != stream || (step.time <= next.last && next.num_steps <= 1);
    });
    if (steps.empty()) break;
    const Step& step = steps[random.below(steps.size())];
    if (step.time <= next.last) --next.num_steps;
    advance(step);
  }
  return next.last > 0;
}

bool Device::host_knows_writes(const void* address, std::size_t size) const {
  const Place place = memory_.place(address, size);
  const std::uintptr_t begin = place.kind == Place::Kind::kInside
                                   ? place.canonical
                                   : reinterpret_cast<std::uintptr_t>(address);
  return shadow_.has_seen_writes(begin, begin + size, host_clock_);
}

std::byte* Device::bytes(const void* address, std::size_t size) const {
  const Place place = memory_.place(address, size);
  KVFENCE_CHECK(place.kind == Place::Kind::kInside, "bytes of no live allocation");
  const Work* acting = queue_.acting();
  if (acting != nullptr) {
    const bool is_declared = std::ranges::any_of(acting->ranges, [&](const ByteRange& range) {
      return range.begin <= place.bytes && place.bytes + size <= range.end;
    });
    KVFENCE_CHECK(is_declared, "a kernel's twin touches what it has not declared");
  }
  return place.bytes;
}

std::string Device::report() const {
  std::string text = "schedule=" + std::string(to_text(options_.schedule)) +
                     " seed=" + std::to_string(options_.seed) + " calls=" + std::to_string(call_) +
                     " races=" + std::to_string(counters_.num_races) +
                     " misuses=" + std::to_string(misuses_.size()) + "\n";
  for (const Race& race : races_) text += to_text(race) + "\n";
  for (const Misuse& found : misuses_) text += to_text(found) + "\n";
  return text;
}

std::size_t Device::num_streams() const {
  return static_cast<std::size_t>(std::ranges::count(streams_, true, &StreamState::is_live));
}

std::size_t Device::num_events() const { return events_.size() - unused_events_.size(); }

const Clock& Device::clock_of_next(Actor stream) {
  Clock& clock = streams_[stream].clock;
  clock.join(host_clock_, queue_.num_actors());
  clock.seen[stream] = queue_.enqueued(stream) + 1;
  ++host_clock_.seen[kHost];
  return clock;
}

void Device::host_learns(const Clock& clock) { host_clock_.join(clock, queue_.num_actors()); }

void Device::add_to_story(StoryEntry::Kind kind, Actor stream, std::uint32_t event,
                          const Moment& moment) {
  if (story_ == nullptr) return;
  story_->entries.push_back({.kind = kind,
                             .function = function_,
                             .stream = stream,
                             .call = call_,
                             .event = event,
                             .moment = moment});
}

cudaError_t Device::wait_for(Moment moment, const Clock& clock) {
  if (!scheduler_.force(queue_, moment)) {
    misuse(Misuse::Kind::kHang);
    return cudaErrorLaunchTimeout;
  }
  if (queue_.error() != cudaSuccess) return queue_.error();
  add_to_story(StoryEntry::Kind::kHostSaw, kHost, 0, moment);
  host_learns(clock);
  return cudaSuccess;
}

}  // namespace kvfence::virtual_device
