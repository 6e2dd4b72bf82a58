/// The calls that enqueue work: what they check, what each piece of it touches.

#include <cstring>
#include <utility>

#include "contract/core/check.h"
#include "cuda/virtual/device.h"
#include "cuda/virtual/handles.h"

namespace kvfence::virtual_device {
namespace {

bool is_device(const Place& place) {
  return place.allocation != nullptr && place.allocation->kind == MemoryKind::kDevice;
}

bool is_kind(cudaMemcpyKind kind) {
  return kind >= cudaMemcpyHostToHost && kind <= cudaMemcpyDefault;
}

bool fits(cudaMemcpyKind kind, bool from_device, bool to_device) {
  switch (kind) {
    case cudaMemcpyHostToHost:
      return !from_device && !to_device;
    case cudaMemcpyHostToDevice:
      return !from_device && to_device;
    case cudaMemcpyDeviceToHost:
      return from_device && !to_device;
    case cudaMemcpyDeviceToDevice:
      return from_device && to_device;
    case cudaMemcpyDefault:
      return true;
  }
  return false;
}

}  // namespace

std::optional<Device::Copy> Device::check_copy(const void* dst, const void* src, std::size_t size,
                                               cudaMemcpyKind kind) {
  if (!is_kind(kind)) {
    fail(cudaErrorInvalidMemcpyDirection);
    return std::nullopt;
  }
  Copy copy{.dst = {}, .src = {}, .size = size};
  if (size == 0) return copy;
  for (const bool is_dst : {true, false}) {
    const void* address = is_dst ? dst : src;
    Place& place = is_dst ? copy.dst : copy.src;
    place = memory_.place(address, size);
    copy.has_host_address |= place.is_host_address;
    if (place.kind == Place::Kind::kInside) continue;
    if (place.kind == Place::Kind::kAstride || address == nullptr) {
      fail(cudaErrorInvalidValue);
      return std::nullopt;
    }
    if (options_.pageable == Pageable::kRefuse) {
      misuse(Misuse::Kind::kPageableMemory);
      fail(cudaErrorInvalidValue);
      return std::nullopt;
    }
    copy.is_pageable = true;
    place.bytes = static_cast<std::byte*>(const_cast<void*>(address));
    place.canonical = reinterpret_cast<std::uintptr_t>(address);
  }
  if (!fits(kind, is_device(copy.src), is_device(copy.dst))) {
    misuse(Misuse::Kind::kWrongDirection);
    fail(cudaErrorInvalidValue);
    return std::nullopt;
  }
  if (copy.dst.canonical < copy.src.canonical + size &&
      copy.src.canonical < copy.dst.canonical + size) {
    misuse(Misuse::Kind::kOverlap);
  }
  return copy;
}

Work& Device::start_work(Actor stream, Work::Kind kind) {
  Work& work = queue_.take();
  work.kind = kind;
  work.function = function_;
  work.stream = stream;
  work.call = call_;
  work.label = label_;
  work.clock = clock_of_next(stream);
  if (fault_ != nullptr && fault_->kind == Fault::Kind::kAsynchronous) {
    work.fails_with = fault_->code;
  }
  return work;
}

void Device::add_entry(Work& work, const Copy& copy, cudaMemcpySrcAccessOrder order,
                       std::uint32_t number) {
  Entry entry;
  entry.dst = copy.dst.bytes;
  entry.src = copy.src.bytes;
  entry.size = copy.size;
  entry.written_max = copy.size;
  entry.may_be_read_early = order == cudaMemcpySrcAccessOrderAny;
  entry.is_read_at_call = order == cudaMemcpySrcAccessOrderDuringApiCall;
  if (fault_ != nullptr && fault_->entry == work.entries.size() && fault_->count < copy.size) {
    if (fault_->kind == Fault::Kind::kShortCopy) entry.written_max -= fault_->count;
    if (fault_->kind == Fault::Kind::kFlippedBit) work.flips = entry.dst + fault_->count;
  }
  work.entries.push_back(entry);
  if (!is_checking() || copy.size == 0) return;

  Access made = describe(copy.dst, copy.size, true);
  made.actor = work.stream;
  made.time = queue_.enqueued(work.stream) + 1;
  made.entry = number;
  if (copy.src.bytes != nullptr) {
    Access read = describe(copy.src, copy.size, false);
    if (entry.is_read_at_call) {
      read.time = host_clock_.seen[kHost];
      access(read, host_clock_);
    } else {
      read.actor = made.actor;
      read.time = made.time;
      read.entry = number;
      read.is_out_of_order = entry.may_be_read_early;
      access(read, entry.may_be_read_early ? host_clock_ : work.clock);
    }
  }
  access(made, work.clock);
}

void Device::enqueue(Work& work) {
  if (work.kind == Work::Kind::kCopy) scheduler_.cut(work);
  queue_.enqueue(work);
  scheduler_.after_enqueue(queue_);
}

void Device::enqueue_undefined(Actor stream) {
  if (fault_ == nullptr || fault_->undefined.empty()) return;
  Work& work = start_work(stream, Work::Kind::kAction);
  for (const MemoryRange& range : fault_->undefined) {
    const Place place = memory_.place(range.address, range.size);
    KVFENCE_CHECK(place.kind == Place::Kind::kInside, "undefined memory of no live allocation");
    work.ranges.push_back({place.bytes, place.bytes + range.size, true});
    Access made = describe(place, range.size, true);
    made.actor = work.stream;
    made.time = queue_.enqueued(work.stream) + 1;
    access(made, work.clock);
  }
  // By value: the work has its ranges no more when it has run.
  work.action = [ranges = work.ranges] {
    for (const ByteRange& range : ranges) {
      auto* begin = const_cast<std::byte*>(range.begin);
      std::memset(begin, kPoisonByte, static_cast<std::size_t>(range.end - range.begin));
    }
  };
  enqueue(work);
}

cudaError_t Device::enqueue_copies(const Copy* copies, std::size_t num_copies, Actor stream) {
  const bool is_pageable = copies->is_pageable;
  enqueue_undefined(stream);
  if (is_partial()) return fail(fault_->code);
  Work& work = start_work(stream, Work::Kind::kCopy);
  for (std::size_t index = 0; index < num_copies; ++index) {
    add_entry(work, copies[index], cudaMemcpySrcAccessOrderStream, 0);
  }
  enqueue(work);
  if (!is_pageable || options_.pageable == Pageable::kAsynchronous) return cudaSuccess;
  const Clock clock = streams_[stream].clock;
  return wait_for({stream, queue_.enqueued(stream)}, clock);
}

cudaError_t Device::launch(cudaStream_t stream, const std::vector<MemoryRange>& reads,
                           const std::vector<MemoryRange>& writes, std::function<void()> function) {
  if (const auto code = enter(Function::kLaunch)) return *code;
  if (find_stream(stream) == nullptr) return fail(cudaErrorInvalidResourceHandle);
  enqueue_undefined(stream_number(stream));
  if (is_partial()) return fail(fault_->code);
  Work& work = start_work(stream_number(stream), Work::Kind::kAction);
  work.action = std::move(function);
  for (const bool is_write : {false, true}) {
    for (const MemoryRange& range : is_write ? writes : reads) {
      const Place place = memory_.place(range.address, range.size);
      if (place.kind != Place::Kind::kInside || place.is_host_address) {
        // A kernel finds out when it runs.
        misuse(place.kind == Place::Kind::kInside ? Misuse::Kind::kHostAddressOnDevice
                                                  : Misuse::Kind::kInvalidAddress);
        work.fails_with = cudaErrorIllegalAddress;
        work.num_runs = 0;
        continue;
      }
      work.ranges.push_back({place.bytes, place.bytes + range.size, is_write});
      Access made = describe(place, range.size, is_write);
      made.actor = work.stream;
      made.time = queue_.enqueued(work.stream) + 1;
      access(made, work.clock);
    }
  }
  enqueue(work);
  return cudaSuccess;
}

extern "C" {

cudaError_t cudaMemcpyAsync(void* dst, const void* src, std::size_t size, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  Device& device = current();
  if (const auto code = device.enter(Function::kMemcpyAsync)) return *code;
  if (device.find_stream(stream) == nullptr) return device.fail(cudaErrorInvalidResourceHandle);
  const std::optional<Device::Copy> copy = device.check_copy(dst, src, size, kind);
  if (!copy) return device.last_error_;
  return device.enqueue_copies(&*copy, 1, device.stream_number(stream));
}

cudaError_t cudaMemcpy2DAsync(void* dst, std::size_t dst_pitch, const void* src,
                              std::size_t src_pitch, std::size_t width, std::size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  Device& device = current();
  if (const auto code = device.enter(Function::kMemcpy2DAsync)) return *code;
  if (device.find_stream(stream) == nullptr) return device.fail(cudaErrorInvalidResourceHandle);
  if (width > dst_pitch || width > src_pitch) return device.fail(cudaErrorInvalidPitchValue);
  device.copies_.clear();
  for (std::size_t row = 0; row < height; ++row) {
    const std::optional<Device::Copy> copy =
        device.check_copy(static_cast<std::byte*>(dst) + row * dst_pitch,
                          static_cast<const std::byte*>(src) + row * src_pitch, width, kind);
    if (!copy) return device.last_error_;
    device.copies_.push_back(*copy);
  }
  if (device.copies_.empty()) return cudaSuccess;
  return device.enqueue_copies(device.copies_.data(), device.copies_.size(),
                               device.stream_number(stream));
}

cudaError_t cudaMemcpyBatchAsync(void* const* dsts, const void* const* srcs,
                                 const std::size_t* sizes, std::size_t count,
                                 cudaMemcpyAttributes* attributes, std::size_t* attribute_starts,
                                 std::size_t num_attributes, cudaStream_t stream) {
  Device& device = current();
  if (const auto code = device.enter(Function::kMemcpyBatchAsync)) return *code;
  if (is_default_stream(stream)) {
    device.misuse(Misuse::Kind::kLegacyStream);
    return device.fail(cudaErrorInvalidValue);
  }
  if (device.find_stream(stream) == nullptr) return device.fail(cudaErrorInvalidResourceHandle);
  if (dsts == nullptr || srcs == nullptr || sizes == nullptr || attributes == nullptr ||
      attribute_starts == nullptr || count == 0 || num_attributes == 0 || num_attributes > count) {
    return device.fail(cudaErrorInvalidValue);
  }
  if (device.options_.batch_entries_max != 0 && count > device.options_.batch_entries_max) {
    return device.fail(cudaErrorInvalidValue);
  }
  for (std::size_t index = 0; index < num_attributes; ++index) {
    const std::size_t start = attribute_starts[index];
    const bool is_in_order = index == 0 ? start == 0 : start > attribute_starts[index - 1];
    const int order = attributes[index].srcAccessOrder;
    const bool is_order =
        order >= cudaMemcpySrcAccessOrderStream && order <= cudaMemcpySrcAccessOrderAny;
    if (!is_in_order || start >= count || !is_order) return device.fail(cudaErrorInvalidValue);
  }
  device.copies_.clear();
  bool has_host_address = false;
  bool is_pageable = false;
  for (std::size_t index = 0; index < count; ++index) {
    // An empty entry is not documented: it is refused here, so that nobody relies on it.
    const std::optional<Device::Copy> copy =
        sizes[index] == 0
            ? std::nullopt
            : device.check_copy(dsts[index], srcs[index], sizes[index], cudaMemcpyDefault);
    if (!copy) return device.fail(cudaErrorInvalidValue);
    has_host_address |= copy->has_host_address;
    is_pageable |= copy->is_pageable;
    device.copies_.push_back(*copy);
  }
  if (device.is_partial() && device.fault_->count < device.copies_.size())
    device.copies_.resize(device.fault_->count);

  const Actor actor = device.stream_number(stream);
  if (!device.is_partial()) device.enqueue_undefined(actor);
  Work& work = device.start_work(actor, Work::Kind::kCopy);
  std::size_t attribute = 0;
  for (std::size_t index = 0; index < device.copies_.size(); ++index) {
    while (attribute + 1 < num_attributes && attribute_starts[attribute + 1] <= index) ++attribute;
    device.add_entry(work, device.copies_[index], attributes[attribute].srcAccessOrder,
                     static_cast<std::uint32_t>(index));
  }
  if (has_host_address) {
    device.misuse(Misuse::Kind::kHostAddressOnDevice);
    work.fails_with = cudaErrorIllegalAddress;
    for (Entry& entry : work.entries) entry.is_orphan = true;
  }
  device.enqueue(work);
  if (device.is_partial()) {
    device.enqueue_undefined(actor);
    return device.fail(device.fault_->code);
  }
  if (!is_pageable || device.options_.pageable == Pageable::kAsynchronous) return cudaSuccess;
  const Clock clock = device.streams_[actor].clock;
  return device.wait_for({actor, device.queue_.enqueued(actor)}, clock);
}

cudaError_t cudaMemsetAsync(void* address, int value, std::size_t size, cudaStream_t stream) {
  Device& device = current();
  if (const auto code = device.enter(Function::kMemsetAsync)) return *code;
  if (device.find_stream(stream) == nullptr) return device.fail(cudaErrorInvalidResourceHandle);
  Device::Copy copy{.dst = device.memory_.place(address, size), .src = {}, .size = size};
  if (copy.dst.kind != Place::Kind::kInside) return device.fail(cudaErrorInvalidValue);
  Work& work = device.start_work(device.stream_number(stream), Work::Kind::kCopy);
  device.add_entry(work, copy, cudaMemcpySrcAccessOrderStream, 0);
  work.entries.back().value = static_cast<std::uint8_t>(value);
  device.enqueue(work);
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* user_data) {
  Device& device = current();
  if (const auto code = device.enter(Function::kLaunchHostFunc)) return *code;
  if (device.find_stream(stream) == nullptr) return device.fail(cudaErrorInvalidResourceHandle);
  if (function == nullptr) return device.fail(cudaErrorInvalidValue);
  Work& work = device.start_work(device.stream_number(stream), Work::Kind::kAction);
  work.action = [function, user_data] { function(user_data); };
  if (device.fault_ != nullptr && device.fault_->kind == Fault::Kind::kDropped) work.num_runs = 0;
  if (device.fault_ != nullptr && device.fault_->kind == Fault::Kind::kDuplicated)
    work.num_runs = 2;
  device.enqueue(work);
  return cudaSuccess;
}

}  // extern "C"

}  // namespace kvfence::virtual_device
