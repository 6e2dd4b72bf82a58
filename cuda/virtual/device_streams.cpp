/// The calls about streams and events: order, and what the host learns.

#include "cuda/virtual/device.h"
#include "cuda/virtual/handles.h"

namespace kvfence::virtual_device {

cudaError_t Device::stream_create(Function function, cudaStream_t* stream, unsigned int flags) {
  if (const auto code = enter(function)) return *code;
  if (stream == nullptr || (flags & ~cudaStreamNonBlocking) != 0) {
    return fail(cudaErrorInvalidValue);
  }
  const Actor actor = open_stream(flags != cudaStreamNonBlocking);
  *stream = to_pointer<cudaStream_t>({actor, streams_[actor].generation, true});
  return cudaSuccess;
}

cudaError_t Device::stream_destroy(cudaStream_t stream) {
  if (const auto code = enter(Function::kStreamDestroy)) return *code;
  StreamState* state = find_stream(stream);
  if (state == nullptr) return fail(cudaErrorInvalidResourceHandle);
  // Its work goes on.
  state->is_live = false;
  return cudaSuccess;
}

cudaError_t Device::query(const Moment& moment, const Clock& clock, std::uint32_t& num_polls,
                          std::uint32_t& num_spurious) {
  bool is_over = queue_.is_over(moment);
  if (!is_over && scheduler_.has_waited_enough(++num_polls)) {
    is_over = scheduler_.force(queue_, moment);
    if (queue_.error() != cudaSuccess) return fail(queue_.error());
  }
  if (is_over && scheduler_.is_spurious(num_spurious)) {
    ++num_spurious;
    ++counters_.num_spurious;
    is_over = false;
  }
  if (!is_over) {
    ++counters_.num_not_ready;
    return fail(cudaErrorNotReady);
  }
  num_polls = 0;
  num_spurious = 0;
  tell(StoryEntry::Kind::kHostSaw, kHost, 0, moment);
  host_learns(clock);
  return cudaSuccess;
}

cudaError_t Device::stream_query(cudaStream_t stream) {
  if (const auto code = enter(Function::kStreamQuery)) return *code;
  StreamState* state = find_stream(stream);
  if (state == nullptr) return fail(cudaErrorInvalidResourceHandle);
  const Actor actor = stream_number(stream);
  return query({actor, queue_.enqueued(actor)}, state->clock, state->num_polls,
               state->num_spurious);
}

cudaError_t Device::stream_synchronize(cudaStream_t stream) {
  if (const auto code = enter(Function::kStreamSynchronize)) return *code;
  StreamState* state = find_stream(stream);
  if (state == nullptr) return fail(cudaErrorInvalidResourceHandle);
  const Actor actor = stream_number(stream);
  return wait_for({actor, queue_.enqueued(actor)}, state->clock);
}

void Device::enqueue_wait(Actor stream, Moment moment, const Clock& clock) {
  // Bound now: the moment is copied, so that a later record of the event does not matter.
  streams_[stream].clock.join(clock, queue_.num_actors());
  if (moment.stream == kHost || queue_.is_over(moment)) return;
  Work& work = start_work(stream, Work::Kind::kWait);
  work.waits_for = moment;
  queue_.enqueue(work);
}

cudaError_t Device::stream_wait_event(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  if (const auto code = enter(Function::kStreamWaitEvent)) return *code;
  StreamState* state = find_stream(stream);
  const EventState* waited_for = find_event(event);
  if (state == nullptr || waited_for == nullptr) return fail(cudaErrorInvalidResourceHandle);
  if (flags != 0) return fail(cudaErrorInvalidValue);
  // Never recorded: an empty set of work.
  if (!waited_for->is_recorded) return cudaSuccess;
  tell(StoryEntry::Kind::kWaits, stream_number(stream), handle_of(event).index, waited_for->moment);
  enqueue_wait(stream_number(stream), waited_for->moment, waited_for->clock);
  return cudaSuccess;
}

cudaError_t Device::event_create(cudaEvent_t* event, unsigned int flags) {
  if (const auto code = enter(Function::kEventCreateWithFlags)) return *code;
  constexpr unsigned int kKnown = cudaEventBlockingSync | cudaEventDisableTiming;
  if (event == nullptr || (flags & ~kKnown) != 0) return fail(cudaErrorInvalidValue);
  if (unused_events_.empty()) {
    unused_events_.push_back(static_cast<std::uint32_t>(events_.size()));
    events_.emplace_back();
  }
  const std::uint32_t index = unused_events_.back();
  unused_events_.pop_back();
  EventState& state = events_[index];
  const std::uint32_t generation = state.generation + 1;
  state = {};
  state.generation = generation;
  state.is_live = true;
  state.has_timing = (flags & cudaEventDisableTiming) == 0;
  *event = to_pointer<cudaEvent_t>({index, generation, false});
  return cudaSuccess;
}

cudaError_t Device::event_destroy(cudaEvent_t event) {
  if (const auto code = enter(Function::kEventDestroy)) return *code;
  EventState* state = find_event(event);
  if (state == nullptr) return fail(cudaErrorInvalidResourceHandle);
  state->is_live = false;
  unused_events_.push_back(handle_of(event).index);
  return cudaSuccess;
}

cudaError_t Device::event_record(cudaEvent_t event, cudaStream_t stream) {
  if (const auto code = enter(Function::kEventRecord)) return *code;
  EventState* state = find_event(event);
  const StreamState* recorded = find_stream(stream);
  if (state == nullptr || recorded == nullptr) return fail(cudaErrorInvalidResourceHandle);
  const Actor actor = stream_number(stream);
  state->is_recorded = true;
  state->recorded_at_call = call_;
  state->moment = {actor, queue_.enqueued(actor)};
  // Without what the host knows: whatever is enqueued to wait for it comes from the host too.
  state->clock = recorded->clock;
  state->num_polls = 0;
  state->num_spurious = 0;
  state->num_late = 0;
  tell(StoryEntry::Kind::kRecorded, actor, handle_of(event).index, state->moment);
  if (fault_ != nullptr && fault_->kind == Fault::Kind::kNeverReady) {
    state->moment.hold = queue_.new_hold();
  }
  if (fault_ != nullptr && fault_->kind == Fault::Kind::kReadyLate) state->num_late = fault_->count;
  return cudaSuccess;
}

cudaError_t Device::event_query(cudaEvent_t event) {
  if (const auto code = enter(Function::kEventQuery)) return *code;
  EventState* state = find_event(event);
  if (state == nullptr) return fail(cudaErrorInvalidResourceHandle);
  if (!state->is_recorded) return cudaSuccess;
  if (state->num_late > 0 && queue_.is_over(state->moment)) {
    --state->num_late;
    ++counters_.num_not_ready;
    return fail(cudaErrorNotReady);
  }
  return query(state->moment, state->clock, state->num_polls, state->num_spurious);
}

cudaError_t Device::event_synchronize(cudaEvent_t event) {
  if (const auto code = enter(Function::kEventSynchronize)) return *code;
  const EventState* state = find_event(event);
  if (state == nullptr) return fail(cudaErrorInvalidResourceHandle);
  if (!state->is_recorded) return cudaSuccess;
  return wait_for(state->moment, state->clock);
}

cudaError_t Device::event_elapsed_time(float* ms, cudaEvent_t start, cudaEvent_t end) {
  if (const auto code = enter(Function::kEventElapsedTime)) return *code;
  const EventState* from = find_event(start);
  const EventState* to = find_event(end);
  if (from == nullptr || to == nullptr) return fail(cudaErrorInvalidResourceHandle);
  if (ms == nullptr) return fail(cudaErrorInvalidValue);
  for (const EventState* state : {from, to}) {
    if (!state->is_recorded || !state->has_timing) return fail(cudaErrorInvalidResourceHandle);
  }
  // No edge: this call must not be used to learn about completion.
  if (!queue_.is_over(from->moment) || !queue_.is_over(to->moment)) return fail(cudaErrorNotReady);
  // There is no time here; a microsecond a call keeps figures positive and the same in every run.
  *ms = 1e-3F * static_cast<float>(static_cast<double>(to->recorded_at_call) -
                                   static_cast<double>(from->recorded_at_call));
  return cudaSuccess;
}

}  // namespace kvfence::virtual_device
