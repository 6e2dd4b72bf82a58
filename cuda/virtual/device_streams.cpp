/// The calls on streams and events: they order work, and notify the host of its end.

#include "cuda/virtual/device.h"
#include "cuda/virtual/handles.h"

namespace kvfence::virtual_device {

cudaError_t Device::not_ready() {
  ++counters_.num_not_ready;
  last_error_ = cudaErrorNotReady;
  return last_error_;
}

cudaError_t Device::query(const Moment& moment, const Clock& clock, std::uint32_t& num_polls,
                          std::uint32_t& num_spurious) {
  bool is_over = queue_.is_over(moment);
  if (!is_over && scheduler_.has_waited_enough(++num_polls)) {
    is_over = scheduler_.force(queue_, moment);
    if (queue_.error() != cudaSuccess) return queue_.error();
  }
  if (is_over && scheduler_.is_spurious(num_spurious)) {
    ++num_spurious;
    ++counters_.num_spurious;
    is_over = false;
  }
  if (!is_over) return not_ready();
  num_polls = 0;
  num_spurious = 0;
  add_to_story(StoryEntry::Kind::kHostSaw, kHost, 0, moment);
  host_learns(clock);
  return cudaSuccess;
}

void Device::enqueue_wait(Actor stream, Moment moment, const Clock& clock) {
  // Bound now: the moment is copied, so that a later record of the event does not matter.
  streams_[stream].clock.join(clock, queue_.num_actors());
  if (moment.stream == kHost || queue_.is_over(moment)) return;
  Work& work = start_work(stream, Work::Kind::kWait);
  work.waits_for = moment;
  queue_.enqueue(work);
}

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  Device& device = current();
  if (const auto code = device.enter(Function::kStreamCreateWithFlags)) return *code;
  if (stream == nullptr || (flags & ~cudaStreamNonBlocking) != 0) {
    return cudaErrorInvalidValue;
  }
  const Actor actor = device.open_stream();
  *stream = to_pointer<cudaStream_t>({actor, device.streams_[actor].generation, true});
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Device& device = current();
  if (const auto code = device.enter(Function::kStreamDestroy)) return *code;
  Device::StreamState* state = device.find_stream(stream);
  if (state == nullptr) return cudaErrorInvalidResourceHandle;
  // Its work goes on.
  state->is_live = false;
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  Device& device = current();
  if (const auto code = device.enter(Function::kStreamQuery)) return *code;
  Device::StreamState* state = device.find_stream(stream);
  if (state == nullptr) return cudaErrorInvalidResourceHandle;
  const Actor actor = device.stream_number(stream);
  return device.query({actor, device.queue_.enqueued(actor)}, state->clock, state->num_polls,
                      state->num_spurious);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Device& device = current();
  if (const auto code = device.enter(Function::kStreamSynchronize)) return *code;
  Device::StreamState* state = device.find_stream(stream);
  if (state == nullptr) return cudaErrorInvalidResourceHandle;
  const Actor actor = device.stream_number(stream);
  return device.wait_for({actor, device.queue_.enqueued(actor)}, state->clock);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  Device& device = current();
  if (const auto code = device.enter(Function::kStreamWaitEvent)) return *code;
  Device::StreamState* state = device.find_stream(stream);
  const Device::EventState* waited_for = device.find_event(event);
  if (state == nullptr || waited_for == nullptr) return cudaErrorInvalidResourceHandle;
  if (flags != 0) return cudaErrorInvalidValue;
  // Never recorded: an empty set of work.
  if (!waited_for->is_recorded) return cudaSuccess;
  device.add_to_story(StoryEntry::Kind::kWaits, device.stream_number(stream),
                      handle_of(event).index, waited_for->moment);
  device.enqueue_wait(device.stream_number(stream), waited_for->moment, waited_for->clock);
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  Device& device = current();
  if (const auto code = device.enter(Function::kEventCreateWithFlags)) return *code;
  constexpr unsigned int kKnown = cudaEventBlockingSync | cudaEventDisableTiming;
  if (event == nullptr || (flags & ~kKnown) != 0) return cudaErrorInvalidValue;
  if (device.unused_events_.empty()) {
    device.unused_events_.push_back(static_cast<std::uint32_t>(device.events_.size()));
    device.events_.emplace_back();
  }
  const std::uint32_t index = device.unused_events_.back();
  device.unused_events_.pop_back();
  Device::EventState& state = device.events_[index];
  const std::uint32_t generation = state.generation + 1;
  state = {};
  state.generation = generation;
  state.is_live = true;
  state.has_timing = (flags & cudaEventDisableTiming) == 0;
  *event = to_pointer<cudaEvent_t>({index, generation, false});
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  Device& device = current();
  if (const auto code = device.enter(Function::kEventDestroy)) return *code;
  Device::EventState* state = device.find_event(event);
  if (state == nullptr) return cudaErrorInvalidResourceHandle;
  state->is_live = false;
  device.unused_events_.push_back(handle_of(event).index);
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  Device& device = current();
  if (const auto code = device.enter(Function::kEventRecord)) return *code;
  Device::EventState* state = device.find_event(event);
  const Device::StreamState* recorded = device.find_stream(stream);
  if (state == nullptr || recorded == nullptr) return cudaErrorInvalidResourceHandle;
  const Actor actor = device.stream_number(stream);
  state->is_recorded = true;
  state->recorded_at_call = device.call_;
  state->moment = {actor, device.queue_.enqueued(actor)};
  // Without the host's clock: work that waits for the event is enqueued by the host anyway.
  state->clock = recorded->clock;
  state->num_polls = 0;
  state->num_spurious = 0;
  state->num_late = 0;
  device.add_to_story(StoryEntry::Kind::kRecorded, actor, handle_of(event).index, state->moment);
  if (device.has_fault(Fault::Kind::kNeverReady)) {
    state->moment.hold = device.queue_.new_hold();
  }
  if (device.has_fault(Fault::Kind::kReadyLate)) state->num_late = device.fault_->count;
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  Device& device = current();
  if (const auto code = device.enter(Function::kEventQuery)) return *code;
  Device::EventState* state = device.find_event(event);
  if (state == nullptr) return cudaErrorInvalidResourceHandle;
  if (!state->is_recorded) return cudaSuccess;
  if (state->num_late > 0 && device.queue_.is_over(state->moment)) {
    --state->num_late;
    return device.not_ready();
  }
  return device.query(state->moment, state->clock, state->num_polls, state->num_spurious);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  Device& device = current();
  if (const auto code = device.enter(Function::kEventSynchronize)) return *code;
  const Device::EventState* state = device.find_event(event);
  if (state == nullptr) return cudaErrorInvalidResourceHandle;
  if (!state->is_recorded) return cudaSuccess;
  return device.wait_for(state->moment, state->clock);
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  Device& device = current();
  if (const auto code = device.enter(Function::kEventElapsedTime)) return *code;
  const Device::EventState* from = device.find_event(start);
  const Device::EventState* to = device.find_event(end);
  if (from == nullptr || to == nullptr) return cudaErrorInvalidResourceHandle;
  if (ms == nullptr) return cudaErrorInvalidValue;
  for (const Device::EventState* state : {from, to}) {
    if (!state->is_recorded || !state->has_timing) return cudaErrorInvalidResourceHandle;
  }
  // No edge: a program must not use this call to learn about completion.
  if (!device.queue_.is_over(from->moment) || !device.queue_.is_over(to->moment))
    return cudaErrorNotReady;
  // Without a clock, a microsecond per call keeps figures positive and equal in every run.
  *ms = 1e-3F * static_cast<float>(static_cast<double>(to->recorded_at_call) -
                                   static_cast<double>(from->recorded_at_call));
  return cudaSuccess;
}

}  // extern "C"

}  // namespace kvfence::virtual_device
